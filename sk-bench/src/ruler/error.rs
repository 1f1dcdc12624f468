use std::io;
use std::process::ExitStatus;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulerError {
    /// A command to be held against that does not start.
    #[error("cannot start `{command}`: {source}")]
    Start {
        /// The command.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// Its output cannot be read.
    #[error("cannot read what `{command}` prints: {source}")]
    Output {
        /// The command.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It ended without an answer.
    #[error(
        "`{command}` ended ({status}) without figures; for each repetition it must print a line such as {{\"greedy\": 120.5}}"
    )]
    Silent {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A figure that is none.
    #[error("`{command}` says that {name} is {value}; a figure is a positive number")]
    Value {
        /// The command.
        command: String,
        /// The figure.
        name: String,
        /// What it says.
        value: f64,
    },
    /// Other figures than in the first repetition.
    #[error("`{command}` printed {now} after {first}; it must print the same figures in every repetition")]
    Changed {
        /// The command.
        command: String,
        /// The names it printed first.
        first: String,
        /// Those it printed now.
        now: String,
    },
    /// A shape that leaves no room for what is to be measured.
    #[error("--sweep {axis}: the models hold {limit} tokens, fewer than any of its points needs; shorten --prompt-tokens")]
    NoRoom {
        /// The axis.
        axis: &'static str,
        /// The shorter of the two models' contexts.
        limit: usize,
    },
}
