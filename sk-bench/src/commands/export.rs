//! `swiss-knife export`: writes the bundled model as files that other programs can load.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sk_models::assets::{self, Embedded};
use sk_models::local::ModelError;

use crate::args::written;
use crate::{Error, message, output};

const EXAMPLES: &str = "\
Examples:
  # Write the model that ships, and serve it with vLLM
  swiss-knife export model
  vllm serve model/backbone --served-model-name base --enable-lora --max-loras 4 \\
      --lora-modules helpful=model/blades/helpful honest=model/blades/honest

  # Steer it there
  swiss-knife generate \"How do I apologise to a friend?\" --tokenizer model/backbone \\
      --backbone vllm+http://localhost:8000#base --blade helpful=lora:helpful";

/// Options of `export`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// The folder to write to, which is made; it gets backbone, drafter and blades/NAME.
    ///
    /// They are Hugging Face and PEFT directories, which transformers, vLLM and SGLang load.
    #[arg(value_name = "DIR", value_parser = written())]
    directory: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: &ExportArgs) -> Result<(), Error> {
    let embedded = assets::embedded().ok_or(ModelError::NothingEmbedded)?;
    let root = &args.directory;
    let undo = || ["backbone", "drafter", "blades"].iter().for_each(|part| drop(fs::remove_dir_all(root.join(part))));
    output::fill_folder(root, || write(&embedded, root), undo)
}

/// Writes the models and blades to a folder.
fn write(embedded: &Embedded, root: &Path) -> Result<(), Error> {
    let blades = embedded.blades().into_iter().map(|name| (Path::new("blades").join(name), embedded.blade(name)));
    let models = [("backbone".into(), embedded.backbone()), ("drafter".into(), embedded.drafter())];
    for (name, source) in models.into_iter().chain(blades) {
        let directory: PathBuf = root.join(name);
        fs::create_dir_all(&directory).map_err(Error::writing(&directory))?;
        for (file, bytes) in assets::files(&source) {
            output::write(&directory.join(file), bytes)?;
        }
        message::note(&format!("wrote {}", directory.display()));
    }
    Ok(())
}
