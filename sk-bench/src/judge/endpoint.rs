//! A client for OpenAI-compatible servers.

use std::io::Read;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::Value;
use sk_remote::{Key, address, advice, client_config, failure, gist, is_local, retry_after, without_user};
use ureq::{Agent, RequestBuilder};

use super::retry::Pace;
use super::{JudgeError, Retry};
use crate::message;

/// Maximum timeout of a request: one year. A longer one could overflow the deadline.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How many refusals of a server that limits the rate do not count as attempts, for each attempt that
/// a question has.
const SPARED: u32 = 10;
/// Maximum number of bytes read of a response.
const LONGEST: u64 = 8 << 20;

/// Returns the key in an environment variable; `None` if the variable is unset or blank.
///
/// # Errors
/// If the value is not valid in an HTTP header.
pub fn key_from_env(variable: &str) -> Result<Option<Key>, JudgeError> {
    let value = std::env::var_os(variable).unwrap_or_default();
    let value = value.to_string_lossy();
    if value.trim().is_empty() {
        return Ok(None);
    }
    // The key itself is not shown.
    let refused = || {
        format!(
            "the value of {variable} cannot be sent as an API key: it holds a space or another character that a key cannot have"
        )
    };
    Key::new(&value).map(Some).ok_or_else(|| JudgeError::Invalid(refused()))
}

/// A server's address and the HTTP client for it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    agent: Agent,
    base: String,
    key: Option<Key>,
    timeout: Duration,
    /// Whether the key is sent unencrypted to another machine.
    exposed: bool,
}

/// A response of the server, with any status.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    retry_after: Option<Duration>,
    /// The target of a redirect.
    location: Option<String>,
    body: String,
}

/// The reason why no complete response arrived.
#[derive(Debug)]
pub(super) struct Trouble {
    reason: String,
    /// Whether every attempt would fail in the same way.
    is_lasting: bool,
}

/// A response that rejects the request.
#[derive(Debug)]
pub(super) struct Rejection {
    pub(super) status: u16,
    pub(super) body: String,
    /// Whether a content filter of the server rejects it.
    pub(super) is_filtered: bool,
}

impl Endpoint {
    /// Returns the endpoint at a base URL such as `http://localhost:8000/v1`. If the URL has no
    /// path, `/v1` is added.
    ///
    /// `timeout` applies to each request from the first byte sent to the last byte received. It is
    /// capped at one year.
    ///
    /// # Errors
    /// If `url` is not a valid URL, or has a user name, a query or a fragment.
    pub fn new(url: &str, key: Option<Key>, timeout: Duration) -> Result<Self, JudgeError> {
        let timeout = timeout.min(LONGEST_WAIT);
        let uri = address(url).map_err(|reason| JudgeError::Invalid(format!("endpoint \"{}\": {reason}", without_user(url))))?;
        let trimmed = url.trim_end_matches('/').trim_end_matches("/chat/completions");
        let base = if uri.path() == "/" { format!("{trimmed}/v1") } else { trimmed.to_owned() };
        let here = is_local(url);
        let exposed = key.is_some() && !here && uri.scheme_str() == Some("http");
        let mut config = client_config().timeout_global(Some(timeout));
        if here {
            // A proxy cannot reach this machine's own address.
            config = config.proxy(None);
        }
        Ok(Self { agent: Agent::new_with_config(config.build()), base, key, timeout, exposed })
    }

    /// Returns the endpoint at `url` with the key in the environment variable `key`, and the model:
    /// the given one, or else the only one of the server. Warns on standard error if the key is
    /// sent without encryption.
    ///
    /// # Errors
    /// As [`new`](Self::new), [`key_from_env`] and [`only_model`](Self::only_model).
    pub(crate) fn open(
        url: &str,
        key: &str,
        timeout: Duration,
        model: Option<&str>,
        retry: Retry,
    ) -> Result<(Self, String), JudgeError> {
        let endpoint = Self::new(url, key_from_env(key)?, timeout)?;
        if endpoint.exposed {
            message::exposed_key();
        }
        let model = model.map_or_else(|| endpoint.only_model(retry), |model| Ok(model.to_owned()))?;
        Ok((endpoint, model))
    }

    /// Returns the URL for chat completions.
    pub(super) fn completions(&self) -> String {
        format!("{}/chat/completions", self.base)
    }

    /// Returns the only model of the server.
    ///
    /// # Errors
    /// If the server does not answer in all attempts, denies access, or offers no model or several.
    pub fn only_model(&self, retry: Retry) -> Result<String, JudgeError> {
        #[derive(Deserialize)]
        struct Models {
            data: Vec<Model>,
        }
        #[derive(Deserialize)]
        struct Model {
            id: String,
        }
        let url = format!("{}/models", self.base);
        let unclear =
            |reason: String| JudgeError::Invalid(format!("{url}: {reason}; name one with --model, or as model in a plan"));
        let ask = || self.read(self.authorized(self.agent.get(&url)).call());
        let answer = self.persist(&url, retry, &Pace::default(), ask, |body| Ok(body.to_owned()))?;
        let list = answer.map_err(|Rejection { status, body, .. }| unclear(format!("the server answers {status}: {body}")))?;
        let models: Models = serde_json::from_str(&list)
            .map_err(|error| unclear(format!("its list of models: {}", self.without_key(error.to_string()))))?;
        match models.data.as_slice() {
            [] => Err(unclear("the server offers no model".to_owned())),
            [only] => Ok(only.id.clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|model| model.id.as_str()).collect();
                Err(unclear(format!("the server offers several models: {}", names.join(", "))))
            }
        }
    }

    /// Requests a chat completion, without retries.
    ///
    /// # Errors
    /// If no complete response arrives.
    pub(super) fn ask(&self, body: &Value) -> Result<Answer, Trouble> {
        let request = self.agent.post(self.completions()).content_type("application/json");
        self.read(self.authorized(request).send(body.to_string()))
    }

    /// Adds the key to a request.
    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {}", key.as_str())),
            None => request,
        }
    }

    /// Calls `ask` until `read` takes the answer or no attempt is left. While a server that limits
    /// the rate answers other questions, its refusals do not count as attempts, up to ten times as
    /// many.
    ///
    /// # Errors
    /// If there is no usable answer, no attempt can reach the server, it denies access or redirects,
    /// Ctrl-C was pressed, or nothing is asked any more. The inner error is an answer that rejects
    /// the request.
    pub(super) fn persist<T>(
        &self,
        url: &str,
        retry: Retry,
        pace: &Pace,
        ask: impl Fn() -> Result<Answer, Trouble>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Result<T, Rejection>, JudgeError> {
        let Retry { attempts, patience, .. } = retry;
        let unanswered = |attempts, last| JudgeError::Unanswered { url: url.to_owned(), attempts, last };
        let (mut last, mut attempt, mut pause) = (String::new(), 0, Duration::ZERO);
        let (mut answered, mut uncounted) = (pace.answered(), attempts.saturating_mul(SPARED));
        while attempt < attempts {
            if !pace.wait(pause) {
                return Err(JudgeError::Interrupted);
            }
            pause = retry.pause(attempt);
            attempt += 1;
            match ask() {
                Ok(Answer { status: 200, body, .. }) => match read(&body) {
                    Ok(value) => {
                        pace.count_answer();
                        return Ok(Ok(value));
                    }
                    Err(reason) => last = reason,
                },
                Ok(Answer { status, retry_after, location, body }) => {
                    let (is_filtered, body) = (is_filtered(&body), self.gist(&body));
                    if !is_passing(status) {
                        return match self.denial(url, status, &body, location).filter(|_| !is_filtered) {
                            Some(error) => Err(error),
                            None => Ok(Err(Rejection { status, body, is_filtered })),
                        };
                    }
                    last = format!("status {status}: {body}");
                    if let Some(asked) = retry_after {
                        if asked > patience {
                            return Err(unanswered(attempt, format!("{last}; it asks to wait for {} s", asked.as_secs())));
                        }
                        pause = pause.max(asked);
                    }
                    if retry_after.is_some() || status == 429 {
                        // The longer pause of a question that failed often is its own.
                        pace.hold(retry_after.unwrap_or(retry.first));
                        let now = pace.answered();
                        if now > answered && uncounted > 0 {
                            (answered, uncounted, attempt) = (now, uncounted - 1, attempt - 1);
                        }
                    }
                }
                Err(Trouble { reason, is_lasting: true }) => return Err(JudgeError::Invalid(format!("{url}: {reason}"))),
                Err(Trouble { reason, .. }) => last = reason,
            }
        }
        Err(unanswered(attempts, last))
    }

    /// Returns the error for a status that concerns every request.
    fn denial(&self, url: &str, status: u16, body: &str, location: Option<String>) -> Option<JudgeError> {
        let reason = match status {
            300..=399 => {
                // A key must not be sent to another server.
                let target = location.map_or_else(|| "elsewhere".to_owned(), |target| self.gist(&target));
                format!(" and redirects to {target}, and redirects are not followed; give the address of the server")
            }
            401 | 403 => {
                let hint = if self.key.is_some() {
                    "check the API key"
                } else {
                    "no API key was sent; see --api-key-env, or api_key_env of a plan"
                };
                format!(": {body}; {hint}")
            }
            402 => format!(": {body}"),
            _ => return None,
        };
        Some(JudgeError::Invalid(format!("{url}: the server answers {status}{reason}")))
    }

    fn trouble(&self, error: &ureq::Error) -> Trouble {
        let reason = match error {
            ureq::Error::Timeout(ureq::Timeout::Global) => {
                format!("it took longer than {} s (--timeout)", self.timeout.as_secs_f64())
            }
            _ => failure(error, &self.base, self.agent.config().proxy(), self.key.as_ref()),
        };
        Trouble { reason, is_lasting: advice(error).is_some() }
    }

    fn read(&self, sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Answer, Trouble> {
        let mut response = sent.map_err(|error| self.trouble(&error))?;
        let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = header.and_then(|value| retry_after(value, SystemTime::now()));
        let location = response.headers().get("location").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let status = response.status().as_u16();
        // The limit of the body is on compressed bytes, that of the reader on all.
        let mut body = Vec::new();
        let mut reader = response.body_mut().with_config().limit(LONGEST).reader().take(LONGEST + 1);
        reader.read_to_end(&mut body).map_err(|error| self.trouble(&error.into()))?;
        if body.len() as u64 > LONGEST {
            return Err(self.trouble(&ureq::Error::BodyExceedsLimit(LONGEST)));
        }
        Ok(Answer { status, retry_after, location, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Returns the [`gist`] of a response.
    pub(super) fn gist(&self, body: &str) -> String {
        gist(body, self.key.as_ref())
    }

    /// Removes the key from a text of the server, which may echo it.
    pub(super) fn without_key(&self, text: String) -> String {
        match &self.key {
            Some(key) => text.replace(key.as_str(), "…"),
            None => text,
        }
    }
}

/// Returns whether the body of an error says that a content filter rejects the request.
fn is_filtered(body: &str) -> bool {
    serde_json::from_str::<Value>(body).is_ok_and(|body| body["error"]["code"] == "content_filter")
}

/// Returns whether a status is transient, so that a retry may succeed.
fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429) || (status >= 500 && status != 501)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Result<Endpoint, JudgeError> {
        Endpoint::new(url, Key::new("sk-secret"), Duration::from_secs(1))
    }

    #[test]
    fn addresses_are_completed() {
        for (given, asked) in [
            ("http://localhost:8000", "http://localhost:8000/v1/chat/completions"),
            ("http://localhost:8000/", "http://localhost:8000/v1/chat/completions"),
            ("http://localhost:11434/v1/", "http://localhost:11434/v1/chat/completions"),
            ("https://host/api/v3/chat/completions", "https://host/api/v3/chat/completions"),
        ] {
            assert_eq!(endpoint(given).unwrap().completions(), asked);
        }
        for wrong in [
            "localhost:8000",
            "ftp://host/v1",
            "",
            "http://user:pw@host/v1",
            "/v1",
            "http://host:87720/v1",
            "http://host:",
            "http://host:0",
        ] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
        let error = endpoint("http://user:pwSECRET@host/v1").unwrap_err().to_string();
        assert!(error.contains("http://…@host/v1") && !error.contains("SECRET"), "{error}");
        for wrong in ["http://host/?x=1", "http://host?x=1", "https://host/v1?", "http://host/v1#x", "http://host#x"] {
            let error = endpoint(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("a query or a fragment"), "{error}");
        }
    }

    #[test]
    fn a_key_is_exposed_on_the_way_to_another_machine_without_tls() {
        for (url, exposed) in
            [("http://host/v1", true), ("https://host/v1", false), ("http://localhost:1", false), ("http://[::1]:1", false)]
        {
            assert_eq!(endpoint(url).unwrap().exposed, exposed, "{url}");
        }
        assert!(!Endpoint::new("http://host/v1", None, Duration::from_secs(1)).unwrap().exposed);
    }

    #[test]
    fn a_key_is_never_shown() {
        let endpoint = endpoint("http://localhost:1/v1").unwrap();
        assert!(!format!("{endpoint:?}").contains("sk-secret"));
        assert_eq!(
            endpoint.gist(r#"{"error": {"message": "Incorrect API key\n provided: sk-secret."}}"#),
            "Incorrect API key provided: …."
        );
    }
}
