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
    #[error("{url}: {source}{}", advice(source))]
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
            Self::Connection { source, .. } => advice(source).is_empty(),
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..),
            _ => false,
        }
    }

    /// Returns whether the model was not found, so that the id may have been meant as a directory.
    pub(in crate::hf) fn is_absence(&self) -> bool {
        matches!(self, Self::Offline { .. } | Self::Connection { .. } | Self::Status { status: 401 | 403 | 404, .. })
    }
}

/// Returns what to do about a failure that every attempt would repeat, as the end of a message: a
/// certificate that is not accepted, or a proxy that requires a password. Else an empty text.
fn advice(error: &ureq::Error) -> &'static str {
    let certificate = |error: &io::Error| match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(reason) => Some(reason == &rustls::CertificateError::UnknownIssuer),
        _ => None,
    };
    match error {
        ureq::Error::ConnectProxyFailed(reason) if reason.contains("407") => "; give the proxy as http://USER:PASSWORD@HOST:PORT",
        ureq::Error::Io(error) => match certificate(error) {
            Some(true) => "; add its issuer to the certificates of the system; on Linux, SSL_CERT_FILE names a file of them",
            Some(false) => "; check the address and the certificate of the hub",
            None => "",
        },
        _ => "",
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

    #[test]
    fn a_failure_that_every_attempt_would_repeat_is_not_retried() {
        let failed = |source| HubError::Connection { url: "u".to_owned(), source: Box::new(source) };
        let tls = |reason| {
            let source = rustls::Error::InvalidCertificate(reason);
            failed(ureq::Error::Io(io::Error::new(io::ErrorKind::InvalidData, source)))
        };
        for (error, part) in [
            (tls(rustls::CertificateError::UnknownIssuer), "SSL_CERT_FILE"),
            (tls(rustls::CertificateError::Expired), "certificate of the hub"),
            (
                failed(ureq::Error::ConnectProxyFailed("proxy server responded 407/407".to_owned())),
                "http://USER:PASSWORD@HOST:PORT",
            ),
        ] {
            assert!(!error.may_pass() && error.to_string().contains(part), "{error}");
        }
        assert!(failed(ureq::Error::Io(io::ErrorKind::ConnectionReset.into())).may_pass());
        assert!(failed(ureq::Error::ConnectProxyFailed("proxy server responded 503/503".to_owned())).may_pass());
    }
}
