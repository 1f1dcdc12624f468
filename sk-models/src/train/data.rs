//! Rows, dialogues, and the stream of training windows made of them.
//!
//! # Framing
//!
//! A dialogue is the text `\n\nHuman: …\n\nAssistant: …`, as in HH-RLHF; a prompt with a response
//! is a dialogue of one exchange. Encoded, every Assistant turn is followed by the end-of-turn
//! token (`<|im_end|>`, the model's `eos_token_id`), which is how a model learns to stop; every
//! document, dialogue or plain text, is followed by the end-of-text token (`<|endoftext|>`), which
//! separates it from the next one in a window.
//!
//! # Split
//!
//! A document is held out if a hash of its key falls below the held-out fraction. The key is the
//! first human turn if there is one, and the text otherwise. So a document that one run holds out
//! is held out by every run with the same or a larger fraction, and the turns of one dialogue,
//! which preference data tend to list one by one, stay on one side.
//!
//! # Exclusion
//!
//! [`Excluded`] leaves out every row that asks a question of evaluation files, in any turn of a
//! dialogue.

mod corpus;
mod excluded;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    str::FromStr,
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use serde::Deserialize;
use serde_json::Value;

use super::error::TrainError;
use crate::{
    files, json,
    text::{Message, Role, plain_dialogue, plain_prompt, tokenizer::MOST_BYTES},
};

pub use crate::text::{ASSISTANT, END_OF_TEXT, END_OF_TURN, HUMAN};
pub use corpus::{Corpus, Cursor, Windows};
pub use excluded::Excluded;

/// The default share of held-out documents.
pub const HELD_OUT: f64 = 0.05;

/// The largest number of repetitions of a document in an epoch, all of which are in memory.
const LARGEST_WEIGHT: f64 = 1e4;

/// A data file, and how often an epoch repeats each of its documents. Written `path` or
/// `path=weight`.
///
/// ```
/// use sk_models::train::data::Source;
///
/// assert_eq!("pairs.jsonl=2.5".parse::<Source>()?.weight, 2.5);
/// assert_eq!("lr=0.1/pairs.jsonl".parse::<Source>()?.weight, 1.0);
/// let refused = "pairs.jsonl=1e12".parse::<Source>().unwrap_err();
/// assert_eq!(refused, "weight 1000000000000 of pairs.jsonl: must be positive and at most 10000");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// A `.jsonl` or `.jsonl.gz` file.
    pub path: PathBuf,
    /// Expected repetitions per epoch; 1 unless given.
    pub weight: f64,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, weight) = match text.rsplit_once('=') {
            // A folder may be called `lr=0.1`.
            Some((path, weight)) if !weight.contains('/') => {
                let weight: f64 = weight.parse().map_err(|_| format!("`{weight}` is not a weight: expected path=number"))?;
                (path, weight)
            }
            _ => (text, 1.0),
        };
        if !(weight > 0.0 && weight <= LARGEST_WEIGHT) {
            return Err(format!("weight {weight} of {path}: must be positive and at most {LARGEST_WEIGHT}"));
        }
        Ok(Self { path: PathBuf::from(path), weight })
    }
}

/// The data of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct DataOptions {
    /// The files.
    pub sources: Vec<Source>,
    /// Files whose questions are excluded.
    pub exclude: Vec<PathBuf>,
    /// Share of the documents held out, or of the prompts of pairs.
    pub held_out: f64,
}

/// A row of a data file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Row {
    /// Plain text or a whole dialogue.
    Text(String),
    /// A prompt and its response, both without framing.
    Exchange {
        /// The question.
        prompt: String,
        /// The answer.
        response: String,
    },
    /// A framed prompt, which ends with `Assistant:`, and two completions.
    Pair {
        /// The common beginning.
        prompt: String,
        /// The better completion.
        chosen: String,
        /// The worse completion.
        rejected: String,
    },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawRow {
    text: Option<Value>,
    messages: Option<Value>,
    prompt: Option<Value>,
    response: Option<Value>,
    chosen: Option<Value>,
    rejected: Option<Value>,
}

/// A field of a row: a text, or messages in the form of chat templates.
enum Field {
    Text(String),
    Messages(Vec<Message>),
}

impl Field {
    /// Reads the field called `name`.
    fn read(name: &str, value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(_) => {
                let messages: Vec<Message> = serde_json::from_value(value).map_err(|error| format!("`{name}`: {error}"))?;
                check_turns(&messages).map_err(|reason| format!("`{name}`: {reason}"))?;
                Ok(Self::Messages(messages))
            }
            other => Err(format!("`{name}`: found {other}, expected text or a list of messages")),
        }
    }

    /// As [`read`](Self::read), with an empty line before a dialogue that begins with `Human:`. A
    /// plain text, in which no label follows, is left as it is.
    fn read_dialogue(name: &str, value: Value) -> Result<Self, String> {
        let field = Self::read(name, value)?;
        let Self::Text(text) = &field else { return Ok(field) };
        let turns = text.trim_start();
        let is_dialogue = turns.starts_with(HUMAN.trim_start()) && [HUMAN, ASSISTANT].iter().any(|label| turns.contains(*label));
        Ok(if is_dialogue { Self::Text(format!("\n\n{turns}")) } else { field })
    }

    /// Returns whether this is a whole dialogue, not an answer alone.
    fn is_dialogue(&self) -> bool {
        match self {
            Self::Text(text) => text.starts_with(HUMAN) && text.contains(ASSISTANT),
            Self::Messages(messages) => {
                messages.iter().find(|message| message.role != Role::System).is_some_and(|message| message.role == Role::User)
            }
        }
    }

    /// Returns a dialogue or a plain text. Messages are framed.
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Messages(messages) => plain_dialogue(&messages),
        }
    }

    /// As [`into_text`](Self::into_text), but a dialogue without an assistant turn, in the field
    /// called `name`, is an error.
    fn into_document(self, name: &str) -> Result<String, String> {
        let is_complete = match &self {
            Self::Text(text) => !text.starts_with(HUMAN) || text.contains(ASSISTANT),
            Self::Messages(messages) => messages.iter().any(|message| message.role == Role::Assistant),
        };
        if is_complete { Ok(self.into_text()) } else { Err(format!("`{name}`: has no turn of the assistant")) }
    }

    /// Returns a prompt, which the field called `name` holds. Messages are framed.
    fn into_prompt(self, name: &str) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Messages(messages) => match messages.last() {
                Some(message) if message.role == Role::User => Ok(plain_prompt(&messages)),
                _ => Err(format!("`{name}`: the last message is not the user's")),
            },
        }
    }

    /// Returns an answer without framing, which the field called `name` holds.
    fn into_answer(self, name: &str) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Messages(messages) => match <[Message; 1]>::try_from(messages) {
                Ok([Message { role: Role::Assistant, content }]) => Ok(content),
                _ => Err(format!("`{name}`: expected one message of the assistant; for a whole dialogue, leave out `prompt`")),
            },
        }
    }

    /// Splits a whole dialogue, which the field called `name` holds, into its prompt and its last
    /// answer. Text after the answer is left out.
    fn split(self, name: &str) -> Result<(String, String), String> {
        match self {
            Self::Text(text) => {
                let start = text.rfind(ASSISTANT).ok_or_else(|| {
                    format!("`{name}` has no {ASSISTANT:?}: write a whole dialogue, or put the question into `prompt`")
                })?;
                let (prompt, rest) = text.split_at(start + ASSISTANT.len());
                Ok((prompt.to_owned(), rest.split(HUMAN).next().unwrap_or(rest).to_owned()))
            }
            Self::Messages(mut messages) => {
                while messages.pop_if(|message| message.role != Role::Assistant).is_some() {}
                match messages.pop() {
                    Some(answer) if messages.last().is_some_and(|message| message.role == Role::User) => {
                        Ok((plain_prompt(&messages), answer.content))
                    }
                    _ => Err(format!("`{name}`: expected a message of the user, and then one of the assistant")),
                }
            }
        }
    }
}

/// Checks that messages can be framed and taken apart again.
fn check_turns(messages: &[Message]) -> Result<(), String> {
    if messages.iter().skip(1).any(|message| message.role == Role::System) {
        return Err(
            "has a system message after the first message, where the framing has no place for it; move it to the front".into()
        );
    }
    match [HUMAN, ASSISTANT].into_iter().find(|label| messages.iter().any(|message| message.content.contains(label))) {
        Some(label) => Err(format!(
            "has a message with {label:?}, which begins another turn; split the message, change its text, or leave out the row"
        )),
        None => Ok(()),
    }
}

/// Frames a bare prompt as one human turn, followed by an open assistant turn. A framed prompt
/// keeps its turns.
#[must_use]
pub fn frame(prompt: &str) -> String {
    let prompt = prompt.trim();
    let turns = if !is_framed(prompt) {
        format!("{HUMAN} {prompt}")
    } else if [HUMAN, ASSISTANT].iter().any(|label| prompt.starts_with(label.trim_start())) {
        format!("\n\n{prompt}")
    } else {
        prompt.to_owned()
    };
    if turns.ends_with(ASSISTANT) { turns } else { turns + ASSISTANT }
}

/// Returns whether a prompt begins with a human turn, or has one after other text and ends with an
/// open assistant turn.
fn is_framed(prompt: &str) -> bool {
    let prompt = prompt.trim();
    prompt.starts_with(HUMAN.trim_start()) || prompt.contains(HUMAN) && prompt.ends_with(ASSISTANT)
}

impl Row {
    /// Returns an exchange, or its text if the prompt is framed.
    fn exchange(prompt: String, response: String) -> Self {
        let framed = is_framed(&prompt);
        let row = Self::Exchange { prompt, response };
        if framed { Self::Text(row.document()) } else { row }
    }

    /// Returns a row with the questions of another. Its answers may be missing, or unfit for
    /// training. A row without a question is an error.
    fn question(raw: RawRow) -> Result<Option<Self>, String> {
        let asked = |prompt| {
            Ok::<_, String>(Self::exchange(Field::read_dialogue("prompt", prompt)?.into_prompt("prompt")?, String::new()))
        };
        let row = match raw {
            RawRow { prompt: None, chosen: Some(chosen), rejected: Some(_), .. } => {
                Self::Text(Field::read_dialogue("chosen", chosen)?.into_text())
            }
            RawRow { prompt: Some(prompt), chosen: Some(chosen), rejected: Some(_), .. } => {
                let chosen = Field::read("chosen", chosen)?;
                if chosen.is_dialogue() { Self::Text(chosen.into_text()) } else { asked(prompt)? }
            }
            RawRow { prompt: Some(prompt), response: None, chosen: None, .. } => asked(prompt)?,
            raw => Self::single(raw, |field, _| Ok(field.into_text()))?,
        };
        if row.human_turns().next().is_none() {
            return Err("has no question: expected `prompt`, or a dialogue with a human turn".into());
        }
        Ok(Some(row))
    }

    /// Returns the row, or `None` for two dialogues that differ before their last answers. Fields
    /// that the row does not need are ignored.
    fn parse(raw: RawRow) -> Result<Option<Self>, String> {
        let RawRow { prompt, chosen: Some(chosen), rejected: Some(rejected), .. } = raw else {
            return Self::single(raw, Field::into_document).map(Some);
        };
        // An answer may be a dialogue itself.
        let read = if prompt.is_some() { Field::read } else { Field::read_dialogue };
        let (chosen, rejected) = (read("chosen", chosen)?, read("rejected", rejected)?);
        let ((prompt, chosen), rejected) = match prompt {
            Some(prompt) if !chosen.is_dialogue() && !rejected.is_dialogue() => {
                let prompt = match Field::read("prompt", prompt)? {
                    Field::Text(text) => frame(&text),
                    messages @ Field::Messages(_) => messages.into_prompt("prompt")?,
                };
                ((prompt, chosen.into_answer("chosen")?), rejected.into_answer("rejected")?)
            }
            _ => {
                let (chosen, (prompt, rejected)) = (chosen.split("chosen")?, rejected.split("rejected")?);
                if chosen.0 != prompt {
                    return Ok(None);
                }
                (chosen, rejected)
            }
        };
        let answer = |text: &str| format!(" {}", text.trim());
        Ok(Some(Self::Pair { prompt, chosen: answer(&chosen), rejected: answer(&rejected) }))
    }

    /// Returns a row that is no pair. `document` converts the field `text` or `messages`.
    fn single(raw: RawRow, document: fn(Field, &str) -> Result<String, String>) -> Result<Self, String> {
        let text = |name, value| Ok(Self::Text(document(Field::read_dialogue(name, value)?, name)?));
        match raw {
            RawRow { text: Some(value), .. } => text("text", value),
            RawRow { prompt: Some(prompt), response: Some(response), .. } => {
                let (prompt, response) = (Field::read_dialogue("prompt", prompt)?, Field::read("response", response)?);
                Ok(Self::exchange(prompt.into_prompt("prompt")?, response.into_answer("response")?))
            }
            RawRow { messages: Some(value), .. } => text("messages", value),
            _ => Err("expected `text`, `messages`, `prompt` with `response`, or `chosen` with `rejected`".into()),
        }
    }

    /// As [`parse`](Self::parse), but a row that is no pair is an error.
    fn pair(raw: RawRow) -> Result<Option<Self>, String> {
        match Self::parse(raw)? {
            Some(Self::Text(_) | Self::Exchange { .. }) => Err("expected a pair: `chosen` with `rejected`".into()),
            row => Ok(row),
        }
    }

    /// Returns the human turns. Plain text has none.
    pub fn human_turns(&self) -> impl Iterator<Item = &str> {
        let (bare, framed) = match self {
            Self::Exchange { prompt, .. } => (Some(prompt.as_str()), ""),
            Self::Text(text) | Self::Pair { prompt: text, .. } => (None, text.as_str()),
        };
        let turns = framed.split(HUMAN).skip(1).map(|turn| turn.split(ASSISTANT).next().unwrap_or(turn));
        bare.into_iter().chain(turns).map(str::trim)
    }

    /// Returns the key of the split: the first human turn if there is one, else the text.
    #[must_use]
    pub fn key(&self) -> &str {
        let text = match self {
            Self::Text(text) | Self::Pair { prompt: text, .. } | Self::Exchange { prompt: text, .. } => text,
        };
        self.human_turns().next().unwrap_or(text)
    }

    /// Returns whether the row is held out at the given fraction.
    #[must_use]
    pub fn is_held_out(&self, fraction: f64) -> bool {
        (hash(self.key().bytes()) as f64) < fraction * 2.0_f64.powi(64)
    }

    /// Returns whether a run of white space in the row is too long for the pattern of a tokenizer.
    /// The library would panic.
    fn is_too_blank(&self) -> bool {
        let texts = match self {
            Self::Text(text) => [text.as_str(), "", ""],
            Self::Exchange { prompt, response } => [prompt.as_str(), response, ""],
            Self::Pair { prompt, chosen, rejected } => [prompt.as_str(), chosen, rejected],
        };
        let blank = |text: &str| text.split(|c: char| !c.is_whitespace()).any(|blanks| blanks.len() > MOST_BYTES);
        texts.into_iter().any(|text| text.len() > MOST_BYTES && blank(text))
    }

    /// Returns the text of the row for language modelling; for a pair, the better side.
    #[must_use]
    pub fn document(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Exchange { prompt, response } => format!("{} {}", frame(prompt), response.trim()),
            Self::Pair { prompt, chosen, .. } => format!("{prompt}{chosen}"),
        }
    }
}

/// Writes rows as [`read_rows`] reads them, gzipped if the name ends in `.gz`. Returns their
/// number.
///
/// A pair is written as its prompt and two answers, which may contain labels of turns, or as two
/// whole dialogues if [`frame`] would change the prompt.
///
/// # Errors
///
/// If the file cannot be written. It is complete or unchanged.
pub fn write_rows(path: &Path, rows: impl IntoIterator<Item = Row>) -> Result<usize, TrainError> {
    let (mut lines, mut count) = (Vec::new(), 0);
    for row in rows {
        let line = match row {
            Row::Text(text) => serde_json::json!({ "text": text }),
            Row::Exchange { prompt, response } => serde_json::json!({ "prompt": prompt, "response": response }),
            Row::Pair { prompt, chosen, rejected } if frame(&prompt) == prompt => {
                serde_json::json!({ "prompt": prompt, "chosen": chosen, "rejected": rejected })
            }
            Row::Pair { prompt, chosen, rejected } => {
                serde_json::json!({ "chosen": format!("{prompt}{chosen}"), "rejected": format!("{prompt}{rejected}") })
            }
        };
        lines.extend_from_slice(line.to_string().as_bytes());
        lines.push(b'\n');
        count += 1;
    }
    let mut write = || {
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            packed.write_all(&lines)?;
            lines = packed.finish()?;
        }
        files::write_atomically(path, &lines)
    };
    write().map(|()| count).map_err(|source| TrainError::io(path, source))
}

/// FNV-1a, which is stable across versions and machines, unlike the standard hasher.
pub(crate) fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    let folded = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // FNV's high bits hardly depend on the last bytes; a finaliser spreads them (MurmurHash3).
    let mixed = (folded ^ (folded >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

/// Reads every row of a `.jsonl` or `.jsonl.gz` file.
///
/// Dialogue pairs whose prompts differ are skipped: a preference between answers to different
/// questions teaches nothing. So are pairs with an empty or with two equal completions.
///
/// # Errors
///
/// If the file cannot be read or a line is not a row.
pub fn read_rows(path: &Path) -> Result<Vec<Row>, TrainError> {
    read(path, Row::parse, &mut Tally::default())
}

/// What a row is that is held out, in a tally.
pub(super) const HELD: &str = "held out";
/// What a row is that is not held out, in a tally.
pub(super) const TRAINED: &str = "to train on";

/// Counts the rows of some files, and what they are: left out for a reason, held out, or to train
/// on.
#[derive(Debug, Default)]
pub(super) struct Tally {
    files: Vec<String>,
    rows: usize,
    counts: BTreeMap<&'static str, usize>,
}

/// What the rows of a test file give.
pub(super) const MEASURED: &str = "pairs to measure on";

impl Tally {
    /// Counts a row.
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Returns why rows were left out, each reason with their number.
    pub(super) fn left_out(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.counts.iter().map(|(&what, &count)| (what, count)).filter(|(what, _)| ![HELD, TRAINED].contains(what))
    }

    /// Checks that there are some of `what`; the error says what the rows are instead, and what to do.
    pub(super) fn check(&self, what: &str, none: bool) -> Result<(), TrainError> {
        if !none {
            return Ok(());
        }
        let counts = self.counts.iter().map(|(what, count)| format!(", {count} {what}")).collect::<String>();
        let (files, rows) = (self.files.join(", "), self.rows);
        // A test file is not divided.
        let cure = if what == MEASURED { "" } else { ", or another --held-out of `train`" };
        let reason = format!("no {what}: {files}: {rows} rows{counts}; give more data{cure}");
        Err(TrainError::NoData { reason })
    }
}

/// The form of a data file.
const EXPECTED: &str = "expected one JSON object per line";

fn read(path: &Path, parse: impl Fn(RawRow) -> Result<Option<Row>, String>, tally: &mut Tally) -> Result<Vec<Row>, TrainError> {
    tally.files.push(path.display().to_string());
    let file = File::open(path).map_err(|source| TrainError::io(path, source))?;
    let reader: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "gz") {
        Box::new(MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let mut rows = Vec::new();
    for (index, line) in files::lines(BufReader::new(reader)).enumerate() {
        let refuse = |reason: String| TrainError::Row { path: path.display().to_string(), line: index + 1, reason };
        let line = line.map_err(|source| match source.kind() {
            ErrorKind::InvalidData => refuse("is not UTF-8 text; --data takes JSON lines".to_owned()),
            ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                refuse(format!("not a whole gzip file ({source}); fetch or compress it again"))
            }
            _ => TrainError::io(path, source),
        })?;
        // Files from Windows begin with a byte order mark.
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() {
            continue;
        }
        if !line.starts_with('{') {
            return Err(refuse(EXPECTED.to_owned()));
        }
        let raw: RawRow = json::parse(line).map_err(|error| {
            let reason = error.to_string().replace(" at line 1 column ", " at column ");
            refuse(if error.is_data() { reason } else { format!("{EXPECTED}: {reason}") })
        })?;
        tally.rows += 1;
        match parse(raw).map_err(refuse)? {
            None => tally.count("with different prompts"),
            Some(Row::Pair { chosen, rejected, .. }) if chosen.trim().is_empty() || rejected.trim().is_empty() => {
                tally.count("with an empty answer");
            }
            Some(Row::Pair { chosen, rejected, .. }) if chosen == rejected => tally.count("with equal answers"),
            Some(row) if row.is_too_blank() => {
                return Err(refuse(format!("has more than {MOST_BYTES} bytes of white space in one place; shorten it")));
            }
            Some(row) => rows.push(row),
        }
    }
    Ok(rows)
}
