/// The most points whose permutations are enumerated: 10! is 3.6 million.
pub const MOST_PERMUTED: usize = 10;

/// The rank of an observed Σᵢ cost[π(i)][i] among its values over permutations π of the points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    at_most: u64,
    at_least: u64,
    total: u64,
}

impl Position {
    /// Counts one permutation.
    pub(super) fn count(&mut self, sum: u64, observed: u64) {
        self.at_most += u64::from(sum <= observed);
        self.at_least += u64::from(sum >= observed);
        self.total += 1;
    }

    /// Returns the two-sided p-value: twice the smaller tail, at most 1.
    pub(super) fn two_sided(self) -> f64 {
        (2.0 * self.at_most.min(self.at_least) as f64 / self.total as f64).min(1.0)
    }
}

/// Enumerates all n! permutations (Heap 1963). The identity is the observed permutation. `None` for
/// more than [`MOST_PERMUTED`] points.
///
/// Costs are integers, so that equal sums compare equal. O(n!), with constant time per permutation.
pub(super) fn enumerate(cost: &[Vec<u64>]) -> Option<Position> {
    let n = cost.len();
    if n > MOST_PERMUTED {
        return None;
    }
    let mut order: Vec<usize> = (0..n).collect();
    let observed: u64 = (0..n).map(|i| cost[i][i]).sum();
    let mut sum = observed;
    let mut position = Position::default();
    position.count(sum, observed);
    let mut turns = vec![0; n];
    let mut i = 1;
    while i < n {
        if turns[i] < i {
            let other = if i % 2 == 0 { 0 } else { turns[i] };
            sum -= cost[order[i]][i] + cost[order[other]][other];
            order.swap(other, i);
            sum += cost[order[i]][i] + cost[order[other]][other];
            position.count(sum, observed);
            turns[i] += 1;
            i = 1;
        } else {
            turns[i] = 0;
            i += 1;
        }
    }
    Some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permutation_once() {
        // The decimal digits of the sum identify the permutation: cost[j][i] = j·10^i.
        for n in 1..=6_usize {
            let cost: Vec<Vec<u64>> = (0..n).map(|j| (0..n).map(|i| j as u64 * 10_u64.pow(i as u32)).collect()).collect();
            let position = enumerate(&cost).unwrap();
            assert_eq!(position.total, (1..=n as u64).product::<u64>());
            // The identity gives the largest sum, and no other permutation gives the same.
            assert_eq!((position.at_most, position.at_least), (position.total, 1));
        }
        assert!(enumerate(&vec![vec![0; MOST_PERMUTED + 1]; MOST_PERMUTED + 1]).is_none());
    }
}
