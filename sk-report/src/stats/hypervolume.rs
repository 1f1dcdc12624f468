use std::collections::BTreeMap;

/// The volume that `points` dominate above `reference`: that of ⋃ [reference, point], larger being better on every axis.
///
/// Exact. A point that does not exceed the reference on every axis adds nothing, nor does one that is dominated.
///
/// A sweep along the last axis (Beume, Fonseca, López-Ibáñez, Paquete and Vahrenhold 2009): from the highest point down, the area dominated in
/// the other two is a staircase in a search tree, and each step of it enters and leaves once. O(n log n).
///
/// ```
/// use sk_report::stats::hypervolume;
///
/// let points = [[0.5, 1.0, 1.0], [1.0, 0.5, 1.0]];
/// assert_eq!(hypervolume(&points, [0.0; 3]), 0.75);
/// ```
pub fn hypervolume(points: &[[f64; 3]], reference: [f64; 3]) -> f64 {
    let above = |point: &[f64; 3]| -> [f64; 3] { std::array::from_fn(|axis| point[axis] - reference[axis]) };
    let mut boxes: Vec<[f64; 3]> = points.iter().map(above).filter(|edges| edges.iter().all(|&edge| edge > 0.0)).collect();
    boxes.sort_unstable_by(|a, b| b[2].total_cmp(&a[2]));
    let mut stairs = Staircase::default();
    let mut volume = 0.0;
    for (i, &[x, y, z]) in boxes.iter().enumerate() {
        stairs.insert(x, y);
        volume += stairs.area * (z - boxes.get(i + 1).map_or(0.0, |next| next[2]));
    }
    volume
}

/// The union of boxes [0, x] × [0, y], as the outer corners: heights that fall as x grows.
#[derive(Default)]
struct Staircase {
    /// x to height. The bits of positive floats are ordered as the floats are.
    heights: BTreeMap<u64, f64>,
    area: f64,
}

impl Staircase {
    fn insert(&mut self, x: f64, y: f64) {
        let mut height = self.heights.range(x.to_bits()..).next().map_or(0.0, |(_, &height)| height);
        if height >= y {
            return;
        }
        // Leftwards from x, the stairs lower than y are filled up to it.
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
