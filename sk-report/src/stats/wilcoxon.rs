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

/// The null distribution of a p-value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Null {
    /// The exact distribution over all 2ⁿ signs of the actual ranks, ties included. O(n³) at most.
    Exact,
    /// The normal approximation with tie correction. `continuity` moves the statistic half a unit
    /// towards its mean.
    Normal {
        /// Whether to correct for continuity.
        continuity: bool,
    },
}

/// The most differences for which the exact distribution is used if there are no ties or zeros, as
/// in SciPy.
const EXACT_UNTIED: usize = 50;
/// The same with ties or zeros.
const EXACT_TIED: usize = 13;

/// Wilcoxon's two-sided signed-rank test of whether differences are symmetric about zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wilcoxon {
    /// The number of ranked differences.
    pub n: usize,
    /// The sum of the ranks of positive differences.
    pub positive: f64,
    /// The sum of the ranks of negative differences.
    pub negative: f64,
    /// The p-value; NaN if no difference is left.
    pub p: f64,
    /// The null distribution that was used.
    pub null: Null,
}

impl Wilcoxon {
    /// Runs the test with the null distribution that SciPy's `method="auto"` chooses. It is exact
    /// for at most 50 differences without ties or zeros, and for at most 13 differences otherwise.
    /// Beyond that it is normal without continuity correction.
    ///
    /// ```
    /// use sk_report::stats::{Wilcoxon, ZeroRule};
    ///
    /// // Of the 2⁵ sign patterns, only two are as one-sided.
    /// assert_eq!(Wilcoxon::of(&[1.0, 2.0, 3.0, 4.0, 5.0], ZeroRule::Wilcox).p, 2.0 / 32.0);
    /// ```
    pub fn of(differences: &[f64], zeros: ZeroRule) -> Self {
        let signed = SignedRanks::of(differences, zeros);
        let most = if signed.tied || signed.zeros > 0 { EXACT_TIED } else { EXACT_UNTIED };
        let null = if differences.len() <= most { Null::Exact } else { Null::Normal { continuity: false } };
        signed.test(zeros, null)
    }

    /// Runs the test with a given null distribution.
    pub fn under(differences: &[f64], zeros: ZeroRule, null: Null) -> Self {
        SignedRanks::of(differences, zeros).test(zeros, null)
    }
}

struct SignedRanks {
    /// The doubled ranks of the non-zero differences, and whether the difference is positive.
    ranks: Vec<(u64, bool)>,
    /// Twice the sum of the ranks of the zeros.
    zero_ranks: u64,
    zeros: usize,
    /// The number of ranked differences.
    n: usize,
    tied: bool,
    /// Σ(t³ − t) over groups of ties.
    tie_correction: f64,
}

impl SignedRanks {
    fn of(differences: &[f64], rule: ZeroRule) -> Self {
        let zeros = differences.iter().filter(|&&difference| difference == 0.0).count();
        let ranked: Vec<f64> = differences.iter().copied().filter(|&d| d != 0.0 || rule != ZeroRule::Wilcox).collect();
        let ranks = Ranks::of(&ranked.iter().map(|difference| difference.abs()).collect::<Vec<_>>());
        // Under Pratt's rule the zeros, which come first, have no sign and need no tie correction.
        let skip = usize::from(rule == ZeroRule::Pratt && zeros > 0);
        let tie_correction = ranks.tie_sizes().iter().skip(skip).map(|&size| (size as f64).powi(3) - size as f64).sum();
        let mut signed = Self {
            ranks: Vec::with_capacity(ranked.len()),
            zero_ranks: 0,
            zeros,
            n: ranked.len(),
            tied: ranks.has_ties(),
            tie_correction,
        };
        for (&difference, &rank) in ranked.iter().zip(ranks.doubled()) {
            if difference == 0.0 {
                signed.zero_ranks += rank;
            } else {
                signed.ranks.push((rank, difference > 0.0));
            }
        }
        signed
    }

    fn test(&self, rule: ZeroRule, null: Null) -> Wilcoxon {
        let sum = |side: bool| self.ranks.iter().filter(|(_, positive)| *positive == side).map(|(rank, _)| rank).sum::<u64>();
        let share = if rule == ZeroRule::Zsplit { self.zero_ranks as f64 / 4.0 } else { 0.0 };
        let (positive, negative) = (sum(true) as f64 / 2.0 + share, sum(false) as f64 / 2.0 + share);
        let p = match null {
            _ if self.ranks.is_empty() => f64::NAN,
            Null::Exact => self.exact_p(sum(true)),
            Null::Normal { continuity } => self.normal_p(rule, positive, continuity),
        };
        Wilcoxon { n: self.n, positive, negative, p, null }
    }

    /// Returns twice the smaller tail of the sum of positive ranks if every sign is equally likely.
    fn exact_p(&self, observed: u64) -> f64 {
        let total: u64 = self.ranks.iter().map(|(rank, _)| rank).sum();
        let mut law = vec![0.0; total as usize + 1];
        law[0] = 1.0;
        let mut reached = 0;
        for &(rank, _) in &self.ranks {
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

    fn normal_p(&self, rule: ZeroRule, positive: f64, continuity: bool) -> f64 {
        let first = |n: f64| n * (n + 1.0);
        let second = |n: f64| n * (n + 1.0) * (2.0 * n + 1.0);
        let n = self.n as f64;
        // Cureton (1967): under Pratt's rule the lowest ranks carry no sign.
        let unsigned = if rule == ZeroRule::Pratt { self.zeros as f64 } else { 0.0 };
        let mean = (first(n) - first(unsigned)) / 4.0;
        let std = ((second(n) - second(unsigned) - self.tie_correction / 2.0) / 24.0).sqrt();
        let z = (positive - mean) / std;
        let step = if continuity && z != 0.0 { 0.5 / std * z.signum() } else { 0.0 };
        (2.0 * tail::normal((z - step).abs())).min(1.0)
    }
}
