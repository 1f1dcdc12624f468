use super::mean;

/// Returns Pearson's correlation Σ(x − x̄)(y − ȳ)/√(Σ(x − x̄)²·Σ(y − ȳ)²). `None` for fewer than
/// two points, or if `x` or `y` is constant.
///
/// # Panics
/// If the lengths differ.
///
/// ```
/// use sk_report::stats::pearson;
///
/// assert_eq!(pearson(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), Some(1.0));
/// assert_eq!(pearson(&[0.1, 0.1, 0.1], &[1.0, 2.0, 3.0]), None);
/// ```
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "one y per x");
    // Values are compared directly: the mean of equal values can differ from them by rounding.
    let varies = |values: &[f64]| values.windows(2).any(|two| two[0] != two[1]);
    if !varies(x) || !varies(y) {
        return None;
    }
    let centred = |values: &[f64]| -> Vec<f64> {
        let centre = mean(values);
        values.iter().map(|value| value - centre).collect()
    };
    let (x, y) = (centred(x), centred(y));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    Some((dot(&x, &y) / (dot(&x, &x) * dot(&y, &y)).sqrt()).clamp(-1.0, 1.0))
}
