//! Connections, their timeouts and their shutdown.
//!
//! A client that sends a request head or reads an answer too slowly is disconnected, so that no
//! connection stays open for ever, not even while the server drains.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header::EXPECT};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
#[cfg(any(target_os = "linux", target_os = "android"))]
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;

use crate::body::SharedBody;
use crate::routes::OwnMachine;
use crate::service::Service;
use crate::{Limits, Server};

/// Delay before the server accepts again after the system ran out of sockets.
const NO_SOCKETS: Duration = Duration::from_secs(1);

/// Time that clients have to read the error of a request that is cut off.
const CUT_OFF: Duration = Duration::from_secs(2);

/// Bytes that the system buffers for a connection before they can be sent. With more, a client that
/// reads slowly makes no room for a new write within [`Limits::patience`].
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 16 << 10;

/// Time that clients have to send the rest of a body that a response does not need.
const REST: Duration = Duration::from_secs(5);

/// The connections of a server.
pub(crate) struct Connections {
    listener: TcpListener,
    server: Arc<Server>,
    limits: Limits,
    /// Tells connections to close after their current request.
    closing: watch::Sender<bool>,
    open: JoinSet<()>,
}

impl Connections {
    pub(crate) fn new(listener: TcpListener, server: Arc<Server>, limits: Limits) -> Self {
        Self { listener, server, limits, closing: watch::Sender::new(false), open: JoinSet::new() }
    }

    /// Accepts connections until `end` is ready.
    pub(crate) async fn accept_until<T>(&mut self, end: impl Future<Output = T>) -> T {
        let mut end = pin!(end);
        let is_own_machine = self.listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        loop {
            tokio::select! {
                ended = &mut end => return ended,
                stream = accept(&self.listener) => {
                    let (server, limits) = (Arc::clone(&self.server), self.limits.clone());
                    self.open.spawn(connection(stream, server, limits, is_own_machine, self.closing.subscribe()));
                }
                // Reap connections that have ended.
                Some(_) = self.open.join_next() => {}
            }
        }
    }

    /// Waits for requests in progress, for at most [`Limits::drain`], and then ends them with an
    /// error. New connections are still accepted, so that the endpoints can refuse their requests.
    pub(crate) async fn drain(mut self, service: &Service) {
        self.closing.send_replace(true);
        let mut ending = std::mem::take(&mut self.open);
        let drain = self.limits.drain;
        let mut ended = pin!(async { while ending.join_next().await.is_some() {} });
        if self.accept_until(tokio::time::timeout(drain, ended.as_mut())).await.is_err() {
            service.cut_off.send_replace(true);
            let _ = self.accept_until(tokio::time::timeout(CUT_OFF, ended)).await;
        }
        // Dropping the remaining connections stops their requests.
    }
}

/// Accepts the next connection. Errors of a single connection are skipped.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "connections cannot be accepted");
                tokio::time::sleep(NO_SOCKETS).await;
            }
        }
    }
}

fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

/// Serves a connection to its end.
async fn connection(
    stream: TcpStream,
    server: Arc<Server>,
    limits: Limits,
    is_own_machine: bool,
    mut closing: watch::Receiver<bool>,
) {
    // Send each span as soon as it is chosen. If an option cannot be set, the connection works
    // anyway.
    let _ = stream.set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.patience));
    let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let asks_first = request.headers().contains_key(EXPECT);
        let (head, body) = request.into_parts();
        let body = SharedBody::new(Body::new(body));
        let mut request = Request::from_parts(head, Body::new(body.clone()));
        if is_own_machine {
            request.extensions_mut().insert(OwnMachine);
        }
        let answered = TowerToHyperService::new(server.router()).call(request);
        async move {
            let response = answered.await;
            // A response that does not need the body closes the connection, and a client or a proxy
            // that is still sending would see an error in place of the response. A client that was
            // too slow gets no more time.
            let is_late = response.as_ref().is_ok_and(|response| response.status() == StatusCode::REQUEST_TIMEOUT);
            if !asks_first && !is_late {
                let _ = tokio::time::timeout(REST, body.discard()).await;
            }
            response
        }
    });
    // A connection that is opened while the server drains gets one response. An idle connection
    // that was open before is closed.
    let is_late = *closing.borrow();
    let served = http1::Builder::new()
        .keep_alive(!is_late)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience)
        .max_header_size(limits.header)
        .serve_connection(TokioIo::new(Box::pin(stream)), answer);
    let mut served = pin!(served);
    tokio::select! {
        // Errors of the connection need no handling: the client sees them.
        _ = served.as_mut() => return,
        _ = closing.wait_for(|closing| *closing), if !is_late => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}
