use std::cmp::Ordering;

use sk_core::Real;
use smallvec::SmallVec;

use crate::Buffer;

/// Opponents of all players fit on the stack for the published numbers of candidates and rounds.
type Opponents = SmallVec<[usize; 128]>;

/// Who plays whom, round after round. Players are their seeds, 0 the strongest.
pub(super) struct Pairing {
    standings: Buffer<usize>,
    paired: Buffer<bool>,
    pairs: SmallVec<[(usize, usize); 16]>,
    /// `width` slots per player, the first `met[player]` of them taken.
    opponents: Opponents,
    met: Buffer<usize>,
    width: usize,
}

impl Pairing {
    pub(super) fn new(players: usize, rounds: usize) -> Self {
        let width = rounds.min(players - 1);
        Self {
            standings: (0..players).collect(),
            paired: Buffer::from_elem(false, players),
            pairs: SmallVec::with_capacity(players / 2),
            opponents: Opponents::from_elem(0, players * width),
            met: Buffer::from_elem(0, players),
            width,
        }
    }

    /// The pairs of the next round, from the top of the standings down, and who is left over.
    ///
    /// Standings are by rating, ties by seed. The first player without an opponent meets the next it has not met, else the next.
    pub(super) fn next<F: Real>(&mut self, rating: &[F]) -> (&[(usize, usize)], Option<usize>) {
        let by_rating = |&a: &usize, &b: &usize| rating[b].partial_cmp(&rating[a]).unwrap_or(Ordering::Equal).then(a.cmp(&b));
        self.standings.sort_unstable_by(by_rating);
        self.paired.fill(false);
        self.pairs.clear();
        let mut bye = None;
        for place in 0..self.standings.len() {
            let player = self.standings[place];
            if self.paired[player] {
                continue;
            }
            let mut left = self.standings[place + 1..].iter().copied().filter(|&other| !self.paired[other]);
            let next = left.clone().next();
            match left.find(|&other| !self.have_met(player, other)).or(next) {
                Some(other) => self.pair(player, other),
                None => bye = Some(player),
            }
        }
        (&self.pairs, bye)
    }

    fn have_met(&self, a: usize, b: usize) -> bool {
        self.opponents[a * self.width..][..self.met[a]].contains(&b)
    }

    fn pair(&mut self, a: usize, b: usize) {
        self.pairs.push((a, b));
        if !self.have_met(a, b) {
            for (player, other) in [(a, b), (b, a)] {
                self.opponents[player * self.width + self.met[player]] = other;
                self.met[player] += 1;
            }
        }
        self.paired[a] = true;
        self.paired[b] = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratings_give_a_round_robin_before_any_rematch() {
        let rating = [START; 4];
        let mut pairing = Pairing::new(4, 5);
        let mut round = || pairing.next(&rating).0.to_vec();
        assert_eq!(round(), [(0, 1), (2, 3)]);
        assert_eq!(round(), [(0, 2), (1, 3)]);
        assert_eq!(round(), [(0, 3), (1, 2)]);
        // All have met: the next in the standings.
        assert_eq!(round(), [(0, 1), (2, 3)]);
    }

    #[test]
    fn the_last_without_an_opponent_sits_out() {
        let mut pairing = Pairing::new(3, 3);
        assert_eq!(pairing.next(&[1500.0, 1500.0, 1500.0]), (&[(0, 1)][..], Some(2)));
        assert_eq!(pairing.next(&[1510.0, 1490.0, 1500.0]), (&[(0, 2)][..], Some(1)));
        // Player 0 has met both: the next in the standings is a rematch, and player 1 sits out again.
        assert_eq!(pairing.next(&[1510.0, 1490.0, 1500.0]), (&[(0, 2)][..], Some(1)));
        assert_eq!(Pairing::new(1, 2).next(&[1500.0]), (&[][..], Some(0)));
    }

    const START: f64 = crate::START;
}
