use std::num::NonZeroUsize;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Backbone, BoxError, ParameterError, Proposal, SpecHandle};

/// The models that a scheme is built on: they read candidates (π_B), draft them (Π_prop) and know
/// the bytes of their tokens (ρ).
///
/// # For implementors
/// The models of this process and those behind a server implement the same trait. What
/// [`start`](Self::start) returns belongs to one generation and is used by one thread; an engine
/// may serve several generations at once.
pub trait Engine {
    /// The backbone and the proposal of one generation. `spec` is the generation's Ω: a proposal
    /// that depends on the weights, such as a soup of adapters, reads it at every step.
    ///
    /// # Errors
    /// When the engine cannot draft like this, or has no room for the candidates.
    fn start(&self, drafting: &Drafting, spec: &SpecHandle) -> Result<Generation, BoxError>;

    /// The bytes of each token of the vocabulary, by id. Ids that decode to nothing have no bytes.
    fn token_bytes(&self) -> Arc<[Box<[u8]>]>;
}

const _: Option<&dyn Engine> = None;

/// What one generation runs on.
pub struct Generation {
    /// π_B.
    pub backbone: Box<dyn Backbone>,
    /// Π_prop.
    pub proposal: Box<dyn Proposal>,
}

/// How candidates are drafted.
#[derive(Debug, Clone, PartialEq)]
pub enum Drafting {
    /// N spans are sampled from a model.
    Sampled {
        /// The model.
        model: DraftModel,
        /// N.
        candidates: NonZeroUsize,
        /// How each token is drawn.
        sampling: Sampling,
        /// Whether an end-of-text token stays in the candidate and ends the response.
        keep_end_of_text: bool,
        /// Most tokens of a span; `None` for no cap.
        span_tokens: Option<NonZeroUsize>,
    },
    /// The tokens of the vocabulary are the candidates, one each.
    Vocabulary {
        /// Whose log-probabilities the candidates carry.
        prior: Prior,
        /// Which tokens are candidates.
        head: VocabularyHead,
    },
}

/// The model that drafts spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftModel {
    /// The small model.
    Drafter,
    /// The backbone.
    Backbone,
    /// The backbone under the weighted average of the seated adapters.
    Soup(Merge),
}

/// How several adapters become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merge {
    /// Rewarded Soups (Ramé et al. 2023): the change of a layer is the weighted average of the
    /// adapters' changes,
    ///
    /// ```text
    /// ΔW = Σ_k w_k s_k A_k B_k
    /// ```
    ///
    /// exactly, kept in low rank by laying the matrices side by side. The rank is the sum of the
    /// ranks.
    #[default]
    Exact,
    /// What PEFT's `add_weighted_adapter(combination_type="linear")` does: the matrices are
    /// averaged, not their products,
    ///
    /// ```text
    /// ΔW = (Σ_k √(w_k s_k) A_k) (Σ_k √(w_k s_k) B_k),
    /// ```
    ///
    /// which has cross terms between unrelated adapters. The rank stays as it is, so all must be of
    /// one rank.
    PeftLinear,
}

/// Whose log-probabilities single-token candidates carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prior {
    /// Every token has −ln V.
    Uniform,
    /// The backbone's.
    #[default]
    Backbone,
    /// The drafter's, as in contrastive decoding.
    Drafter,
}

/// What the value of a head on the backbone's hidden states means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadKind {
    /// Log-odds that the finished text has the attribute: a future discriminator (Yang & Klein
    /// 2021).
    Discriminator,
    /// A reward: differences are log-odds of being preferred (Bradley–Terry).
    Reward,
}

/// Below this temperature the most likely token is taken.
const GREEDY: f32 = 1e-5;

/// How a token is drawn from logits, in the order transformers applies it: repetition penalty,
/// temperature, top-k, top-p.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawSampling", deny_unknown_fields)]
pub struct Sampling {
    temperature: f32,
    top_p: f32,
    top_k: usize,
    repetition_penalty: f32,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawSampling {
    temperature: f32,
    top_p: f32,
    top_k: usize,
    repetition_penalty: f32,
}

impl Default for RawSampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0, repetition_penalty: 1.0 }
    }
}

impl Sampling {
    /// Checks and keeps the settings: `temperature` ≥ 0 (0 is greedy), `top_p` in (0, 1] (1 is
    /// off), `top_k` (0 is off), `repetition_penalty` > 0 (1 is off).
    ///
    /// # Errors
    /// Names the setting out of range.
    pub fn new(temperature: f32, top_p: f32, top_k: usize, repetition_penalty: f32) -> Result<Self, ParameterError> {
        let check = |ok: bool, name, value, expected| ParameterError::check(ok, name, f64::from(value), expected);
        check(temperature.is_finite() && temperature >= 0.0, "temperature", temperature, "finite and not negative")?;
        check(top_p > 0.0 && top_p <= 1.0, "top_p", top_p, "in (0, 1]")?;
        let positive = repetition_penalty.is_finite() && repetition_penalty > 0.0;
        check(positive, "repetition_penalty", repetition_penalty, "finite and positive")?;
        Ok(Self { temperature, top_p, top_k, repetition_penalty })
    }

    /// The most likely token, always.
    pub const fn greedy() -> Self {
        Self { temperature: 0.0, top_p: 1.0, top_k: 0, repetition_penalty: 1.0 }
    }

    /// Temperature 1, top-p 0.95: the paper's operating point.
    pub const fn nucleus() -> Self {
        Self { temperature: 1.0, top_p: 0.95, top_k: 0, repetition_penalty: 1.0 }
    }

    /// What the reference runs drew candidates with: temperature 1, top-p 0.95, top-k 50,
    /// repetition penalty 1.05.
    pub const fn reference_runs() -> Self {
        Self { temperature: 1.0, top_p: 0.95, top_k: 50, repetition_penalty: 1.05 }
    }

    /// Whether the outcome does not depend on the generator.
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY
    }

    /// Whether the outcome is the most likely token, whatever came before.
    pub fn is_argmax(&self) -> bool {
        self.is_greedy() && self.repetition_penalty == 1.0
    }

    /// The factor that turns a logit into the exponent of a weight: 1/T, or 1 for greedy sampling.
    pub fn rate(&self) -> f32 {
        if self.is_greedy() { 1.0 } else { self.temperature.recip() }
    }

    /// The logit of a token that occurred before.
    pub fn penalise(&self, logit: f32) -> f32 {
        if logit < 0.0 { logit * self.repetition_penalty } else { logit / self.repetition_penalty }
    }

    /// T; 0 is greedy.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// The probability mass kept; 1 keeps all.
    pub fn top_p(&self) -> f32 {
        self.top_p
    }

    /// The number of tokens kept; 0 keeps all.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// What the logits of tokens seen before are divided by; 1 is off.
    pub fn repetition_penalty(&self) -> f32 {
        self.repetition_penalty
    }
}

impl TryFrom<RawSampling> for Sampling {
    type Error = ParameterError;
    fn try_from(raw: RawSampling) -> Result<Self, ParameterError> {
        Self::new(raw.temperature, raw.top_p, raw.top_k, raw.repetition_penalty)
    }
}

/// Which tokens of the vocabulary are candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VocabularyHead {
    top_k: usize,
    plausibility: f32,
}

impl VocabularyHead {
    /// Every token.
    pub const ALL: Self = Self { top_k: 0, plausibility: 0.0 };

    /// The `top_k` likeliest tokens under π_B (0 for all), of those whose probability is at least
    /// `plausibility` times that of the likeliest: 𝓥_head = {y : π_B(y) ≥ α·max π_B}, the
    /// constraint of contrastive decoding (Li et al. 2023, eq. 3).
    ///
    /// # Errors
    /// When `plausibility` is not in [0, 1].
    pub fn new(top_k: usize, plausibility: f32) -> Result<Self, ParameterError> {
        let value = f64::from(plausibility);
        ParameterError::check((0.0..=1.0).contains(&plausibility), "plausibility", value, "between 0 and 1")?;
        Ok(Self { top_k, plausibility })
    }

    /// The number of tokens kept; 0 keeps all.
    pub fn top_k(self) -> usize {
        self.top_k
    }

    /// The least probability kept, as a share of that of the likeliest token.
    pub fn plausibility(self) -> f32 {
        self.plausibility
    }

    /// Whether every token is a candidate.
    pub fn keeps_all(self) -> bool {
        self == Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        for (sampling, field) in [
            (Sampling::new(-1.0, 1.0, 0, 1.0), "temperature"),
            (Sampling::new(f32::NAN, 1.0, 0, 1.0), "temperature"),
            (Sampling::new(1.0, 0.0, 0, 1.0), "top_p"),
            (Sampling::new(1.0, 1.5, 0, 1.0), "top_p"),
            (Sampling::new(1.0, 1.0, 0, 0.0), "repetition_penalty"),
        ] {
            assert!(sampling.unwrap_err().to_string().starts_with(field));
        }
        assert!(serde_json::from_str::<Sampling>(r#"{"top_p": 2.0}"#).is_err());
        assert!(serde_json::from_str::<Sampling>(r#"{"topp": 0.5}"#).is_err());
    }

    #[test]
    fn a_share_is_a_share() {
        for plausibility in [-0.1, 1.1, f32::NAN] {
            assert!(VocabularyHead::new(0, plausibility).unwrap_err().to_string().contains("plausibility"));
        }
    }
}
