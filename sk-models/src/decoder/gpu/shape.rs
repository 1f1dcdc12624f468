//! The shapes of attention: heads, rows, and which keys each query sees.

/// Heads of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    /// Hq.
    pub(super) queries: usize,
    /// Hkv.
    pub(super) keys: usize,
    /// D.
    pub(super) width: usize,
}

impl Heads {
    /// All heads of a projection: queries, keys, values.
    pub(super) fn count(self) -> usize {
        self.queries + 2 * self.keys
    }

    /// 1/√D.
    pub(super) fn scale(self) -> f32 {
        (self.width as f64).sqrt().recip() as f32
    }
}

/// Which keys the queries of a group see: of `shared + (earlier + steps)·rows`, place t·rows + n sees the shared ones and, of those that its
/// own row has added, all up to itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    /// Queries of a head: one for each place.
    pub(super) places: usize,
    /// Keys that all see.
    pub(super) shared: usize,
    /// Tokens that each row has added before.
    pub(super) earlier: usize,
    /// Rows, side by side.
    pub(super) rows: usize,
}

impl Sight {
    /// All keys.
    pub(super) fn keys(self) -> usize {
        self.first() + self.places
    }

    /// The position of the last place.
    pub(super) fn last(self) -> usize {
        (self.shared + self.earlier + self.places.div_ceil(self.rows.max(1))).saturating_sub(1)
    }

    /// What changes from pass to pass where as many rows read as many tokens.
    pub(super) fn place(self) -> [i32; 2] {
        [self.shared as i32, self.earlier as i32]
    }

    /// Where the keys of the first place go.
    pub(super) fn first(self) -> usize {
        self.shared + self.earlier * self.rows
    }

    /// Whether every query sees every key.
    pub(super) fn is_whole(self) -> bool {
        self.places == 1
    }

    /// What is added to the scores of a query for each key, query by query.
    pub(super) fn mask(self) -> Vec<f32> {
        /// Finite, as Burn's operations have it.
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

/// Where the rows of a group lie among those of a pass: in each lane, so many from `start` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) lanes: usize,
    pub(super) start: usize,
    pub(super) places: usize,
}
