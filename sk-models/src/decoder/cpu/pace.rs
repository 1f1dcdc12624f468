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

    /// Returns the pace of rows of tokens. A first token that all rows have counts once, since longer
    /// rows share its state.
    pub(super) fn of_rows(rows: &[&[TokenId]]) -> Self {
        let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        let begin_alike = longest > 1 && rows.windows(2).all(|two| two[0].first() == two[1].first());
        let again = if begin_alike { rows.len().saturating_sub(1) } else { 0 };
        Self::of(rows.iter().map(|row| row.len()).sum::<usize>().saturating_sub(again))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_all_rows_begin_with_counts_once() {
        let pace = |rows: &[Vec<TokenId>]| Pace::of_rows(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let of_one: Vec<Vec<TokenId>> = (0..16).map(|token| vec![token]).collect();
        assert_eq!([pace(&of_one), pace(&of_one[..15]), pace(&vec![vec![7]; 40])], [Pace::Read, Pace::Step, Pace::Read]);
        assert_eq!([pace(&vec![vec![7; 6]; 3]), pace(&[vec![7; 6], vec![7; 6], vec![7; 5]])], [Pace::Read, Pace::Step]);
        assert_eq!([pace(&[vec![7; 5], vec![8; 5], vec![9; 6]]), pace(&[])], [Pace::Read, Pace::Step]);
    }
}
