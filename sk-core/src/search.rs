use std::num::NonZeroUsize;

use crate::{Candidate, Candidates, Decision, ParameterError};

/// How many of the drafted tokens a step scores before it chooses.
///
/// Most of what a step costs is scoring candidates that are not chosen. A scheme with arms scores
/// everything, whatever its search: arms are compared by the same readings.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Search {
    /// Every token of every candidate.
    #[default]
    Full,
    /// The candidates in waves, until the choice is settled.
    Waves(Waves),
    /// The first tokens of every candidate, then the rest of those that may still win.
    Race(Race),
}

/// Scores candidates in waves, in the order of the proposal, and stops as soon as the choice is
/// settled. Candidates that are not scored take no part in the choice.
///
/// A step that needs all N candidates reads them in 1 + ⌈(N − first)/size⌉ passes. The backbone
/// keeps the keys and values of the last wave only: a winner of an earlier one is read once more at
/// the next step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waves {
    first: NonZeroUsize,
    size: NonZeroUsize,
    settled: Settled,
}

/// When a choice among the candidates scored so far is settled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Settled {
    /// One candidate has at least this selection probability.
    Probability(f64),
    /// One candidate has at least this composite score: good enough, whatever the others are
    /// (CARDS, Li et al. 2024).
    Score(f64),
}

/// Scores the first tokens of all candidates, drops those that are unlikely to be chosen, and scores
/// the rest of the others.
///
/// By what the first tokens say, the operators of the scheme give each candidate a selection
/// probability. The likeliest candidates that together have at least `mass` go on; the others are
/// dropped at a risk of 1 − `mass`, as far as the first tokens tell. Dropped candidates stay in the
/// batch with the scores of their first tokens, so that 𝓝 and 𝓐 compare as many candidates as
/// without a race, and have the probability zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Race {
    tokens: NonZeroUsize,
    mass: f64,
}

impl Waves {
    /// Returns waves of `first` candidates and then of `size`.
    ///
    /// # Errors
    /// If the probability that settles a choice is not in (0, 1], or the score is NaN.
    pub fn new(first: NonZeroUsize, size: NonZeroUsize, settled: Settled) -> Result<Self, ParameterError> {
        match settled {
            Settled::Probability(p) => ParameterError::check(p > 0.0 && p <= 1.0, "probability", p, "above 0 and at most 1")?,
            Settled::Score(score) => ParameterError::check(!score.is_nan(), "score", score, "a number")?,
        };
        Ok(Self { first, size, settled })
    }

    /// Returns how many of `n` candidates are scored after the first `scored`.
    pub(crate) fn next(&self, scored: usize, n: usize) -> usize {
        let more = if scored == 0 { self.first } else { self.size };
        (scored + more.get()).min(n)
    }

    /// Whether a decision needs no more candidates.
    pub(crate) fn is_settled(&self, decision: &Decision) -> bool {
        match self.settled {
            Settled::Probability(least) => decision.probabilities.iter().any(|&p| p >= least),
            Settled::Score(least) => decision.mu.iter().any(|&mu| mu >= least),
        }
    }
}

impl Race {
    /// Returns the race over the first `tokens` tokens that keeps candidates of at least `mass`.
    ///
    /// # Errors
    /// If `mass` is not in (0, 1].
    pub fn new(tokens: NonZeroUsize, mass: f64) -> Result<Self, ParameterError> {
        ParameterError::check(mass > 0.0 && mass <= 1.0, "mass", mass, "above 0 and at most 1")?;
        Ok(Self { tokens, mass })
    }

    /// Returns the candidates cut after their first tokens; `None` if none is longer.
    pub(crate) fn heads(&self, candidates: &Candidates) -> Option<Candidates> {
        let length = self.tokens.get();
        let head = |candidate: &Candidate| {
            let tokens = candidate.tokens.len().min(length);
            Candidate {
                tokens: candidate.tokens[..tokens].to_vec(),
                log_probs: candidate.log_probs[..tokens].to_vec(),
                end: candidate.end,
            }
        };
        let is_long = candidates.iter().any(|candidate| candidate.tokens.len() > length);
        is_long.then(|| Candidates::new(candidates.iter().map(head).collect()).expect("a part of candidates is candidates"))
    }

    /// Returns the candidates that go on, in rising order: the fewest, the likeliest first, that
    /// have the mass; of equals, the first.
    pub(crate) fn survivors(&self, probabilities: &[f64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
        let mut held = 0.0;
        let enough = order.iter().position(|&i| {
            held += probabilities[i];
            held >= self.mass
        });
        // Rounding may leave the sum of all short of one.
        order.truncate(enough.map_or(order.len(), |last| last + 1));
        order.sort_unstable();
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_go_on_until_they_have_the_mass() {
        let race = |mass| Race::new(NonZeroUsize::MIN, mass).unwrap();
        let p = [0.1, 0.4, 0.1, 0.3, 0.1];
        assert_eq!(race(0.4).survivors(&p), [1]);
        assert_eq!(race(0.5).survivors(&p), [1, 3]);
        assert_eq!(race(0.75).survivors(&p), [0, 1, 3]);
        assert_eq!(race(1.0).survivors(&[0.25; 3]), [0, 1, 2]);
        for mass in [0.0, 1.1, f64::NAN] {
            assert!(Race::new(NonZeroUsize::MIN, mass).is_err(), "{mass}");
        }
    }
}
