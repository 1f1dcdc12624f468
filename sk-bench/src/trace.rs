//! Traces: one JSON object per step, in lines.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sk_core::{ArmTrace, Decision, ScoreTrace, Seconds, SpanEnd, StepTrace, TokenId, Traffic};
use sk_models::text::Tokenizer;
use sk_models::whole_file::WholeFile;

use crate::Error;
use crate::promise::StepPromise;
use crate::scheme::SchemeSpec;

/// Candidates that are shown, and kept in a trace: of a vocabulary, the likeliest are enough to see
/// what happened.
pub(crate) const MOST: usize = 16;

/// A step as it stands in a trace: [`StepTrace`] with the text of each candidate, and times in
/// seconds.
#[derive(Debug, Serialize)]
pub struct StepRecord<'a> {
    /// Position of the response in the dialogue, from 0.
    pub turn: usize,
    /// Position of the step in the response, from 0.
    pub step: usize,
    /// Tokens of the context that the candidates continue.
    pub position: usize,
    /// N, candidates of the step, of which a [`kept`] one has a part.
    pub n: usize,
    /// The candidates that were scored, in the order of the proposal.
    pub candidates: Vec<CandidateRecord<'a>>,
    /// The candidates that were drafted and not scored, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unscored: Vec<CandidateRecord<'a>>,
    /// The batch before, if its choice gave way to that of the fallback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedRecord<'a>>,
    /// Scores of each blade of positive weight.
    pub blades: &'a [ScoreTrace],
    /// ℓ_S of each candidate in nats per token, where a fluency blade is seated.
    pub fluency: Option<&'a [f64]>,
    /// Composites, ratings, probabilities and the candidate drawn.
    #[serde(flatten)]
    pub decision: &'a Decision,
    /// What other arms make of the same candidates, where there are any.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub arms: &'a [ArmTrace],
    /// Where only the likeliest tokens of the vocabulary were to be had from a server, how many they
    /// are; their probabilities were divided by their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// What went over the network, where models are behind servers.
    #[serde(skip_serializing_if = "Traffic::is_none")]
    pub traffic: Traffic,
    /// Within which radius the choice is certified, or why it is not.
    pub certificate: StepPromise,
    /// Wall time of each part of the step.
    pub seconds: Seconds,
}

/// The batch of a [`StepRecord`] whose choice was not good enough.
#[derive(Debug, Serialize)]
pub struct RejectedRecord<'a> {
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
pub struct CandidateRecord<'a> {
    /// Its text. A span may end inside a character; what is not whole is U+FFFD here, and the
    /// tokens are the truth.
    pub text: String,
    /// Its tokens.
    pub tokens: &'a [TokenId],
    /// Why it ends.
    pub end: SpanEnd,
    /// How many of its tokens were scored, if not all were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scored: Option<usize>,
}

/// The part of a step of `scheme` that a trace keeps: the whole of it if spans are drafted. Of a
/// vocabulary, the likeliest candidates and the one drawn, since ten whole steps are hundreds of
/// megabytes.
#[must_use]
pub fn kept<'s>(step: &'s StepTrace, scheme: &SchemeSpec) -> Cow<'s, StepTrace> {
    if is_whole(scheme) { Cow::Borrowed(step) } else { Cow::Owned(likeliest(step)) }
}

/// Whether a trace keeps every candidate of the steps of `scheme`.
#[must_use]
pub fn is_whole(scheme: &SchemeSpec) -> bool {
    scheme.proposal.draft().is_some()
}

/// The candidates that have a row, in their order: all of them if they are few, else the likeliest,
/// the one drawn, and those that arms would have drawn.
pub(crate) fn shown(trace: &StepTrace) -> Vec<usize> {
    let arms = trace.arms.iter().map(|arm| arm.decision.chosen);
    let Decision { probabilities, ratings, chosen, .. } = &trace.decision;
    likeliest_of(probabilities, ratings, std::iter::once(*chosen).chain(arms))
}

/// All if they are few, else `also` and the likeliest of them, in order; of equally likely ones,
/// those rated higher.
fn likeliest_of(probabilities: &[f64], ratings: &[f64], also: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..probabilities.len()).collect();
    if rows.len() > MOST {
        let by = |values: &[f64], a: usize, b: usize| values[b].total_cmp(&values[a]);
        rows.sort_by(|&a, &b| by(probabilities, a, b).then(by(ratings, a, b)).then(a.cmp(&b)));
        let also: BTreeSet<usize> = also.filter(|i| !rows[..MOST].contains(i)).collect();
        // The last of the likeliest make room.
        rows.truncate(MOST.saturating_sub(also.len()));
        rows.extend(also);
        rows.sort_unstable();
    }
    rows
}

/// A step cut to its likeliest candidates and those that arms chose.
fn likeliest(step: &StepTrace) -> StepTrace {
    let kept = shown(step);
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
        timings: step.timings,
    }
}

impl<'a> StepRecord<'a> {
    /// The record of a whole step.
    pub fn new(turn: usize, trace: &'a StepTrace, certificate: StepPromise, tokenizer: &Tokenizer) -> Self {
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
            seconds: Seconds::of(trace),
        }
    }
}

/// The text of a span, special tokens spelled out. A token the tokenizer lacks (an embedding may
/// have spare rows) has none.
pub fn span_text(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| tokenizer.token_bytes(token).unwrap_or_default()).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A trace being written.
///
/// It takes its path when it is finished: a reader sees a whole trace or none, and an earlier trace
/// survives a generation that fails.
pub struct TraceFile {
    path: PathBuf,
    file: WholeFile,
}

impl TraceFile {
    /// Starts a trace that will be called `path`.
    ///
    /// # Errors
    /// When the directory is missing or cannot be written to.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = WholeFile::create(path).map_err(Error::writing(path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the file cannot be written to.
    pub fn write(&mut self, record: &StepRecord<'_>) -> Result<(), Error> {
        serde_json::to_writer(&mut self.file, record)
            .map_err(std::io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(Error::writing(&self.path))
    }

    /// Gives the trace its name.
    ///
    /// # Errors
    /// When the file cannot be written or renamed.
    pub fn finish(self) -> Result<(), Error> {
        self.file.finish().map_err(Error::writing(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_candidates_the_likeliest_and_the_chosen_are_shown() {
        let shown = |probabilities: &[f64], also: &[usize]| likeliest_of(probabilities, &[0.0; 100], also.iter().copied());
        assert_eq!(shown(&[0.1; MOST], &[3]), (0..MOST).collect::<Vec<_>>());
        let falling: Vec<f64> = (0..100).map(|i| 1.0 / f64::from(i + 1)).collect();
        assert_eq!(shown(&falling, &[3]), (0..MOST).collect::<Vec<_>>());
        let with = shown(&falling, &[90, 3, 80, 90]);
        assert_eq!(with, (0..MOST - 2).chain([80, 90]).collect::<Vec<_>>());
        // Of those that an argmax leaves without a chance, the best.
        let (mut certain, rising) = ([0.0; 100], std::array::from_fn::<f64, 100, _>(|i| i as f64));
        certain[50] = 1.0;
        assert_eq!(likeliest_of(&certain, &rising, std::iter::once(50)), std::iter::once(50).chain(85..100).collect::<Vec<_>>());
    }
}
