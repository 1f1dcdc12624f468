//! Progress of downloads and loading.

/// Receives the progress of a download. The default methods do nothing.
pub trait Progress {
    /// Called when a new stage begins, such as `loading the backbone`.
    fn stage(&mut self, what: &str) {
        let _ = what;
    }

    /// Called when a file begins, with its name, its length if known, and the bytes of an earlier
    /// run.
    fn begin(&mut self, file: &str, length: Option<u64>, present: u64) {
        let _ = (file, length, present);
    }

    /// Called when more bytes have arrived.
    fn advance(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Called with a warning for the user, in one line.
    fn warn(&mut self, warning: &str) {
        let _ = warning;
    }

    /// Called when the file is complete.
    fn end(&mut self) {}
}

/// Ignores all progress.
impl Progress for () {}
