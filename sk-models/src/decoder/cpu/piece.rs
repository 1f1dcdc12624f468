//! Pieces of keys and values, which contexts share.

use super::aligned_vec::AlignedVec;
use super::tile::{Strided, WIDTH};

/// Tokens of a piece, which is a node of the prefix tree: whole panels of keys, and whole blocks of
/// products in tiles.
pub(crate) const NODE_TOKENS: usize = 64;

/// Keys and values of consecutive positions of one head of one sequence. The first begins a panel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Run<'a> {
    pub(super) keys: &'a [f32],
    pub(super) values: &'a [f32],
    /// The number of positions.
    pub(crate) count: usize,
    pub(super) width: usize,
}

impl<'a> Run<'a> {
    /// Returns positions `from..to`, where `from` is a multiple of [`WIDTH`].
    pub(super) fn range(self, from: usize, to: usize) -> Self {
        let (panel, stride) = (self.width * WIDTH, self.width.next_multiple_of(WIDTH));
        let keys = &self.keys[from / WIDTH * panel..to.div_ceil(WIDTH) * panel];
        Self { keys, values: &self.values[from * stride..to * stride], count: to - from, ..self }
    }

    /// Returns panel `panel` of Kᵀ.
    pub(crate) fn keys(&self, panel: usize) -> Strided<*const f32> {
        Strided { start: self.keys[panel * self.width * WIDTH..].as_ptr(), stride: WIDTH }
    }

    /// Returns the rows of a panel of Kᵀ from dimension `from` on, [`WIDTH`] numbers each.
    pub(super) fn key_rows(&self, panel: usize, from: usize) -> &'a [f32] {
        &self.keys[panel * self.width * WIDTH..][from * WIDTH..self.width * WIDTH]
    }

    /// Returns the rows of V from position `from` on, beginning at `column`, and the distance
    /// between them.
    pub(super) fn value_rows(&self, from: usize, column: usize) -> (&'a [f32], usize) {
        let stride = self.width.next_multiple_of(WIDTH);
        (&self.values[from * stride + column..], stride)
    }

    /// Returns columns `column..` of V.
    pub(crate) fn values(&self, column: usize) -> Strided<*const f32> {
        let start = self.values[column.min(self.values.len())..].as_ptr();
        Strided { start, stride: self.width.next_multiple_of(WIDTH) }
    }
}

/// Keys and values of [`NODE_TOKENS`] consecutive tokens of one sequence. They are one allocation:
/// many small ones that live long would fragment the memory between the short-lived ones of
/// requests.
#[derive(Debug)]
pub(crate) struct KvPiece {
    /// Per layer and head: keys, then values.
    pub(super) numbers: AlignedVec,
    pub(super) width: usize,
}

const _: () = assert!(NODE_TOKENS.is_multiple_of(WIDTH), "pieces are whole panels");

impl KvPiece {
    /// Returns the bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[f32]>(&self.numbers)
    }

    /// Returns the keys and values of the `index`-th head, counted through all layers.
    pub(super) fn run(&self, index: usize) -> Run<'_> {
        let sizes = [self.width, self.width.next_multiple_of(WIDTH)].map(|row| NODE_TOKENS * row);
        let (keys, values) = self.numbers[index * (sizes[0] + sizes[1])..][..sizes[0] + sizes[1]].split_at(sizes[0]);
        Run { keys, values, count: NODE_TOKENS, width: self.width }
    }
}

#[cfg(test)]
impl KvPiece {
    /// Returns a piece of some numbers, for tests that do not read them as keys and values.
    pub(crate) fn of_numbers(numbers: &[f32]) -> Self {
        let mut piece = Self { numbers: AlignedVec::default(), width: 0 };
        piece.numbers.append(numbers);
        piece
    }

    pub(crate) fn numbers(&self) -> &[f32] {
        &self.numbers
    }
}
