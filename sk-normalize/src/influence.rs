use sk_core::{Composite, Deviation, Moments, Normalizer, Real, ScoreTable, Simplex};

/// Returns the influence share of each blade in a composite: its contribution to the spread of the
/// candidates, as a fraction of the sum over all blades.
///
/// ```text
/// share_k = w_k std(μ̂^(k)) / Σ_l w_l std(μ̂^(l))
/// ```
///
/// where μ̂^(k) is the output of `normalizer` for blade k alone. Under every normaliser of this
/// crate, other blades do not change it. The coefficients w_k std(μ̂^(k)) are those of
/// the canonical blades in the composite (`thm:cbn` i and ii). Under
/// [`CandidateBatch`](crate::CandidateBatch) at ε = 0 and [`Rank`](crate::Rank) the shares are
/// **w**, provided that every blade has a spread. Under [`Raw`](crate::Raw) they are proportional
/// to w_k std(μ^(k)). A blade without spread has share 0. If no blade of positive weight has a
/// spread, every share is 0. O(K) calls of the normaliser; allocates.
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
/// If the number of weights differs from the number of blades.
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
        // All values are scaled by ¼, since the standard deviation of the largest numbers
        // overflows.
        out.mu.iter_mut().for_each(|mu| *mu = *mu * F::of(0.25));
        w * Moments::of(&out.mu, Deviation::Sample).std()
    };
    let coefficients: Vec<F> = weights.as_slice().iter().enumerate().map(coefficient).collect();
    // Relative to the largest, so that the sum cannot overflow.
    let peak = coefficients.iter().fold(F::zero(), |m, c| m.max(*c));
    if peak == F::zero() {
        return coefficients;
    }
    let total = coefficients.iter().map(|&c| c / peak).sum::<F>();
    coefficients.into_iter().map(|c| c / peak / total).collect()
}
