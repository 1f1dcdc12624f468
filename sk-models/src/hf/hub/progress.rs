//! What a caller sees of a download.

/// Follows a download. Every method has a default that does nothing.
pub trait Progress {
    /// What is done from now on, such as `loading the backbone`.
    fn stage(&mut self, what: &str) {
        let _ = what;
    }

    /// A file begins: its name, its length if known, and how much of it an earlier run left behind.
    fn begin(&mut self, file: &str, length: Option<u64>, present: u64) {
        let _ = (file, length, present);
    }

    /// More bytes have arrived.
    fn advance(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// The file is complete.
    fn end(&mut self) {}
}

/// Silence.
impl Progress for () {}
