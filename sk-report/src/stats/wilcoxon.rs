use super::{Ranks, tail};

/// What Wilcoxon's test does with differences of zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ZeroRule {
    /// They are dropped before ranking: Wilcoxon (1945). SciPy's `wilcox`, its default, and what
    /// the paper's p-values follow from.
    #[default]
    Wilcox,
    /// They are ranked and their ranks then dropped: Pratt (1959). SciPy's `pratt`.
    Pratt,
    /// They are ranked, and half of their ranks goes to each side. SciPy's `zsplit`.
    Zsplit,
}

/// Which null distribution a p-value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Null {
    /// All 2ⁿ signs of the ranks at hand, ties included. O(n³) at most.
    Exact,
    /// The normal approximation with tie correction; `continuity` moves the statistic half a unit
    /// towards its mean.
    Normal {
        /// Whether to correct for continuity.
        continuity: bool,
    },
}

/// Differences up to which the exact distribution is used where none ties and none is zero, as
/// SciPy does.
const EXACT_UNTIED: usize = 50;
/// The same where some tie or are zero.
const EXACT_TIED: usize = 13;

/// Wilcoxon's signed-rank test of whether differences are symmetric about zero, two-sided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wilcoxon {
    /// Differences that entered the ranking.
    pub n: usize,
    /// Sum of the ranks of positive differences.
    pub positive: f64,
    /// Sum of the ranks of negative differences.
    pub negative: f64,
    /// The p-value; NaN where no difference is left.
    pub p: f64,
    /// Where it comes from.
    pub null: Null,
}

impl Wilcoxon {
    /// The test, choosing its null distribution as SciPy's `method="auto"` does: exact for at most
    /// 50 differences that are all distinct and not zero, exact over all signs for at most 13
    /// others, and normal without continuity correction beyond.
    ///
    /// ```
    /// use sk_report::stats::{Wilcoxon, ZeroRule};
    ///
    /// // Of 2⁵ sign patterns only two are as one-sided as this.
    /// assert_eq!(Wilcoxon::of(&[1.0, 2.0, 3.0, 4.0, 5.0], ZeroRule::Wilcox).p, 2.0 / 32.0);
    /// ```
    pub fn of(differences: &[f64], zeros: ZeroRule) -> Self {
        let signed = SignedRanks::of(differences, zeros);
        let most = if signed.tied || signed.zeros > 0 { EXACT_TIED } else { EXACT_UNTIED };
        let null = if differences.len() <= most { Null::Exact } else { Null::Normal { continuity: false } };
        signed.test(zeros, null)
    }

    /// The test under a null distribution of choice.
    pub fn under(differences: &[f64], zeros: ZeroRule, null: Null) -> Self {
        SignedRanks::of(differences, zeros).test(zeros, null)
    }
}

struct SignedRanks {
    /// Doubled ranks and whether the difference is positive, zeros left out.
    ranks: Vec<(u64, bool)>,
    /// Twice the ranks of the zeros.
    zero_ranks: u64,
    zeros: usize,
    /// Entered the ranking.
    n: usize,
    tied: bool,
    /// Σ(t³ − t) over ties.
    tie_correction: f64,
}

impl SignedRanks {
    fn of(differences: &[f64], rule: ZeroRule) -> Self {
        let zeros = differences.iter().filter(|&&difference| difference == 0.0).count();
        let ranked: Vec<f64> = differences.iter().copied().filter(|&d| d != 0.0 || rule != ZeroRule::Wilcox).collect();
        let ranks = Ranks::of(&ranked.iter().map(|difference| difference.abs()).collect::<Vec<_>>());
        // Pratt's zeros have no sign to tie with; they come first.
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

    /// Twice the smaller tail of the sum of positive ranks when every sign is a fair coin.
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
