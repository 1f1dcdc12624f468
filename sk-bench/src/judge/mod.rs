//! Scores of responses on rubrics.
//!
//! A [`Judge`] answers one [`Question`]: how strongly does a response show what a [`Rubric`]
//! describes? [`ChatJudge`] uses a language model behind an OpenAI-compatible endpoint,
//! [`OfflineJudge`] uses preference models, and [`Cached`] caches the scores of another judge.
//! [`run`](run::judge_all) asks a judge all questions and stores the answers in a file, one JSON
//! object per line, from which a later run resumes.
//!
//! The scores of [`Objectives`] and the test–retest [`agreement`](retest::agreement) are computed
//! from those lines.

mod answer;
mod cache;
pub mod candidates;
mod chat;
mod endpoint;
mod error;
mod offline;
mod question;
mod record;
pub mod retest;
mod retry;
pub mod run;
mod table;
mod weighted;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use cache::Cached;
pub use chat::{ChatJudge, ChatSettings, Scoring, Structure};
pub use endpoint::{Endpoint, key_from_env};
pub use error::JudgeError;
pub use offline::OfflineJudge;
pub use question::Question;
pub use record::{Judged, Response, read_judged, read_responses};
pub use retry::Retry;
pub use table::{FrontierTable, check_axes, frontier_csv};

pub use sk_report::objectives::{FLUENCY, Objectives, Rubric, Scale};

/// A scorer of responses.
///
/// [`OfflineJudge`] needs no server and scores only the rubrics that it has models for.
pub trait Judge: Send + Sync {
    /// Returns the identity of the judge. Scores are comparable only if their identities are equal.
    fn identity(&self) -> &Identity;

    /// Returns the score of a response on a rubric, or an abstention.
    ///
    /// # Errors
    /// If the judge cannot be reached. The question has no answer then and can be asked again.
    fn judge(&self, question: &Question<'_>) -> Result<Verdict, JudgeError>;

    /// Ends the waits of questions that other threads ask. From then on, a judge that waits asks
    /// nothing and returns [`JudgeError::Interrupted`].
    fn stop(&self) {}
}

const _: Option<&dyn Judge> = None;

/// A judge and its settings. Scores of different identities are not mixed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The model.
    pub model: String,
    /// How the model's output is turned into a score, such as `integer`.
    pub scoring: String,
    /// The scale of the model's answers, unless a rubric has its own; `None` if the answer is a
    /// probability. Scores are always in [0, 1].
    #[serde(with = "scale")]
    pub scale: Option<Scale>,
    /// Everything else that can change a score.
    pub settings: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, scoring, scale, settings } = self;
        let scale = scale.map_or_else(String::new, |scale| format!("scale {scale}, "));
        write!(f, "{model} ({scoring}, {scale}{settings})")
    }
}

/// Serialisation of a scale as two numbers, `[0, 10]`. Earlier records hold a text: `"0-10"`, or
/// words for no scale.
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

/// The answer of a judge to one question.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// A score.
    Score(Score),
    /// The reason why there is no score. It is recorded and never replaced by a number.
    Abstention(String),
    /// An abstention because no score can be read from the judge's answer.
    Unreadable {
        /// What is wrong with it.
        reason: String,
        /// The judge's last answer.
        reply: String,
    },
}

/// A score with its details.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The score in [0, 1]. A greater value means more of what the rubric describes.
    pub value: f64,
    /// The reason given by the judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Total probability that the model gives to the scores of the scale, for log-probability
    /// scoring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mass: Option<f64>,
}
