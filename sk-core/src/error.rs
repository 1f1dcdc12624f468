use crate::{Policy, TokenId};

/// The error of a slot, wrapped by the errors of a step.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// A parameter that is out of range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} is {value}; it must be {expected}")]
pub struct ParameterError {
    /// The name of the parameter.
    pub name: &'static str,
    /// The value.
    pub value: f64,
    /// The requirement, in words.
    pub expected: &'static str,
}

impl ParameterError {
    /// Returns `value` if `valid`, or else an error that says what `name` must be.
    ///
    /// # Errors
    /// If not `valid`.
    pub fn check(valid: bool, name: &'static str, value: f64, expected: &'static str) -> Result<f64, Self> {
        if valid { Ok(value) } else { Err(Self { name, value, expected }) }
    }

    /// Returns `value` if it is positive and finite.
    ///
    /// # Errors
    /// If not.
    pub fn positive(name: &'static str, value: f64) -> Result<f64, Self> {
        Self::check(value.is_finite() && value > 0.0, name, value, "positive and finite")
    }

    /// Returns `value` if it is finite and not negative.
    ///
    /// # Errors
    /// If not.
    pub fn not_negative(name: &'static str, value: f64) -> Result<f64, Self> {
        Self::check(value.is_finite() && value >= 0.0, name, value, "finite and not negative")
    }
}

/// An invalid score. Candidates and blades are counted from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum ScoreError {
    /// μ or ℓ_S is NaN or infinite, or σ is NaN, infinite or negative.
    #[error("{quantity} of candidate {candidate} is {value}; {expected}")]
    Value { quantity: &'static str, candidate: usize, value: f64, expected: &'static str },
    /// A table has no row.
    #[error("the table has no blade; at least one is needed")]
    NoBlade,
    /// A row of a table has no value, or another number than the first row.
    #[error("blade {blade} scores {got} candidates where {expected} were expected")]
    Shape { blade: usize, expected: usize, got: usize },
    /// A value of a table is not a valid score.
    #[error("blade {blade}: {source}")]
    Blade { blade: usize, source: Box<ScoreError> },
    /// The batch has no candidates.
    #[error("the batch is empty; at least one candidate is needed")]
    Empty,
    /// A quantity of a batch has another number of values than there are scores.
    #[error("{got} {quantity} for {expected} scores")]
    Length { quantity: &'static str, expected: usize, got: usize },
    /// Names and rows of a table differ in number.
    #[error("{got} names for the scores of {expected} blades")]
    Names { expected: usize, got: usize },
    /// Two rows of a table have the same name.
    #[error("two blades are called \"{name}\"; names must differ")]
    SameName { name: String },
}

/// The reason why weights are not on the probability simplex.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum SimplexError {
    /// There are no weights.
    #[error("no weights given; at least one is needed")]
    Empty,
    /// A weight that is NaN, infinite or negative.
    #[error("weight {index} is {value}; weights must {expected}")]
    Value { index: usize, value: f64, expected: &'static str },
    /// The weights do not sum to one; or they sum to zero if they are to be normalised, or to infinity
    /// if their sum is to be a scale.
    #[error("weights sum to {sum}; they must sum to {expected}")]
    Sum { sum: f64, expected: &'static str },
}

/// The reason why candidates cannot be scored. They are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum CandidatesError {
    /// No candidate.
    #[error("the proposal returned no candidate")]
    None,
    /// A candidate without tokens.
    #[error("candidate {index} has no tokens; an end-of-text token that is dropped must not come first")]
    Empty { index: usize },
    /// Log-probabilities and tokens of a candidate differ in number.
    #[error("candidate {index} has {tokens} tokens and {log_probs} log-probabilities")]
    Length { index: usize, tokens: usize, log_probs: usize },
    /// A log-probability is NaN, or positive by more than rounding.
    #[error(
        "token {token} at position {position} of candidate {index} has log-probability {value}; it must be a number and at most 0"
    )]
    LogProb { index: usize, position: usize, token: TokenId, value: String },
}

/// The reason why readings of the backbone cannot be used. Candidates are counted from 0 in the
/// call to the backbone or to the blade.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum ReadingsError {
    /// A policy was not read.
    #[error("{policy} was not read")]
    Missing { policy: Policy },
    /// A policy was read for another number of candidates.
    #[error("{policy} was read for {got} candidates where {expected} were given")]
    Candidates { policy: Policy, expected: usize, got: usize },
    /// A reading has another number of values than the candidate has tokens.
    #[error("candidate {candidate} has {got} {quantity} of {policy} for {expected} tokens")]
    Tokens { policy: Policy, quantity: &'static str, candidate: usize, expected: usize, got: usize },
    /// A value is NaN, or out of range by more than rounding.
    #[error(
        "candidate {candidate} has {quantity} {value} of {policy} at position {position}; it must be a number and {range}, in nats"
    )]
    Value { policy: Policy, quantity: &'static str, candidate: usize, position: usize, value: String, range: &'static str },
}

/// The reason why an edit of Ω was rejected. The specification is unchanged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum SpecError {
    /// No blade of that name is seated.
    #[error("no blade is called \"{name}\"; seated: {seated}")]
    Unknown { name: String, seated: String },
    /// A blade of that name is seated already.
    #[error("a blade called \"{name}\" is seated already; unseat it or swap it")]
    Duplicate { name: String },
    /// Unseating the blade would leave no blade, or only zero weights.
    #[error("unseating \"{name}\" would leave no blade with a positive weight")]
    NoneLeft { name: String },
    /// Weights and seats differ in number.
    #[error("{weights} weights for {blades} blades")]
    Count { weights: usize, blades: usize },
    /// The weight of a blade is out of range.
    #[error("weight of blade \"{name}\" is {value}; it must be {expected}")]
    Weight { name: String, value: f64, expected: &'static str },
    /// A blade is given two weights.
    #[error("blade \"{name}\" is given two weights; give it one")]
    TwoWeights { name: String },
    /// The weights are not on the simplex.
    #[error(transparent)]
    Simplex(#[from] SimplexError),
}

/// The error of a step, by slot. The context is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum StepError {
    /// The context has no tokens.
    #[error("the prompt is empty; give at least one token")]
    EmptyContext,
    /// Π_prop failed.
    #[error("drafting candidates failed: {0}")]
    Proposal(#[source] BoxError),
    /// The limit of a step is zero.
    #[error("the limit of a step is 0; it must be at least 1")]
    NoTokens,
    /// The granularity ends spans by entropy, which the proposal does not know.
    #[error("spans cannot end by entropy, which this proposal does not know; choose another granularity")]
    NoEntropy,
    /// A candidate is longer than requested.
    #[error("candidate {candidate} has {tokens} tokens where at most {limit} were requested")]
    TooLong { candidate: usize, tokens: usize, limit: usize },
    /// π_B failed.
    #[error("reading candidates with the backbone failed: {0}")]
    Backbone(#[source] BoxError),
    /// π_B returned incomplete readings.
    #[error("the backbone's readings cannot be used: {0}")]
    Readings(#[source] ReadingsError),
    /// A blade failed.
    #[error("blade \"{name}\" failed: {source}")]
    Blade { name: String, source: BoxError },
    /// A blade left a candidate without a score.
    #[error("blade \"{name}\" gave candidate {candidate} no score")]
    Unscored { name: String, candidate: usize },
    /// The selector uses a blade that is not seated.
    #[error("the selector looks at blade \"{name}\", which is not seated; seated: {seated}")]
    Unseated { name: String, seated: String },
    /// An arm of the scheme failed.
    #[error("arm \"{name}\": {source}")]
    Arm { name: String, source: Box<StepError> },
    /// The weights of the blades are invalid or all zero.
    #[error("the weights of the blades cannot be used: {0}")]
    Weights(#[source] SimplexError),
    /// The scores of the blades do not form a valid table.
    #[error("the scores of the blades cannot be used: {0}")]
    Scores(#[source] ScoreError),
    /// A normaliser returned an invalid score.
    #[error("the normaliser's composites cannot be used: {0}")]
    Composite(#[source] ScoreError),
    /// An aggregator returned NaN or an infinite rating.
    #[error("the aggregator rated candidate {index} {value}; ratings must be finite")]
    Rating { index: usize, value: f64 },
    /// A selector returned something that is not a distribution.
    #[error("the selector's probabilities are not a distribution: candidate {index} has {value}")]
    Distribution { index: usize, value: f64 },
    /// A selector's probabilities do not sum to one.
    #[error("the selector's probabilities sum to {sum}, not to 1")]
    Mass { sum: f64 },
}
