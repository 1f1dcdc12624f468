/// Whether `a` is at least as large as `b` on every axis and larger on one.
pub fn dominates<const D: usize>(a: &[f64; D], b: &[f64; D]) -> bool {
    let mut axes = a.iter().zip(b);
    axes.all(|(a, b)| a >= b) && a != b
}

/// The indices, ascending, of the points that no other dominates; larger is better on every axis.
///
/// Points that coincide do not dominate each other: all of them are on the front, or none. O(n²·D).
///
/// ```
/// use sk_bench::stats::front;
///
/// assert_eq!(front(&[[1.0, 0.0], [0.0, 1.0], [0.0, 0.5], [1.0, 0.0]]), [0, 1, 3]);
/// ```
pub fn front<const D: usize>(points: &[[f64; D]]) -> Vec<usize> {
    let survives = |&i: &usize| !points.iter().any(|other| dominates(other, &points[i]));
    (0..points.len()).filter(survives).collect()
}
