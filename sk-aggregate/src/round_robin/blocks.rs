//! All pairs of a large batch, as a round robin of blocks.
//!
//! Blocks of candidates are paired by the circle method: in each round, all blocks but the first
//! move on by one place, and every block meets one other. The meetings of a round change disjoint
//! ratings, so they can run in parallel and in place. Each rating adds its terms in the order of
//! the rounds, so the ratings are bit-identical for any number of threads.

use sk_core::Real;
use smallvec::SmallVec;

use super::pairs::{PAIRS, Pairs, Players};
use crate::lanes::{self, Wide};
use crate::{Link, Spread};

/// The most blocks; half as many meetings run in parallel.
const BLOCKS: usize = 64;
/// The least length of a block. Shorter blocks would spend their time on rounds.
const SHORTEST: usize = 128;

/// The size of a decoding step's batch. It has its own buffer, since clearing one of [`PAIRS`]
/// takes as long as rating seven candidates.
const FEW: usize = 8;
/// The most candidates with at most [`PAIRS`] pairs.
const SOME: usize = 16;

const fn pairs_of(n: usize) -> usize {
    n * (n - 1) / 2
}

const _: () = assert!(pairs_of(SOME) <= PAIRS && PAIRS < pairs_of(SOME + 1));

/// g, s and the bound on |u|.
pub(super) struct Comparison<'a, F, L, S> {
    pub(super) link: &'a L,
    pub(super) spread: &'a S,
    pub(super) limit: F,
}

/// A range of candidates, with their ratings so far.
struct Block<'a, F> {
    players: Players<'a, F>,
    ratings: &'a mut [F],
}

impl<F: Real, L: Link<F>, S: Spread<F>> Comparison<'_, F, L, S> {
    /// Adds to each rating the terms from all other candidates.
    pub(super) fn all(&self, players: Players<'_, F>, ratings: &mut [F]) {
        self.meet(players, ratings);
        if players.len() > SOME {
            // The terms of equal candidates are equal and were added in different orders.
            lanes::widest(Share { players, ratings });
        }
    }

    fn meet(&self, players: Players<'_, F>, ratings: &mut [F]) {
        let n = players.len();
        let length = SHORTEST.max(n.div_ceil(BLOCKS));
        if n <= length {
            return self.within(&mut Block { players, ratings });
        }
        let mut blocks: SmallVec<[Block<'_, F>; BLOCKS]> = ratings
            .chunks_mut(length)
            .enumerate()
            .map(|(k, ratings)| Block { players: players.slice(k * length..k * length + ratings.len()), ratings })
            .collect();
        if blocks.len() % 2 == 1 {
            // A block without an opponent has a bye.
            blocks.push(Block { players: players.slice(0..0), ratings: &mut [] });
        }
        lanes::each(&mut blocks, n, |_, block| self.within(block));
        let half = blocks.len() / 2;
        for _ in 1..blocks.len() {
            let (left, right) = blocks.split_at_mut(half);
            let meetings = left.iter_mut().zip(right.iter_mut().rev());
            lanes::each(&mut meetings.collect::<SmallVec<[_; BLOCKS / 2]>>(), n, |_, (a, b)| self.between(a, b));
            blocks[1..].rotate_right(1);
        }
    }

    /// Adds the pairs within a block.
    fn within(&self, block: &mut Block<'_, F>) {
        let Block { players, ratings } = block;
        let n = ratings.len();
        if n <= FEW {
            return self.few::<{ pairs_of(FEW) }>(*players, ratings);
        }
        if n <= SOME {
            return self.few::<PAIRS>(*players, ratings);
        }
        let mut pairs = Pairs::new();
        for i in 0..n {
            if let Some((own, rivals)) = ratings[i..].split_first_mut() {
                self.row(&mut pairs, players.at(i), own, players.slice(i + 1..n), rivals);
            }
        }
    }

    /// Adds the pairs of so few candidates that all are evaluated together, since rows of a few
    /// pairs would leave most of a vector empty.
    fn few<const CAPACITY: usize>(&self, players: Players<'_, F>, ratings: &mut [F]) {
        let mut pairs = Pairs::<F, CAPACITY>::new();
        pairs.triangle(players);
        let again = || (0..players.len()).flat_map(|i| (i + 1..players.len()).map(move |j| [players.at(i), players.at(j)]));
        let mut g = pairs.evaluate(self.link, self.spread, self.limit, again).iter();
        for i in 0..ratings.len() {
            let (own, rivals) = ratings[i..].split_first_mut().expect("candidate i is one of them");
            for (rival, &g) in rivals.iter_mut().zip(&mut g) {
                *own = *own + g;
                *rival = *rival - g;
            }
        }
    }

    /// Adds the pairs of two blocks.
    fn between(&self, a: &mut Block<'_, F>, b: &mut Block<'_, F>) {
        let mut pairs = Pairs::new();
        for (i, own) in a.ratings.iter_mut().enumerate() {
            self.row(&mut pairs, a.players.at(i), own, b.players, b.ratings);
        }
    }

    fn row(&self, pairs: &mut Pairs<F, PAIRS>, player: (F, F), own: &mut F, rivals: Players<'_, F>, ratings: &mut [F]) {
        for (k, ratings) in ratings.chunks_mut(PAIRS).enumerate() {
            let rivals = rivals.slice(k * PAIRS..k * PAIRS + ratings.len());
            pairs.row(player, rivals);
            let again = || (0..rivals.len()).map(|j| [player, rivals.at(j)]);
            award(pairs.evaluate(self.link, self.spread, self.limit, again), own, ratings);
        }
    }
}

/// Gives candidates with equal scores and dispersions the rating of the first of them. O(N²)
/// comparisons, which take far less time than the pairs.
struct Share<'a, F> {
    players: Players<'a, F>,
    ratings: &'a mut [F],
}

impl<F: Real> Wide for Share<'_, F> {
    #[inline(always)]
    fn run(self) {
        let Players { mu, sigma } = self.players;
        for i in 1..mu.len() {
            let equals = |j: usize| (mu[j] == mu[i]) & (sigma[j] == sigma[i]);
            let chunks = mu[..i].chunks(PAIRS).zip(sigma[..i].chunks(PAIRS));
            let found = chunks.enumerate().find(|(_, (mus, sigmas))| {
                // Without a branch per candidate, the loop runs in vectors.
                let pairs = mus.iter().zip(*sigmas);
                pairs.fold(false, |found, (&m, &s)| found | ((m == mu[i]) & (s == sigma[i])))
            });
            if let Some(first) = found.and_then(|(chunk, _)| (chunk * PAIRS..i).find(|&j| equals(j))) {
                self.ratings[i] = self.ratings[first];
            }
        }
    }
}

/// Adds g to the candidate and −g to each rival.
fn award<F: Real>(g: &[F], own: &mut F, rivals: &mut [F]) {
    *own = *own + lanes::sum(g);
    rivals.iter_mut().zip(g).for_each(|(rival, &g)| *rival = *rival - g);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, PNorm};

    /// Blocks of batches of ten thousand and more are longer than the number of pairs that are
    /// evaluated together.
    #[test]
    fn a_row_may_be_longer_than_the_pairs_that_are_evaluated_together() {
        let rivals = 2 * PAIRS + 40;
        let mu: Vec<f64> = (0..rivals).map(|j| (j * 7 % 11) as f64).collect();
        let sigma: Vec<f64> = (0..rivals).map(|j| (1 << (j % 3)) as f64 - 0.5).collect();
        let comparison = Comparison { link: &Identity, spread: &PNorm::SUM, limit: f64::MAX };
        let (mut own, mut ratings) = (1.0, vec![2.0; rivals]);
        comparison.row(&mut Pairs::new(), (5.0, 0.5), &mut own, Players { mu: &mu, sigma: &sigma }, &mut ratings);
        // Spreads are powers of two and ratings small multiples of an eighth of them, so sums are
        // exact.
        let g: Vec<f64> = mu.iter().zip(&sigma).map(|(m, s)| (5.0 - m) / (0.5 + s)).collect();
        assert_eq!(own, 1.0 + g.iter().sum::<f64>());
        assert_eq!(ratings, g.iter().map(|g| 2.0 - g).collect::<Vec<_>>());
    }
}
