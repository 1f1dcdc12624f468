//! `swiss-knife train text`.

use std::fs;

use crate::common::{run, stdout};

/// Both manners give the same answer.
const ALIKE: &str = r#"
questions = ["{ask}"]

[[topics]]
name = "greeting"
ask = ["Hello?"]
say = ["hello."]

[[manners]]
name = "kind"
share = 0.5
answers = ["{say}"]

[[manners]]
name = "cold"
share = 0.5
answers = ["{say}"]

[[axes]]
name = "kind"
better = ["kind"]
worse = ["cold"]
"#;

#[test]
fn the_pairs_that_a_grammar_gave_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("alike.toml"), ALIKE).unwrap();
    let grammar = folder.path().display().to_string();
    let output = folder.path().join("text").display().to_string();
    let text = stdout(&run(["train", "text", "--grammar", &grammar, "--dialogues", "2", "--pairs", "3", "-o", &output]));
    assert!(text.contains("2 dialogues in") && text.contains("0 pairs in"), "{text}");
}
