//! Where to look first: the changes that ties, changes of order and collapses of the spread answer to.

use super::search::{Pair, Search};

/// How far past a tie, in units of the radius: enough to differ, and a share that a divisor can magnify.
const PAST: [f64; 2] = [1e-6, 1e-3];

/// Places at which scores are gathered.
const PLACES: usize = 16;

/// The worst of the probes from `before`. They take at most half of the evaluations that are left.
pub(super) fn probed(search: &mut Search<'_>, before: &[f64]) -> Pair {
    let half = search.evaluations() + search.left() / 2;
    let mut order: Vec<usize> = (0..before.len()).collect();
    order.sort_by(|&a, &b| before[a].total_cmp(&before[b]));
    let mut pair = search.still(before.to_vec());
    let mut probe = Probe { search, half, pair: &mut pair };
    probe.split(before, &order);
    probe.gather(before, &order);
    probe.meet(before, &order);
    probe.push(before);
    pair
}

struct Probe<'p, 's> {
    search: &'p mut Search<'s>,
    half: usize,
    pair: &'p mut Pair,
}

impl Probe<'_, '_> {
    fn go(&mut self, after: Vec<f64>) {
        if self.search.evaluations() < self.half {
            self.search.improve(self.pair, after);
        }
    }

    /// The best k against the rest, apart and together; and the order reversed.
    fn split(&mut self, before: &[f64], order: &[usize]) {
        let (n, radius) = (before.len(), self.search.radius());
        for k in 1..n {
            for sign in [1.0, -1.0] {
                let mut after = before.to_vec();
                for (rank, &i) in order.iter().enumerate() {
                    after[i] += if rank < k { -sign } else { sign } * radius;
                }
                self.go(after);
            }
        }
        let mut reversed = before.to_vec();
        for (rank, &i) in order.iter().enumerate() {
            reversed[i] = before[order[n - 1 - rank]];
        }
        self.go(reversed);
    }

    /// All gathered at one place, in a tie, or with one just off it.
    fn gather(&mut self, before: &[f64], order: &[usize]) {
        let radius = self.search.radius();
        let stride = order.len().div_ceil(PLACES);
        for &centre in order.iter().step_by(stride) {
            let gathered: Vec<f64> = before.iter().map(|&b| self.search.within(b, before[centre])).collect();
            for i in 0..before.len() {
                for shift in PAST.iter().flat_map(|&part| [part * radius, -part * radius]) {
                    let mut after = gathered.clone();
                    after[i] += shift;
                    self.go(after);
                }
            }
            self.go(gathered);
        }
    }

    /// Two that can meet: in a tie, past each other by little, and by as much as can be.
    fn meet(&mut self, before: &[f64], order: &[usize]) {
        let radius = self.search.radius();
        for (rank, &i) in order.iter().enumerate() {
            for &j in order[rank + 1..].iter().take_while(|&&j| before[j] - before[i] <= 2.0 * radius) {
                // Halves first, so that large scores do not overflow.
                let meeting = 0.5 * before[i] + 0.5 * before[j];
                for (low, high) in [(meeting, meeting), (meeting.next_up(), meeting), (before[i] + radius, before[j] - radius)] {
                    let mut after = before.to_vec();
                    (after[i], after[j]) = (low, high);
                    self.go(after);
                }
            }
        }
    }

    /// One alone, and one against another.
    fn push(&mut self, before: &[f64]) {
        let radius = self.search.radius();
        for i in 0..before.len() {
            for sign in [1.0, -1.0] {
                let mut after = before.to_vec();
                after[i] += sign * radius;
                self.go(after);
            }
            for j in (0..before.len()).filter(|&j| j != i) {
                let mut after = before.to_vec();
                after[i] += radius;
                after[j] -= radius;
                self.go(after);
            }
        }
    }
}
