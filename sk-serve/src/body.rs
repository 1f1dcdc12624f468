//! Request bodies, with limits on size, time and nesting depth.

use std::error::Error;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::iter;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{self, Bytes, HttpBody};
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::{
    StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use hyper::body::{Frame, SizeHint};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ApiError;
use crate::live::lock;
use crate::request::in_words;
use crate::service::Service;

/// A JSON body, which is an object. The `Content-Type` header is ignored.
pub(crate) struct Body(pub(crate) Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for Body
where
    Arc<Service>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let service = Arc::<Service>::from_ref(state);
        let limits = &service.limits;
        let encoding = request.headers().get(CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let message = "this server takes no compressed bodies; send the body without Content-Encoding";
            return Err(ApiError::invalid("body", message));
        }
        // A client that waits for `100 Continue` must not be invited to send too much.
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: usize| length > limits.body) {
            return Err(ApiError::too_large(limits.body));
        }
        let bytes = tokio::time::timeout(limits.patience, Bytes::from_request(request, state));
        let bytes = bytes.await.map_err(|_| ApiError::too_slow())?.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large(limits.body),
            _ if is_malformed(&rejection) => ApiError::invalid("body", rejection.to_string()),
            _ => ApiError::disconnected(),
        })?;
        read(&bytes, limits.depth)
            .map(Self)
            .map_err(|error| ApiError::invalid("body", format!("the body cannot be read: {error}")))
    }
}

/// A request body whose rest can be read when its request has been answered.
#[derive(Clone)]
pub(crate) struct SharedBody(Arc<Mutex<body::Body>>);

impl SharedBody {
    pub(crate) fn new(body: body::Body) -> Self {
        Self(Arc::new(Mutex::new(body)))
    }

    /// Reads and drops the rest, until [`LONGEST_REST`] bytes were read or none arrive for
    /// [`PAUSE`].
    pub(crate) async fn discard(mut self) {
        let mut left = LONGEST_REST;
        while left > 0 && !self.is_end_stream() {
            let frame = poll_fn(|context| Pin::new(&mut self).poll_frame(context));
            let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE, frame).await else { return };
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    }
}

/// The most bytes of the rest of a body that are read.
const LONGEST_REST: usize = 16 << 20;

/// The time without data after which the rest of a body is no longer awaited.
const PAUSE: Duration = Duration::from_secs(1);

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *lock(&self.0)).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).size_hint()
    }
}

/// Returns whether a body could not be received because its chunks are malformed, and not because
/// the connection failed.
fn is_malformed(error: &(dyn Error + 'static)) -> bool {
    let mut causes = iter::successors(Some(error), |&error| error.source());
    let is_invalid = |error: &io::Error| matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData);
    causes.any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_invalid))
}

/// Parses JSON whose arrays and objects are nested at most `most` deep.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8], most: usize) -> Result<T, String> {
    let depth = depth(json);
    if depth > most {
        return Err(format!("arrays and objects are nested {depth} levels deep; the limit of this server is {most}"));
    }
    serde_json::from_slice(json).map_err(|error| in_words(&error))
}

/// Returns the maximum nesting depth of arrays and objects.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_texts_are_text() {
        for (json, expected) in
            [("1", 0), (r#"{"a": [1, [2]], "b": []}"#, 3), (r#"["[[[", "\"[", "\\", [1]]"#, 2), ("]]]]", 0), ("[[[[", 4)]
        {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn what_is_too_deep_is_not_read() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read::<Value>(nested(8).as_bytes(), 8).is_ok());
        let error = read::<Value>(nested(9).as_bytes(), 8).unwrap_err();
        assert!(error.contains("9 levels deep") && error.contains("limit of this server is 8"), "{error}");
        // The depth is counted without recursion, so the stack does not overflow.
        assert!(read::<Value>(nested(1 << 20).as_bytes(), 8).is_err());
    }
}
