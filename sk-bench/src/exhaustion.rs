//! Running out of memory is bad input, not a crash: it is said on one line and ends with status 2.
//!
//! That is right for a command. A server refuses requests before it asks for their memory; should it
//! run out in spite of that, whoever started it reads what to change.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program is a server.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Has a lack of memory said to whoever started a server.
pub(crate) fn serves() {
    SERVES.store(true, Ordering::Relaxed);
}

/// What memory comes from.
#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
const BELOW: std::alloc::System = std::alloc::System;

/// What memory comes from: to ask a GPU for a kernel takes a dozen small allocations, which one
/// thread makes and another gives back.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const BELOW: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An allocator which ends the program where Rust's would abort it.
struct Complaining;

#[global_allocator]
static ALLOCATOR: Complaining = Complaining;

// SAFETY: every call is passed on as it came, and a null pointer never comes back.
unsafe impl GlobalAlloc for Complaining {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is that of what is below.
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
    // On the stack: there is no memory to format in.
    let mut line = [0; 192];
    let mut rest = &mut line[..];
    let cure = if SERVES.load(Ordering::Relaxed) {
        "give answers less (--memory), or use a smaller model"
    } else {
        "use a smaller model, fewer candidates (--n) or a shorter context"
    };
    let _ = writeln!(rest, "error: out of memory: {} MiB more are needed; {cure}", size.div_ceil(1 << 20));
    let unused = rest.len();
    let written = line.len() - unused;
    let _ = std::io::stderr().write_all(&line[..written]);
    std::process::exit(i32::from(crate::usage::BAD_INPUT))
}
