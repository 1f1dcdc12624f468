/// Returns whether `a` is at least as large as `b` on every axis and larger on at least one. Both
/// must have the same number of axes.
pub fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a >= b) && a != b
}

/// Returns the Pareto front: the ascending indices of the points that no other point dominates.
/// Larger is better on every axis.
///
/// Coinciding points do not dominate each other: either all of them are on the front, or none.
/// A point with NaN is on the front and dominates no other. O(n²·D).
///
/// ```
/// use sk_report::stats::front;
///
/// assert_eq!(front(&[[1.0, 0.0], [0.0, 1.0], [0.0, 0.5], [1.0, 0.0]]), [0, 1, 3]);
/// ```
pub fn front<P: AsRef<[f64]>>(points: &[P]) -> Vec<usize> {
    let survives = |&i: &usize| !points.iter().any(|other| dominates(other.as_ref(), points[i].as_ref()));
    (0..points.len()).filter(survives).collect()
}
