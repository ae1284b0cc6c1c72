//! The HTTP listener: the API, the console, metrics and health.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{Request, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use crate::api::access::{Action, Authorizer, Gate, Remote, check};
use crate::console;
use crate::logging::Throttle;
use crate::metrics::{ListenerMetrics, Metrics};
use crate::proxy::Proxies;
use crate::server::Phase;

/// Connections at once. More wait in the system's queue.
const MAX_CONNECTIONS: usize = 128;

/// For the header of a request, from the end of the one before it: so an idle connection ends, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// For a whole connection. After it the answer that has begun is the last.
const CONNECTION_LIFE: Duration = Duration::from_secs(300);

/// For that last answer, unless it lasts for as long as it is read.
const LAST_ANSWER: Duration = Duration::from_secs(60);

/// The largest request header, in bytes.
const MAX_HEADER: usize = 16 << 10;

/// How often refusals are logged at most.
const LOG_PERIOD: Duration = Duration::from_secs(5);

/// How long accepting pauses after the system failed to hand over a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is on the listener beside the console.
#[derive(Debug)]
pub(crate) struct Pages {
    /// At `/metrics`, for those who may observe.
    pub(crate) metrics: Arc<Metrics>,
    /// At `/readyz`.
    pub(crate) phase: watch::Receiver<Phase>,
    /// At `/certificate.pem`: the certificate that was made on the spot, if one was.
    pub(crate) certificate: Option<String>,
}

/// The socket of the listener, and what is said and counted of its connections.
pub(crate) struct Front {
    pub(crate) socket: TcpListener,
    /// Each connection begins with a PROXY header of one of them.
    pub(crate) proxies: Option<Proxies>,
    pub(crate) metrics: ListenerMetrics,
}

/// Serves until the task is dropped.
pub(crate) async fn serve(front: Front, pages: Pages, api: Router, authorizer: Arc<dyn Authorizer>) {
    // They name clients' filters and other brokers.
    let observed = from_fn_with_state(Gate { authorizer, action: Some(Action::Observe) }, check);
    let routes = Router::new()
        .route("/metrics", get(metrics).layer(observed))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/certificate.pem", get(certificate))
        .with_state(Arc::new(pages))
        .merge(api)
        .fallback(console::pages());
    let Front { socket, proxies, metrics } = front;
    let (socket, refusals) = (&socket, Arc::new(Throttle::new(LOG_PERIOD)));
    let accept = move || async move { socket.accept().await };
    let answer = |(mut stream, mut address): (TcpStream, SocketAddr)| {
        let (routes, proxies, metrics, refusals) = (routes.clone(), proxies.clone(), metrics.clone(), refusals.clone());
        async move {
            metrics.accepted();
            if let Some(proxies) = &proxies {
                match proxies.client(&mut stream, address).await {
                    Ok(client) => address = client,
                    Err(cause) => {
                        metrics.failed(cause);
                        if let Some((why, more)) = cause.of_proxy().zip(refusals.pass(Instant::now())) {
                            tracing::warn!(listener = "http", from = %address, more, "connection refused: {why}");
                        }
                        return;
                    }
                }
            }
            answer("HTTP", stream, routes, Remote::at(address)).await;
        }
    };
    each_connection("HTTP", MAX_CONNECTIONS, accept, answer).await;
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

/// Whether an answer of a connection lasts for as long as it is read, and has bounds of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lasting(Arc<AtomicBool>);

impl Lasting {
    /// One begins.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Waits as long as an answer may that does not last.
    async fn last_answer(&self) {
        tokio::time::sleep(LAST_ANSWER).await;
        if self.0.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

/// Answers the requests of a connection, one after the other. `what` says in the log where it comes from, `remote` to whoever judges them.
pub(crate) async fn answer<S>(what: &'static str, stream: S, routes: Router, remote: Remote)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lasting = Lasting::default();
    let each = lasting.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(each.clone());
        request.extensions_mut().insert(remote.clone());
        routes.clone().oneshot(request)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEADER)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = match tokio::time::timeout(CONNECTION_LIFE, connection.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = lasting.last_answer() => return tracing::debug!(what, "an HTTP connection took too long"),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(what, %error, "an HTTP connection failed");
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
