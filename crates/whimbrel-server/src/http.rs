//! Metrics and health over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::metrics::Metrics;
use crate::server::Phase;

/// Connections at once. More wait in the system's queue.
const MAX_CONNECTIONS: usize = 64;

/// For the header of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// For a whole connection, which is one request and its answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest request header, in bytes.
const MAX_HEADER: usize = 16 << 10;

/// How long accepting pauses after the system failed to hand over a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const INDEX: &str = "<!doctype html><meta charset=\"utf-8\"><title>Whimbrel</title>\n<h1>Whimbrel</h1>\n<ul>\n\
    <li><a href=\"/metrics\">metrics</a>\n<li><a href=\"/healthz\">is it alive?</a>\n\
    <li><a href=\"/readyz\">does it take clients?</a>\n<li><a href=\"/certificate.pem\">certificate</a> (--dev)\n</ul>\n";

/// What the pages show.
#[derive(Debug)]
pub struct Pages {
    /// At `/metrics`.
    pub metrics: Arc<Metrics>,
    /// At `/readyz`.
    pub phase: watch::Receiver<Phase>,
    /// At `/certificate.pem`: the certificate that was made on the spot, if one was.
    pub certificate: Option<String>,
}

/// Serves until the task is dropped.
pub async fn serve(listener: TcpListener, pages: Pages) {
    let routes = Router::new()
        .route("/", get(|| async { Html(INDEX) }))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/certificate.pem", get(certificate))
        .with_state(Arc::new(pages));
    let listener = &listener;
    let accept = move || async move { Ok(listener.accept().await?.0) };
    each_connection("HTTP", MAX_CONNECTIONS, accept, |stream| answer(stream, routes.clone())).await;
}

/// Answers each connection that is accepted, `at_once` at a time, until the task is dropped. `what` says in the log where they come from.
pub(crate) async fn each_connection<S, A, F>(
    what: &str,
    at_once: usize,
    accept: impl Fn() -> A,
    answer: impl Fn(S) -> F,
) where
    A: Future<Output = std::io::Result<S>>,
    F: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(at_once));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        while connections.try_join_next().is_some() {}
        match accept().await {
            Ok(stream) => {
                let answered = answer(stream);
                connections.spawn(async move {
                    answered.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(what, %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers the one request of a connection.
pub(crate) async fn connection<S>(stream: S, routes: Router) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    connection.await
}

async fn answer(stream: TcpStream, routes: Router) {
    match tokio::time::timeout(CONNECTION_TIMEOUT, connection(stream, routes)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection failed"),
        Err(_) => tracing::debug!("an HTTP connection took too long"),
    }
}

async fn metrics(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")], pages.metrics.text())
}

async fn ready(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    match *pages.phase.borrow() {
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Phase::Ready => (StatusCode::OK, "ready\n"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    }
}

async fn certificate(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    match &pages.certificate {
        Some(pem) => ([(CONTENT_TYPE, "application/x-pem-file")], pem.clone()).into_response(),
        None => (StatusCode::NOT_FOUND, "this broker has its certificate from a file\n").into_response(),
    }
}
