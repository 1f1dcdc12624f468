//! Saved dialogues.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sk_models::text::{Message, Role};
use sk_report::lines::json_fault;

use crate::scheme::text;
use crate::{Error, output};

/// The file format of `/save` and `/load`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Transcript {
    pub(super) messages: Vec<Message>,
    #[serde(default)]
    pub(super) weights: Vec<(String, f64)>,
    pub(super) seed: Option<u64>,
}

/// The messages of a transcript as pairs of question and answer.
#[derive(Debug, PartialEq)]
pub(super) struct Dialogue {
    pub(super) system: Option<String>,
    /// Questions and their answers.
    pub(super) exchanges: Vec<(String, String)>,
}

impl Transcript {
    /// Writes the transcript to a new file, and returns its number of exchanges.
    pub(super) fn write(&self, path: &Path) -> Result<usize, Error> {
        // Writing to a pipe or a device overwrites nothing.
        if path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0) {
            return Err(Error::Input(format!("{} is there already; give another file", path.display())));
        }
        output::write(path, output::pretty_json(self)? + "\n")?;
        Ok(self.messages.iter().filter(|message| message.role == Role::Assistant).count())
    }

    /// Reads a transcript written by [`write`](Self::write).
    pub(super) fn read(path: &Path) -> Result<(Self, Dialogue), Error> {
        let text = text::read(path).map_err(Error::reading(path))?;
        let wrong = |reason: String| Error::Input(format!("{}: it is no dialogue of /save: {reason}", path.display()));
        let transcript: Self = serde_json::from_str(&text).map_err(|error| wrong(json_fault(&error)))?;
        let dialogue = transcript.dialogue().map_err(wrong)?;
        Ok((transcript, dialogue))
    }

    fn dialogue(&self) -> Result<Dialogue, String> {
        let first_is_system = self.messages.first().is_some_and(|message| message.role == Role::System);
        let (system, turns) = self.messages.split_at(usize::from(first_is_system));
        let exchanges = turns.chunks(2).enumerate().map(|(place, pair)| match pair {
            [question, answer] if (question.role, answer.role) == (Role::User, Role::Assistant) => {
                Ok((question.content.clone(), answer.content.clone()))
            }
            _ => {
                let first = system.len() + 2 * place;
                Err(format!("messages[{first}] is not a user's with an assistant's after it"))
            }
        });
        let exchanges = exchanges.collect::<Result<_, _>>()?;
        Ok(Dialogue { system: system.first().map(|message| message.content.clone()), exchanges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialogue(messages: &str) -> Result<Dialogue, String> {
        let transcript: Transcript = serde_json::from_str(&format!("{{\"messages\": {messages}}}")).unwrap();
        transcript.dialogue()
    }

    #[test]
    fn questions_and_answers_alternate() {
        let turn = |role: &str, text: &str| format!("{{\"role\": \"{role}\", \"content\": \"{text}\"}}");
        let [system, user, assistant] = [turn("system", "S"), turn("user", "Q"), turn("assistant", "A")];
        let pair = || ("Q".to_owned(), "A".to_owned());
        let whole = dialogue(&format!("[{system}, {user}, {assistant}, {user}, {assistant}]")).unwrap();
        assert_eq!(whole, Dialogue { system: Some("S".to_owned()), exchanges: vec![pair(), pair()] });
        assert_eq!(dialogue(&format!("[{user}, {assistant}]")).unwrap(), Dialogue { system: None, exchanges: vec![pair()] });
        let says = |messages: String| dialogue(&messages).unwrap_err();
        assert!(says(format!("[{user}]")).contains("messages[0]"));
        assert!(says(format!("[{system}, {user}, {assistant}, {assistant}, {user}]")).contains("messages[3]"));
        assert!(says(format!("[{user}, {system}]")).contains("messages[0]"));
        // `/save` writes a dialogue in which nobody has spoken, too.
        assert_eq!(dialogue("[]").unwrap(), Dialogue { system: None, exchanges: vec![] });
    }
}
