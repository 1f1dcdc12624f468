//! HTTP requests to a single server.

use std::io::Read;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use rustls::CertificateError;
use serde_json::Value;
use ureq::config::ConfigBuilder;
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::{Agent, RequestBuilder};

use crate::retry::retry_after;
use crate::{AnswerError, Fault, Key};

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest timeout, a year, so that its end is a representable time.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The most idle connections, in total and per server.
const KEPT: usize = 256;
/// The time for which an idle connection is kept. Both servers close idle connections after five
/// seconds, and a request on a closing connection would fail.
const IDLE: Duration = Duration::from_secs(4);
/// Maximum length of an answer, in bytes. A step with vLLM over a long context takes some ten
/// megabytes.
const LONGEST: u64 = 1 << 30;
/// The most characters of a server's error message that are shown.
const SHOWN: usize = 300;

/// A server.
pub(crate) struct Server {
    agent: Agent,
    base: String,
    key: Option<Key>,
    proxy: Option<ureq::Proxy>,
}

/// The failure of a request.
pub(crate) enum Failure {
    /// A retry may succeed, after this pause if the server requested one.
    Again(Fault, Option<Duration>),
    /// As `Again`, and the server was not reached, so that it has not carried out the request.
    Unreached(Fault),
    /// The server rejects the request.
    Refused { status: u16, message: String },
}

/// Returns the settings of every HTTP client of a server: a time limit for connecting, connections
/// that are kept, and neither redirects nor errors by status.
#[must_use]
pub fn client_config() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        // A key must not be sent to the target of a redirect.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(CONNECT))
        .max_idle_connections(KEPT)
        .max_idle_connections_per_host(KEPT)
        .max_idle_age(IDLE)
        .user_agent(concat!("swiss-knife/", env!("CARGO_PKG_VERSION")))
        .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
}

/// Creates the connection pool of an engine.
pub(crate) fn agent() -> Agent {
    Agent::new_with_config(client_config().build())
}

/// Returns whether the host of an address is `localhost` or a loopback address.
#[must_use]
pub fn is_local(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let is_loopback = |host: &str| host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback());
    uri.as_ref().and_then(Uri::host).is_some_and(|host| host == "localhost" || is_loopback(host))
}

/// Returns the message in the body of an error for display, or else the body: one line of at most
/// 300 characters, with `…` in place of the rest. The key, which a server may echo, also escaped in
/// JSON, is replaced by `…`, and a blank message by `(no message)`.
#[must_use]
pub fn gist(body: &str, key: Option<&Key>) -> String {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    let unescaped = parsed.as_ref().map(Value::to_string);
    let text = parsed.as_ref().and_then(message_of).or(unescaped.as_deref()).unwrap_or(body);
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(key) = key {
        line = line.replace(key.as_str(), "…");
    }
    if line.chars().count() > SHOWN {
        line = line.chars().take(SHOWN).chain(['…']).collect();
    }
    if line.is_empty() { "(no message)".to_owned() } else { line }
}

/// Returns what to do about a failure that every attempt would repeat: a certificate that is not
/// accepted, a server without TLS, or a proxy that requires a password. `None` for other failures.
#[must_use]
pub fn advice(error: &ureq::Error) -> Option<&'static str> {
    let error = match error {
        ureq::Error::ConnectProxyFailed(reason) if reason.contains("407") => {
            return Some("give the proxy as http://USER:PASSWORD@HOST:PORT");
        }
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref()?,
        _ => return None,
    };
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => Some(
            "if you trust this server, add its issuer to the certificates of the system; on Linux, SSL_CERT_FILE names a file of them",
        ),
        rustls::Error::InvalidCertificate(_) => Some("check the address and the certificate of the server"),
        rustls::Error::InvalidMessage(_) => {
            Some("the server does not use TLS at this port; does its address begin with http://?")
        }
        _ => None,
    }
}

/// Returns the message of a failed request to `url`, with the proxy on the way and the [`advice`].
/// The key is replaced by `…`.
#[must_use]
pub fn failure(error: &ureq::Error, url: &str, proxy: Option<&ureq::Proxy>, key: Option<&Key>) -> String {
    let mut message = gist(&error.to_string(), key);
    if let Some(proxy) = proxy.filter(|proxy| url.parse().is_ok_and(|uri| !proxy.is_no_proxy(&uri))) {
        message += &format!(" (through the proxy {}:{})", proxy.host(), proxy.port());
    }
    if let Some(advice) = advice(error) {
        message += "; ";
        message += advice;
    }
    message
}

impl Server {
    pub(crate) fn new(agent: &Agent, base: &str, key: Option<&Key>) -> Self {
        // Local servers are never reached through a proxy.
        let proxy = if is_local(base) { None } else { ureq::Proxy::try_from_env() };
        Self { agent: agent.clone(), base: base.to_owned(), key: key.cloned(), proxy }
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> &str {
        &self.base
    }

    /// Posts `body` to `path`, or sends a GET without a body, and returns the body of the answer.
    pub(crate) fn ask(&self, path: &str, body: Option<&str>, patience: Duration) -> Result<Vec<u8>, Failure> {
        let url = format!("{}{path}", self.base);
        let patience = patience.min(LONGEST_WAIT);
        let start = Instant::now();
        let sent = match body {
            Some(body) => self.prepared(self.agent.post(&url).content_type("application/json"), patience).send(body),
            None => self.prepared(self.agent.get(&url), patience).call(),
        };
        let fault = |error: &ureq::Error| {
            let fault = self.fault(error, start.elapsed());
            if is_unreached(error) { Failure::Unreached(fault) } else { Failure::Again(fault, None) }
        };
        let mut response = sent.map_err(|error| fault(&error))?;
        let status = response.status().as_u16();
        let pause = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok())
            .and_then(|value| retry_after(value, SystemTime::now()));
        let target = response.headers().get("location").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let mut text = Vec::new();
        let mut reader = response.body_mut().with_config().limit(LONGEST).reader();
        if let Err(error) = reader.read_to_end(&mut text) {
            return Err(fault(&ureq::Error::from(error)));
        }
        match status {
            200..=299 => Ok(text),
            408 | 425 | 429 | 500..=599 => {
                let asked = pause.map(|pause| format!("; it asks for a pause of {} s", pause.as_secs_f64()));
                let message = self.gist(&text) + &asked.unwrap_or_default();
                Err(Failure::Again(Fault::Status { status, message }, pause))
            }
            300..=399 => {
                let target = target.map_or_else(|| "elsewhere".to_owned(), |target| self.gist(target.as_bytes()));
                let message = format!("it redirects to {target}, and redirects are not followed; give the address of the server");
                Err(Failure::Refused { status, message })
            }
            _ => Err(Failure::Refused { status, message: self.gist(&text) }),
        }
    }

    /// Adds the key, the timeout and the proxy to a request.
    fn prepared<B>(&self, mut request: RequestBuilder<B>, patience: Duration) -> RequestBuilder<B> {
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {}", key.as_str()));
        }
        request.config().timeout_global(Some(patience)).proxy(self.proxy.clone()).build()
    }

    fn fault(&self, error: &ureq::Error, waited: Duration) -> Fault {
        let timed_out = match error {
            ureq::Error::Timeout(_) => true,
            ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::TimedOut,
            _ => false,
        };
        if timed_out {
            return Fault::TimedOut { seconds: waited.as_secs_f64() };
        }
        Fault::Connection { message: failure(error, &self.base, self.proxy.as_ref(), self.key.as_ref()) }
    }

    /// Returns a fault in the answer `body` with what the server says about it, without the key.
    pub(crate) fn quoting(&self, fault: Fault, body: &[u8]) -> Fault {
        match fault {
            Fault::Body { message } => {
                let message = self.gist(message.as_bytes());
                let says_more = match serde_json::from_slice::<Value>(body) {
                    Ok(body) => message_of(&body).is_some(),
                    Err(_) => !body.trim_ascii_start().starts_with(b"{") && !body.trim_ascii_start().starts_with(b"["),
                };
                Fault::Body { message: if says_more { format!("{message}: {}", self.gist(body)) } else { message } }
            }
            Fault::Answer(AnswerError::Finish { row, reason, tokens }) => {
                AnswerError::Finish { row, reason: self.gist(reason.as_bytes()), tokens }.into()
            }
            fault => fault,
        }
    }

    /// Returns the [`gist`] of an answer.
    pub(crate) fn gist(&self, body: &[u8]) -> String {
        gist(&String::from_utf8_lossy(body), self.key.as_ref())
    }
}

/// Returns whether no connection was made. False if that is not known.
fn is_unreached(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::ConnectProxyFailed(_) => true,
        ureq::Error::Timeout(at) => matches!(at, ureq::Timeout::Resolve | ureq::Timeout::Connect),
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// Returns the message in an error body in the form of OpenAI, vLLM, SGLang or FastAPI.
fn message_of(body: &Value) -> Option<&str> {
    let error = body.get("error").unwrap_or(body);
    let named = ["message", "error_message", "detail"].iter().find_map(|name| error.get(name).and_then(Value::as_str));
    named.or_else(|| error.as_str())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_complaint_is_short_and_without_the_key() {
        let server = Server::new(&agent(), "http://localhost:1", Key::new("secret").as_ref());
        for (body, shown) in [
            (r#"{"error": {"message": "Incorrect key\n secret.", "code": 401}}"#, "Incorrect key …."),
            (r#"{"object":"error","message":"too long"}"#, "too long"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (r#"{"error":"none"}"#, "none"),
            (r#"{"errors": ["no \u0073ecret"]}"#, r#"{"errors":["no …"]}"#),
            ("<html>", "<html>"),
            ("", "(no message)"),
        ] {
            assert_eq!(server.gist(body.as_bytes()), shown);
        }
        assert_eq!(server.gist(&[b'x'; 1000]).chars().count(), SHOWN + 1);
    }

    #[test]
    fn what_every_attempt_would_repeat_comes_with_advice() {
        let tls = |error: rustls::Error| ureq::Error::Io(io::Error::new(io::ErrorKind::InvalidData, error));
        let proxy = ureq::Proxy::new("http://bob:secret@proxy.example:3128").unwrap();
        let told = |error: &ureq::Error| failure(error, "https://far.example", Some(&proxy), None);
        let unknown = told(&tls(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)));
        assert!(unknown.contains("(through the proxy proxy.example:3128)") && unknown.contains("SSL_CERT_FILE"), "{unknown}");
        let expired = told(&tls(rustls::Error::InvalidCertificate(CertificateError::Expired)));
        assert!(expired.contains("certificate of the server") && !expired.contains("SSL_CERT_FILE"), "{expired}");
        let plain = told(&tls(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)));
        assert!(plain.contains("http://"), "{plain}");
        let locked = told(&ureq::Error::ConnectProxyFailed("proxy server responded 407/407".to_owned()));
        assert!(locked.contains("http://USER:PASSWORD@HOST:PORT") && !locked.contains("secret"), "{locked}");
        let passing = [
            tls(rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered)),
            ureq::Error::Io(io::ErrorKind::ConnectionReset.into()),
            ureq::Error::ConnectProxyFailed("proxy server responded 503/503".to_owned()),
        ];
        assert!(passing.iter().all(|error| advice(error).is_none()));
    }
}
