#![doc = include_str!("../README.md")]

mod completions;
mod error;
mod generation;
pub mod host;
mod live;
mod playground;
mod request;
mod response;
mod routes;
mod service;
mod step;

use std::future::Future;
use std::io;
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusBuilder;

pub use axum::http::HeaderValue;
pub use error::ApiError;
pub use routes::{Access, router};
pub use service::{Limits, Parts, Service};

/// Serves until `shutdown` is ready, and then until all answers under way have ended.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: tokio::net::TcpListener,
    service: Arc<Service>,
    access: Access,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // Another server of this process may have installed one already.
    let _ = metrics::set_global_recorder(recorder);
    let app = router(Arc::clone(&service), access, handle);
    let drained = async move {
        shutdown.await;
        service.drain();
    };
    axum::serve(listener, app).with_graceful_shutdown(drained).await
}
