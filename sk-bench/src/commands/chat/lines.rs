use std::io::{self, IsTerminal, Stdin};

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::Error;

const PROMPT: &str = "> ";

/// Where the user's lines come from: an editor on a terminal, plain lines from a pipe.
pub(super) enum Lines {
    Terminal(Box<DefaultEditor>),
    Pipe(Stdin),
}

impl Lines {
    pub(super) fn new() -> Self {
        let editor = if io::stdin().is_terminal() { DefaultEditor::new().ok() } else { None };
        editor.map_or_else(|| Self::Pipe(io::stdin()), |editor| Self::Terminal(Box::new(editor)))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<String>, Error> {
        let failed = |source| Error::Read { path: "standard input".into(), source };
        match self {
            Self::Pipe(stdin) => {
                let mut line = String::new();
                let read = stdin.read_line(&mut line).map_err(failed)?;
                Ok((read > 0).then_some(line))
            }
            Self::Terminal(editor) => match editor.readline(PROMPT) {
                Ok(line) => {
                    // A line that cannot be remembered is still a line.
                    let _ = editor.add_history_entry(&line);
                    Ok(Some(line))
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
                Err(ReadlineError::Io(source)) => Err(failed(source)),
                Err(other) => Err(failed(io::Error::other(other))),
            },
        }
    }
}
