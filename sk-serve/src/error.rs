use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::http::{
    HeaderValue, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sk_core::StepError;
use sk_models::dialogue::SessionError;
use sk_models::local::ModelError;
use sk_remote::RemoteError;
use sk_scheme::SchemeError;

use crate::host::HostError;

/// The status in metrics and logs of a request whose client disconnects before the response, as in
/// nginx.
pub(crate) const DISCONNECTED: u16 = 499;

/// An error in the format of the OpenAI API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    message: String,
    /// The name of the invalid field.
    param: Option<String>,
    code: Option<&'static str>,
    /// The cause, for the log alone.
    cause: Option<String>,
    /// The seconds after which the client may try again, if they are known.
    retry_after: Option<u64>,
}

impl ApiError {
    /// An invalid request (400).
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, None, message) }
    }

    pub(crate) fn unsupported(param: &str) -> Self {
        Self::unknown(param, None)
    }

    /// A field that is not supported, or that is a misspelling of the field `meant`.
    pub(crate) fn unknown(param: &str, meant: Option<&str>) -> Self {
        let remedy =
            meant.map_or_else(|| "leave it out".to_owned(), |meant| format!("did you mean `{meant}`? Otherwise leave it out"));
        let message = format!("this server does not support `{param}`; {remedy}");
        Self { code: Some("unsupported_parameter"), ..Self::invalid(param, message) }
    }

    pub(crate) fn of_scheme(error: &SchemeError) -> Self {
        if let SchemeError::Engine(source) = error
            && let Some(ModelError::Memory { candidates, shortage }) = source.downcast_ref()
        {
            return Self::no_memory(format!("{candidates} candidates take {shortage}; ask for fewer"));
        }
        Self::invalid("swiss_knife", error.to_string())
    }

    /// Too little memory at the moment, because other programs use it.
    fn no_memory(message: String) -> Self {
        Self::rate_limited(message + ", or try again later")
    }

    fn new(status: StatusCode, code: impl Into<Option<&'static str>>, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: code.into(), cause: None, retry_after: None }
    }

    fn rate_limited(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
    }

    fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "send the key of this server as `Authorization: Bearer KEY`";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    }

    pub(crate) fn forbidden(what: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", what)
    }

    /// A body that exceeds the server's limit.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body is longer than the {limit} bytes that this server takes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    }

    /// A body that did not arrive in time.
    pub(crate) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the body did not arrive in time")
    }

    /// A body that ends early because the client disconnects.
    pub(crate) fn disconnected() -> Self {
        let status = StatusCode::from_u16(DISCONNECTED).unwrap_or(StatusCode::BAD_REQUEST);
        Self { status, ..Self::invalid("body", "the connection closed before the end of the body") }
    }

    pub(crate) fn not_found(what: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", what)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "this path has no such method; /openapi.json says which it has";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    /// A blade whose adapter is not `loaded`.
    pub(crate) fn no_adapter(param: &str, blade: &str, loaded: &[String]) -> Self {
        Self::invalid(param, format!("no adapter is loaded for blade \"{blade}\"; loaded: {}", loaded.join(", ")))
    }

    /// A blade for a scheme that seats no others than its own.
    pub(crate) fn fixed_blades(param: &str) -> Self {
        Self::invalid(param, "the blades of this scheme are fixed; leave `blades` out, or choose another scheme")
    }

    /// A prompt that is longer than the server or its model takes.
    pub(crate) fn too_long(param: &str, message: impl Into<String>) -> Self {
        Self { code: Some("context_length_exceeded"), ..Self::invalid(param, message) }
    }

    /// A prompt that leaves no room for an answer. The message begins as OpenAI's, by which some
    /// clients recognise the error.
    pub(crate) fn beyond_context(param: &str, tokens: usize, limit: usize) -> Self {
        Self::too_long(
            param,
            format!("This model's maximum context length is {limit} tokens. The prompt has {tokens} tokens; shorten it"),
        )
    }

    /// A prompt that leaves no room for an answer together with an instruction of the scheme, which
    /// adds `added` tokens.
    pub(crate) fn instructed_beyond_context(tokens: usize, instruction: &str, added: usize, limit: usize) -> Self {
        let held = format!("This model's maximum context length is {limit} tokens.");
        Self::too_long(
            "swiss_knife.blades",
            format!("{held} The prompt has {tokens} tokens and {instruction} adds {added}; shorten either"),
        )
    }

    pub(crate) fn busy() -> Self {
        Self::rate_limited("the server has as many requests as it takes; try again later")
    }

    /// Asks the client to try again after `time`, rounded up and clamped to 1 to 60 seconds.
    /// OpenAI's clients ignore longer times.
    pub(crate) fn retry_after(self, time: Duration) -> Self {
        Self { retry_after: Some(time.as_secs_f64().ceil().clamp(1.0, 60.0) as u64), ..self }
    }

    /// An adapter for which no memory is left.
    pub(crate) fn full() -> Self {
        Self::rate_limited("no memory is left for the adapter; unload another one, or try again when answers have ended")
    }

    /// An edit that seats a blade for which no memory is left.
    pub(crate) fn no_room_for_blade() -> Self {
        Self::rate_limited(
            "no memory is left for another blade of this answer; unseat one, or try again when other answers have ended",
        )
    }

    pub(crate) fn draining() -> Self {
        Self::unavailable("the server is shutting down")
    }

    pub(crate) fn loading() -> Self {
        Self::unavailable("the server loads its models; try again in a moment")
    }

    /// A request that waited for other answers until its time ended.
    pub(crate) fn kept_waiting() -> Self {
        Self::unavailable("the request waited for other answers until its time ended; try again in a moment")
    }

    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        let message = error.to_string();
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, None, message)
    }

    /// The model servers failed. Clients do not learn their addresses.
    fn upstream(error: &RemoteError) -> Self {
        let message = "the model servers failed or refused the request; the log of this server has the reason";
        Self { cause: Some(error.to_string()), ..Self::new(StatusCode::BAD_GATEWAY, "bad_gateway", message) }
    }

    /// The time of a request ended before it was answered.
    pub(crate) fn out_of_time() -> Self {
        let message = "the time that this server gives a request ended before it was answered; try again, or ask for less";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
    }

    /// Returns the cause, for the log.
    pub(crate) fn cause(&self) -> &str {
        self.cause.as_ref().unwrap_or(&self.message)
    }

    /// A generation that failed. It is a client error if the input does not fit.
    pub(crate) fn of_session(error: &SessionError) -> Self {
        match error {
            // The prompt alone fits; the prompt with the longest instruction does not.
            SessionError::PromptTooLong { tokens, instruction, limit } => {
                Self::instructed_beyond_context(*tokens, "the longest instruction", *instruction, *limit)
            }
            SessionError::EmptyInstruction { .. } | SessionError::TwoInstructions { .. } | SessionError::Text(_) => {
                Self::invalid("swiss_knife.blades", error.to_string())
            }
            SessionError::Memory { tokens, shortage } => {
                Self::no_memory(format!("an answer of {tokens} tokens takes {shortage}; ask for fewer tokens"))
            }
            SessionError::Step(StepError::NoEntropy) => Self::invalid("swiss_knife", error.to_string()),
            SessionError::Step(StepError::Proposal(source) | StepError::Backbone(source)) => {
                match source.downcast_ref::<RemoteError>() {
                    Some(remote @ RemoteError::Unsupported { .. }) => Self::invalid("swiss_knife", remote.to_string()),
                    Some(remote) => Self::upstream(remote),
                    None => Self::internal(error),
                }
            }
            _ => Self::internal(error),
        }
    }

    /// The error for an adapter that cannot be loaded: 400 if the adapter or its name is at fault, 502
    /// if the model servers are. The adapter is at `path`, of which clients know the last part,
    /// `folder`.
    pub(crate) fn of_adapter(error: &HostError, path: &str, folder: &str) -> Self {
        let HostError::Remote(remote) = error else {
            let error = error.to_string();
            return Self { cause: Some(error.clone()), ..Self::invalid("adapter", error.replace(path, folder)) };
        };
        let (param, message) = match &**remote {
            RemoteError::AdapterModule { .. } => ("adapter", error.to_string()),
            RemoteError::AdapterKnown { adapter, .. } => {
                ("name", format!("the model servers already have an adapter called \"{adapter}\"; use another name"))
            }
            RemoteError::SameAsBase { adapter, .. } => (
                "adapter",
                format!("the model servers score under adapter \"{adapter}\" as under the base model; give another one"),
            ),
            remote => return Self::upstream(remote),
        };
        Self { cause: Some(error.to_string()), ..Self::invalid(param, message) }
    }

    /// The error for a panic.
    pub(crate) fn fault() -> Self {
        Self::internal("internal server error; please report the request")
    }

    /// Returns the response body, as clients of the OpenAI API expect it.
    pub(crate) fn body(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        let param = self.param.as_deref().map(|param| excerpt(param, SHOWN));
        json!({"error": {"message": excerpt(&self.message, SHOWN), "type": kind, "param": param, "code": self.code}})
    }
}

/// Maximum length of a message, in bytes. A longer message is cut in the middle.
const SHOWN: usize = 2000;

/// Returns a text without its middle if it has more than `most` bytes. It may hold what the client
/// sent.
pub(crate) fn excerpt(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let half = most / 2;
    let (head, tail) = (&text[..text.floor_char_boundary(half)], &text[text.ceil_char_boundary(text.len() - half)..]);
    format!("{head} … {tail}").into()
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let soon = (self.status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        if let Some(seconds) = self.retry_after.or(soon) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use sk_models::local::Shortage;

    use super::*;

    #[test]
    fn a_lack_of_memory_may_pass() {
        let shortage = Shortage { needed: 2, free: 1 };
        let candidates = SchemeError::Engine(ModelError::Memory { candidates: 3, shortage }.into());
        let answer = SessionError::Memory { tokens: 4, shortage };
        for error in [ApiError::of_scheme(&candidates), ApiError::of_session(&answer)] {
            assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS, "{error}");
        }
    }
}
