//! Memory aligned to cache lines.

use std::ops::{Deref, DerefMut};

/// Numbers in a [`Line`].
pub(super) const LINE: usize = 16;

/// A cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Numbers in whole cache lines, which grow as a `Vec` does.
///
/// An unaligned vector of sixteen numbers lies across two cache lines and takes two loads. This
/// matters because every query reads each row of keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers(Vec<Line>);

impl Numbers {
    /// Returns `count` zeros.
    pub(crate) fn new(count: usize) -> Self {
        let mut numbers = Self::default();
        numbers.resize(count);
        numbers
    }

    /// Resizes to `count` numbers; new ones are zero.
    pub(crate) fn resize(&mut self, count: usize) {
        self.0.resize(Self::lines(count), Line::default());
    }

    /// Grows to at least `count` numbers.
    pub(crate) fn reach(&mut self, count: usize) {
        let lines = count.div_ceil(LINE);
        if self.0.len() < lines {
            self.0.resize(lines, Line::default());
        }
    }

    /// Keeps the first `count` numbers.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.0.truncate(Self::lines(count));
    }

    /// Reserves room for `count` more.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.0.reserve(Self::lines(count));
    }

    /// Returns how many numbers fit without growing.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity() * LINE
    }

    /// Appends numbers, which must be whole lines.
    pub(crate) fn append(&mut self, others: &[f32]) {
        let (lines, rest) = others.as_chunks();
        assert!(rest.is_empty(), "{} numbers are no whole lines", others.len());
        self.0.extend(lines.iter().map(|&line| Line(line)));
    }

    fn lines(count: usize) -> usize {
        assert!(count.is_multiple_of(LINE), "{count} numbers are no whole lines");
        count / LINE
    }
}

impl Deref for Numbers {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: a line is sixteen numbers and nothing else.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * LINE) }
    }
}

impl DerefMut for Numbers {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * LINE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_values_and_begin_with_a_line() {
        let mut numbers = Numbers::new(2 * LINE);
        numbers[LINE] = 3.0;
        numbers.resize(5 * LINE);
        numbers.reach(4 * LINE + 1);
        assert_eq!(numbers.len(), 5 * LINE);
        let other = numbers.clone();
        numbers.truncate(2 * LINE);
        numbers.append(&other);
        let expected: Vec<f32> = (0..7 * LINE).map(|at| if at == LINE || at == 3 * LINE { 3.0 } else { 0.0 }).collect();
        assert_eq!(numbers[..], expected);
        assert!([&numbers, &other].into_iter().all(|numbers| numbers.as_ptr().addr().is_multiple_of(64)));
    }
}
