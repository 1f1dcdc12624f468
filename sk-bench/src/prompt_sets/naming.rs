//! Names of prompt files.

use std::path::Path;

/// Returns the name of a file. If it is generic, such as `test.jsonl`, the name of the folder is
/// prepended.
pub(super) fn name(path: &Path) -> String {
    let last = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let file = last(path);
    match path.parent().map(last) {
        Some(folder) if matches!(without_extensions(&file), "test" | "train" | "validation") && !folder.is_empty() => {
            format!("{folder}/{file}")
        }
        _ => file,
    }
}

/// Returns the name of a file in the ids of its prompts: its [`name`] without extensions.
pub(super) fn stem(path: &Path) -> String {
    let name = name(path);
    match name.split_once('/') {
        Some((folder, file)) => format!("{folder}/{}", without_extensions(file)),
        None => without_extensions(&name).to_owned(),
    }
}

fn without_extensions(file: &str) -> &str {
    file.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_file_names_include_the_folder() {
        assert_eq!(stem(Path::new("data/helpful-base/test.jsonl.gz")), "helpful-base/test");
        assert_eq!(stem(Path::new("truthfulqa/TruthfulQA-v1.csv")), "TruthfulQA-v1");
        assert_eq!(stem(Path::new("test.jsonl")), "test");
        assert_eq!(name(Path::new("data/v1.2/harmless-base/test.jsonl.gz")), "harmless-base/test.jsonl.gz");
        assert_eq!(name(Path::new("/data/xstest/xstest_prompts.csv")), "xstest_prompts.csv");
    }
}
