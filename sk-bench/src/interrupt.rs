//! Ctrl-C handling: the first one ends the response after the current step, the second one ends the
//! program.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sk_core::TimeLeft;

use crate::message;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit status that shells report for a program that SIGINT ended.
pub const EXIT_CODE: u8 = 130;

/// Ends the program. On Unix, SIGINT ends it, so that shells also end the loop or script that runs
/// it; they report [`EXIT_CODE`]. Elsewhere, it exits with this status.
pub fn end() -> ! {
    #[cfg(unix)]
    {
        use nix::sys::signal::{SigHandler, Signal, raise, signal};
        // SAFETY: the default action runs no code of this program.
        let restored = unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) };
        let _ = restored.and_then(|_| raise(Signal::SIGINT));
    }
    std::process::exit(i32::from(EXIT_CODE))
}

/// Installs the handler. If that fails, Ctrl-C ends the program as usual.
pub fn listen() {
    let listening = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            end();
        }
        message::note("ending; Ctrl-C again ends at once");
    });
    drop(listening);
}

/// Installs a handler for work that keeps checkpoints, one every `steps` steps. Ctrl-C ends the
/// program at once.
pub fn listen_between_checkpoints(steps: u64) {
    let listening = ctrlc::set_handler(move || {
        message::note(&format!(
            "ended; the same command continues from its last checkpoint, if there is one (every {steps} steps)"
        ));
        end();
    });
    drop(listening);
}

/// Returns whether Ctrl-C was pressed since the last [`clear`].
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Returns `Break` after Ctrl-C, else `Continue`.
pub fn flow() -> ControlFlow<()> {
    if requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Returns the time for which a generation may wait: none after Ctrl-C.
pub fn time_left() -> TimeLeft {
    Arc::new(|| if requested() { Duration::ZERO } else { Duration::MAX })
}

/// Forgets an earlier Ctrl-C.
pub fn clear() {
    REQUESTED.store(false, Ordering::SeqCst);
}
