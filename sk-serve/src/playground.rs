//! The playground page.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::IntoResponse;
use axum::routing::get;

/// A file of the page: its path, content type and text.
struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// Builds a list of [`File`]s from file names grouped by content type.
macro_rules! files {
    ($($kind:literal: $($name:literal)+;)*) => {
        &[$($(File { path: concat!("/playground/", $name), kind: $kind, text: include_str!(concat!("../playground/", $name)) }),+),*]
    };
}

/// The page at `/`.
const PAGE: File = File { path: "/", kind: "text/html; charset=utf-8", text: include_str!("../playground/index.html") };

/// The files that the page loads.
const FILES: &[File] = files! {
    "text/css; charset=utf-8": "style.css";
    "image/svg+xml": "icon.svg";
    "text/javascript; charset=utf-8": "answer.js" "api.js" "branches.js" "charts.js" "conversation.js" "decide.js" "dom.js" "export.js"
        "main.js" "notice.js" "run.js" "settings.js" "step.js" "storage.js" "sweep.js" "tip.js" "tree.js" "weights.js";
};

/// The content security policy: only files of this server, no inline code, and no embedding in a
/// frame.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Returns the routes of the page. They need no key; the API requests that the page makes do.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().chain([&PAGE]).fold(Router::new(), |router, file| router.route(file.path, get(async || file.reply())))
}

impl File {
    fn reply(&self) -> impl IntoResponse + use<> {
        let headers = [
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // The next version of the program may have another page.
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.text)
    }
}
