use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::{Batch, Candidate, Decision, SpanEnd, TokenId, Traffic};

/// The record of one step, for `--explain`, the experiments and front ends.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepTrace {
    /// Position of the step in the generation, from 0.
    pub step: usize,
    /// The number of tokens of the context that the candidates continue.
    pub position: usize,
    /// The candidates that were scored, in the order of the proposal.
    pub candidates: Vec<CandidateTrace>,
    /// The candidates that were drafted but not scored, since the selection was settled before.
    pub unscored: Vec<CandidateTrace>,
    /// The scores of each blade that was read: those of positive weight, and those that the
    /// selector uses.
    pub blades: Vec<ScoreTrace>,
    /// ℓ_S of each candidate, if a fluency blade is seated.
    pub fluency: Option<Vec<f64>>,
    /// The scheme's decision. The selected candidate is the one that is appended.
    pub decision: Decision,
    /// The decisions of the scheme's other arms on the same candidates.
    pub arms: Vec<ArmTrace>,
    /// The preceding batch, if it was rejected and the fallback was used.
    pub rejected: Option<Box<BatchTrace>>,
    /// The number of candidates, if only the most probable tokens of the vocabulary were available:
    /// [`Candidates::head`](crate::Candidates::head).
    pub head: Option<usize>,
    /// The network traffic, for models behind servers.
    pub traffic: Traffic,
    /// The wall time of each part. Of the arms, only the time for reading and scoring is included, in
    /// `score`.
    pub seconds: Seconds,
}

impl StepTrace {
    /// Returns the selected candidate.
    ///
    /// # Panics
    /// If the fields were changed so that there is none.
    pub fn chosen(&self) -> &CandidateTrace {
        &self.candidates[self.decision.chosen]
    }

    /// Returns the weights of the blades in the composites: those that the rule for **w** returned,
    /// or those of Ω, scaled to sum to one.
    pub fn weights(&self) -> Vec<f64> {
        if !self.decision.weights.is_empty() {
            return self.decision.weights.clone();
        }
        let total: f64 = self.blades.iter().map(|blade| blade.weight.max(0.0)).sum();
        self.blades.iter().map(|blade| blade.weight / total).collect()
    }

    /// Returns the batch that was rated, without the scores of the single blades.
    ///
    /// # Panics
    /// If the trace was changed so that it has no candidate, or its vectors differ in length.
    pub fn batch(&self) -> Batch<'_> {
        let batch = Batch::trusted(&self.decision.mu, &self.decision.sigma);
        match &self.fluency {
            Some(fluency) => batch.with_trusted_fluency(fluency),
            None => batch,
        }
    }

    /// Returns the number of drafted tokens, including those of a rejected batch.
    pub fn drafted_tokens(&self) -> usize {
        let rejected = self.rejected.iter().flat_map(|batch| batch.candidates.iter().chain(&batch.unscored));
        self.candidates.iter().chain(&self.unscored).chain(rejected).map(|candidate| candidate.tokens.len()).sum()
    }

    /// Returns the number of tokens that the blades scored, including those of a rejected batch.
    /// The backbone reads each of them under every policy that the blades request, or, over a
    /// vocabulary, one token per policy.
    pub fn scored_tokens(&self) -> usize {
        let rejected = self.rejected.iter().flat_map(|batch| &batch.candidates);
        self.candidates.iter().chain(rejected).map(CandidateTrace::scored_tokens).sum()
    }
}

/// A batch of candidates, and the decision on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchTrace {
    /// The candidates that were scored, in the order of the proposal.
    pub candidates: Vec<CandidateTrace>,
    /// The candidates that were drafted but not scored.
    pub unscored: Vec<CandidateTrace>,
    /// Scores of each blade that was read.
    pub blades: Vec<ScoreTrace>,
    /// ℓ_S of each candidate, if a fluency blade is seated.
    pub fluency: Option<Vec<f64>>,
    /// The decision.
    pub decision: Decision,
}

/// The decision of an [`Arm`](crate::Arm) on the candidates of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmTrace {
    /// The arm.
    pub name: String,
    /// The scores of each blade that it uses.
    pub blades: Vec<ScoreTrace>,
    /// ℓ_S of each candidate, if it seats a fluency blade.
    pub fluency: Option<Vec<f64>>,
    /// Its decision, which is not carried out.
    #[serde(flatten)]
    pub decision: Decision,
}

/// One candidate of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CandidateTrace {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// The reason why it ends.
    pub end: SpanEnd,
    /// The number of its tokens that were scored, if not all were.
    pub scored: Option<usize>,
}

impl CandidateTrace {
    /// Creates the trace of a candidate whose tokens were all scored.
    pub fn new(candidate: &Candidate) -> Self {
        Self { tokens: candidate.tokens.clone(), end: candidate.end, scored: None }
    }

    /// Returns the number of its tokens that were scored.
    pub fn scored_tokens(&self) -> usize {
        self.scored.unwrap_or(self.tokens.len())
    }
}

/// The scores of one blade in a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreTrace {
    /// The blade.
    pub name: String,
    /// Its weight in Ω. A rule for **w** may give it another, in [`Decision::weights`].
    pub weight: f64,
    /// μ of each candidate, before normalisation.
    pub mu: Vec<f64>,
    /// σ of each candidate, before normalisation.
    pub sigma: Vec<f64>,
}

/// The reason why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The model ended it.
    EndOfText,
    /// The limit on new tokens was reached.
    Limit,
    /// The model's context is full.
    ContextFull,
    /// A stop text was reached.
    StopText,
    /// The caller stopped it.
    Interrupted,
}

/// Wall time of each part of a step, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Seconds {
    /// Π_prop.
    pub draft: f64,
    /// π_B and the blades.
    pub score: f64,
    /// 𝓝, 𝓐 and 𝓢.
    pub select: f64,
    /// Appending the selected candidate.
    pub commit: f64,
}

impl Seconds {
    /// Returns the sum of all parts.
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
