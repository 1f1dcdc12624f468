//! Traces: one JSON object per step, one per line.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sk_core::{ArmTrace, Decision, ScoreTrace, Seconds, SpanEnd, StepTrace, TokenId, Traffic};
use sk_models::text::Tokenizer;
use sk_models::whole_file::WholeFile;

use crate::Error;
use crate::certificates::StepCertificate;
use crate::scheme::SchemeSpec;

/// Maximum number of candidates of a vocabulary that are shown and recorded. The most likely ones
/// suffice to see what happened.
pub(crate) const MOST: usize = 16;

/// A recorded step: [`StepTrace`] with the text of each candidate, and times in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct StepRecord<'a> {
    /// Position of the response in the dialogue, from 0.
    pub turn: usize,
    /// Position of the step in the response, from 0.
    pub step: usize,
    /// Number of tokens of the context before the candidates.
    pub position: usize,
    /// N, the number of candidates of the step. A [`kept`] step may record only some of them.
    pub n: usize,
    /// The candidates that were scored, in the order of the proposal.
    pub candidates: Vec<CandidateRecord<'a>>,
    /// The candidates that were drafted and not scored, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unscored: Vec<CandidateRecord<'a>>,
    /// The first batch, if its choice was replaced by that of the fallback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedRecord<'a>>,
    /// Scores of each blade of positive weight.
    pub blades: &'a [ScoreTrace],
    /// ℓ_S of each candidate in nats per token, if a fluency blade is seated.
    pub fluency: Option<&'a [f64]>,
    /// Composites, ratings, probabilities and the candidate drawn.
    #[serde(flatten)]
    pub decision: &'a Decision,
    /// The choices of other arms from the same candidates, if any.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub arms: &'a [ArmTrace],
    /// The number of tokens that a server returned, if it returned only the most likely ones. Their
    /// probabilities were divided by their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// The network traffic to the servers of the models, if any.
    #[serde(skip_serializing_if = "Traffic::is_none")]
    pub traffic: Traffic,
    /// The certificate of the choice, or the reason why there is none.
    pub certificate: StepCertificate,
    /// Wall time of each part of the step.
    pub seconds: Seconds,
}

/// The rejected first batch of a [`StepRecord`].
#[derive(Debug, Serialize)]
pub(crate) struct RejectedRecord<'a> {
    /// The candidates that were scored.
    pub candidates: Vec<CandidateRecord<'a>>,
    /// Scores of each blade.
    pub blades: &'a [ScoreTrace],
    /// Composites, ratings, probabilities and the candidate drawn.
    #[serde(flatten)]
    pub decision: &'a Decision,
}

/// One candidate of a [`StepRecord`].
#[derive(Debug, Serialize)]
pub(crate) struct CandidateRecord<'a> {
    /// Its text. A span may end inside a character; an incomplete character is shown as U+FFFD. The
    /// tokens are exact.
    pub text: String,
    pub tokens: &'a [TokenId],
    /// Why it ends.
    pub end: SpanEnd,
    /// The number of its tokens that were scored, if not all were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scored: Option<usize>,
}

/// Returns the part of a step of `scheme` that a trace records. It is the whole step if spans are
/// drafted. For a vocabulary, only the most likely candidates and the drawn one are kept, since ten
/// whole steps take hundreds of megabytes.
#[must_use]
pub(crate) fn kept<'s>(step: &'s StepTrace, scheme: &SchemeSpec) -> Cow<'s, StepTrace> {
    if is_whole(scheme) { Cow::Borrowed(step) } else { Cow::Owned(most_probable(step)) }
}

/// Returns whether a trace records every candidate of the steps of `scheme`.
#[must_use]
pub(crate) fn is_whole(scheme: &SchemeSpec) -> bool {
    scheme.proposal.draft().is_some()
}

/// Returns the indices of the candidates that are shown, in order: all if there are few, or else
/// the most likely ones, the drawn one, and those that other arms choose.
pub(crate) fn shown(decision: &Decision, arms: &[ArmTrace]) -> Vec<usize> {
    let by_arms: Vec<usize> = arms.iter().map(|arm| arm.decision.chosen).collect();
    decision.most_likely(MOST, &by_arms)
}

/// Returns a step with only its most likely candidates and those that arms chose.
fn most_probable(step: &StepTrace) -> StepTrace {
    let kept = shown(&step.decision, &step.arms);
    let pick = |values: &[f64]| kept.iter().map(|&i| values[i]).collect::<Vec<f64>>();
    let blade = |blade: &ScoreTrace| ScoreTrace {
        name: blade.name.clone(),
        weight: blade.weight,
        mu: pick(&blade.mu),
        sigma: pick(&blade.sigma),
    };
    let decision = |decision: &Decision| Decision {
        weights: decision.weights.clone(),
        mu: pick(&decision.mu),
        sigma: pick(&decision.sigma),
        ratings: pick(&decision.ratings),
        probabilities: pick(&decision.probabilities),
        chosen: kept.iter().position(|&i| i == decision.chosen).unwrap_or_default(),
    };
    let arm = |arm: &ArmTrace| ArmTrace {
        name: arm.name.clone(),
        blades: arm.blades.iter().map(blade).collect(),
        fluency: arm.fluency.as_deref().map(pick),
        decision: decision(&arm.decision),
    };
    StepTrace {
        step: step.step,
        position: step.position,
        candidates: kept.iter().map(|&i| step.candidates[i].clone()).collect(),
        blades: step.blades.iter().map(blade).collect(),
        fluency: step.fluency.as_deref().map(pick),
        decision: decision(&step.decision),
        arms: step.arms.iter().map(arm).collect(),
        // A vocabulary is not searched and has no fallback.
        unscored: Vec::new(),
        rejected: None,
        head: step.head,
        traffic: step.traffic,
        seconds: step.seconds,
    }
}

impl<'a> StepRecord<'a> {
    /// Returns the record of a step.
    pub(crate) fn new(turn: usize, trace: &'a StepTrace, certificate: StepCertificate, tokenizer: &Tokenizer) -> Self {
        let record = |c: &'a sk_core::CandidateTrace| CandidateRecord {
            text: span_text(tokenizer, &c.tokens),
            tokens: &c.tokens,
            end: c.end,
            scored: c.scored,
        };
        let rejected = trace.rejected.as_ref().map(|batch| RejectedRecord {
            candidates: batch.candidates.iter().chain(&batch.unscored).map(record).collect(),
            blades: &batch.blades,
            decision: &batch.decision,
        });
        Self {
            turn,
            step: trace.step,
            position: trace.position,
            n: trace.candidates.len(),
            candidates: trace.candidates.iter().map(record).collect(),
            unscored: trace.unscored.iter().map(record).collect(),
            rejected,
            blades: &trace.blades,
            fluency: trace.fluency.as_deref(),
            decision: &trace.decision,
            arms: &trace.arms,
            head: trace.head,
            traffic: trace.traffic,
            certificate,
            seconds: trace.seconds,
        }
    }
}

/// Returns the text of a span, with special tokens spelled out. A token that the tokenizer does not
/// know (an embedding may have spare rows) has no text.
pub(crate) fn span_text(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| tokenizer.token_bytes(token).unwrap_or_default()).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A trace being written.
///
/// The file appears at its path when the run ends. An earlier trace survives a run that fails before
/// its first step is written.
pub(crate) struct TraceFile {
    path: PathBuf,
    file: WholeFile,
    is_empty: bool,
}

impl TraceFile {
    /// Starts a trace that will be moved to `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let file = WholeFile::create(path).map_err(Error::writing(path))?;
        Ok(Self { path: path.to_owned(), file, is_empty: true })
    }

    /// Adds a record, or nothing if it cannot be written.
    pub(crate) fn write(&mut self, record: &StepRecord<'_>) -> Result<(), Error> {
        let line = serde_json::to_vec(record).map_err(std::io::Error::from);
        line.and_then(|mut line| {
            line.push(b'\n');
            self.file.append(&line)
        })
        .map_err(Error::writing(&self.path))?;
        self.is_empty = false;
        Ok(())
    }

    /// Completes the trace and moves it to its path, also after an error. A trace without a step does
    /// not replace an earlier one, unless the run was `complete`.
    pub(crate) fn finish(self, complete: bool) -> Result<(), Error> {
        if self.is_empty && !complete {
            return Ok(());
        }
        self.file.finish().map_err(Error::writing(&self.path))
    }
}
