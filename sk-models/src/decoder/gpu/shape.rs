//! The shapes of attention: heads, rows, and the visible keys of each query.

use crate::decoder::heads::Heads;

impl Heads {
    /// Returns the number of heads of a projection: queries, keys and values.
    pub(super) fn count(self) -> usize {
        self.queries + 2 * self.keys
    }

    /// Returns 1/√D.
    pub(super) fn scale(self) -> f32 {
        (self.width as f64).sqrt().recip() as f32
    }
}

/// The visible keys of a group's queries. There are `shared + (earlier + steps)·rows` keys. The
/// query at place `t·rows + n` attends to the shared keys and to those of its own row up to itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visibility {
    /// Queries of a head: one for each place.
    pub(super) places: usize,
    /// Keys that all queries attend to.
    pub(super) shared: usize,
    /// Tokens that each row has added in earlier passes.
    pub(super) earlier: usize,
    /// Rows of the group.
    pub(super) rows: usize,
}

impl Visibility {
    /// Returns the number of keys.
    pub(super) fn keys(self) -> usize {
        self.first() + self.places
    }

    /// Returns the position of the last place.
    pub(super) fn last(self) -> usize {
        (self.shared + self.earlier + self.places.div_ceil(self.rows.max(1))).saturating_sub(1)
    }

    /// Returns the two numbers that differ between passes of one shape.
    pub(super) fn lengths(self) -> [i32; 2] {
        [self.shared as i32, self.earlier as i32]
    }

    /// Returns the place of the first new key.
    pub(super) fn first(self) -> usize {
        self.shared + self.earlier * self.rows
    }

    /// Returns whether every query attends to every key.
    pub(super) fn is_whole(self) -> bool {
        self.places == 1
    }

    /// Returns the mask that is added to the scores, query by query.
    pub(super) fn mask(self) -> Vec<f32> {
        /// Finite, as in Burn's operations.
        const HIDDEN: f32 = -1e30;
        let own = self.earlier * self.rows + self.places;
        let mut mask = Vec::with_capacity(self.places * (self.shared + own));
        for place in 0..self.places {
            let (step, row) = (self.earlier + place / self.rows, place % self.rows);
            mask.resize(mask.len() + self.shared, 0.0);
            mask.extend((0..own).map(|key| if key % self.rows == row && key / self.rows <= step { 0.0 } else { HIDDEN }));
        }
        mask
    }
}
