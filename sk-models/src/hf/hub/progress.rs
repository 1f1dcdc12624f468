//! Progress of downloads and loading.

/// Receives the progress of a download. The default methods do nothing.
pub trait Progress {
    /// A new stage begins, such as `loading the backbone`.
    fn stage(&mut self, what: &str) {
        let _ = what;
    }

    /// A file begins: its name, its length if known, and the bytes of an earlier run.
    fn begin(&mut self, file: &str, length: Option<u64>, present: u64) {
        let _ = (file, length, present);
    }

    /// More bytes have arrived.
    fn advance(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Something that the user should know, in a line.
    fn warn(&mut self, warning: &str) {
        let _ = warning;
    }

    /// The file is complete.
    fn end(&mut self) {}
}

/// Ignores all progress.
impl Progress for () {}
