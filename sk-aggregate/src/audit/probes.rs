//! The first changes to try: those at ties, at changes of order and at collapses of the spread.

use super::search::{Pair, Search};

/// How far past a tie to go, relative to the radius: a minimal difference, and a share that a
/// divisor can magnify.
const PAST: [f64; 2] = [1e-6, 1e-3];

/// The most places at which scores are gathered.
const PLACES: usize = 16;

/// Returns the worst of the probes from `before`. They use at most half of the remaining
/// evaluations.
pub(super) fn probed(search: &mut Search<'_>, before: &[f64]) -> Pair {
    let half = search.evaluations + search.left() / 2;
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
        if self.search.evaluations < self.half {
            self.search.improve(self.pair, after);
        }
    }

    /// Moves the best k against the rest, apart and together, and reverses the order.
    fn split(&mut self, before: &[f64], order: &[usize]) {
        let (n, radius) = (before.len(), self.search.radius);
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

    /// Gathers all scores at one place, in a tie or with one slightly off it.
    fn gather(&mut self, before: &[f64], order: &[usize]) {
        let radius = self.search.radius;
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

    /// Moves two candidates that can meet to a tie, slightly past each other, and past each other
    /// as far as possible.
    fn meet(&mut self, before: &[f64], order: &[usize]) {
        let radius = self.search.radius;
        for (rank, &i) in order.iter().enumerate() {
            for &j in order[rank + 1..].iter().take_while(|&&j| before[j] - before[i] <= 2.0 * radius) {
                // Halved before the sum, so that large scores do not overflow.
                let meeting = 0.5 * before[i] + 0.5 * before[j];
                for (low, high) in [(meeting, meeting), (meeting.next_up(), meeting), (before[i] + radius, before[j] - radius)] {
                    let mut after = before.to_vec();
                    (after[i], after[j]) = (low, high);
                    self.go(after);
                }
            }
        }
    }

    /// Moves one candidate alone, and one against another.
    fn push(&mut self, before: &[f64]) {
        let radius = self.search.radius;
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use sk_core::{Aggregator, Batch};
    use sk_select::Uniform;

    use super::*;

    /// An aggregator that records the scores it is given.
    #[derive(Default)]
    struct Asked(Mutex<Vec<Vec<f64>>>);

    impl Aggregator for Asked {
        fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
            self.0.lock().unwrap().push(batch.mu().to_vec());
            ratings.fill(0.0);
        }
    }

    /// Returns the score vectors that the probes try from `before`, within a radius of 2.
    fn asked(before: &[f64], evaluations: usize) -> Vec<Vec<f64>> {
        let (asked, sigma) = (Asked::default(), vec![1.0; before.len()]);
        let batch = Batch::trusted(before, &sigma);
        probed(&mut Search::new(&asked, &Uniform, &batch, 2.0, evaluations), before);
        asked.0.into_inner().unwrap()
    }

    fn sorted(mut places: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        places.sort_by(|a, b| a.partial_cmp(b).unwrap());
        places.dedup();
        places
    }

    /// All vectors, computed by hand. The scores are 0, 3 and 10, not in order, and each can move
    /// by at most 2.
    #[test]
    fn ties_crossings_and_collapses_are_all_looked_at() {
        let mut expected = vec![vec![3.0, 0.0, 10.0]];
        // The best two, then the best, against the rest, apart and together; then the reversed
        // order.
        expected.extend([[5.0, -2.0, 12.0], [1.0, 2.0, 8.0], [1.0, -2.0, 12.0], [5.0, 2.0, 8.0], [3.0, 2.0, 8.0]].map(Vec::from));
        // Gathered at each of the three, with one slightly off it unless it is at the end of its
        // interval: `free` lists the directions in which it can move.
        for (gathered, free) in [
            ([1.0, 0.0, 8.0], [&[1.0][..], &[1.0, -1.0], &[1.0]]),
            ([3.0, 2.0, 8.0], [&[1.0, -1.0], &[-1.0], &[1.0]]),
            ([5.0, 2.0, 10.0], [&[-1.0], &[-1.0], &[1.0, -1.0]]),
        ] {
            expected.push(gathered.to_vec());
            for (i, sides) in free.into_iter().enumerate() {
                for (side, past) in sides.iter().flat_map(|side| [(side, 2e-6), (side, 2e-3)]) {
                    let mut off = gathered.to_vec();
                    off[i] += side * past;
                    expected.push(off);
                }
            }
        }
        // 0 and 3 meet half-way: in a tie, the lower one just past, and the lower one as far past
        // as possible.
        expected.extend([[1.5, 1.5, 10.0], [1.5, 1.5f64.next_up(), 10.0], [1.0, 2.0, 10.0]].map(Vec::from));
        // One alone, and one against another.
        for i in 0..3 {
            for (j, by) in (0..3).flat_map(|j| [(j, 2.0), (j, -2.0)]) {
                let mut pushed = vec![3.0, 0.0, 10.0];
                pushed[i] += by;
                if j != i {
                    pushed[j] -= by;
                }
                expected.push(pushed);
            }
        }
        assert_eq!(sorted(asked(&[3.0, 0.0, 10.0], 1000)), sorted(expected));
    }

    #[test]
    fn probes_take_half_of_what_is_left() {
        assert_eq!(asked(&[3.0, 0.0, 10.0], 20).len(), 10);
        // There are at most sixteen places to gather at, each with four ways off it per candidate.
        let many: Vec<f64> = (0..32).map(f64::from).collect();
        let gathered = |mu: &&Vec<f64>| mu.windows(2).filter(|pair| (pair[1] - pair[0]).abs() < 0.5).count() > 2;
        let found = asked(&many, 100_000).iter().filter(gathered).count();
        // Near the ends of the range, fewer than four come together.
        assert!((15 * (4 * 32 + 1)..=16 * (4 * 32 + 1)).contains(&found), "{found}");
    }
}
