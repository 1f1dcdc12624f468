//! Scores for responses, rubric by rubric.
//!
//! A [`Judge`] answers one [`Question`]: how much of what a [`Rubric`] names is there in this
//! response? [`ChatJudge`] asks a language model behind an OpenAI-compatible endpoint,
//! [`OfflineJudge`] preference models, [`Cached`] remembers what any judge said, and
//! [`run`](run::judge_all) puts all questions to a judge and keeps the answers in a [`Journal`],
//! one JSON line each, from which a later run goes on.
//!
//! The scores of [`Objectives`] and the test–retest [`agreement`](retest::agreement) are computed
//! from those lines.

mod answer;
mod cache;
pub mod candidates;
mod chat;
mod endpoint;
mod error;
mod journal;
mod offline;
mod question;
mod record;
pub mod retest;
mod retry;
pub mod run;
mod table;
mod weighted;

use serde::{Deserialize, Serialize};

pub use cache::Cached;
pub use chat::{ChatJudge, ChatSettings, Scoring, Structure};
pub use endpoint::{Endpoint, Key};
pub use error::JudgeError;
pub use journal::Journal;
pub use offline::OfflineJudge;
pub use question::Question;
pub use record::{Judged, Response, read_judged, read_responses};
pub use retry::Retry;
pub use table::frontier_csv;

pub use sk_report::objectives::{FLUENCY, Objectives, Rubric, Scale};

/// Something that scores responses.
///
/// [`OfflineJudge`], which needs no server, brings rubrics of its own and scores those.
pub trait Judge: Send + Sync {
    /// Who judges, and how: what makes two scores comparable.
    fn identity(&self) -> &Identity;

    /// The score of a response on a rubric, or the statement that this judge gives none.
    ///
    /// # Errors
    /// When the judge could not be asked. Nothing is known about the response then, and the
    /// question may be put again.
    fn judge(&self, question: &Question<'_>) -> Result<Verdict, JudgeError>;
}

const _: Option<&dyn Judge> = None;

/// A judge and its settings. Scores of different identities are not mixed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The model.
    pub model: String,
    /// How a score is made of what the model says, such as `integer`.
    pub scoring: String,
    /// The scale that the model answers on, unless a rubric has its own; none where the answer is a
    /// probability. Scores are in [0, 1] whatever it is.
    #[serde(with = "scale")]
    pub scale: Option<Scale>,
    /// Everything else that can change a score.
    pub settings: String,
}

/// A scale as two numbers, `[0, 10]`. Earlier records have it as a text, `"0-10"`, or words that are
/// none.
mod scale {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Scale;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Numbers([u8; 2]),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(scale: &Option<Scale>, to: S) -> Result<S::Ok, S::Error> {
        scale.map(|scale| [scale.low(), scale.high()]).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Scale>, D::Error> {
        match Option::deserialize(from)? {
            Some(Written::Numbers([low, high])) => format!("{low}-{high}").parse().map(Some).map_err(serde::de::Error::custom),
            Some(Written::Text(text)) => Ok(text.parse().ok()),
            None => Ok(None),
        }
    }
}

/// What a judge says to one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A score.
    Score(Score),
    /// No score, and why. It is recorded and never replaced by a number.
    Abstention(String),
    /// An abstention of a judge that answered, where no score can be read from the answer.
    Unreadable {
        /// What is wrong with it.
        reason: String,
        /// What the judge wrote last.
        reply: String,
    },
}

/// A score, and what came with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// In [0, 1]; more is more of what the rubric names.
    pub value: f64,
    /// What the judge gave as its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Probability that the model put on the scores of the scale together, where scores are
    /// weighted by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mass: Option<f64>,
}
