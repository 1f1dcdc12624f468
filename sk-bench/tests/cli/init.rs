//! `swiss-knife init`, and the commands from its files to a report.

use std::fs;

use crate::common::{assert_refused, program, run, stderr, stdout};
use crate::html::Document;

/// The commands of the first block in the README's section "Experiments"; the first is `init`.
fn commands() -> Vec<Vec<String>> {
    let section = include_str!("../../../README.md").split("\n## Experiments\n").nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let words = |line: &str| {
        let command = line.split('#').next().unwrap();
        command.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    block.lines().map(words).collect()
}

#[test]
fn the_commands_of_the_readme_lead_to_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[String]| stdout(&program().current_dir(folder.path()).args(words).output().unwrap());
    let commands = commands();
    assert_eq!(commands[0][0], "init");
    let printed = run(&commands[0]);
    let next: Vec<Vec<String>> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("swiss-knife "))
        .map(|command| command.split_whitespace().map(str::to_owned).collect())
        .collect();
    assert_eq!(next, commands[1..], "what is printed is what the README says");

    // A smaller plan with the same sections.
    let plan = folder.path().join("experiment/frontier.toml");
    let mut text = fs::read_to_string(&plan).unwrap();
    for (field, smaller) in [("count = 20", "count = 5"), ("max_new_tokens = 64", "max_new_tokens = 6")] {
        assert!(text.contains(field), "{text}");
        text = text.replace(field, smaller);
    }
    fs::write(&plan, text).unwrap();
    for command in &next {
        run(command);
    }
    let page = fs::read_to_string(folder.path().join("experiment/report.html")).unwrap();
    let document = Document::parse(&page).unwrap_or_else(|fault| panic!("{fault}"));
    let methods = document.csv("methods");
    for scheme in ["swiss-knife", "mine", "drafter"] {
        assert!(methods.lines().any(|line| line.starts_with(scheme)), "{methods}");
    }
}

#[test]
fn a_folder_that_holds_something_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    stdout(&run(["init", empty.to_str().unwrap()]));
    assert_refused(&run(["init", empty.to_str().unwrap()]), &["empty", "give a new or an empty folder"]);
    let file = folder.path().join("file");
    fs::write(&file, "kept").unwrap();
    assert_refused(&run(["init", file.to_str().unwrap()]), &["file", "give a new or an empty folder"]);
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
}

#[test]
fn after_a_full_disk_the_same_command_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let (new, itself) = (folder.path().join("new"), program().get_program().to_owned());
    let full = ["-c", "ulimit -f 2; exec \"$0\" init \"$1\""];
    let output = std::process::Command::new("sh").args(full).arg(itself).arg(&new).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("prompts.jsonl") && !new.exists(), "{}", stderr(&output));
    stdout(&run(["init", new.to_str().unwrap()]));
}
