//! Errors of the hub and its cache.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A hub id that cannot be resolved.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum HubError {
    /// Neither a directory nor an id.
    #[error("`{0}` is neither a directory nor a hub id such as Qwen/Qwen2.5-0.5B-Instruct")]
    NotAnId(String),
    /// No place for the cache.
    #[error("no cache directory: set HF_HOME, HF_HUB_CACHE or HOME")]
    NoCache,
    /// Not in the cache, and downloading is switched off.
    #[error("{id} is not in {}, and HF_HUB_OFFLINE forbids downloading it", cache.display())]
    Offline { id: String, cache: PathBuf },
    /// The hub refuses or does not know the model.
    #[error("{url}: the hub answers {status}; {hint}")]
    Status { url: String, status: u16, hint: &'static str },
    /// The connection fails.
    #[error("{url}: {source}")]
    Connection { url: String, source: Box<ureq::Error> },
    /// The hub lists a file and does not give it.
    #[error("{url}: the hub answers {status}; {hint}")]
    Withheld { url: String, status: u16, hint: &'static str },
    /// The connection fails while a file is downloaded.
    #[error("{url}: {source}; run again to continue")]
    Interrupted { url: String, source: Box<ureq::Error> },
    /// The hub's answer is malformed.
    #[error("{url}: {reason}")]
    Answer { url: String, reason: String },
    /// The contents differ from those that the hub announced.
    #[error("{file}: download is corrupt: {reason}; run again to fetch it anew")]
    Corrupt { file: String, reason: String },
    /// The repository has no weights in a supported format.
    #[error("{id} has neither model.safetensors nor adapter_model.safetensors")]
    NoWeights { id: String },
    /// The data set does not have a file.
    #[error("data set {id} has no file {file}; give the pairs as a file")]
    NoFile { id: String, file: String },
    /// The cache cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl HubError {
    /// Returns whether another attempt may succeed: after a broken connection or from an overloaded
    /// server.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..),
            _ => false,
        }
    }

    /// Returns whether the model was not found, so that the id may have been meant as a directory.
    pub(in crate::hf) fn is_absence(&self) -> bool {
        matches!(self, Self::Offline { .. } | Self::Connection { .. } | Self::Status { status: 401 | 403 | 404, .. })
    }
}

/// Returns an I/O error with the file that it concerns.
pub(super) fn io_error(action: &'static str, path: &Path, source: io::Error) -> HubError {
    HubError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_whose_download_breaks_off_is_not_absent() {
        let (url, source) = ("u".to_owned(), Box::new(ureq::Error::ConnectionFailed));
        assert!(HubError::Connection { url: url.clone(), source }.is_absence());
        let source = Box::new(ureq::Error::ConnectionFailed);
        assert!(!HubError::Interrupted { url: url.clone(), source }.is_absence());
        assert!(HubError::Status { url: url.clone(), status: 403, hint: "" }.is_absence());
        assert!(!HubError::Withheld { url, status: 403, hint: "" }.is_absence());
    }
}
