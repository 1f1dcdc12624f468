use std::future::Future;
use std::sync::{Arc, OnceLock};

use axum::Router;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;

use crate::connections::Connections;
use crate::routes::{self, Access};
use crate::{Limits, Service};

/// A server, which listens before it has a service.
pub struct Server {
    access: Access,
    limits: Limits,
    metrics: PrometheusHandle,
    /// What tells requests to come back.
    loading: Router,
    open: OnceLock<Open>,
}

/// The bounds of the buckets of histograms. Those of several servers add up.
const SECONDS: [f64; 14] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 600.0];
const SIZES: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];

fn recorder() -> PrometheusBuilder {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let sizes = Matcher::Prefix("swiss_knife_pass_".to_owned());
    let with_buckets = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(sizes, &SIZES));
    with_buckets.expect("there are buckets")
}

/// What a server has once its models are loaded.
struct Open {
    service: Arc<Service>,
    router: Router,
}

impl Server {
    /// Returns a server that tells all requests but `/health` to come back until it is
    /// [opened](Self::open). `limits` are those of its service.
    #[must_use]
    pub fn new(access: Access, limits: Limits) -> Self {
        let recorder = recorder().build_recorder();
        let metrics = recorder.handle();
        // Another server of this process may have installed one already.
        let _ = metrics::set_global_recorder(recorder);
        let loading = routes::loading(&access);
        Self { access, limits, metrics, loading, open: OnceLock::new() }
    }

    /// Answers requests with `service` from now on. A server is opened once.
    pub fn open(&self, service: Service) {
        let service = Arc::new(service);
        let open = || {
            let router = routes::router(Arc::clone(&service), self.access.clone(), self.metrics.clone());
            Open { service, router }
        };
        self.open.get_or_init(open);
    }

    /// Whether it was [opened](Self::open).
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.get().is_some()
    }

    /// Serves until `shutdown` is ready, and then until all answers under way have ended, or the
    /// limits say that they take too long.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut connections = Connections::new(listener, Arc::clone(&self), self.limits.clone());
        connections.accept_until(shutdown).await;
        if let Some(open) = self.open.get() {
            open.service.drain();
        }
        connections.drain().await;
    }

    /// The endpoints at present.
    pub(crate) fn router(&self) -> Router {
        self.open.get().map_or(&self.loading, |open| &open.router).clone()
    }
}
