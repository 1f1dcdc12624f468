//! Memory for matrices of states and for weights.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::MmapMut;

use super::aligned_vec::AlignedVec;
use super::tile::{Strided, WIDTH};
use crate::team::SharedSlice;

/// A row-major matrix `[rows, width]` whose rows are padded to whole panels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grid {
    /// The rows, possibly followed by unused memory.
    values: AlignedVec,
    rows: usize,
    stride: usize,
}

impl Grid {
    /// Returns a grid of zeros.
    pub(crate) fn new(rows: usize, width: usize) -> Self {
        let mut grid = Self::default();
        grid.reshape(rows, width);
        grid
    }

    /// Copies row-major values of `width` columns.
    pub(crate) fn of_rows(values: &[f32], width: usize) -> Self {
        let mut grid = Self::new(values.len() / width.max(1), width);
        grid.rows_mut().zip(values.chunks_exact(width.max(1))).for_each(|(row, values)| row[..width].copy_from_slice(values));
        grid
    }

    /// Resizes the grid to `[rows, width]` and keeps its memory. The contents are unspecified.
    pub(crate) fn reshape(&mut self, rows: usize, width: usize) {
        self.rows = rows;
        self.stride = width.next_multiple_of(WIDTH);
        self.values.reach(rows * self.stride);
    }

    fn values(&self) -> &[f32] {
        &self.values[..self.rows * self.stride]
    }

    fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.rows * self.stride]
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns a row with its padding.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.values()[row * self.stride..][..self.stride]
    }

    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let stride = self.stride.max(1);
        self.values_mut().chunks_exact_mut(stride)
    }

    /// Iterates over pieces of `count` rows.
    pub(crate) fn pieces_mut(&mut self, count: usize) -> impl Iterator<Item = &mut [f32]> {
        let size = (count * self.stride).max(1);
        self.values_mut().chunks_mut(size)
    }

    /// Returns the matrix from `row` on, for [`multiply`](super::tile::multiply).
    pub(crate) fn rows_from(&self, row: usize) -> Strided<*const f32> {
        Strided { start: self.values()[row * self.stride..].as_ptr(), stride: self.stride }
    }

    pub(crate) fn parts(&mut self) -> SharedSlice<f32> {
        SharedSlice::of(self.values_mut())
    }

    /// Stacks grids of one width. A single grid is not copied.
    pub(crate) fn join<'a>(mut grids: impl ExactSizeIterator<Item = &'a Self>) -> Cow<'a, Self> {
        let Some(first) = grids.next() else { return Cow::Owned(Self::default()) };
        if grids.len() == 0 {
            return Cow::Borrowed(first);
        }
        let mut joined = Self { values: AlignedVec::default(), ..*first };
        joined.values.append(first.values());
        for grid in grids {
            joined.values.append(grid.values());
            joined.rows += grid.rows;
        }
        Cow::Owned(joined)
    }

    /// Splits the grid into pieces of the given numbers of rows.
    pub(crate) fn split(self, counts: &[usize]) -> Vec<Self> {
        if let [_] = counts {
            return vec![self];
        }
        let mut rest = self.values();
        let piece = |&count: &usize| {
            let (own, after) = rest.split_at(count * self.stride);
            rest = after;
            let mut values = AlignedVec::default();
            values.append(own);
            Self { values, rows: count, stride: self.stride }
        };
        counts.iter().map(piece).collect()
    }

    /// Copies all rows without padding, `[rows, width]`.
    pub(crate) fn to_values(&self, width: usize) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.rows() * width);
        self.values().chunks_exact(self.stride.max(1)).for_each(|row| values.extend_from_slice(&row[..width]));
        values
    }
}

/// Numbers that are written once and read from front to back at every step, in large pages if the
/// system has them.
///
/// With pages of 4 KiB, a sweep over the weights spends a good part of its time on address
/// translation.
#[derive(Debug)]
pub(crate) enum Slab<T> {
    Heap(Vec<T>),
    Mapped(MmapMut, PhantomData<T>),
}

/// The smallest slab that fills a large page, in bytes.
const LARGE: usize = 2 << 20;

impl<T: Pod> Slab<T> {
    /// Returns a slab of zeros.
    pub(crate) fn new(count: usize) -> Self {
        let bytes = count * size_of::<T>();
        if bytes < LARGE {
            return Self::Heap(vec![T::zeroed(); count]);
        }
        match MmapMut::map_anon(bytes.next_multiple_of(LARGE)) {
            Ok(map) => {
                #[cfg(target_os = "linux")]
                // If the advice fails, the slab is only slower.
                let _ = map.advise(Advice::HugePage);
                Self::Mapped(map, PhantomData)
            }
            Err(_) => Self::Heap(vec![T::zeroed(); count]),
        }
    }
}

impl<T: Pod> Deref for Slab<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Heap(values) => values,
            // A map starts at a page, and its length is a multiple of the size.
            Self::Mapped(map, _) => bytemuck::cast_slice(map),
        }
    }
}

impl<T: Pod> DerefMut for Slab<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Heap(values) => values,
            Self::Mapped(map, _) => bytemuck::cast_slice_mut(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_that_shrinks_has_no_rows_of_before() {
        let mut grid = Grid::of_rows(&[1.0; 6], 2);
        grid.reshape(2, 2);
        grid.rows_mut().enumerate().for_each(|(row, values)| values[..2].fill(row as f32));
        assert_eq!((grid.rows(), grid.rows_mut().count(), grid.pieces_mut(8).count()), (2, 2, 1));
        assert_eq!(grid.to_values(2), [0.0, 0.0, 1.0, 1.0]);
        let joined = Grid::join([&grid, &grid].into_iter()).into_owned();
        assert_eq!(joined.to_values(2), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
        let split = joined.split(&[1, 3]);
        assert_eq!(split.iter().map(Grid::rows).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(split[1].to_values(2), [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    }
}
