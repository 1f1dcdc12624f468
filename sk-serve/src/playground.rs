//! The page to play with.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::IntoResponse;
use axum::routing::get;

/// A file of the page: its path, its type and what it holds.
struct File(&'static str, &'static str, &'static str);

macro_rules! files {
    ($($path:literal $kind:literal $name:literal),* $(,)?) => {
        &[$(File($path, $kind, include_str!(concat!("../playground/", $name)))),*]
    };
}

/// All of them.
const FILES: &[File] = files![
    "/" "text/html; charset=utf-8" "index.html",
];

/// Nothing from elsewhere, nothing inline, and no frame of another page.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The routes of the page, which no key guards: what it asks the server for, it asks for with one.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| router.route(file.0, get(async || file.reply())))
}

impl File {
    fn reply(&self) -> impl IntoResponse + use<> {
        let headers = [
            (CONTENT_TYPE, self.1),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // The next version of the program has another page.
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.2)
    }
}
