use super::mean;
use super::moments::varies;

/// Returns Pearson's correlation Σ(x − x̄)(y − ȳ)/√(Σ(x − x̄)²·Σ(y − ȳ)²). `None` for fewer than
/// two points, if `x` or `y` is constant, or if a value is NaN or infinite.
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
    if !varies(x) || !varies(y) || !x.iter().chain(y).all(|value| value.is_finite()) {
        return None;
    }
    let centred = |values: &[f64]| -> Vec<f64> {
        let centre = mean(values);
        values.iter().map(|value| value - centre).collect()
    };
    let (a, b) = (centred(x), centred(y));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (aa, bb) = (dot(&a, &a), dot(&b, &b));
    if [aa, bb, aa * bb].iter().all(|square| square.is_normal()) {
        return Some((dot(&a, &b) / (aa * bb).sqrt()).clamp(-1.0, 1.0));
    }
    // Squares overflow or underflow. The correlation is the same in any unit.
    pearson(&scaled(x), &scaled(y))
}

/// Divides values by a power of two so that the largest magnitude is near 1.
fn scaled(values: &[f64]) -> Vec<f64> {
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let unit = largest.log2().floor().min(1023.0).exp2();
    values.iter().map(|value| value / unit).collect()
}
