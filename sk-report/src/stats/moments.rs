/// Returns the arithmetic mean; NaN for an empty slice.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the median, the mean of the middle two values for an even number; NaN for an empty
/// slice.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Returns the smallest and the largest value, ignoring NaN; ∞ and −∞ if there is none.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let ends = [f64::INFINITY, f64::NEG_INFINITY];
    values.into_iter().fold(ends, |[least, most], value| [value.min(least), value.max(most)])
}

/// Returns the standard deviation √(Σ(x − x̄)²/n); NaN for an empty slice.
pub fn population_std(values: &[f64]) -> f64 {
    (squares(values) / values.len() as f64).sqrt()
}

/// Returns the standard deviation √(Σ(x − x̄)²/(n − 1)); NaN for fewer than two values.
pub fn sample_std(values: &[f64]) -> f64 {
    if values.len() < 2 { f64::NAN } else { (squares(values) / (values.len() - 1) as f64).sqrt() }
}

/// Returns the least-squares slope of `y` on `x`; NaN if `x` is constant.
///
/// # Panics
/// If the lengths differ.
pub fn slope(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len(), "one y per x");
    if !varies(x) {
        return f64::NAN;
    }
    let (centre_x, centre_y) = (mean(x), mean(y));
    let shared: f64 = x.iter().zip(y).map(|(x, y)| (x - centre_x) * (y - centre_y)).sum();
    shared / squares(x)
}

/// Returns whether values differ. They are compared directly: the mean of equal values can differ
/// from them by rounding.
pub(super) fn varies(values: &[f64]) -> bool {
    values.windows(2).any(|two| two[0] != two[1])
}

fn squares(values: &[f64]) -> f64 {
    let centre = mean(values);
    values.iter().map(|value| (value - centre).powi(2)).sum()
}
