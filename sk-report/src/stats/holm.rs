/// Returns Holm's adjusted p-values for a family of tests, in the given order.
///
/// The i-th smallest of m becomes max over j ≤ i of min(1, (m − j + 1)·p₍ⱼ₎). Rejecting the tests
/// with an adjusted value of at most α bounds the probability of any false rejection in the family
/// by α, whatever the dependence between the tests (Holm 1979). NaN marks a test that could not be
/// made; it stays NaN and does not count towards m. O(m log m).
///
/// ```
/// use sk_report::stats::holm;
///
/// assert_eq!(holm(&[0.04, 0.01, 0.03]), [0.06, 0.03, 0.06]);
/// ```
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).filter(|&test| !p[test].is_nan()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, &test) in order.iter().enumerate() {
        largest = largest.max((order.len() - rank) as f64 * p[test]).min(1.0);
        adjusted[test] = largest;
    }
    adjusted
}
