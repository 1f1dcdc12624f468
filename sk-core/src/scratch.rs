use std::any::Any;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A reusable buffer, so that a slot allocates for the first batch of a size only.
///
/// Buffers belong to a thread. A `Scratch` borrows one with its previous contents and returns it
/// when dropped. For each type, a thread keeps as many buffers as were ever borrowed at once, each
/// with the largest capacity it ever had.
///
/// # For implementors of slots
/// 𝓑, 𝓝, 𝓐 and 𝓢 are shared between threads and cannot own mutable buffers.
/// [`filled`](Self::filled) and [`collect`](Iterator::collect) overwrite the previous contents. A
/// value from [`lend`](Self::lend) has its previous contents.
///
/// ```
/// use sk_core::Scratch;
///
/// let mut ranks = Scratch::filled(0.0, 3);
/// ranks[1] = 2.5;
/// let order: Scratch<Vec<usize>> = (0..3).rev().collect();
/// assert_eq!((&ranks[..], &order[..]), (&[0.0, 2.5, 0.0][..], &[2, 1, 0][..]));
/// ```
#[derive(Debug)]
pub struct Scratch<V: 'static>(Option<V>);

thread_local! {
    /// One `Vec<V>` for each type V in use.
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on the thread's buffers of type `V`; `None` during the destruction of the thread.
fn with_kept<V: 'static, R>(work: impl FnOnce(&mut Vec<V>) -> R) -> Option<R> {
    let run = |kept: &RefCell<Vec<Box<dyn Any>>>| {
        let mut kept = kept.borrow_mut();
        let place = kept.iter().position(|values| values.is::<Vec<V>>()).unwrap_or_else(|| {
            kept.push(Box::new(Vec::<V>::new()));
            kept.len() - 1
        });
        kept[place].downcast_mut().map(work)
    };
    KEPT.try_with(run).ok().flatten()
}

impl<V: 'static> Scratch<V> {
    /// Borrows a buffer with its previous contents, or one from `make` if none is free.
    pub fn lend(make: impl FnOnce() -> V) -> Self {
        Self(Some(with_kept(Vec::pop).flatten().unwrap_or_else(make)))
    }
}

impl<T: Clone + 'static> Scratch<Vec<T>> {
    /// Returns a vector of `n` times `value`.
    pub fn filled(value: T, n: usize) -> Self {
        let mut scratch = Self::empty();
        scratch.resize(n, value);
        scratch
    }
}

impl<T: 'static> Scratch<Vec<T>> {
    /// Returns an empty vector.
    pub fn empty() -> Self {
        let mut scratch = Self::lend(Vec::new);
        scratch.clear();
        scratch
    }
}

impl<T: 'static> FromIterator<T> for Scratch<Vec<T>> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut scratch = Self::empty();
        scratch.extend(values);
        scratch
    }
}

impl<V: 'static> Drop for Scratch<V> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            with_kept(|kept| kept.push(value));
        }
    }
}

impl<V: 'static> Deref for Scratch<V> {
    type Target = V;
    fn deref(&self) -> &V {
        self.0.as_ref().expect("the value is there until it is dropped")
    }
}

impl<V: 'static> DerefMut for Scratch<V> {
    fn deref_mut(&mut self) -> &mut V {
        self.0.as_mut().expect("the value is there until it is dropped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_lent_again() {
        let first = Scratch::filled(1u64, 100);
        let second = Scratch::filled(2u64, 50);
        let (one, two) = (first.as_ptr(), second.as_ptr());
        assert_ne!(one, two);
        assert_eq!((&first[..], &second[..]), (&[1; 100][..], &[2; 50][..]));
        drop(second);
        drop(first);
        // The last returned buffer is borrowed first. It is shorter now, and its previous contents
        // are gone.
        let again = Scratch::filled(3u64, 7);
        assert_eq!((again.as_ptr(), &again[..]), (one, &[3; 7][..]));
        let and_again: Scratch<Vec<u64>> = (0..4).collect();
        assert_eq!((and_again.as_ptr(), &and_again[..]), (two, &[0, 1, 2, 3][..]));
        // Another type has its own buffers.
        assert!(Scratch::<Vec<i64>>::empty().capacity() == 0 && again.capacity() >= 100);
    }

    #[test]
    fn a_value_is_lent_as_it_was_left() {
        #[derive(Debug, PartialEq)]
        struct Left(u8);
        Scratch::lend(|| Left(1)).0 = Some(Left(7));
        assert_eq!(*Scratch::lend(|| Left(1)), Left(7));
        let _held = Scratch::lend(|| Left(1));
        assert_eq!(*Scratch::lend(|| Left(2)), Left(2));
    }

    #[test]
    fn every_thread_has_its_own() {
        let here = Scratch::filled(0u16, 10);
        let place = here.as_ptr().addr();
        drop(here);
        let there = std::thread::spawn(|| Scratch::filled(0u16, 10).as_ptr().addr()).join().unwrap();
        assert_ne!(place, there);
    }
}
