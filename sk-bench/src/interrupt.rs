//! Ctrl-C: the first one ends the response after the step under way, the second one the program.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit status of a program ended by SIGINT, as shells count it.
pub const EXIT_CODE: u8 = 130;

/// Starts listening. A program that cannot listen is ended by Ctrl-C as usual.
pub fn listen() {
    let listening = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(EXIT_CODE));
        }
    });
    drop(listening);
}

/// Whether Ctrl-C was pressed since the last [`clear`].
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Whether to go on: not after Ctrl-C.
pub fn flow() -> ControlFlow<()> {
    if requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Forgets that it was pressed.
pub fn clear() {
    REQUESTED.store(false, Ordering::SeqCst);
}
