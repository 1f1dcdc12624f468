//! Numbers that vectors read without crossing lines of the cache.

use std::ops::{Deref, DerefMut};

/// Numbers of a [`Line`].
pub(super) const LINE: usize = 16;

/// A line of the cache.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Whole lines of numbers, which grow as a `Vec` does.
///
/// A vector of sixteen that begins anywhere else lies across two lines and takes two loads, and a row of keys is read for every query.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers(Vec<Line>);

impl Numbers {
    /// Zeros.
    pub(crate) fn new(count: usize) -> Self {
        let mut numbers = Self::default();
        numbers.resize(count);
        numbers
    }

    /// Makes them so many, those that are new zero.
    pub(crate) fn resize(&mut self, count: usize) {
        self.0.resize(Self::lines(count), Line::default());
    }

    /// Makes them at least so many.
    pub(crate) fn reach(&mut self, count: usize) {
        let lines = count.div_ceil(LINE);
        if self.0.len() < lines {
            self.0.resize(lines, Line::default());
        }
    }

    /// Forgets all but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.0.truncate(Self::lines(count));
    }

    /// Makes room for `count` more.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.0.reserve(Self::lines(count));
    }

    /// How many there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity() * LINE
    }

    /// Appends others.
    pub(crate) fn append(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
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
