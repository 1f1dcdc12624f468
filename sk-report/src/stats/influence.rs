/// Returns the share wₖsₖ/Σwⱼsⱼ of each blade in a composite of raw scores, where sₖ is the spread
/// std(μ⁽ᵏ⁾) in the batch.
///
/// This is Theorem 3(i) (`thm:cbn`), for spreads that were recorded without the scores.
/// [`sk_normalize::influence_shares`] computes it from scores, for any normaliser. `None` if no
/// blade of positive weight has a spread.
///
/// # Panics
/// If the lengths differ.
///
/// ```
/// use sk_report::stats::influence_shares;
///
/// assert_eq!(influence_shares(&[0.5, 0.5], &[3.0, 1.0]), Some(vec![0.75, 0.25]));
/// ```
pub fn influence_shares(weights: &[f64], spreads: &[f64]) -> Option<Vec<f64>> {
    assert_eq!(weights.len(), spreads.len(), "one spread per weight");
    let pulls: Vec<f64> = weights.iter().zip(spreads).map(|(weight, spread)| weight * spread).collect();
    let total: f64 = pulls.iter().sum();
    (total > 0.0).then(|| pulls.iter().map(|pull| pull / total).collect())
}
