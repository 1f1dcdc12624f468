use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Candidate, Decision, SpanEnd, TokenId, Traffic};

/// Everything seen in one step: the record behind `--explain`, the experiments and any front end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepTrace {
    /// Position of the step in the generation, from 0.
    pub step: usize,
    /// Tokens of the context that the candidates continue.
    pub position: usize,
    /// The candidates that were scored, in the order of the proposal.
    pub candidates: Vec<CandidateTrace>,
    /// The candidates that were drafted after those and not scored: the choice was settled before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unscored: Vec<CandidateTrace>,
    /// Scores of each blade that was read: those of positive weight, and those that the selector
    /// looks at.
    pub blades: Vec<ScoreTrace>,
    /// ℓ_S of each candidate, where a fluency blade is seated.
    pub fluency: Option<Vec<f64>>,
    /// The scheme's decision; its candidate is the one appended.
    #[serde(flatten)]
    pub decision: Decision,
    /// What the scheme's other arms make of the same candidates.
    pub arms: Vec<ArmTrace>,
    /// The batch before, if the scheme has a fallback and its choice was not good enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Box<BatchTrace>>,
    /// Where only the likeliest tokens of the vocabulary were to be had, how many they are:
    /// [`Candidates::head`](crate::Candidates::head).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// What went over the network, where models are behind servers.
    #[serde(skip_serializing_if = "Traffic::is_none")]
    pub traffic: Traffic,
    /// Where the time went; that of the arms is in `score` where it is reading, and nowhere else.
    pub timings: Timings,
}

impl StepTrace {
    /// Returns the candidate that was drawn.
    pub fn chosen(&self) -> &CandidateTrace {
        &self.candidates[self.decision.chosen]
    }

    /// Returns the number of tokens that were drafted, those of a rejected batch included.
    pub fn drafted_tokens(&self) -> usize {
        let rejected = self.rejected.iter().flat_map(|batch| batch.candidates.iter().chain(&batch.unscored));
        self.candidates.iter().chain(&self.unscored).chain(rejected).map(|candidate| candidate.tokens.len()).sum()
    }

    /// Returns the number of tokens that the blades scored, those of a rejected batch included. The
    /// backbone reads each in every lane that the blades ask for.
    pub fn scored_tokens(&self) -> usize {
        let rejected = self.rejected.iter().flat_map(|batch| &batch.candidates);
        self.candidates.iter().chain(rejected).map(CandidateTrace::scored_tokens).sum()
    }
}

/// A batch of candidates, and the choice among them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchTrace {
    /// The candidates that were scored, in the order of the proposal.
    pub candidates: Vec<CandidateTrace>,
    /// The candidates that were drafted after those and not scored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unscored: Vec<CandidateTrace>,
    /// Scores of each blade that was read.
    pub blades: Vec<ScoreTrace>,
    /// ℓ_S of each candidate, where a fluency blade is seated.
    pub fluency: Option<Vec<f64>>,
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
}

/// What an [`Arm`](crate::Arm) makes of the candidates of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmTrace {
    /// The arm.
    pub name: String,
    /// Scores of each blade that it looks at.
    pub blades: Vec<ScoreTrace>,
    /// ℓ_S of each candidate, where it seats a fluency blade.
    pub fluency: Option<Vec<f64>>,
    /// What it would have done.
    #[serde(flatten)]
    pub decision: Decision,
}

/// One candidate of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CandidateTrace {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Why it ends.
    pub end: SpanEnd,
    /// The tokens of it that were scored, if not all were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scored: Option<usize>,
}

impl CandidateTrace {
    /// Returns the trace of a candidate of which all tokens were scored.
    pub fn new(candidate: &Candidate) -> Self {
        Self { tokens: candidate.tokens.clone(), end: candidate.end, scored: None }
    }

    /// Returns the number of its tokens that were scored.
    pub fn scored_tokens(&self) -> usize {
        self.scored.unwrap_or(self.tokens.len())
    }
}

/// What one blade said in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoreTrace {
    /// The blade.
    pub name: String,
    /// Its weight in this step.
    pub weight: f64,
    /// μ of each candidate, before normalisation.
    pub mu: Vec<f64>,
    /// σ of each candidate, before normalisation.
    pub sigma: Vec<f64>,
}

/// Wall time of each part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Timings {
    /// Π_prop.
    pub draft: Duration,
    /// π_B and the blades.
    pub score: Duration,
    /// 𝓝, 𝓐 and 𝓢.
    pub select: Duration,
    /// Keeping the winner.
    pub commit: Duration,
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The model ended it.
    EndOfText,
    /// The limit on new tokens was reached.
    Limit,
    /// The model's context is full.
    ContextFull,
    /// The model began to play the other side of the dialogue.
    StopText,
    /// Whoever asked for it stopped it.
    Interrupted,
}

/// Wall time of each part of a step, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Π_prop.
    pub draft: f64,
    /// π_B and the blades.
    pub score: f64,
    /// 𝓝, 𝓐 and 𝓢.
    pub select: f64,
    /// Keeping the winner.
    pub commit: f64,
}

impl Seconds {
    /// The times of a step.
    pub fn of(trace: &StepTrace) -> Self {
        let t = &trace.timings;
        Self {
            draft: t.draft.as_secs_f64(),
            score: t.score.as_secs_f64(),
            select: t.select.as_secs_f64(),
            commit: t.commit.as_secs_f64(),
        }
    }

    /// All parts together.
    pub fn total(&self) -> f64 {
        self.draft + self.score + self.select + self.commit
    }
}

impl AddAssign for Seconds {
    fn add_assign(&mut self, other: Self) {
        self.draft += other.draft;
        self.score += other.score;
        self.select += other.select;
        self.commit += other.commit;
    }
}
