//! Selection of the best trials.

use super::Trial;
use super::scalar::losses;
use sk_report::stats;

/// Returns the numbers of the trials that have scores, and the scores.
fn scored(trials: &[Trial]) -> (Vec<usize>, Vec<&[f64]>) {
    trials.iter().enumerate().filter(|(_, trial)| trial.is_scored()).map(|(i, trial)| (i, trial.scores.as_slice())).unzip()
}

/// Returns the trial with the greatest first score; the earliest one if several are equal. Returns
/// `None` if no trial has a score.
pub fn best(trials: &[Trial]) -> Option<usize> {
    scored(trials).0.into_iter().reduce(|best, i| if trials[i].scores[0] > trials[best].scores[0] { i } else { best })
}

/// Returns the Pareto front: the trials that no other trial dominates.
pub fn front(trials: &[Trial]) -> Vec<usize> {
    let (numbers, scores) = scored(trials);
    stats::front(&scores).into_iter().map(|place| numbers[place]).collect()
}

/// Returns the trial with the smallest augmented Chebyshev distance, with equal weights, from the
/// best score of each objective. Distances are in units of the range of scores. Returns `None` if
/// no trial has a score.
pub fn balanced(trials: &[Trial]) -> Option<usize> {
    let (numbers, scores) = scored(trials);
    let losses = losses(&scores, &vec![1.0; scores.first()?.len()]);
    (0..scores.len()).reduce(|best, i| if losses[i] < losses[best] { i } else { best }).map(|place| numbers[place])
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
        let unscored: Vec<Trial> = [trial(&[]), trial(&[])].into_iter().chain(trials).collect();
        assert_eq!((front(&unscored), best(&unscored), balanced(&unscored)), (vec![2, 3, 4, 6], Some(3), Some(4)));
        assert_eq!((best(&unscored[..2]), balanced(&unscored[..2])), (None, None), "without a score");
    }
}
