//! All pairs of a large batch as a round robin of blocks.
//!
//! Blocks of candidates meet by the circle method: all but the first move on by one place each round, and in a round every block meets one
//! other. The meetings of a round touch disjoint ratings, so they can run at once, in place; each rating gets its terms in the order of the
//! rounds. So the ratings are the same bits on any number of threads.

#[cfg(feature = "parallel")]
use rayon::prelude::*;
use sk_core::Real;
use smallvec::SmallVec;

use super::pairs::{PAIRS, Pairs, Players};
use crate::{Link, Spread, lanes};

/// At most this many blocks, and so half as many meetings at once.
const BLOCKS: usize = 64;
/// A block is at least this long; shorter ones would spend their time on rounds.
const SHORTEST: usize = 128;

/// g, s and the bound on |u|.
pub(super) struct Comparison<'a, F, L, S> {
    pub(super) link: &'a L,
    pub(super) spread: &'a S,
    pub(super) limit: F,
}

/// Some of the candidates, next to each other, with their ratings so far.
struct Block<'a, F> {
    players: Players<'a, F>,
    ratings: &'a mut [F],
}

impl<F: Real, L: Link<F>, S: Spread<F>> Comparison<'_, F, L, S> {
    /// Adds to each rating what its candidate gets from all others.
    pub(super) fn all(&self, players: Players<'_, F>, ratings: &mut [F]) {
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
            // Whoever meets nobody has a bye.
            blocks.push(Block { players: players.slice(0..0), ratings: &mut [] });
        }
        #[cfg(feature = "parallel")]
        let parallel = lanes::shared(n);
        #[cfg(feature = "parallel")]
        if parallel {
            blocks.par_iter_mut().for_each(|block| self.within(block));
        }
        #[cfg(not(feature = "parallel"))]
        let parallel = false;
        if !parallel {
            blocks.iter_mut().for_each(|block| self.within(block));
        }
        let half = blocks.len() / 2;
        for _ in 1..blocks.len() {
            let (left, right) = blocks.split_at_mut(half);
            #[cfg(feature = "parallel")]
            if parallel {
                left.par_iter_mut().zip(right.par_iter_mut().rev()).for_each(|(a, b)| self.between(a, b));
            }
            if !parallel {
                left.iter_mut().zip(right.iter_mut().rev()).for_each(|(a, b)| self.between(a, b));
            }
            blocks[1..].rotate_right(1);
        }
    }

    /// The pairs inside a block.
    fn within(&self, block: &mut Block<'_, F>) {
        let mut pairs = Pairs::new();
        let (players, n) = (block.players, block.players.len());
        if n * n.saturating_sub(1) / 2 <= PAIRS {
            // All at once, since rows of a few pairs would leave most of a vector empty.
            for i in 0..n {
                pairs.push(players.mu[i], players.sigma[i], players.slice(i + 1..n));
            }
            let mut g = pairs.evaluate(self.link, self.spread, self.limit);
            for i in 0..n {
                let (row, rest) = g.split_at(n - 1 - i);
                if let Some((own, rivals)) = block.ratings[i..].split_first_mut() {
                    award(row, own, rivals);
                }
                g = rest;
            }
            return;
        }
        for i in 0..n {
            if let Some((own, rivals)) = block.ratings[i..].split_first_mut() {
                self.row(&mut pairs, players.mu[i], players.sigma[i], own, players.slice(i + 1..n), rivals);
            }
        }
    }

    /// The pairs of two blocks.
    fn between(&self, a: &mut Block<'_, F>, b: &mut Block<'_, F>) {
        let mut pairs = Pairs::new();
        for (i, own) in a.ratings.iter_mut().enumerate() {
            self.row(&mut pairs, a.players.mu[i], a.players.sigma[i], own, b.players, b.ratings);
        }
    }

    fn row(&self, pairs: &mut Pairs<F>, mu: F, sigma: F, own: &mut F, rivals: Players<'_, F>, ratings: &mut [F]) {
        for (k, ratings) in ratings.chunks_mut(PAIRS).enumerate() {
            pairs.clear();
            pairs.push(mu, sigma, rivals.slice(k * PAIRS..k * PAIRS + ratings.len()));
            award(pairs.evaluate(self.link, self.spread, self.limit), own, ratings);
        }
    }
}

/// g to the candidate, −g to each rival.
fn award<F: Real>(g: &[F], own: &mut F, rivals: &mut [F]) {
    *own = *own + lanes::sum(g);
    rivals.iter_mut().zip(g).for_each(|(rival, &g)| *rival = *rival - g);
}
