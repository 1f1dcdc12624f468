use std::fmt;
use std::str::FromStr;

use ureq::http::Uri;

use crate::http::is_local;

/// The API of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SGLang: `POST /generate`.
    Sglang,
    /// vLLM: `POST /v1/completions`.
    Vllm,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Sglang, Self::Vllm];

    /// Returns the name as in an address: `sglang` or `vllm`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An API key, sent as a bearer token and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Creates a key. `None` if the text is blank or not valid in a header.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The servers of one model, all with the same weights.
///
/// The text form is a kind, `+`, and addresses separated by commas. A final `#NAME` selects the
/// model on a server that has several:
///
/// ```
/// use sk_remote::{Kind, Role};
///
/// let role: Role = "vllm+http://10.0.0.1:8000,http://10.0.0.2:8000#base".parse()?;
/// assert_eq!((role.kind, role.urls.len(), role.model.as_deref()), (Kind::Vllm, 2, Some("base")));
/// assert_eq!("tgi+http://host".parse::<Role>().unwrap_err().to_string(),
///     "\"tgi+http://host\": the kind of server is not known; begin with sglang+http:// or vllm+http://");
/// # Ok::<(), sk_remote::AddressError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Their API.
    pub kind: Kind,
    /// Their addresses, at least one: scheme, host and port, such as `http://localhost:30000`.
    pub urls: Vec<String>,
    /// The name of the model on the servers; `None` if they serve a single one.
    pub model: Option<String>,
    /// The API key for all servers.
    pub key: Option<Key>,
}

impl Role {
    /// Sets the key.
    #[must_use]
    pub fn with_key(self, key: Option<Key>) -> Self {
        Self { key, ..self }
    }

    /// Returns whether the key is sent to another machine without encryption. The engine does not
    /// warn about it; programs that accept keys should.
    #[must_use]
    pub fn exposes_key(&self) -> bool {
        self.key.is_some() && self.urls.iter().any(|url| url.starts_with("http://") && !is_local(url))
    }

    /// Validates the addresses, since the fields are public.
    pub(crate) fn checked(self) -> Result<Self, AddressError> {
        let wrong = |url: &str, reason| AddressError { text: without_user(url), reason };
        if self.urls.is_empty() {
            return Err(wrong("", Reason::Empty));
        }
        let mut urls: Vec<String> = Vec::with_capacity(self.urls.len());
        for url in &self.urls {
            let base = base_of(url).map_err(|reason| wrong(url, reason))?;
            if urls.contains(&base) {
                return Err(wrong(url, Reason::Twice));
            }
            urls.push(base);
        }
        Ok(Self { urls, ..self })
    }
}

/// An invalid address of servers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\": {reason}")]
pub struct AddressError {
    /// The address, or its invalid part, without a user name and a password.
    pub text: String,
    /// The error.
    pub reason: Reason,
}

/// The error in an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// It does not start with a known kind.
    #[error("the kind of server is not known; begin with sglang+http:// or vllm+http://")]
    Kind,
    /// No address follows the kind.
    #[error("no address is given; write one as http://HOST:PORT")]
    Empty,
    /// It is not an address.
    #[error("it is not an address; write one as http://HOST:PORT")]
    Syntax,
    /// Its scheme is not HTTP or HTTPS.
    #[error("only http:// and https:// are supported")]
    Scheme,
    /// It has a user name or a password.
    #[error("it holds a user name; keys are given apart from addresses")]
    User,
    /// It has no port that exists after the colon.
    #[error("the port after the host must be a number from 1 to 65535")]
    Port,
    /// It has a path.
    #[error("a path follows host and port; give scheme, host and port alone")]
    Path,
    /// It has a query or a fragment.
    #[error("it has a query or a fragment, beginning with ? or #; leave it out")]
    Query,
    /// A name of a model holds an address.
    #[error("an address follows the name of the model; give #NAME once, after all addresses")]
    Name,
    /// It is given twice.
    #[error("it is given twice; each server is named once")]
    Twice,
}

impl FromStr for Role {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |reason| AddressError { text: without_user(text), reason };
        let (kind, rest) = text.trim().split_once('+').ok_or(wrong(Reason::Kind))?;
        let kind = Kind::named(kind).ok_or(wrong(Reason::Kind))?;
        let (addresses, model) = rest.split_once('#').unwrap_or((rest, ""));
        let model = Some(model.trim().to_owned()).filter(|model| !model.is_empty());
        if model.as_ref().is_some_and(|model| model.contains("://")) {
            return Err(wrong(Reason::Name));
        }
        let urls = addresses.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect();
        Self { kind, urls, model, key: None }.checked()
    }
}

/// Returns an address for messages: without what precedes an `@`, which may hold a password.
#[must_use]
pub fn without_user(address: &str) -> String {
    match address.rsplit_once('@') {
        None => address.to_owned(),
        Some((before, host)) => {
            let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
            format!("{scheme}…@{host}")
        }
    }
}

/// Parses the address of a server: HTTP or HTTPS, a host, and a port that exists if there is one.
///
/// # Errors
/// If it is no such address, or has a user name, a query or a fragment.
pub fn address(url: &str) -> Result<Uri, Reason> {
    let uri: Uri = url.parse().map_err(|_| Reason::Syntax)?;
    let authority = match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if !authority.host().is_empty() => authority,
        (Some("http" | "https"), _) => return Err(Reason::Syntax),
        (Some(_), _) => return Err(Reason::Scheme),
        _ => return Err(Reason::Syntax),
    };
    if authority.as_str().contains('@') {
        return Err(Reason::User);
    }
    // Requests to a port that `Uri` cannot read would go to that of the scheme.
    if authority.as_str() != authority.host() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(Reason::Port);
    }
    // `Uri` drops the fragment.
    if uri.query().is_some() || url.contains('#') {
        return Err(Reason::Query);
    }
    Ok(uri)
}

/// Returns scheme, host and port. A final `/v1`, which OpenAI clients need, is dropped.
fn base_of(url: &str) -> Result<String, Reason> {
    let uri = address(url.trim())?;
    if !matches!(uri.path().trim_end_matches('/'), "" | "/v1") {
        return Err(Reason::Path);
    }
    let authority = uri.authority().map_or_else(String::new, |authority| authority.as_str().to_ascii_lowercase());
    Ok(format!("{}://{authority}", uri.scheme_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_refused_by_name() {
        let role: Role = "sglang+http://a:30000/, https://b/v1".parse().unwrap();
        assert_eq!((role.kind, role.model), (Kind::Sglang, None));
        assert_eq!(role.urls, ["http://a:30000", "https://b"]);
        let role: Role = "vllm+HTTP://Host.example:80/v1/,http://v1,http://[::1]:8000".parse().unwrap();
        assert_eq!(role.urls, ["http://host.example:80", "http://v1", "http://[::1]:8000"]);
        for (text, reason) in [
            ("http://a:1", Reason::Kind),
            ("ollama+http://a:1", Reason::Kind),
            ("vllm+", Reason::Empty),
            ("vllm+#base", Reason::Empty),
            ("vllm+a:1", Reason::Syntax),
            ("vllm+http://:80", Reason::Syntax),
            ("vllm+ftp://a:1", Reason::Scheme),
            ("vllm+http://u:p@a:1", Reason::User),
            ("vllm+http://a:87720", Reason::Port),
            ("vllm+http://a:0", Reason::Port),
            ("vllm+http://[::1]:", Reason::Port),
            ("vllm+http://a:1/generate", Reason::Path),
            ("vllm+http://a:1/?x=1", Reason::Query),
            ("vllm+http://a:1#base,http://b:1", Reason::Name),
            ("vllm+http://a:1,http://a:1/", Reason::Twice),
            ("vllm+http://a:1,HTTP://A:1/v1/", Reason::Twice),
        ] {
            assert_eq!(text.parse::<Role>().unwrap_err().reason, reason, "{text}");
        }
        let error = "vllm+http://user:pwSECRET@a:1#x".parse::<Role>().unwrap_err();
        assert_eq!(error.text, "http://…@a:1");
        let error = "user:pwSECRET@a:1".parse::<Role>().unwrap_err();
        assert_eq!(error.text, "…@a:1");
        // In a text, what follows # is the name of the model.
        let role = Role { kind: Kind::Vllm, urls: vec!["http://a:1#x".to_owned()], model: None, key: None };
        assert_eq!(role.checked().unwrap_err().reason, Reason::Query);
    }

    #[test]
    fn a_key_is_exposed_on_the_way_to_another_machine_without_tls() {
        let exposes = |text: &str, key: Option<&str>| {
            let role: Role = text.parse().unwrap();
            role.with_key(key.and_then(Key::new)).exposes_key()
        };
        assert!(exposes("vllm+HTTP://host.example:1", Some("k")));
        assert!(exposes("vllm+http://host.example:1", Some("k")) && exposes("sglang+https://a:1,http://10.0.0.1:2", Some("k")));
        assert!(!exposes("vllm+https://host.example:1", Some("k")) && !exposes("vllm+http://host.example:1", None));
        assert!(!exposes("vllm+http://localhost:1,http://127.0.0.2:2,http://[::1]:3", Some("k")));
    }

    #[test]
    fn a_key_is_never_shown() {
        let role: Role = "vllm+http://a:1".parse().unwrap();
        let role = role.with_key(Key::new(" secret "));
        assert_eq!(role.key.as_ref().map(Key::as_str), Some("secret"));
        assert!(!format!("{role:?}").contains("secret"));
        assert!(Key::new("two\nlines").is_none() && Key::new(" ").is_none());
    }
}
