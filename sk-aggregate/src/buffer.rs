use std::any::Any;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Room to work in for the length of a call.
///
/// The memory is the thread's, which keeps it and lends it again: an operator allocates on the first batch of a size, and then no more. A
/// thread keeps, of each type, as many vectors as were ever lent at once, each as long as it ever was.
#[derive(Debug)]
pub(crate) struct Buffer<T: 'static>(Vec<T>);

thread_local! {
    /// One `Vec<Vec<T>>` for each T in use: a few.
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on what the thread keeps of vectors of `T`; `None` while the thread ends.
fn with_kept<T: 'static, R>(work: impl FnOnce(&mut Vec<Vec<T>>) -> R) -> Option<R> {
    let run = |kept: &RefCell<Vec<Box<dyn Any>>>| {
        let mut kept = kept.borrow_mut();
        let place = kept.iter().position(|vectors| vectors.is::<Vec<Vec<T>>>()).unwrap_or_else(|| {
            kept.push(Box::new(Vec::<Vec<T>>::new()));
            kept.len() - 1
        });
        kept[place].downcast_mut().map(work)
    };
    KEPT.try_with(run).ok().flatten()
}

impl<T: Copy + 'static> Buffer<T> {
    /// `n` times `value`.
    pub(crate) fn of(value: T, n: usize) -> Self {
        let mut values = with_kept(Vec::pop).flatten().unwrap_or_default();
        values.resize(n, value);
        Self(values)
    }
}

impl<T: 'static> Drop for Buffer<T> {
    fn drop(&mut self) {
        let mut values = std::mem::take(&mut self.0);
        values.clear();
        with_kept(|kept| kept.push(values));
    }
}

impl<T: 'static> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: 'static> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
