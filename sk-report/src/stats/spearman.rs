use super::permutations::{Position, enumerate};
use super::{Ranks, pearson, tail};

/// Spearman's rank correlation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spearman {
    /// r_s: Pearson's correlation of the ranks; ties share their mean rank.
    pub rho: f64,
    /// The two-sided p-value from Student's t with n − 2 degrees of freedom, t = r_s·√((n − 2)/(1 −
    /// r_s²)). Inaccurate for few points.
    pub p: f64,
    /// The two-sided permutation p-value over all n! pairings, twice the smaller tail. `None` for
    /// more than [`MOST_PERMUTED`](super::MOST_PERMUTED) points.
    pub exact_p: Option<f64>,
}

impl Spearman {
    /// Computes the correlation of `x` and `y`. `None` for fewer than three points, if one of them
    /// is constant, or if a value is NaN.
    ///
    /// The exact p-value is that of the actual ranks, ties included. O(n log n), plus O(n!) for at
    /// most ten points.
    ///
    /// # Panics
    /// If the lengths differ.
    ///
    /// ```
    /// use sk_report::stats::Spearman;
    ///
    /// let perfect = Spearman::of(&[1.0, 2.0, 3.0, 4.0], &[1.0, 8.0, 27.0, 64.0]).unwrap();
    /// assert_eq!(perfect.rho, 1.0);
    /// assert_eq!(perfect.exact_p, Some(2.0 / 24.0));
    /// ```
    pub fn of(x: &[f64], y: &[f64]) -> Option<Self> {
        assert_eq!(x.len(), y.len(), "one y per x");
        if x.iter().chain(y).any(|value| value.is_nan()) {
            return None;
        }
        let (x, y) = (Ranks::of(x), Ranks::of(y));
        let rho = correlation(&x.doubled, &y.doubled)?;
        let row = |x: &u64| y.doubled.iter().map(|y| x * y).collect::<Vec<u64>>();
        let few = x.doubled.len() <= super::MOST_PERMUTED;
        let exact = if few { enumerate(&x.doubled.iter().map(row).collect::<Vec<_>>()) } else { None };
        Some(Self { rho, p: approximate_p(rho, x.doubled.len()), exact_p: exact.map(Position::two_sided) })
    }
}

/// Returns Pearson's correlation of ranks; `None` for fewer than three points, or if one side is
/// constant.
pub(super) fn correlation(x: &[u64], y: &[u64]) -> Option<f64> {
    let numbers = |ranks: &[u64]| ranks.iter().map(|&rank| rank as f64).collect::<Vec<_>>();
    if x.len() > 2 { pearson(&numbers(x), &numbers(y)) } else { None }
}

/// Returns the two-sided p-value of a correlation of `n` independent pairs.
pub(super) fn approximate_p(rho: f64, n: usize) -> f64 {
    let freedom = n as f64 - 2.0;
    tail::student_two_sided(rho * (freedom / ((1.0 - rho) * (1.0 + rho))).sqrt(), freedom)
}
