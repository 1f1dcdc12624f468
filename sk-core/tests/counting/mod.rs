//! An allocator that counts, for tests that a function allocates nothing. A test binary that
//! includes this module uses it for all allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of the current thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations that `work` makes. Growing a buffer counts, because the default
/// `realloc` allocates.
pub(crate) fn allocations(mut work: impl FnMut()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Fails if a second run of `work` allocates.
pub(crate) fn warm(what: &str, mut work: impl FnMut()) {
    work();
    assert_eq!(allocations(work), 0, "{what}");
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 64]))), 1);
    let mut grown = vec![1u8; 64];
    assert!(allocations(|| grown.reserve_exact(1000)) >= 1);
}
