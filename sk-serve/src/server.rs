use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;

use crate::connections::Connections;
use crate::routes::{self, Access};
use crate::service::Service;
use crate::{Limits, Parts};

/// A server. It can listen before its service is ready.
pub struct Server {
    access: Access,
    limits: Limits,
    metrics: PrometheusHandle,
    /// The router in use until the service is ready.
    loading: Router,
    open: OnceLock<Open>,
}

/// The upper bounds of histogram buckets. They are fixed so that histograms of several servers can
/// be added.
const SECONDS: [f64; 14] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 600.0];
const SIZES: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];

/// The interval at which recorded values are added to the buckets. Until then the recorder keeps
/// each value.
const UPKEEP: Duration = Duration::from_secs(5);

fn recorder() -> PrometheusBuilder {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let sizes = Matcher::Prefix("swiss_knife_pass_".to_owned());
    let with_buckets = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(sizes, &SIZES));
    with_buckets.expect("there are buckets")
}

/// Describes and registers the metrics, so that each is there before its first value.
fn register() {
    metrics::describe_counter!(
        "swiss_knife_requests_total",
        "Requests by status; 499 if the client disconnected before the response"
    );
    let _ = metrics::counter!("swiss_knife_requests_total", "status" => "200");
    metrics::describe_counter!("swiss_knife_answers_total", "Answers that ended");
    for outcome in ["complete", "hung_up", "failed"] {
        let _ = metrics::counter!("swiss_knife_answers_total", "outcome" => outcome);
    }
    for (counted, help) in [
        ("tokens", "Tokens of answers"),
        ("drafted_tokens", "Tokens of all candidates"),
        ("scored_tokens", "Tokens that the backbone read to score candidates"),
        ("steps", "Steps"),
        ("edits", "Edits of alignment specifications"),
    ] {
        let name = format!("swiss_knife_{counted}_total");
        metrics::describe_counter!(name.clone(), help);
        let _ = metrics::counter!(name);
    }
    for (measured, help) in [
        ("first_span_seconds", "Seconds from a request to its first span"),
        ("span_seconds", "Seconds between spans"),
        ("answer_seconds", "Seconds of all steps of an answer"),
        ("pass_requests", "Requests that share a forward pass"),
        ("pass_positions", "Positions of a forward pass"),
    ] {
        let name = format!("swiss_knife_{measured}");
        metrics::describe_histogram!(name.clone(), help);
        let _ = metrics::histogram!(name);
    }
    for (gauged, help) in [
        ("answers_under_way", "Answers in progress"),
        ("waiting", "Requests that wait"),
        (
            "reserved_bytes",
            "Memory reserved by answers and by adapters that clients have loaded, and set aside for the answer that waits next",
        ),
        ("kv_bytes", "Memory held by keys and values"),
        ("shared_prefix_bytes", "Memory held by shared prefixes"),
    ] {
        let name = format!("swiss_knife_{gauged}");
        metrics::describe_gauge!(name.clone(), help);
        let _ = metrics::gauge!(name);
    }
}

/// Adds recorded values to the buckets at this interval, so that their memory does not grow while
/// nobody reads `/metrics`. Never returns.
async fn upkeep(metrics: &PrometheusHandle, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        metrics.run_upkeep();
    }
}

/// The parts of a server that exist once its models are loaded.
struct Open {
    service: Arc<Service>,
    router: Router,
}

impl Server {
    /// Returns a server that answers 503 to all requests except `/health` until it is
    /// [opened](Self::open).
    ///
    /// The server installs the recorder of its metrics for the process. If there is one already, such
    /// as that of another server, it stays, and `/metrics` of this server is empty.
    #[must_use]
    pub fn new(access: Access, limits: Limits) -> Self {
        let recorder = recorder().build_recorder();
        let metrics = recorder.handle();
        metrics::with_local_recorder(&recorder, register);
        // Another server of this process may have installed a recorder already.
        let _ = metrics::set_global_recorder(recorder);
        let loading = routes::loading(&access);
        Self { access, limits, metrics, loading, open: OnceLock::new() }
    }

    /// Starts to answer requests with loaded models. `adapters` are the names of the loaded
    /// adapters. Clients cannot unload these. Does nothing if the server is open already.
    pub fn open(&self, parts: Parts, adapters: Vec<String>) {
        let open = || {
            let service = Arc::new(Service::new(parts, adapters, self.limits.clone()));
            let router = routes::router(Arc::clone(&service), self.access.clone(), self.metrics.clone());
            Open { service, router }
        };
        self.open.get_or_init(open);
    }

    /// Returns whether the server was [opened](Self::open).
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.get().is_some()
    }

    /// Serves until `shutdown` is ready and all answers in progress have ended. Requests that take
    /// longer than [`Limits::drain`] after `shutdown` end with an error.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut connections = Connections::new(listener, Arc::clone(&self), self.limits.clone());
        let served = async {
            connections.accept_until(shutdown).await;
            // Before the server is open, there are no answers to wait for.
            if let Some(open) = self.open.get() {
                open.service.drain();
                connections.drain(&open.service).await;
            }
        };
        tokio::select! {
            () = served => {}
            () = upkeep(&self.metrics, UPKEEP) => {}
        }
    }

    /// Returns the current router.
    pub(crate) fn router(&self) -> Router {
        self.open.get().map_or(&self.loading, |open| &open.router).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_values_do_not_pile_up_while_nobody_reads_the_metrics() {
        let recorder = recorder().build_recorder();
        let metrics = recorder.handle();
        metrics::with_local_recorder(&recorder, || metrics::histogram!("swiss_knife_span_seconds").record(0.2));
        // Only its debug output tells whether a value is in a bucket yet.
        let is_counted = || format!("{metrics:?}").contains("Histogram(Histogram");
        assert!(!is_counted());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let short = Duration::from_millis(1);
        runtime.block_on(async {
            let counted = async {
                while !is_counted() {
                    tokio::time::sleep(short).await;
                }
            };
            tokio::select! {
                () = upkeep(&metrics, short) => unreachable!("it never ends"),
                () = counted => {}
            }
        });
    }
}
