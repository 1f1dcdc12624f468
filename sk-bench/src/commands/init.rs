//! `swiss-knife init`: creates a folder with an experiment that is ready to run.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sk_models::assets::QUESTIONS;

use crate::args::written;
use crate::shell::word;
use crate::{Error, output};

const EXAMPLES: &str = "\
Examples:
  # A plan, a scheme and prompts, and the commands that lead from them to a report
  swiss-knife init experiment";

/// The files: name, description and contents.
const FILES: [(&str, &str, &str); 3] = [
    ("frontier.toml", "the plan: which schemes answer which prompts at which weights", include_str!("init/frontier.toml")),
    ("mine.toml", "a scheme to change", include_str!("init/mine.toml")),
    ("prompts.jsonl", "sixty questions that the model that ships was not trained on", QUESTIONS),
];

/// Options of `init`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct InitArgs {
    /// The folder, which is created; it must not hold anything.
    #[arg(value_name = "DIR", value_parser = written())]
    folder: PathBuf,
}

/// Writes the files and prints the commands that use them.
pub(crate) fn run(args: &InitArgs) -> Result<(), Error> {
    let folder = &args.folder;
    let files = FILES.map(|(name, _, text)| (folder.join(name), text.into()));
    let undo = || files.iter().for_each(|(path, _)| drop(fs::remove_file(path)));
    output::fill_folder(folder, || output::write_together(&files), undo)?;
    output::print_lines(&next(folder))
}

/// Describes the written files and the commands that lead to a report.
fn next(folder: &Path) -> String {
    // A word that begins with a hyphen would be read as an option.
    let folder = if folder.to_string_lossy().starts_with('-') { &Path::new(".").join(folder) } else { folder };
    let path = |name: &str| word(&folder.join(name).to_string_lossy());
    let mut text = String::new();
    for (name, what, _) in FILES {
        text += &format!("{}: {what}\n", folder.join(name).display());
    }
    let [plan, records, judged] = ["frontier.toml", "frontier.jsonl", "judged.jsonl"].map(path);
    let [results, html] = ["results", "report.html"].map(path);
    text + &format!(
        "\nNext:\n\
         swiss-knife sweep {plan}\n\
         swiss-knife judge {records} -o {judged} --offline\n\
         swiss-knife judge table {judged} -o {results}\n\
         swiss-knife report {results} --records {records} --html {html}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_begins_with_a_hyphen_is_no_option() {
        let text = next(Path::new("-runs"));
        assert!(text.contains("swiss-knife sweep ./-runs/frontier.toml\n"), "{text}");
        assert!(next(Path::new("runs")).contains("swiss-knife sweep runs/frontier.toml\n"));
    }

    #[test]
    fn a_folder_below_a_file_is_not_reported_as_existing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let said = |folder: PathBuf| run(&InitArgs { folder }).unwrap_err().to_string();
        assert!(said(file.path().to_owned()).contains("is not a folder"));
        assert!(said(file.path().join("runs")).contains("Not a directory"));
    }
}
