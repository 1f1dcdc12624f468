//! Completion with the Tab key.

use std::path::{MAIN_SEPARATOR, Path};

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::command::NAMES;
use crate::scheme::parameters;

/// The data for completions.
pub(super) struct Completions {
    /// The seated blades.
    pub(super) blades: Vec<String>,
}

impl Completions {
    /// Returns the start of the last word of a line, and its possible completions.
    fn of(&self, line: &str) -> (usize, Vec<String>) {
        let Some(command) = line.strip_prefix('/') else { return (0, Vec::new()) };
        let Some((name, rest)) = command.split_once(' ') else {
            return (1, beginning_with(command, NAMES.iter().map(|name| format!("{name} "))));
        };
        let rest = rest.trim_start();
        let start = line.len() - rest.len();
        let blades = || self.blades.iter().cloned();
        match (name, rest.split_once(' ')) {
            ("explain", None) => (start, beginning_with(rest, ["on", "full", "off"].map(str::to_owned))),
            ("unseat", None) => (start, beginning_with(rest, blades())),
            ("swap", None) => (start, beginning_with(rest, blades().map(|blade| blade + " "))),
            ("weights", _) => {
                let last = rest.rsplit(',').next().unwrap_or(rest);
                (line.len() - last.len(), beginning_with(last, blades().map(|blade| blade + "=")))
            }
            ("set", None) => (start, beginning_with(rest, self.fields())),
            ("save" | "load", _) => files(rest, start),
            ("seat", _) | ("swap", Some(_)) => match rest.split_once('=') {
                Some((_, path)) => files(path, line.len() - path.len()),
                None => (line.len(), Vec::new()),
            },
            _ => (line.len(), Vec::new()),
        }
    }

    /// Returns the numeric fields of a scheme, and β of each blade.
    fn fields(&self) -> impl Iterator<Item = String> {
        let of_slots = parameters::ALL.iter().filter(|parameter| !["blades", "gates"].contains(&parameter.section));
        let of_slots = of_slots.map(|parameter| format!("{}.{}=", parameter.section, parameter.field));
        of_slots.chain(self.blades.iter().map(|blade| format!("blades.{blade}.beta=")))
    }
}

fn beginning_with(beginning: &str, words: impl IntoIterator<Item = String>) -> Vec<String> {
    words.into_iter().filter(|word| word.starts_with(beginning)).collect()
}

/// Returns the files and folders that complete the last component of `path`.
fn files(path: &str, start: usize) -> (usize, Vec<String>) {
    let name = path.rsplit(std::path::is_separator).next().unwrap_or(path);
    let folder = &path[..path.len() - name.len()];
    let entries = std::fs::read_dir(if folder.is_empty() { Path::new(".") } else { Path::new(folder) });
    let named = entries.into_iter().flatten().flatten().filter_map(|entry| {
        let found = entry.file_name().into_string().ok()?;
        // Hidden files are offered only if the dot was typed.
        let shown = found.starts_with(name) && (name.starts_with('.') || !found.starts_with('.'));
        shown.then(|| if entry.path().is_dir() { format!("{found}{MAIN_SEPARATOR}") } else { found })
    });
    let mut named: Vec<String> = named.collect();
    named.sort();
    (start + folder.len(), named)
}

impl Completer for Completions {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = self.of(&line[..pos]);
        let pair = |word: String| Pair { display: word.trim_end().to_owned(), replacement: word };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completions {
    type Hint = String;
}
impl Highlighter for Completions {}
impl Validator for Completions {}
impl Helper for Completions {}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (usize, Vec<String>) {
        Completions { blades: vec!["helpful".to_owned(), "honest".to_owned(), "harmless".to_owned()] }.of(line)
    }

    #[test]
    fn commands_and_their_words_are_completed() {
        assert_eq!(of("/we"), (1, vec!["weights ".to_owned()]));
        assert_eq!(of("/s").1, ["seat ", "swap ", "set ", "seed ", "save "]);
        assert_eq!(of("/explain f"), (9, vec!["full".to_owned()]));
        assert_eq!(of("/unseat h").1, ["helpful", "honest", "harmless"]);
        assert_eq!(of("/swap ho").1, ["honest "]);
        assert_eq!(of("/weights helpful=1,ho"), (19, vec!["honest=".to_owned()]));
        assert_eq!(of("/set selector.temp").1, ["selector.temperature="]);
        assert_eq!(of("/set blades.ho").1, ["blades.honest.beta="]);
        for nothing in ["", "Hello /we", "/wrong x", "/weights helpful=0.", "/seat new", "/explain off x"] {
            assert!(of(nothing).1.is_empty(), "{nothing}");
        }
    }

    #[test]
    fn files_are_completed_and_folders_end_in_a_separator() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("two words")).unwrap();
        for name in ["tale.json", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let path = format!("{}{MAIN_SEPARATOR}", folder.path().display());
        let words = vec!["tale.json".to_owned(), format!("two words{MAIN_SEPARATOR}")];
        assert_eq!(of(&format!("/load {path}t")), (6 + path.len(), words.clone()));
        assert_eq!(of(&format!("/save {path}")).1, words);
        assert_eq!(of(&format!("/seat calm={path}two")), (11 + path.len(), words[1..].to_vec()));
        assert_eq!(of(&format!("/swap honest calm={path}two w")).1, words[1..]);
        assert_eq!(of(&format!("/load {path}.h")).1, [".hidden"]);
        assert!(of("/load /no/such/folder/").1.is_empty());
    }
}
