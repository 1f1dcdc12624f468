use std::io;
use std::process::ExitStatus;

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum RulerError {
    /// The command to compare with cannot be started.
    #[error("cannot start `{command}`: {source}")]
    Start { command: String, source: io::Error },
    /// Its output cannot be read.
    #[error("cannot read what `{command}` prints: {source}")]
    Output { command: String, source: io::Error },
    /// The command ended without an answer.
    #[error(
        "`{command}` ended ({status}) without figures; for each repetition it must print a line such as {{\"greedy\": 120.5}}"
    )]
    Silent { command: String, status: ExitStatus },
    /// A figure that is not a positive number.
    #[error("`{command}` says that {name} is {value}; a figure is a positive number")]
    Value { command: String, name: String, value: f64 },
    /// The names of the figures differ from those in the first repetition.
    #[error("`{command}` printed {now} after {first}; it must print the same figures in every repetition")]
    Changed { command: String, first: String, now: String },
    /// The context length of the models is too short for any point.
    #[error("--sweep {axis}: the models hold {limit} tokens, fewer than any of its points needs; shorten --prompt-tokens")]
    NoRoom { axis: &'static str, limit: usize },
}
