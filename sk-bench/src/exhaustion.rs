//! Handling of memory exhaustion: instead of a crash, the program prints one line and exits with
//! status 2.
//!
//! For a command, running out of memory counts as bad input. A server refuses requests before it
//! allocates their memory; if it runs out anyway, the message tells the operator what to change.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program is a server.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Makes the message address the operator of a server.
pub(crate) fn serves() {
    SERVES.store(true, Ordering::Relaxed);
}

/// The underlying allocator.
#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
const BELOW: std::alloc::System = std::alloc::System;

/// The underlying allocator. Launching a GPU kernel takes a dozen small allocations that one thread
/// makes and another frees, which mimalloc handles well.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const BELOW: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An allocator that exits with a message where the default one would abort.
struct ReportingAllocator;

#[global_allocator]
static ALLOCATOR: ReportingAllocator = ReportingAllocator;

// SAFETY: every call is forwarded unchanged, and a null pointer is never returned.
unsafe impl GlobalAlloc for ReportingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of the underlying allocator, which is the same.
        checked(unsafe { BELOW.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { BELOW.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { BELOW.realloc(pointer, layout, size) }, size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { BELOW.dealloc(pointer, layout) }
    }
}

fn checked(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() {
        exhausted(size);
    }
    pointer
}

#[cold]
fn exhausted(size: usize) -> ! {
    // On the stack, because there is no memory left for formatting.
    let mut line = [0; 192];
    let mut rest = &mut line[..];
    let cure = if SERVES.load(Ordering::Relaxed) {
        "lower --memory, or use a smaller model"
    } else {
        "use a smaller model, a shorter context or a smaller batch (--n, or --batch of train)"
    };
    let _ = writeln!(rest, "error: out of memory: {} MiB more are needed; {cure}", size.div_ceil(1 << 20));
    let unused = rest.len();
    let written = line.len() - unused;
    let _ = std::io::stderr().write_all(&line[..written]);
    std::process::exit(i32::from(crate::usage::BAD_INPUT))
}
