use std::path::PathBuf;
use std::str::FromStr;

use sk_report::grid::Grid;

use crate::args::not_standard_output;
use crate::explain::Detail;
use crate::models::Source;
use crate::scheme::{FieldEdit, NamedWeights};
use crate::suggest;

/// The commands and what they do.
const COMMANDS: [[&str; 2]; 15] = [
    ["/weights", "show the weights"],
    ["/weights NAME=W,…", "set them; they are scaled to sum to one"],
    ["/blades", "list the seated blades"],
    [
        "/seat NAME=DIR",
        "load an adapter and seat it; the others keep their proportions. An instruction is seated as NAME=instruction:TEXT",
    ],
    ["/unseat NAME", "drop a blade"],
    ["/swap OLD NEW=DIR", "put another adapter in a blade's seat, with its weight and settings"],
    ["/set SLOT.FIELD=VALUE", "set a field of the scheme, such as selector.temperature=0.5"],
    ["/explain on|full|off", "show each step, briefly or as a table"],
    ["/again", "answer the last question once more, with the next seed"],
    ["/undo", "take the last question and its answer back"],
    ["/new", "start another dialogue"],
    ["/seed N", "restart the draws from this seed"],
    ["/save FILE", "write the dialogue as JSON to a new file"],
    ["/load FILE", "go on from a dialogue that was saved"],
    ["/quit", "leave (or Ctrl-D)"],
];

/// The commands, without their `/`.
pub(super) const NAMES: [&str; 15] = [
    "help", "weights", "blades", "seat", "unseat", "swap", "set", "explain", "again", "undo", "new", "seed", "save", "load",
    "quit",
];

/// Returns the text of `/help` on lines of at most `width` columns.
pub(super) fn help(width: usize) -> String {
    let mut grid = Grid::new(["command", "what it does"]);
    COMMANDS.into_iter().for_each(|row| grid.row(row));
    grid.render(width)
}

/// A parsed line that begins with `/`.
#[derive(Debug, PartialEq)]
pub(super) enum ChatCommand {
    Help,
    Quit,
    New,
    Weights(Option<NamedWeights>),
    Blades,
    Seat(Source),
    Unseat(String),
    Swap(String, Source),
    Set(FieldEdit),
    Explain(Option<Detail>),
    Again,
    Undo,
    Save(PathBuf),
    Load(PathBuf),
    Seed(u64),
}

impl FromStr for ChatCommand {
    type Err = String;

    /// Parses a line without its `/`.
    fn from_str(line: &str) -> Result<Self, String> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let needs = |what: &str| format!("/{name} needs {what}; /help lists the commands");
        let given = |what: &str| if rest.is_empty() { Err(needs(what)) } else { Ok(rest) };
        if !rest.is_empty() && ["help", "quit", "exit", "new", "blades", "again", "undo"].contains(&name) {
            return Err(format!("/{name} takes nothing after it"));
        }
        match name {
            "help" => Ok(Self::Help),
            "quit" | "exit" => Ok(Self::Quit),
            "new" => Ok(Self::New),
            "blades" => Ok(Self::Blades),
            "weights" if rest.is_empty() => Ok(Self::Weights(None)),
            "weights" => rest.parse().map(|weights| Self::Weights(Some(weights))),
            "seat" => given("NAME=DIR")?.parse().map(Self::Seat),
            "unseat" => Ok(Self::Unseat(given("the name of a blade")?.to_owned())),
            "swap" => match given("OLD NEW=DIR")?.split_once(char::is_whitespace) {
                Some((old, new)) => Ok(Self::Swap(old.to_owned(), new.trim().parse()?)),
                None => Err(needs("OLD NEW=DIR")),
            },
            "explain" => match rest {
                "on" | "brief" => Ok(Self::Explain(Some(Detail::Brief))),
                "full" => Ok(Self::Explain(Some(Detail::Full))),
                "off" => Ok(Self::Explain(None)),
                _ => Err(needs("on, full or off")),
            },
            "set" => given("SLOT.FIELD=VALUE, such as selector.temperature=0.5")?.parse().map(Self::Set),
            "again" => Ok(Self::Again),
            "undo" => Ok(Self::Undo),
            "save" => {
                let path = not_standard_output(given("the name of a file")?.into());
                Ok(Self::Save(path.map_err(|reason| format!("/save: {reason}"))?))
            }
            "load" => Ok(Self::Load(given("the name of a file")?.into())),
            "seed" => rest.parse().map(Self::Seed).map_err(|_| needs("a whole number from 0 to 18446744073709551615")),
            _ => Err(format!("unknown command \"/{name}\"; {}", suggest::hint(name, NAMES))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parsed_and_mistakes_are_recognised() {
        assert_eq!("quit".parse(), Ok(ChatCommand::Quit));
        assert_eq!("weights".parse(), Ok(ChatCommand::Weights(None)));
        assert_eq!("weights a=1".parse(), Ok(ChatCommand::Weights(Some("a=1".parse().unwrap()))));
        assert_eq!("swap a b=c d".parse(), Ok(ChatCommand::Swap("a".into(), "b=c d".parse().unwrap())));
        assert_eq!("explain on".parse(), Ok(ChatCommand::Explain(Some(Detail::Brief))));
        assert_eq!("seed 7".parse(), Ok(ChatCommand::Seed(7)));
        assert_eq!("set selector.top_k=5".parse(), Ok(ChatCommand::Set("selector.top_k=5".parse().unwrap())));
        assert_eq!("load a b.json".parse(), Ok(ChatCommand::Load("a b.json".into())));
        for (wrong, says) in [
            ("wieghts", "did you mean \"weights\"?"),
            ("swap a", "OLD NEW=DIR"),
            ("seat", "NAME=DIR"),
            ("set", "/set needs SLOT.FIELD=VALUE"),
            ("set selector=5", "names no field"),
            ("load", "the name of a file"),
            ("save -", "/save: `-` is not standard output here; give a name, such as ./-"),
            ("explain maybe", "on, full or off"),
            ("seed x", "whole number"),
            ("seed -1", "a whole number from 0 to 18446744073709551615"),
            ("quit now", "/quit takes nothing after it"),
            ("undo 2", "/undo takes nothing after it"),
        ] {
            let error = wrong.parse::<ChatCommand>().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn help_names_every_command() {
        for name in NAMES.iter().filter(|name| **name != "help") {
            assert!(help(80).contains(&format!("/{name}")), "{name}");
            let known = name.parse::<ChatCommand>().map_or_else(|error| !error.contains("unknown"), |_| true);
            assert!(known, "{name}");
        }
    }

    #[test]
    fn help_fits_the_terminal() {
        for width in [50, 80, 200] {
            let text = help(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(text.contains("/swap OLD NEW=DIR") && text.contains("NAME=instruction:TEXT"), "{text}");
        }
        assert_eq!(help(200).lines().count(), COMMANDS.len() + 2);
    }
}
