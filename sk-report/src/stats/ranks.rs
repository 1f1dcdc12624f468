/// Ranks from 1; ties share their mean rank.
///
/// Ranks are stored doubled, as integers, so that sums of ranks are exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// Twice each rank.
    pub doubled: Vec<u64>,
    /// The number of values that share each distinct value, in ascending order of value.
    pub ties: Vec<usize>,
}

impl Ranks {
    /// Ranks `values` in ascending order. O(n log n).
    pub fn of(values: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
        let mut doubled = vec![0; values.len()];
        let mut ties = Vec::new();
        let mut first = 0;
        // Compared by value, so that 0 and −0 tie.
        for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
            let last = first + group.len();
            for &i in group {
                doubled[i] = (first + 1 + last) as u64;
            }
            ties.push(group.len());
            first = last;
        }
        Self { doubled, ties }
    }

    /// Returns whether any two values are equal.
    pub fn has_ties(&self) -> bool {
        self.ties.iter().any(|&size| size > 1)
    }
}
