//! The stability of a scheme: how far a change of the composite scores can move the selection
//! probabilities.

use std::fmt;
use std::sync::Arc;

use sk_aggregate::{Certify, Modulus, NoCertificate, StabilityCertificate};
use sk_core::{Batch, ParameterError};

use crate::{ChampionSpec, FallbackSpec, SchemeSpec, SearchSpec, SelectorRule, WeightingSpec};

/// The reason why a scheme has no stability certificate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum Uncertified {
    /// The ratings have no bound.
    #[error(transparent)]
    Ratings(#[from] NoCertificate),
    /// The selector standardises its inputs.
    #[error(
        "the champion's logits are z-scores, and near a tie those magnify any change without bound; use selector \"softmax\", or \
         standardize = false"
    )]
    Champion,
    /// The selector takes the maximum.
    #[error("the best candidate changes at a tie, so an arbitrarily small change can move the choice; use selector \"softmax\"")]
    Highest,
    /// The selector drops candidates.
    #[error("top_k and top_p drop candidates, and a tie changes which ones; leave both out")]
    Truncated,
    /// The batch is incomplete.
    #[error("the file has only {kept} of its {of} candidates, and a certificate needs all of them")]
    Cut { kept: usize, of: usize },
    /// The search drops candidates.
    #[error("the search drops candidates by scores, so an arbitrarily small change can move the choice; use kind = \"full\"")]
    Searched,
    /// A fallback replaces the candidates.
    #[error(
        "the fallback replaces the candidates at a threshold, so an arbitrarily small change can move the choice; leave it out"
    )]
    Replaced,
    /// The weights depend on the scores.
    #[error("the weights depend on the scores, and the bound needs fixed weights; use weighting \"fixed\"")]
    Weighed,
    /// A gate rejects candidates.
    #[error("a gate refuses whole candidates at its threshold, so an arbitrarily small change can move the choice; leave it out")]
    Gated,
}

impl From<ParameterError> for Uncertified {
    fn from(error: ParameterError) -> Self {
        Self::Ratings(error.into())
    }
}

/// The stability certificates of a scheme's steps, for an aggregator with a bound under a softmax.
///
/// They bound the effect of changes of the composite scores, the output of the normaliser (`mu` in
/// a trace), at the dispersions and fluency of the step.
pub struct Stability {
    aggregator: Arc<dyn Certify>,
    temperature: f64,
    /// The factors of rating and score in a logit, times T.
    factors: (f64, f64),
}

impl fmt::Debug for Stability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stability")
            .field("temperature", &self.temperature)
            .field("factors", &self.factors)
            .finish_non_exhaustive()
    }
}

impl Stability {
    /// Computes the certificate of one step.
    ///
    /// # Errors
    /// If two of its candidates are compared with a spread that is zero or too small.
    pub fn certificate(&self, batch: &Batch<'_>) -> Result<StabilityCertificate, NoCertificate> {
        let (rating, score) = self.factors;
        let modulus = match batch.len() {
            1 => Modulus::ZERO,
            _ if rating == 0.0 => Modulus::ZERO.with_scores(0.0, score),
            _ => self.aggregator.modulus(batch)?.with_scores(rating, score),
        };
        Ok(StabilityCertificate::of(modulus, self.temperature)?)
    }
}

impl SchemeSpec {
    /// Returns the stability certificates of the scheme.
    ///
    /// # Errors
    /// The reason why there are none.
    pub fn stability(&self) -> Result<Stability, Uncertified> {
        if self.search != SearchSpec::Full {
            return Err(Uncertified::Searched);
        }
        if self.fallback != FallbackSpec::None {
            return Err(Uncertified::Replaced);
        }
        if self.weighting != WeightingSpec::Fixed {
            return Err(Uncertified::Weighed);
        }
        let selector = &self.selector;
        if !selector.gates.is_empty() {
            return Err(Uncertified::Gated);
        }
        if selector.top_k.is_some() || selector.top_p.is_some() {
            return Err(Uncertified::Truncated);
        }
        let (temperature, factors) = match selector.rule {
            SelectorRule::Softmax { temperature: 0.0 } => return Err(Uncertified::Highest),
            SelectorRule::Softmax { temperature } => (temperature, (1.0, 0.0)),
            SelectorRule::Champion(ChampionSpec { standardize: true, .. }) => return Err(Uncertified::Champion),
            SelectorRule::Champion(ChampionSpec { temperature, .. }) if temperature < sk_select::Champion::COLD => {
                return Err(Uncertified::Highest);
            }
            SelectorRule::Champion(ChampionSpec { temperature, w_tour, w_blade, .. }) => (temperature, (w_tour, w_blade)),
            SelectorRule::Argmax | SelectorRule::EpsilonArgmax { .. } => return Err(Uncertified::Highest),
            // Uniform selection is unaffected by scores, at any temperature.
            SelectorRule::Uniform => (1.0, (0.0, 0.0)),
        };
        let stability = Stability { aggregator: self.aggregator.build()?, temperature, factors };
        // Probes with the simplest valid batch: two candidates, each with a positive dispersion.
        stability.certificate(&Batch::trusted(&[0.0; 2], &[1.0; 2]).with_trusted_fluency(&[0.0; 2]))?;
        Ok(stability)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn stability(text: &str) -> Result<Stability, Uncertified> {
        let mut config = SchemeSpec::default();
        config.overlay("test.toml", text, Path::new("")).unwrap();
        config.stability()
    }

    fn refused(text: &str) -> Uncertified {
        stability(text).err().unwrap()
    }

    const PLAIN: &str = "[aggregator]\nkind = \"thurstone\"\nstandardize = false\nalpha = 0.25\n";

    #[test]
    fn what_has_no_certificate_says_which_part_is_at_fault() {
        assert_eq!(refused(""), Uncertified::Champion);
        let softmax = "[selector]\nkind = \"softmax\"\n";
        assert_eq!(refused(softmax), Uncertified::Ratings(NoCertificate::Tournament));
        let with = |selector: &str| refused(&format!("{PLAIN}[selector]\n{selector}"));
        assert_eq!(with("kind = \"argmax\"\n"), Uncertified::Highest);
        assert_eq!(with("kind = \"epsilon-argmax\"\n"), Uncertified::Highest);
        assert_eq!(with("standardize = false\ntemperature = 0\n"), Uncertified::Highest);
        assert_eq!(with("kind = \"softmax\"\ntemperature = 0\n"), Uncertified::Highest);
        assert_eq!(with("kind = \"softmax\"\ntop_k = 3\n"), Uncertified::Truncated);
        assert_eq!(with("kind = \"uniform\"\ntop_p = 0.9\n"), Uncertified::Truncated);
        assert_eq!(with("kind = \"softmax\"\n[selector.gates.safe]\nthreshold = 0\n"), Uncertified::Gated);
        let standardized = "[aggregator]\nkind = \"thurstone\"\n[selector]\nkind = \"softmax\"\n";
        assert_eq!(refused(standardized), Uncertified::Ratings(NoCertificate::Standardized));
        let copeland = "[aggregator]\nkind = \"copeland\"\nstandardize = false\n[selector]\nkind = \"softmax\"\n";
        assert_eq!(refused(copeland), Uncertified::Ratings(NoCertificate::Jump));
    }

    #[test]
    fn certificates_are_those_of_the_library() {
        let (mu, sigma, fluency) = ([0.3, 0.1, -0.2], [1.0, 0.5, 0.8], [-1.0, -2.0, -1.5]);
        let batch = Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency);
        let softmax = stability(&format!("{PLAIN}[selector]\nkind = \"softmax\"\ntemperature = 0.5\n")).unwrap();
        let entry = sk_aggregate::Entry::plain(0.25).unwrap();
        let member = sk_aggregate::Fluent::new(entry, sk_aggregate::RoundRobin::thurstone());
        assert_eq!(softmax.certificate(&batch), StabilityCertificate::new(&member, &batch, 0.5));
        let certain = Batch::trusted(&mu, &[0.0, 1.0, 0.0]);
        assert_eq!(softmax.certificate(&certain), Err(NoCertificate::NoSpread { i: 0, j: 2 }));
        // A champion without standardisation uses both rating and score.
        let champion =
            stability(&format!("{PLAIN}[selector]\nstandardize = false\ntemperature = 2\nw_tour = 0.5\nw_blade = 3\n")).unwrap();
        let modulus = member.modulus(&batch).unwrap().with_scores(0.5, 3.0);
        assert_eq!(champion.certificate(&batch).unwrap(), StabilityCertificate::of(modulus, 2.0).unwrap());
        // Scores do not affect uniform selection, nor selection from a single candidate.
        let uniform = stability("[selector]\nkind = \"uniform\"\n").unwrap();
        assert_eq!(uniform.certificate(&certain).unwrap().radius(0.1), Ok(f64::INFINITY));
        assert_eq!(champion.certificate(&Batch::trusted(&[1.0], &[0.0])).unwrap().radius(0.1), Ok(f64::INFINITY));
    }
}
