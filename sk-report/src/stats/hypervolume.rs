use std::collections::BTreeMap;

/// Returns the volume that `points` dominate above `reference`: that of ⋃ [reference, point].
/// Larger is better on every axis.
///
/// The result is exact up to rounding. A point that does not exceed the reference on every axis
/// adds nothing, and neither does a dominated point.
///
/// Three dimensions use a sweep along the last axis (Beume, Fonseca, López-Ibáñez, Paquete and
/// Vahrenhold 2009). Points are visited from the highest down, and the area dominated in the other
/// two axes is a staircase in a search tree. Each step of it enters and leaves once: O(n log n).
/// For D > 3, each point adds what the points above it in the last axis leave of its box, which is
/// a volume of D − 1 dimensions (While, Bradstreet and Barone 2012). The number of operations grows
/// exponentially with D in the worst case; fifty points of ten axes take some milliseconds.
///
/// ```
/// use sk_report::stats::hypervolume;
///
/// let points = [[0.5, 1.0, 1.0], [1.0, 0.5, 1.0]];
/// assert_eq!(hypervolume(&points, [0.0; 3]), 0.75);
/// ```
///
/// # Panics
/// If the number of axes of a point differs from that of `reference`, or is zero.
pub fn hypervolume<P: AsRef<[f64]>>(points: &[P], reference: impl AsRef<[f64]>) -> f64 {
    let reference = reference.as_ref();
    assert!(!reference.is_empty(), "a point has at least one axis");
    let above = |point: &P| -> Vec<f64> {
        assert_eq!(point.as_ref().len(), reference.len(), "points and reference have the same axes");
        let mut edges: Vec<f64> = point.as_ref().iter().zip(reference).map(|(x, origin)| x - origin).collect();
        // A further edge of length 1 leaves the volume unchanged.
        edges.resize(edges.len().max(3), 1.0);
        edges
    };
    volume(points.iter().map(above).filter(|edges| edges.iter().all(|&edge| edge > 0.0)).collect(), reference.len().max(3))
}

/// Returns the volume of the union of boxes [0, edges] in the first `axes` ≥ 3 axes.
fn volume(mut boxes: Vec<Vec<f64>>, axes: usize) -> f64 {
    let last = axes - 1;
    boxes.sort_unstable_by(|a, b| b[last].total_cmp(&a[last]));
    let mut total = 0.0;
    if axes == 3 {
        let mut stairs = Staircase::default();
        for (i, edges) in boxes.iter().enumerate() {
            let height = edges[2] - boxes.get(i + 1).map_or(0.0, |next| next[2]);
            stairs.insert(edges[0], edges[1]);
            total += stairs.area * height;
        }
        return total;
    }
    for (i, edges) in boxes.iter().enumerate() {
        // Boxes before this one are at least as high, so what they contain of it has its height.
        let mut inside: Vec<Vec<f64>> = Vec::new();
        for other in &boxes[..i] {
            let common: Vec<f64> = edges.iter().zip(&other[..last]).map(|(a, b)| a.min(*b)).collect();
            let contains = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a >= b);
            if !inside.iter().any(|own| contains(own, &common)) {
                inside.retain(|own| !contains(&common, own));
                inside.push(common);
            }
        }
        total += edges[last] * (edges[..last].iter().product::<f64>() - volume(inside, last));
    }
    total
}

/// The union of boxes [0, x] × [0, y], stored as its outer corners: heights fall as x grows.
#[derive(Default)]
struct Staircase {
    /// Maps x to the height. The bits of positive floats have the order of the floats.
    heights: BTreeMap<u64, f64>,
    area: f64,
}

impl Staircase {
    fn insert(&mut self, x: f64, y: f64) {
        let mut height = self.heights.range(x.to_bits()..).next().map_or(0.0, |(_, &height)| height);
        if height >= y {
            return;
        }
        // To the left of x, raise the steps lower than y to y.
        let mut edge = x;
        while let Some((&bits, &next)) = self.heights.range(..x.to_bits()).next_back() {
            self.area += (edge - f64::from_bits(bits)) * (y - height);
            (edge, height) = (f64::from_bits(bits), next);
            if next > y {
                break;
            }
            self.heights.remove(&bits);
        }
        if height < y {
            self.area += edge * (y - height);
        }
        self.heights.insert(x.to_bits(), y);
    }
}
