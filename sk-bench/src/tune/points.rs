//! Which of the trials to take.

use super::Trial;
use super::scalar::losses;
use crate::stats;

/// The trial of the greatest first score; the earliest of equals. Nothing for no trial.
pub fn best(trials: &[Trial]) -> Option<usize> {
    (0..trials.len()).reduce(|best, i| if trials[i].scores[0] > trials[best].scores[0] { i } else { best })
}

/// The trials that no other beats on every objective.
pub fn front(trials: &[Trial]) -> Vec<usize> {
    let scores: Vec<&[f64]> = trials.iter().map(|trial| trial.scores.as_slice()).collect();
    stats::front(&scores)
}

/// The trial that is worst off least: the smallest augmented Chebyshev distance, with equal weights, from the best score seen on each
/// objective, in units of the range seen. Nothing for no trial.
pub fn balanced(trials: &[Trial]) -> Option<usize> {
    let objectives = trials.first()?.scores.len();
    let scores: Vec<&[f64]> = trials.iter().map(|trial| trial.scores.as_slice()).collect();
    let losses = losses(&scores, &vec![1.0; objectives]);
    (0..trials.len()).reduce(|best, i| if losses[i] < losses[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_by_hand() {
        let trial = |scores: &[f64]| Trial { point: Vec::new(), scores: scores.to_vec() };
        let trials = [&[0.0, 1.0][..], &[1.0, 0.0], &[0.7, 0.6], &[0.6, 0.6], &[1.0, 0.0]].map(trial);
        assert_eq!(front(&trials), [0, 1, 2, 4]);
        assert_eq!(best(&trials), Some(1), "the earliest of equals");
        // Distances from (1, 1): (1, 0), (0, 1), (.3, .4), (.4, .4).
        assert_eq!(balanced(&trials), Some(2));
        assert_eq!((best(&[]), balanced(&[])), (None, None));
    }
}
