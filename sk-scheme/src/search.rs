//! How many of the drafted tokens a step scores, and what drafts if no candidate is good enough.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sk_core::{DraftModel, Drafting, ParameterError, Race, Search, Settled, Waves};

/// The `[search]` section.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SearchSpec {
    /// Every token of every candidate is scored.
    #[default]
    Full,
    /// Candidates are scored in waves until one of them is likely enough to be chosen.
    Waves {
        /// Candidates of the first wave, at least two.
        first: usize,
        /// Candidates of each wave after it.
        wave: usize,
        /// The selection probability that settles the choice.
        probability: f64,
    },
    /// Candidates are scored in waves until one of them is good enough.
    Accept {
        /// Candidates of the first wave.
        first: usize,
        /// Candidates of each wave after it.
        wave: usize,
        /// The composite score that is good enough.
        score: f64,
    },
    /// The first tokens of all candidates are scored, and the rest of those that may still win.
    Race {
        /// Tokens after which candidates are dropped.
        tokens: usize,
        /// Keep the most likely candidates that together have this selection probability.
        mass: f64,
    },
}

/// The `[fallback]` section.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FallbackSpec {
    /// There is none.
    #[default]
    None,
    /// The backbone drafts instead if the score of the selected candidate is too low.
    Backbone {
        /// The least composite score of a choice that is kept.
        threshold: f64,
    },
}

impl SearchSpec {
    /// Builds the search.
    ///
    /// # Errors
    /// If a number is out of range. The error names it.
    pub fn build(&self) -> Result<Search, ParameterError> {
        let count =
            |name, value: usize| NonZeroUsize::new(value).ok_or(ParameterError { name, value: 0.0, expected: "at least 1" });
        let waves = |first, wave, settled| Ok(Search::Waves(Waves::new(count("first", first)?, count("wave", wave)?, settled)?));
        match *self {
            Self::Full => Ok(Search::Full),
            Self::Waves { first, wave, probability } => waves(first, wave, Settled::Probability(probability)),
            Self::Accept { first, wave, score } => {
                waves(first, wave, Settled::Score(ParameterError::check(score.is_finite(), "score", score, "finite")?))
            }
            Self::Race { tokens, mass } => Ok(Search::Race(Race::new(count("tokens", tokens)?, mass)?)),
        }
    }
}

impl FallbackSpec {
    /// Returns the drafting parameters of the fallback, derived from those of `proposal`, and the
    /// least score of a selected candidate that is kept. `None` if there is no fallback.
    pub(crate) fn drafting(&self, proposal: &Drafting) -> Option<(Drafting, f64)> {
        let Self::Backbone { threshold } = *self else { return None };
        let mut drafting = proposal.clone();
        if let Drafting::Sampled { model, .. } = &mut drafting {
            *model = DraftModel::Backbone;
        }
        Some((drafting, threshold))
    }

    /// Checks the threshold.
    pub(crate) fn check(&self) -> Result<(), ParameterError> {
        let Self::Backbone { threshold } = *self else { return Ok(()) };
        ParameterError::check(threshold.is_finite(), "threshold", threshold, "finite").map(drop)
    }
}
