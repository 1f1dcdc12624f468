//! Limits of an input: memory, which is counted by the allocator, and time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Maximum number of bytes that an input may allocate.
pub(crate) const MOST_BYTES: usize = 256 << 20;
/// Number of bytes at which the program exits immediately, before the system kills it.
const TOO_MANY: usize = 4 << 30;

/// Time after which the program exits, because the input may never finish.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Number of starts and ends of runs; odd during a run.
static RUNS: AtomicU64 = AtomicU64::new(0);
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system allocator with a count of bytes.
pub(crate) struct Counting;

fn add(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(now, Relaxed);
    if now > TOO_MANY {
        NOW.store(0, Relaxed);
        eprintln!("an input takes more than {} GiB", TOO_MANY >> 30);
        std::process::abort();
    }
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(start, layout, size) }
    }
}

/// Starts a thread that exits the program if a run of [`peak`] takes a minute.
pub(crate) fn guard() {
    std::thread::spawn(|| {
        loop {
            let run = RUNS.load(Relaxed);
            std::thread::sleep(TOO_LONG);
            if run % 2 == 1 && RUNS.load(Relaxed) == run {
                eprintln!("an input takes more than {} s", TOO_LONG.as_secs());
                std::process::abort();
            }
        }
    });
}

/// Returns the peak number of bytes that `run` allocates.
pub(crate) fn peak(run: impl FnOnce()) -> usize {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    RUNS.fetch_add(1, Relaxed);
    run();
    RUNS.fetch_add(1, Relaxed);
    PEAK.load(Relaxed).saturating_sub(before)
}
