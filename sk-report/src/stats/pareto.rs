/// Whether `a` is at least as large as `b` on every axis and larger on one. Both have the same
/// axes.
pub fn dominates(a: &[f64], b: &[f64]) -> bool {
    let mut axes = a.iter().zip(b);
    axes.all(|(a, b)| a >= b) && a != b
}

/// The indices, ascending, of the points that no other dominates; larger is better on every axis.
///
/// Points that coincide do not dominate each other: all of them are on the front, or none. O(n²·D).
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
