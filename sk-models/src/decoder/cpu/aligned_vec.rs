//! Memory aligned to cache lines.

use std::ops::{Deref, DerefMut};

/// Numbers in a cache line.
const LINE: usize = 16;

/// A `Vec<f32>` of whole cache lines that begins with one.
///
/// A SIMD vector of sixteen numbers that is not aligned lies across two cache lines and takes two
/// loads. This matters because every query reads each row of keys.
///
/// The allocation itself is not aligned, and the numbers begin at its first cache line. glibc 2.36
/// cannot reuse the memory of a freed aligned block for another one of the same size, so aligned
/// blocks would fragment the memory.
#[derive(Debug, Default)]
pub(crate) struct AlignedVec {
    /// Padding up to the first cache line, then the numbers.
    memory: Vec<f32>,
    /// The index of the first number.
    start: usize,
}

impl AlignedVec {
    /// Returns `count` zeros.
    pub(crate) fn new(count: usize) -> Self {
        let mut numbers = Self::default();
        numbers.resize(count);
        numbers
    }

    /// Resizes to `count` numbers; new ones are zero.
    pub(crate) fn resize(&mut self, count: usize) {
        assert_whole_lines(count);
        self.reserve(count.saturating_sub(self.len()));
        self.memory.resize(self.start + count, 0.0);
    }

    /// Grows to at least `count` numbers.
    pub(crate) fn reach(&mut self, count: usize) {
        if self.len() < count {
            self.resize(count.next_multiple_of(LINE));
        }
    }

    /// Keeps the first `count` numbers.
    pub(crate) fn truncate(&mut self, count: usize) {
        assert_whole_lines(count);
        self.memory.truncate(self.start + count);
    }

    /// Reserves room for `count` more.
    pub(crate) fn reserve(&mut self, count: usize) {
        let needed = self.len() + count;
        if needed > self.capacity() {
            let mut memory = Vec::<f32>::with_capacity(needed.max(2 * self.capacity()) + LINE - 1);
            let start = memory.as_ptr().align_offset(LINE * size_of::<f32>());
            memory.resize(start, 0.0);
            memory.extend_from_slice(self);
            *self = Self { memory, start };
        }
    }

    /// Returns how many numbers fit without growing.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity() - self.start
    }

    /// Appends numbers, which must be whole lines.
    pub(crate) fn append(&mut self, others: &[f32]) {
        assert_whole_lines(others.len());
        self.reserve(others.len());
        self.memory.extend_from_slice(others);
    }
}

fn assert_whole_lines(count: usize) {
    assert!(count.is_multiple_of(LINE), "{count} numbers are no whole lines");
}

impl Clone for AlignedVec {
    fn clone(&self) -> Self {
        let mut numbers = Self::default();
        numbers.append(self);
        numbers
    }
}

impl Deref for AlignedVec {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[self.start..]
    }
}

impl DerefMut for AlignedVec {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_values_and_begin_with_a_line() {
        let mut numbers = AlignedVec::new(2 * LINE);
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
