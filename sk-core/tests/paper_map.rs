//! The paper map, the deviations and the theory of the book name items and tests as `path::name`.
//! Each of them must exist.

use std::fs;
use std::path::Path;

/// The inline code of a Markdown text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether `name` occurs in `source` as a whole word, outside of comments.
fn names(source: &str, name: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    source.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(name).any(|(at, _)| !line[..at].ends_with(in_word) && !line[at + name.len()..].starts_with(in_word))
    })
}

#[test]
fn every_item_and_test_of_the_paper_map_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut missing = Vec::new();
    let mut checked = 0;
    for page in ["docs/src/paper-map.md", "docs/src/deviations.md", "docs/src/theory.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        for reference in quoted(&text).filter(|code| code.contains(".rs")) {
            let (path, name) = reference.split_once("::").unwrap_or((reference, ""));
            checked += 1;
            if !fs::read_to_string(root.join(path)).is_ok_and(|source| names(&source, name)) {
                missing.push(format!("{page}: {reference}"));
            }
        }
    }
    assert!(missing.is_empty(), "not found:\n{}", missing.join("\n"));
    // Without this check, a map from which no names are read would pass.
    assert!(checked > 100, "{checked}");
}

#[test]
fn names_are_whole_words_outside_of_comments() {
    assert!(names("pub fn draw() {}", "draw") && names("const A: B = B { x }", "x"));
    assert!(!names("fn drawn() {}", "draw") && !names("fn _draw() {}", "draw") && !names("/// draw", "draw"));
}
