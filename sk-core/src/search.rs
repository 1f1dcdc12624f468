use std::num::NonZeroUsize;

use crate::{Candidate, Candidates, Decision, ParameterError, SpanEnd};

/// How many of the drafted tokens a step scores before it chooses.
///
/// Most of the cost of a step is scoring candidates that are not selected. A scheme with several
/// arms scores everything, whatever its search, since arms are compared on the same readings.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Search {
    /// Scores every token of every candidate.
    #[default]
    Full,
    /// Scores the candidates in waves, until the selection is settled.
    Waves(Waves),
    /// Scores the first tokens of every candidate, then the rest of those that can still be
    /// selected.
    Race(Race),
}

/// A search that scores candidates in waves, in the order of the proposal, and stops as soon as the
/// selection is settled. Candidates that are not scored cannot be selected.
///
/// A step that needs all N candidates reads them in 1 + ⌈(N − first)/size⌉ passes. The backbone
/// keeps the keys and values of the last wave only. If the selected candidate is from an earlier
/// wave, it is read again at the next step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waves {
    first: NonZeroUsize,
    size: NonZeroUsize,
    settled: Settled,
}

/// The condition under which the selection among the scored candidates is settled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Settled {
    /// One candidate has at least this selection probability.
    Probability(f64),
    /// One candidate has at least this composite score and is good enough whatever the others are
    /// (CARDS, Li et al. 2025).
    Score(f64),
}

/// A search that scores the first tokens of all candidates, drops those that are unlikely to be
/// selected, and scores the rest of the others.
///
/// The operators of the scheme give each candidate a selection probability based on its first
/// tokens. The fewest of the most probable candidates with a total of at least `mass` survive.
/// Judged by the first tokens alone, the candidate that would be selected is dropped with
/// probability at most 1 − `mass`. Dropped candidates stay in the batch with the scores of their
/// first tokens and probability zero, so that 𝓝 and 𝓐 compare as many candidates as without a race.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Race {
    tokens: NonZeroUsize,
    mass: f64,
}

impl Waves {
    /// Creates waves of `first` candidates and then of `size`.
    ///
    /// # Errors
    /// If the score is NaN, the probability is not in (0, 1], or `first` is 1 with a probability,
    /// which a single candidate always reaches.
    pub fn new(first: NonZeroUsize, size: NonZeroUsize, settled: Settled) -> Result<Self, ParameterError> {
        match settled {
            Settled::Probability(p) => {
                ParameterError::check(
                    first.get() > 1,
                    "first",
                    first.get() as f64,
                    "at least 2, since one candidate is certain",
                )?;
                ParameterError::check(p > 0.0 && p <= 1.0, "probability", p, "above 0 and at most 1")?
            }
            Settled::Score(score) => ParameterError::check(!score.is_nan(), "score", score, "a number")?,
        };
        Ok(Self { first, size, settled })
    }

    /// Returns how many of `n` candidates are scored after the next wave, if `scored` are scored
    /// now.
    pub(crate) fn next(&self, scored: usize, n: usize) -> usize {
        let more = if scored == 0 { self.first } else { self.size };
        scored.saturating_add(more.get()).min(n)
    }

    /// Returns whether a decision needs no more candidates.
    pub(crate) fn is_settled(&self, decision: &Decision) -> bool {
        match self.settled {
            Settled::Probability(least) => decision.probabilities.iter().any(|&p| p >= least),
            Settled::Score(least) => decision.mu.iter().any(|&mu| mu >= least),
        }
    }
}

impl Race {
    /// Creates a race over the first `tokens` tokens, in which candidates with a total of `mass`
    /// survive.
    ///
    /// # Errors
    /// If `mass` is not in (0, 1].
    pub fn new(tokens: NonZeroUsize, mass: f64) -> Result<Self, ParameterError> {
        ParameterError::check(mass > 0.0 && mass <= 1.0, "mass", mass, "above 0 and at most 1")?;
        Ok(Self { tokens, mass })
    }

    /// Returns the candidates truncated to their first tokens; `None` if none is longer.
    pub(crate) fn heads(&self, candidates: &Candidates) -> Option<Candidates> {
        let length = self.tokens.get();
        let head = |candidate: &Candidate| {
            let tokens = candidate.tokens.len().min(length);
            Candidate {
                tokens: candidate.tokens[..tokens].to_vec(),
                log_probs: candidate.log_probs[..tokens].to_vec(),
                end: if tokens < candidate.tokens.len() { SpanEnd::Limit } else { candidate.end },
            }
        };
        let is_long = candidates.iter().any(|candidate| candidate.tokens.len() > length);
        is_long.then(|| Candidates::new(candidates.iter().map(head).collect()).expect("a part of candidates is candidates"))
    }

    /// Returns the surviving candidates in ascending order: the fewest most probable ones that have
    /// the mass up to rounding; all if the mass is 1. On ties, the first is preferred.
    pub(crate) fn survivors(&self, probabilities: &[f64]) -> Vec<usize> {
        if self.mass == 1.0 {
            return (0..probabilities.len()).collect();
        }
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
        // Allows for the rounding of N additions.
        let mass = self.mass * (1.0 - probabilities.len() as f64 * f64::EPSILON);
        let mut held = 0.0;
        let enough = order.iter().position(|&i| {
            held += probabilities[i];
            held >= mass
        });
        // The total may round to less than one.
        order.truncate(enough.map_or(order.len(), |last| last + 1));
        order.sort_unstable();
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_does_not_end_as_its_candidate_does() {
        let candidate =
            |tokens: usize| Candidate { tokens: vec![1; tokens], log_probs: vec![-1.0; tokens], end: SpanEnd::EndOfText };
        let candidates = Candidates::new(vec![candidate(1), candidate(3)]).unwrap();
        let race = Race::new(NonZeroUsize::new(2).unwrap(), 0.5).unwrap();
        let heads = race.heads(&candidates).unwrap();
        assert_eq!([heads[0].end, heads[1].end], [SpanEnd::EndOfText, SpanEnd::Limit]);
    }

    #[test]
    fn the_most_probable_go_on_until_they_have_the_mass() {
        let race = |mass| Race::new(NonZeroUsize::MIN, mass).unwrap();
        let p = [0.1, 0.4, 0.1, 0.3, 0.1];
        assert_eq!(race(0.4).survivors(&p), [1]);
        assert_eq!(race(0.5).survivors(&p), [1, 3]);
        assert_eq!(race(0.75).survivors(&p), [0, 1, 3]);
        assert_eq!(race(1.0).survivors(&[0.25; 3]), [0, 1, 2]);
        assert_eq!(race(1.0).survivors(&[1.0, 1e-17, 0.0]), [0, 1, 2]);
        // Nine times 0.1 is below 0.9 by rounding.
        assert_eq!(race(0.9).survivors(&[0.1; 10]).len(), 9);
        for mass in [0.0, 1.1, f64::NAN] {
            assert!(Race::new(NonZeroUsize::MIN, mass).is_err(), "{mass}");
        }
    }
}
