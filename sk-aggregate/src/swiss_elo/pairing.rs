use std::cmp::Ordering;

use sk_core::Real;

/// The pairings of a tournament, round by round. Players are identified by their seeds; 0 is the
/// strongest.
pub(super) struct Pairing<'a> {
    standings: &'a mut [usize],
    /// The last round for which each player has been paired; rounds are counted from 1.
    paired: &'a mut [usize],
    pairs: &'a mut [[usize; 2]],
    /// `width` slots per player, the first `met[player]` of them taken.
    opponents: &'a mut [usize],
    met: &'a mut [usize],
    width: usize,
    round: usize,
}

impl<'a> Pairing<'a> {
    /// Returns the number of entries that a pairing uses.
    pub(super) fn size(players: usize, rounds: usize) -> usize {
        players * (4 + width(players, rounds))
    }

    /// Creates the pairing of a tournament, on [`size`](Self::size) zeros.
    pub(super) fn new(players: usize, rounds: usize, memory: &'a mut [usize]) -> Self {
        let (standings, memory) = memory.split_at_mut(players);
        let (paired, memory) = memory.split_at_mut(players);
        let (met, memory) = memory.split_at_mut(players);
        let (pairs, opponents) = memory.split_at_mut(players);
        standings.iter_mut().enumerate().for_each(|(i, player)| *player = i);
        Self { standings, paired, pairs: pairs.as_chunks_mut().0, opponents, met, width: width(players, rounds), round: 0 }
    }

    /// Computes the pairs of the next round, from the top of the standings down, and the player
    /// left over.
    ///
    /// Standings are by rating, ties by seed. The first player without an opponent meets the next
    /// one that it has not met, or else the next one.
    pub(super) fn next<F: Real>(&mut self, rating: &[F]) -> (&[[usize; 2]], Option<usize>) {
        let by_rating = |&a: &usize, &b: &usize| rating[b].partial_cmp(&rating[a]).unwrap_or(Ordering::Equal).then(a.cmp(&b));
        self.standings.sort_unstable_by(by_rating);
        self.round += 1;
        let (mut pairs, mut bye) = (0, None);
        for place in 0..self.standings.len() {
            let player = self.standings[place];
            if self.paired[player] == self.round {
                continue;
            }
            let mut left = self.standings[place + 1..].iter().copied().filter(|&other| self.paired[other] < self.round);
            let next = left.clone().next();
            match left.find(|&other| !self.have_met(player, other)).or(next) {
                Some(other) => {
                    self.pairs[pairs] = [player, other];
                    self.pair(player, other);
                    pairs += 1;
                }
                None => bye = Some(player),
            }
        }
        (&self.pairs[..pairs], bye)
    }

    fn have_met(&self, a: usize, b: usize) -> bool {
        self.opponents[a * self.width..][..self.met[a]].contains(&b)
    }

    fn pair(&mut self, a: usize, b: usize) {
        if !self.have_met(a, b) {
            for (player, other) in [(a, b), (b, a)] {
                self.opponents[player * self.width + self.met[player]] = other;
                self.met[player] += 1;
            }
        }
        self.paired[a] = self.round;
        self.paired[b] = self.round;
    }
}

/// Returns the most opponents that a player can meet.
fn width(players: usize, rounds: usize) -> usize {
    rounds.min(players.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

    #[test]
    fn equal_ratings_give_a_round_robin_before_any_rematch() {
        let rating = [START; 4];
        let mut memory = vec![0; Pairing::size(4, 5)];
        let mut pairing = Pairing::new(4, 5, &mut memory);
        let mut round = || pairing.next(&rating).0.to_vec();
        assert_eq!(round(), [[0, 1], [2, 3]]);
        assert_eq!(round(), [[0, 2], [1, 3]]);
        assert_eq!(round(), [[0, 3], [1, 2]]);
        // All have met: the next in the standings.
        assert_eq!(round(), [[0, 1], [2, 3]]);
    }

    #[test]
    fn the_last_without_an_opponent_sits_out() {
        let mut memory = vec![0; Pairing::size(3, 3)];
        let mut pairing = Pairing::new(3, 3, &mut memory);
        assert_eq!(pairing.next(&[1500.0, 1500.0, 1500.0]), (&[[0, 1]][..], Some(2)));
        assert_eq!(pairing.next(&[1510.0, 1490.0, 1500.0]), (&[[0, 2]][..], Some(1)));
        // Player 0 has met both, so it meets the next in the standings again, and player 1 is left
        // over again.
        assert_eq!(pairing.next(&[1510.0, 1490.0, 1500.0]), (&[[0, 2]][..], Some(1)));
        assert_eq!(Pairing::new(1, 2, &mut [0; 4]).next(&[1500.0]), (&[][..], Some(0)));
    }
}
