//! The best trials, and the paper's method to combine several points into one.

use super::scalar::losses;
use super::{Point, Space, Trial};
use crate::scheme::parameters::Scale;
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

/// Returns the mean of points of a space: the geometric mean for numbers searched on a logarithmic
/// scale, the arithmetic mean for the others, rounded for whole numbers. Returns `None` if there
/// are no points.
///
/// The paper takes it over the optima of one search per objective, "geometric for T, which acts
/// multiplicatively on a log-probability scale". The result is one number per parameter and needs
/// no further responses. It is not an optimum of any objective.
pub fn consensus(space: &Space, points: &[&[f64]]) -> Option<Point> {
    if points.is_empty() {
        return None;
    }
    let count = points.len() as f64;
    let mean = |place: usize, of: fn(f64) -> f64| points.iter().map(|point| of(point[place])).sum::<f64>() / count;
    let means = space.dimensions().iter().enumerate().map(|(place, dimension)| match dimension.scale() {
        Scale::Log => mean(place, f64::ln).exp(),
        Scale::Linear => mean(place, |value| value),
        Scale::Whole => mean(place, |value| value).round(),
    });
    Some(means.collect())
}

#[cfg(test)]
mod tests {
    use sk_core::OperatingPoint;

    use super::*;
    use crate::scheme::{Base, Convention, SchemeSpec};

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

    #[test]
    fn the_published_optima_give_the_published_point() {
        let space = Space::default();
        let of = |point: &OperatingPoint| space.point_of(&SchemeSpec::reference(Base::new(Convention::Sound, point))).unwrap();
        let optima = [OperatingPoint::HARMLESSNESS, OperatingPoint::HELPFULNESS, OperatingPoint::HONESTY].map(|point| of(&point));
        let optima: Vec<&[f64]> = optima.iter().map(Vec::as_slice).collect();
        let found = consensus(&space, &optima).unwrap();
        // The paper's arithmetic, before it rounds: (11.219·1.69·21.03)^⅓ = 7.36, (.504 + 1.170 +
        // 1.587)/3 = 1.087, (1.483 + 1.707 + 2.088)/3 = 1.759, (.109 + .158 + .395)/3 = .2207, (4 +
        // 3 + 7)/3 → 5, (11 + 7 + 3)/3 = 7.
        for (found, expected) in found.iter().zip([7.36, 1.087, 1.759, 0.2207, 5.0, 7.0, 0.5]) {
            assert!((found - expected).abs() < 5e-3 * expected, "{found} {expected}");
        }
        assert_eq!(consensus(&space, &[]), None);
    }
}
