use sk_core::{Composite, Deviation, Moments, Normalizer, Real, ScoreTable, Simplex};

/// The share of each blade in a composite: how far it moves the candidates apart, as a fraction of
/// all blades together.
///
/// ```text
/// share_k = w_k std(μ̂^(k)) / Σ_l w_l std(μ̂^(l))
/// ```
///
/// with μ̂^(k) what `normalizer` makes of blade k alone, which for every normaliser of this crate
/// is its contribution beside others. The coefficients w_k std(μ̂^(k)) are those of the canonical
/// blades in the composite (`thm:cbn` i and ii): the shares are **w** under
/// [`CandidateBatch`](crate::CandidateBatch) at ε = 0 where every blade has a spread, and ∝ w_k
/// std(μ^(k)) under [`Raw`](crate::Raw). A blade without any has share 0, and leaves its part to
/// the others; where no blade of positive weight has any, every share is 0. O(K) calls of the
/// normaliser; allocates.
///
/// ```
/// use sk_core::{ScoreTable, Simplex};
/// use sk_normalize::{CandidateBatch, Raw, influence_shares};
///
/// // Two blades at equal weight, one with three times the spread of the other.
/// let scores = ScoreTable::new([([3.0, 0.0, -3.0], [0.0; 3]), ([5.0, 7.0, 6.0], [0.0; 3])]).unwrap();
/// let even = Simplex::uniform(2).unwrap();
/// assert_eq!(influence_shares(&Raw::default(), &scores, &even), [0.75, 0.25]);
/// assert_eq!(influence_shares(&CandidateBatch::sound(), &scores, &even), [0.5, 0.5]);
/// ```
///
/// # Panics
/// When there are not as many weights as blades.
pub fn influence_shares<F: Real>(
    normalizer: &(impl Normalizer<F> + ?Sized),
    scores: &ScoreTable<F>,
    weights: &Simplex<F>,
) -> Vec<F> {
    assert_eq!(weights.len(), scores.blades(), "one weight per blade");
    let alone = Simplex::uniform(1).expect("one blade has weight 1");
    let mut out = Composite::default();
    let coefficient = |(k, &w): (usize, &F)| {
        let row = ScoreTable::new([(scores.mu(k), scores.sigma(k))]).expect("the row of a table is a table");
        normalizer.combine(&row, &alone, &mut out);
        // Quarters of all alike, since the deviation of the largest numbers overflows.
        out.mu.iter_mut().for_each(|mu| *mu = *mu * F::of(0.25));
        w * Moments::of(&out.mu, Deviation::Sample).std()
    };
    let coefficients: Vec<F> = weights.as_slice().iter().enumerate().map(coefficient).collect();
    // In units of the largest, so that the sum cannot overflow.
    let peak = coefficients.iter().fold(F::zero(), |m, c| m.max(*c));
    if peak == F::zero() {
        return coefficients;
    }
    let total = coefficients.iter().map(|&c| c / peak).sum::<F>();
    coefficients.into_iter().map(|c| c / peak / total).collect()
}
