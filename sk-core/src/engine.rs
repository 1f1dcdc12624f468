use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use auto_impl::auto_impl;
use serde::{Deserialize, Serialize};

use crate::{Backbone, BoxError, ParameterError, Proposal, SpecHandle};

/// The models on which a scheme is built: they read candidates (π_B), draft them (Π_prop) and
/// provide the bytes of their tokens (ρ).
///
/// # For implementors
/// Models in this process and models behind a server implement the same trait. The result of
/// [`start`](Self::start) belongs to one generation and is used by one thread. An engine may serve
/// several generations at once.
#[auto_impl(&, Box, Arc)]
pub trait Engine: Send + Sync {
    /// Creates the backbone and the proposal of one generation. `spec` is the generation's Ω. A
    /// proposal that depends on the weights, such as a soup of adapters, reads it at every step.
    ///
    /// # Errors
    /// If the engine does not support this drafting, or has no room for the candidates.
    fn start(&self, drafting: &Drafting, spec: &SpecHandle) -> Result<Generation, BoxError>;

    /// Returns the bytes of each token of the vocabulary, by id. Ids that decode to nothing have no
    /// bytes.
    fn token_bytes(&self) -> Arc<[Box<[u8]>]>;
}

const _: Option<&dyn Engine> = None;

/// The models of one generation.
pub struct Generation {
    /// π_B.
    pub backbone: Box<dyn Backbone>,
    /// Π_prop.
    pub proposal: Box<dyn Proposal>,
}

/// Returns the time for which a generation may still wait; zero if it is stopped.
pub type TimeLeft = Arc<dyn Fn() -> Duration + Send + Sync>;

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation").finish_non_exhaustive()
    }
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
        /// Whether an end-of-text token stays in the candidate and ends the response. If not, it
        /// ends the span and is dropped, so it must not be drawn as the first token.
        keep_end_of_text: bool,
        /// The most tokens of a span; `None` for no limit.
        span_tokens: Option<NonZeroUsize>,
    },
    /// The tokens of the vocabulary are the candidates, one each.
    Vocabulary {
        /// The model whose log-probabilities the candidates carry.
        prior: Prior,
        /// The tokens that are candidates.
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

/// The method of merging several adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merge {
    /// Rewarded Soups (Ramé et al. 2023): the update of a layer is the weighted average of the
    /// adapters' updates,
    ///
    /// ```text
    /// ΔW = Σ_k w_k s_k A_k B_k
    /// ```
    ///
    /// computed exactly and kept in low rank by concatenating the matrices. The rank is the sum of
    /// the ranks.
    #[default]
    Exact,
    /// PEFT's `add_weighted_adapter(combination_type="linear")`: the matrices are averaged, not
    /// their products,
    ///
    /// ```text
    /// ΔW = (Σ_k √(w_k s_k) A_k) (Σ_k √(w_k s_k) B_k),
    /// ```
    ///
    /// which has cross terms between unrelated adapters. The rank does not change, so all adapters
    /// must have the same rank. No scale may be negative.
    PeftLinear,
}

/// The source of the log-probabilities of single-token candidates.
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

/// The meaning of a head's value on the backbone's hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadKind {
    /// The log-odds that the finished text has the attribute: a future discriminator (Yang & Klein
    /// 2021).
    Discriminator,
    /// A reward: differences are log-odds of being preferred (Bradley–Terry).
    Reward,
}

/// The temperature below which sampling is greedy.
const GREEDY: f32 = 1e-5;

/// The sampling of a token from logits, in the order of transformers: repetition penalty,
/// temperature, top-k, top-p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    temperature: f32,
    top_p: f32,
    top_k: usize,
    repetition_penalty: f32,
}

impl Sampling {
    /// Validates the settings: `temperature` ≥ 0 (below 10⁻⁵ is greedy), `top_p` in (0, 1] (1 is off),
    /// `top_k` (0 is off), `repetition_penalty` in [10⁻⁶, 10⁶] (1 is off).
    ///
    /// # Errors
    /// If a setting is out of range. The error names it.
    pub fn new(temperature: f32, top_p: f32, top_k: usize, repetition_penalty: f32) -> Result<Self, ParameterError> {
        ParameterError::not_negative("temperature", as_written(temperature))?;
        ParameterError::check(top_p > 0.0 && top_p <= 1.0, "top_p", as_written(top_p), "in (0, 1]")?;
        // A penalised logit stays finite.
        let moderate = (1e-6..=1e6).contains(&repetition_penalty);
        ParameterError::check(moderate, "repetition_penalty", as_written(repetition_penalty), "in [1e-6, 1e6]")?;
        Ok(Self { temperature, top_p, top_k, repetition_penalty })
    }

    /// Returns greedy sampling.
    pub const fn greedy() -> Self {
        Self { temperature: 0.0, top_p: 1.0, top_k: 0, repetition_penalty: 1.0 }
    }

    /// Returns temperature 1 and top-p 0.95, the paper's operating point.
    pub const fn nucleus() -> Self {
        Self { temperature: 1.0, top_p: 0.95, top_k: 0, repetition_penalty: 1.0 }
    }

    /// Returns whether tokens are drawn from the distribution of the model itself.
    pub fn is_plain(&self) -> bool {
        let Self { temperature, top_p, top_k, repetition_penalty } = *self;
        temperature == 1.0 && top_p == 1.0 && top_k == 0 && repetition_penalty == 1.0
    }

    /// Returns whether sampling is deterministic.
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY
    }

    /// Returns whether the result is always the argmax of the logits, whatever came before.
    pub fn is_argmax(&self) -> bool {
        self.is_greedy() && self.repetition_penalty == 1.0
    }

    /// Returns the factor from a logit to the exponent of a softmax weight: 1/T, or 1 for greedy
    /// sampling.
    pub fn rate(&self) -> f32 {
        if self.is_greedy() { 1.0 } else { self.temperature.recip() }
    }

    /// Returns the penalised logit of a token that occurred before.
    pub fn penalise(&self, logit: f32) -> f32 {
        if logit < 0.0 { logit * self.repetition_penalty } else { logit / self.repetition_penalty }
    }

    /// Returns T; below 10⁻⁵ is greedy.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Returns the probability mass kept; 1 keeps all.
    pub fn top_p(&self) -> f32 {
        self.top_p
    }

    /// Returns the number of tokens kept; 0 keeps all.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Returns the number by which positive logits of tokens seen before are divided, and negative
    /// ones multiplied; 1 is off.
    pub fn repetition_penalty(&self) -> f32 {
        self.repetition_penalty
    }
}

/// The tokens of the vocabulary that are candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VocabularyHead {
    top_k: usize,
    plausibility: f32,
}

impl VocabularyHead {
    /// Every token.
    pub const ALL: Self = Self { top_k: 0, plausibility: 0.0 };

    /// Keeps the `top_k` most probable tokens under π_B (0 for all), among those whose probability
    /// is at least `plausibility` times the largest: 𝓥_head = {y : π_B(y) ≥ α·max π_B}, the
    /// constraint of contrastive decoding (Li et al. 2023, eq. 3).
    ///
    /// # Errors
    /// If `plausibility` is not in [0, 1].
    pub fn new(top_k: usize, plausibility: f32) -> Result<Self, ParameterError> {
        ParameterError::check((0.0..=1.0).contains(&plausibility), "plausibility", as_written(plausibility), "between 0 and 1")?;
        Ok(Self { top_k, plausibility })
    }

    /// Returns the number of tokens kept; 0 keeps all.
    pub fn top_k(self) -> usize {
        self.top_k
    }

    /// Returns the least probability kept, as a share of the largest.
    pub fn plausibility(self) -> f32 {
        self.plausibility
    }

    /// Returns whether every token is a candidate.
    pub fn keeps_all(self) -> bool {
        self == Self::ALL
    }
}

/// Returns the number with the decimals of `value`, for errors: 1.1 and not 1.100000023841858.
fn as_written(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::NAN)
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
            (Sampling::new(1.0, 1.0, 0, 1e-7), "repetition_penalty"),
            (Sampling::new(1.0, 1.0, 0, 1e7), "repetition_penalty"),
            (Sampling::new(1.0, 1.0, 0, f32::NAN), "repetition_penalty"),
        ] {
            assert!(sampling.unwrap_err().to_string().starts_with(field));
        }
        assert!([1e-6, 1e6].into_iter().all(|penalty| Sampling::new(1.0, 1.0, 0, penalty).is_ok()));
        let error = Sampling::new(1.0, 1.1, 0, 1.0).unwrap_err().to_string();
        assert_eq!(error, "top_p is 1.1; it must be in (0, 1]");
    }

    /// Engines are used from several threads, and through pointers.
    #[test]
    fn an_engine_is_shared() {
        struct Nothing;
        impl Engine for Nothing {
            fn start(&self, _: &Drafting, _: &SpecHandle) -> Result<Generation, BoxError> {
                Err("nothing drafts".into())
            }
            fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
                Arc::new([])
            }
        }
        fn tokens(engine: impl Engine) -> usize {
            std::thread::scope(|scope| scope.spawn(|| engine.token_bytes().len()).join().unwrap())
        }
        let (boxed, shared): (Box<dyn Engine>, Arc<dyn Engine>) = (Box::new(Nothing), Arc::new(Nothing));
        assert_eq!((tokens(&Nothing), tokens(boxed), tokens(shared)), (0, 0, 0));
    }

    #[test]
    fn a_share_is_a_share() {
        for plausibility in [-0.1, 1.1, f32::NAN] {
            assert!(VocabularyHead::new(0, plausibility).unwrap_err().to_string().contains("plausibility"));
        }
    }
}
