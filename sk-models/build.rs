//! Lists the files under `assets/` for `src/assets.rs` to embed.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=assets");
    let mut files = Vec::new();
    let assets = Path::new("assets");
    if env::var_os("CARGO_FEATURE_EMBEDDED_MODEL").is_some() && assets.is_dir() {
        collect(assets, &mut files)?;
    }
    files.sort();
    let root = env::current_dir()?;
    let mut list =
        String::from("/// Path under `assets/` and contents of each embedded file.\nconst FILES: &[(&str, &[u8])] = &[\n");
    for file in files {
        let name = file.strip_prefix(assets).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        writeln!(list, "    ({name:?}, include_bytes!({:?})),", root.join(&file)).map_err(io::Error::other)?;
    }
    list.push_str("];\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    fs::write(Path::new(&out).join("assets.rs"), list)
}

/// The files of a model; what documents it stays out of the binary.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "json" || e == "safetensors" || e == "jinja") {
            files.push(path);
        }
    }
    Ok(())
}
