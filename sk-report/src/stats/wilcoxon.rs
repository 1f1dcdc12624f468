use super::{Ranks, tail};

/// The treatment of zero differences in Wilcoxon's test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ZeroRule {
    /// Zeros are dropped before ranking: Wilcoxon (1945). SciPy's default, `wilcox`. The paper's
    /// p-values follow from it.
    #[default]
    Wilcox,
    /// Zeros are ranked, then their ranks are dropped: Pratt (1959). SciPy's `pratt`.
    Pratt,
    /// Zeros are ranked, and each side gets half of their ranks. SciPy's `zsplit`.
    Zsplit,
}

/// The most differences for which the exact distribution is used if there are no ties or zeros, as
/// in SciPy.
const EXACT_UNTIED: usize = 50;
/// The same with ties or zeros.
const EXACT_TIED: usize = 13;

/// Wilcoxon's two-sided signed-rank test of whether differences are symmetric about zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wilcoxon {
    /// The sum of the ranks of positive differences.
    pub positive: f64,
    /// The sum of the ranks of negative differences.
    pub negative: f64,
    /// The p-value; NaN if no difference is left.
    pub p: f64,
    /// Whether `p` is from the exact distribution over all 2ⁿ signs of the actual ranks, ties
    /// included, and not from the normal approximation with tie correction.
    pub exact: bool,
}

impl Wilcoxon {
    /// Runs the test with the null distribution that SciPy's `method="auto"` chooses. It is exact
    /// for at most 50 differences without ties or zeros, and for at most 13 differences otherwise.
    /// Beyond that it is normal without continuity correction. NaN is left out. O(n³) at most.
    ///
    /// ```
    /// use sk_report::stats::{Wilcoxon, ZeroRule};
    ///
    /// // Of the 2⁵ sign patterns, only two are as one-sided.
    /// assert_eq!(Wilcoxon::of(&[1.0, 2.0, 3.0, 4.0, 5.0], ZeroRule::Wilcox).p, 2.0 / 32.0);
    /// ```
    pub fn of(differences: &[f64], rule: ZeroRule) -> Self {
        let differences: Vec<f64> = differences.iter().copied().filter(|difference| !difference.is_nan()).collect();
        let ranked: Vec<f64> = differences.iter().copied().filter(|&d| d != 0.0 || rule != ZeroRule::Wilcox).collect();
        let ranks = Ranks::of(&ranked.iter().map(|difference| difference.abs()).collect::<Vec<_>>());
        // Doubled ranks of the differences that `counts` selects.
        let doubled = |counts: fn(f64) -> bool| -> Vec<u64> {
            ranked.iter().zip(&ranks.doubled).filter(|(difference, _)| counts(**difference)).map(|(_, &rank)| rank).collect()
        };
        let sum = |counts| doubled(counts).iter().sum::<u64>();
        let share = if rule == ZeroRule::Zsplit { sum(|d| d == 0.0) as f64 / 4.0 } else { 0.0 };
        let (positive, negative) = (sum(|d| d > 0.0) as f64 / 2.0 + share, sum(|d| d < 0.0) as f64 / 2.0 + share);
        let zeros = differences.iter().filter(|&&difference| difference == 0.0).count();
        let exact = differences.len() <= if ranks.has_ties() || zeros > 0 { EXACT_TIED } else { EXACT_UNTIED };
        let signed = doubled(|d| d != 0.0);
        let p = if signed.is_empty() {
            f64::NAN
        } else if exact {
            exact_p(&signed, sum(|d| d > 0.0))
        } else {
            // Under Pratt's rule the zeros, which come first, have no sign and need no tie
            // correction.
            normal_p(&ranks, if rule == ZeroRule::Pratt { zeros } else { 0 }, positive)
        };
        Self { positive, negative, p, exact }
    }
}

/// Returns twice the smaller tail of the sum of positive ranks if every sign is equally likely.
/// Ranks and sum are doubled.
fn exact_p(ranks: &[u64], observed: u64) -> f64 {
    let mut law = vec![0.0; ranks.iter().sum::<u64>() as usize + 1];
    law[0] = 1.0;
    let mut reached = 0;
    for &rank in ranks {
        let rank = rank as usize;
        for sum in (0..=reached).rev() {
            law[sum] *= 0.5;
            law[sum + rank] += law[sum];
        }
        reached += rank;
    }
    let observed = observed as usize;
    let (below, above): (f64, f64) = (law[..=observed].iter().sum(), law[observed..].iter().sum());
    (2.0 * below.min(above)).min(1.0)
}

/// Returns the p-value of the normal approximation, with the lowest `unsigned` ranks left out
/// (Cureton 1967).
fn normal_p(ranks: &Ranks, unsigned: usize, positive: f64) -> f64 {
    let first = |n: f64| n * (n + 1.0);
    let second = |n: f64| n * (n + 1.0) * (2.0 * n + 1.0);
    let (n, zeros) = (ranks.doubled.len() as f64, unsigned as f64);
    let tied = ranks.ties.iter().skip(usize::from(unsigned > 0));
    let ties: f64 = tied.map(|&size| (size as f64).powi(3) - size as f64).sum();
    let mean = (first(n) - first(zeros)) / 4.0;
    let std = ((second(n) - second(zeros) - ties / 2.0) / 24.0).sqrt();
    (2.0 * tail::normal(((positive - mean) / std).abs())).min(1.0)
}
