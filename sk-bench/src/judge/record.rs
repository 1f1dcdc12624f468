//! Records of responses and judgements, one JSON object per line.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

use super::{Identity, JudgeError, Question, Verdict};
use crate::record_file::Record;
use sk_report::record::{RecordError, SweepRecord, json_lines};

/// Number of hexadecimal digits in the digest of a response.
const DIGITS: usize = 16;

/// A response to be judged. Fields that are not named here are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The id of the response, unique in its file.
    pub id: String,
    /// The dialogue before the response.
    pub prompt: String,
    /// The text of the response.
    pub response: String,
    /// The scheme that generated it, such as `swiss` or `best-of-n`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The weights, by blade name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
    /// The id of the prompt. Responses to the same prompt are not independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    /// The seed that it was generated with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Response {
    /// Returns a short digest of prompt and response, which ties a judgement to its text.
    pub fn digest(&self) -> String {
        let digest = Sha256::new().chain_update(&self.prompt).chain_update([0]).chain_update(&self.response).finalize();
        format!("{digest:.DIGITS$x}")
    }
}

impl From<&SweepRecord> for Response {
    fn from(record: &SweepRecord) -> Self {
        Self {
            id: record.id.clone(),
            prompt: record.prompt.clone(),
            response: record.response.clone(),
            scheme: Some(record.scheme.clone()),
            weights: record.weights.clone(),
            prompt_id: Some(record.prompt_id.clone()),
            seed: Some(record.seed),
        }
    }
}

/// Reads responses from JSON lines, gzipped or not, in the order of the file.
///
/// # Errors
/// If the file cannot be read or holds no response, a line is not a response, or two responses have
/// the same id. Errors name file and line.
pub fn read_responses(path: &Path) -> Result<Vec<Response>, JudgeError> {
    let (mut responses, mut ids) = (Vec::new(), HashMap::new());
    for read in json_lines::<Response>(path, "")? {
        let (line, response) = read?;
        if let Some(earlier) = ids.insert(response.id.clone(), line) {
            let reason = format!("id \"{}\" is taken by line {earlier}", response.id);
            return Err(RecordError::line(path, line, reason).into());
        }
        responses.push(response);
    }
    if responses.is_empty() {
        return Err(JudgeError::Invalid(format!("{}: it holds no response", path.display())));
    }
    Ok(responses)
}

/// A judgement of one response on one rubric in one pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The id of the response.
    pub id: String,
    /// Its scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Its weights.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
    /// Its prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    /// Its seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// [`Response::digest`] of the text judged.
    pub digest: String,
    /// The rubric.
    pub rubric: String,
    /// The version of its text.
    pub rubric_version: u32,
    /// The objective it counts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// Number of the pass.
    pub pass: u32,
    /// The identity of the judge.
    pub judge: Identity,
    /// The score in [0, 1]; null if the judge abstained.
    #[serde(deserialize_with = "share")]
    pub score: Option<f64>,
    /// Why there is no score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abstention: Option<String>,
    /// The judge's answer, if no score can be read from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// The reason given by the judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Total probability of the scores of the scale, for log-probability scoring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mass: Option<f64>,
    /// Time that the answer took, in seconds.
    pub seconds: f64,
}

/// Deserializes an optional number in [0, 1].
fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    match Option::<f64>::deserialize(from)? {
        Some(score) if !(0.0..=1.0).contains(&score) => {
            Err(D::Error::custom(format!("score is {score}; it must lie between 0 and 1")))
        }
        score => Ok(score),
    }
}

impl Record for Judged {
    const FIRST: &str = "id";
    const IS_NOT: &str = "it is not a judgement";
}

/// Reads judgements from JSON lines, gzipped or not, in the order of the file.
///
/// # Errors
/// If the file cannot be read or a line is not a judgement. Errors name file and line.
pub fn read_judged(path: &Path) -> Result<Vec<Judged>, JudgeError> {
    json_lines(path, "it is not a judgement (`judge` writes judgements of responses): ")?.map(|read| Ok(read?.1)).collect()
}

impl Judged {
    /// Returns the record of a verdict.
    pub fn new(
        response: &Response,
        question: &Question<'_>,
        axis: Option<String>,
        judge: &Identity,
        verdict: Verdict,
        seconds: f64,
    ) -> Self {
        let (score, abstention, reply) = match verdict {
            Verdict::Score(score) => (Some(score), None, None),
            Verdict::Abstention(reason) => (None, Some(reason), None),
            Verdict::Unreadable { reason, reply } => (None, Some(reason), Some(reply)),
        };
        Self {
            id: response.id.clone(),
            scheme: response.scheme.clone(),
            weights: response.weights.clone(),
            prompt_id: response.prompt_id.clone(),
            seed: response.seed,
            digest: response.digest(),
            rubric: question.rubric.name.clone(),
            rubric_version: question.rubric.version,
            axis,
            pass: question.pass,
            judge: judge.clone(),
            score: score.as_ref().map(|score| score.value),
            mass: score.as_ref().and_then(|score| score.mass),
            reason: score.and_then(|score| score.reason),
            abstention,
            reply,
            seconds,
        }
    }
}
