//! The hub's HTTP interface.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use ureq::{Agent, Body, http::Response, http::Uri, tls::RootCerts, tls::TlsConfig};

use super::{
    error::HubError,
    id::{Kind, ModelId},
};

/// The time after which a silent server has failed.
const SILENCE: Duration = Duration::from_secs(30);
/// Redirections followed before giving up.
const MAX_HOPS: usize = 8;

/// Bytes of a listing: some thousand files, with the hub's description of each.
const LONGEST_LISTING: u64 = 64 << 20;

/// The hub's description of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Announced {
    /// Its etag: the SHA-256 of a large file.
    pub(super) hash: Option<String>,
    /// Its length, for files that are stored elsewhere.
    pub(super) length: Option<u64>,
}

/// The hub's description of a revision.
#[derive(Deserialize)]
pub(super) struct Listing {
    /// The commit.
    pub(super) sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Listing {
    /// The names of the files.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.siblings.iter().map(|file| file.rfilename.as_str())
    }
}

/// Returns whether an address is on this machine.
fn is_here(url: &str) -> bool {
    let uri = url.parse::<Uri>().ok();
    let is_loopback = |host: &str| host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback());
    uri.as_ref().and_then(Uri::host).is_some_and(|host| host == "localhost" || is_loopback(host))
}

/// A hub by its address.
#[derive(Debug, Clone)]
pub(super) struct Client {
    endpoint: String,
    /// Sent to the hub only.
    pub(super) token: Option<String>,
    agent: Agent,
}

impl Client {
    pub(super) fn new(endpoint: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Redirections are followed by hand: the first answer has the hash of the file, and the
            // token must not reach the host that stores the contents.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(SILENCE))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .user_agent(concat!("swiss-knife/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .build();
        Self { endpoint: endpoint.trim_end_matches('/').to_owned(), token: None, agent: Agent::new_with_config(config) }
    }

    /// Returns whether the token would be sent to another machine without encryption.
    pub(super) fn exposes_token(&self) -> bool {
        let is_plain = |uri: Uri| uri.scheme_str() == Some("http");
        self.token.is_some() && self.endpoint.parse().is_ok_and(is_plain) && !is_here(&self.endpoint)
    }

    /// Returns the URL of a file of a commit.
    pub(super) fn file_url(&self, kind: Kind, id: &ModelId, commit: &str, name: &str) -> String {
        format!("{}/{}{}/resolve/{commit}/{name}", self.endpoint, kind.folder(), id.repository)
    }

    /// Returns the commit of a revision and its files.
    pub(super) fn listing(&self, kind: Kind, id: &ModelId) -> Result<Listing, HubError> {
        let revision = id.revision.replace('/', "%2F");
        let url = format!("{}/api/{}/{}/revision/{revision}", self.endpoint, kind.plural(), id.repository);
        let (_, mut response) = self.get(&url, None)?;
        let refused = |reason| HubError::Answer { url: shown(&url), reason };
        let body = response.body_mut().with_config().limit(LONGEST_LISTING).read_to_vec().map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => refused(error.to_string()),
            source => HubError::Connection { url: shown(&url), source: Box::new(source) },
        })?;
        let listing: Listing = serde_json::from_slice(&body).map_err(|error| refused(error.to_string()))?;
        if !is_hash(&listing.sha) {
            return Err(refused(format!("`{}` is not a commit", listing.sha)));
        }
        Ok(listing)
    }

    /// Sends a GET request and follows redirections. The description comes from the hub's first
    /// answer that has a link to the contents, else from its last answer, and never from another
    /// host.
    pub(super) fn get(&self, url: &str, from: Option<u64>) -> Result<(Announced, Response<Body>), HubError> {
        let mut announced = Announced::default();
        let mut is_linked = false;
        let mut target = url.to_owned();
        for _ in 0..MAX_HOPS {
            let at_hub = target.starts_with(&format!("{}/", self.endpoint));
            // A compressed body would make lengths and ranges meaningless.
            let mut request = self.agent.get(&target).header("accept-encoding", "identity");
            if is_here(&target) {
                // A proxy cannot reach this machine.
                request = request.config().proxy(None).build();
            }
            if let Some(token) = self.token.as_ref().filter(|_| at_hub) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            if let Some(from) = from {
                request = request.header("range", format!("bytes={from}-"));
            }
            let response =
                request.call().map_err(|source| HubError::Connection { url: shown(&target), source: Box::new(source) })?;
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            if at_hub && !is_linked {
                is_linked = header("x-linked-etag").is_some();
                announced = Announced {
                    hash: header("x-linked-etag").or_else(|| header("etag")).map(clean_etag),
                    length: header("x-linked-size").and_then(|size| size.parse().ok()),
                };
            }
            let status = response.status();
            if status.is_success() {
                return Ok((announced, response));
            }
            if !status.is_redirection() {
                let hint = if at_hub { hint(status.as_u16(), self.token.is_some()) } else { "try again later" };
                return Err(HubError::Status { url: shown(&target), status: status.as_u16(), hint });
            }
            let Some(next) = header("location").and_then(|location| redirected(&target, location)) else {
                return Err(HubError::Answer { url: shown(&target), reason: "redirects to nowhere".to_owned() });
            };
            target = next;
        }
        Err(HubError::Answer { url: shown(url), reason: format!("redirects more than {MAX_HOPS} times") })
    }
}

/// Returns the absolute URL of a `Location`, which may omit the scheme, or scheme and host.
fn redirected(from: &str, location: &str) -> Option<String> {
    let from: Uri = from.parse().ok()?;
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    Some(match location.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => format!("{scheme}:{location}"),
        Some(_) => format!("{scheme}://{authority}{location}"),
        None if location.starts_with("http://") || location.starts_with("https://") => location.to_owned(),
        None => return None,
    })
}

/// Returns a URL as messages show it: without a name and password, and without the query, which may
/// be a signature.
pub(super) fn shown(url: &str) -> String {
    let url = url.split('?').next().unwrap_or(url);
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{host}{path}")
}

fn hint(status: u16, has_token: bool) -> &'static str {
    match status {
        401 if has_token => "check the id and the token in HF_TOKEN",
        403 if has_token => "the token has no access; ask for it on the page of the repository",
        401 => "check the id; a private or gated model needs a token: set HF_TOKEN",
        403 => "it needs a token with access: set HF_TOKEN",
        404 => "check the id and the revision",
        408 | 429 | 500.. => "try again later",
        _ => "this is not expected",
    }
}

/// Returns an etag without quotes and the mark of a weak one.
fn clean_etag(etag: &str) -> String {
    etag.trim_start_matches("W/").trim_matches('"').to_owned()
}

/// Returns whether a string is hexadecimal, as commits and SHA-256 are.
pub(super) fn is_hash(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_may_be_relative() {
        let to = |location| redirected("https://hub.example/owner/file", location);
        assert_eq!(to("/api/other?x=1").as_deref(), Some("https://hub.example/api/other?x=1"));
        assert_eq!(to("//cdn.example/blob").as_deref(), Some("https://cdn.example/blob"));
        assert_eq!(to("http://cdn.example/blob").as_deref(), Some("http://cdn.example/blob"));
        assert_eq!(to("file:///etc/passwd"), None);
        assert_eq!(to(""), None);
    }

    #[test]
    fn a_token_is_exposed_on_the_way_to_another_machine_without_tls() {
        let exposes = |endpoint: &str, token: Option<&str>| {
            let mut client = Client::new(endpoint);
            client.token = token.map(str::to_owned);
            client.exposes_token()
        };
        assert!(exposes("http://hub.example", Some("t")) && exposes("http://192.168.0.1:80", Some("t")));
        assert!(exposes("HTTP://hub.example", Some("t")) && !exposes("http://127.0.0.2:80", Some("t")));
        assert!(!exposes("https://hub.example", Some("t")) && !exposes("http://hub.example", None));
        assert!(!exposes("http://localhost:80", Some("t")) && !exposes("http://[::1]:80", Some("t")));
    }

    #[test]
    fn messages_show_no_password_and_no_signature() {
        assert_eq!(shown("https://bob:secret@hub.example:80/a/b?X-Signature=1"), "https://hub.example:80/a/b");
        assert_eq!(shown("https://hub.example/a@b/c"), "https://hub.example/a@b/c");
        assert_eq!(shown("http://hub.example"), "http://hub.example");
    }

    #[test]
    fn who_has_a_token_is_not_told_to_set_one() {
        assert!(hint(403, false).contains("set HF_TOKEN") && !hint(403, true).contains("set HF_TOKEN"));
        assert!(hint(401, false).contains("set HF_TOKEN") && !hint(401, true).contains("set HF_TOKEN"));
    }

    #[test]
    fn etags_lose_quotes_and_the_weak_mark() {
        assert_eq!(clean_etag("\"abc\""), "abc");
        assert_eq!(clean_etag("W/\"abc\""), "abc");
    }
}
