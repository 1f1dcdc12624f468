//! Whether memory or arithmetic limits a pass.

use sk_core::TokenId;

/// The size class of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Few rows: memory bandwidth limits the pass.
    Step,
    /// Many rows: arithmetic limits the pass. A pass that only fills the KV cache has this pace for
    /// any number of rows.
    Read,
}

impl Pace {
    /// Returns the pace of a pass with `rows` rows per lane. The number of lanes does not matter.
    pub(super) fn of(rows: usize) -> Self {
        /// Rows that fill a tile.
        const MANY: usize = 16;
        if rows >= MANY { Self::Read } else { Self::Step }
    }

    /// Returns the pace of rows of tokens that begin with the same token.
    pub(super) fn of_rows(rows: &[&[TokenId]]) -> Self {
        Self::of(1 + rows.iter().map(|row| row.len().saturating_sub(1)).sum::<usize>())
    }
}
