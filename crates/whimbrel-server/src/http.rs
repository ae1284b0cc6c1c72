//! The HTTP listener, with TLS or without: the API, the console, metrics, health, and MQTT over
//! WebSocket.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{Request as Ask, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;
use whimbrel_mqtt::Origin;

use crate::api::access::{Action, Authorizer, Certified, Gate, Remote, check};
use crate::drive::Hub;
use crate::logging::Throttle;
use crate::metrics::{Cause, Format, ListenerMetrics, Metrics};
use crate::proxy::Proxies;
use crate::server::Phase;
use crate::websocket::{self, ByteStream};
use crate::{console, listen, tls};

/// Connections at once. More wait in the system's queue.
const MAX_CONNECTIONS: usize = 128;

/// Time for the header of a request, from the end of the one before: so an idle connection ends,
/// too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Life of a connection. After it, the answer that has begun is the last.
const CONNECTION_LIFE: Duration = Duration::from_secs(300);

/// Time for that last answer, unless it is one of a [`Lasting`] connection.
const LAST_ANSWER: Duration = Duration::from_secs(60);

/// The largest request header, in bytes.
const MAX_HEADER: usize = 16 << 10;

/// Bytes read of a request without TLS on a listener with TLS, before it is answered.
const PLAIN_REQUEST: usize = 8 << 10;

/// The answer to such a request.
const USE_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n\
    this port speaks HTTPS: write https:// instead of http://\n";

/// Refusals are logged at most once in this period.
const LOG_PERIOD: Duration = Duration::from_secs(5);

/// Pause in accepting after the system failed to hand over a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The pages of the listener beside the console.
#[derive(Debug)]
pub(crate) struct Pages {
    /// At `/metrics`, for principals that may observe.
    pub(crate) metrics: Arc<Metrics>,
    /// At `/readyz`, with the number of peers that are reached.
    pub(crate) phase: watch::Receiver<Phase>,
    /// The hub, which knows the peers.
    pub(crate) hub: Arc<Hub>,
    /// At `/certificate.pem`: the certificate that was made on the spot, if one was.
    pub(crate) certificate: Option<String>,
    /// For MQTT over WebSocket, at `/mqtt`.
    pub(crate) gate: Arc<listen::Gate>,
    /// Origin of these connections.
    pub(crate) origin: Origin,
    /// Counters of these connections.
    pub(crate) listener: ListenerMetrics,
}

/// The listener's socket, and how its connections begin.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) socket: Arc<TcpListener>,
    /// For the TLS handshake that each connection begins with, if it does.
    pub(crate) tls: Option<TlsAcceptor>,
    /// For the PROXY header that each connection begins with, if it does.
    pub(crate) proxies: Option<Proxies>,
    pub(crate) metrics: ListenerMetrics,
    /// Time for the TLS handshake.
    pub(crate) limit: Duration,
}

/// Serves until the task is dropped.
pub(crate) async fn serve(front: Front, pages: Pages, api: Router, authorizer: Arc<dyn Authorizer>) {
    // Metrics name clients' filters and other brokers.
    let observed = from_fn_with_state(Gate { authorizer, action: Some(Action::Observe) }, check);
    let gate = pages.gate.clone();
    let routes = Router::new()
        .route("/metrics", get(metrics).layer(observed))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/certificate.pem", get(certificate))
        .route(websocket::PATH, get(mqtt))
        .with_state(Arc::new(pages))
        .merge(api)
        .fallback(console::pages());
    let (socket, refusals) = (front.socket.clone(), Arc::new(Throttle::new(LOG_PERIOD)));
    let socket = &socket;
    let accept = move || async move { socket.accept().await };
    let answer = |(stream, address): (TcpStream, SocketAddr)| {
        let (routes, front, refusals, gate) = (routes.clone(), front.clone(), refusals.clone(), gate.clone());
        async move {
            front.metrics.accepted();
            let (stream, remote) = match front.open(stream, address, &gate).await {
                Ok(Opened::Plain(stream, address)) => return answer("HTTP", stream, routes, Remote::at(address)).await,
                Ok(Opened::Secure(stream, remote)) => (stream, remote),
                Err(cause) => {
                    front.metrics.failed(cause);
                    if let Some((why, more)) = cause.of_proxy().zip(refusals.pass(Instant::now())) {
                        tracing::warn!(listener = "http", from = %address, more, "connection refused: {why}");
                    }
                    return;
                }
            };
            answer("HTTPS", stream, routes, remote).await;
        }
    };
    each_connection("HTTP", MAX_CONNECTIONS, accept, answer).await;
}

/// A connection that is ready for HTTP.
enum Opened {
    Plain(TcpStream, SocketAddr),
    Secure(Box<TlsStream<TcpStream>>, Remote),
}

impl Front {
    /// Reads the PROXY header and does the TLS handshake, as far as the listener has them.
    async fn open(&self, mut stream: TcpStream, mut address: SocketAddr, gate: &listen::Gate) -> Result<Opened, Cause> {
        if let Some(proxies) = &self.proxies {
            address = proxies.client(&mut stream, address).await?;
        }
        let Some(tls) = &self.tls else { return Ok(Opened::Plain(stream, address)) };
        let secured = tokio::time::timeout(self.limit, secure(tls, stream, address, gate));
        let (stream, certified) = secured.await.unwrap_or(Err(Cause::HandshakeTimeout))?;
        if let Some(Certified { principal, .. }) = &certified {
            gate.access.note_certified(principal.name(), &address.to_string());
        }
        Ok(Opened::Secure(Box::new(stream), Remote::at(address).showing(certified)))
    }
}

/// Does the TLS handshake. Returns the identity of the client's certificate. An HTTP request
/// without TLS is answered with [`USE_TLS`].
async fn secure(
    tls: &TlsAcceptor,
    mut stream: TcpStream,
    from: SocketAddr,
    gate: &listen::Gate,
) -> Result<(TlsStream<TcpStream>, Option<Certified>), Cause> {
    let mut first = [0];
    let begun = stream.peek(&mut first).await.map_err(|_| Cause::Tls)?;
    if begun == 1 && first[0].is_ascii_uppercase() {
        let mut request = [0; PLAIN_REQUEST];
        // Unread bytes would reset the connection when it is closed, and discard the answer.
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(USE_TLS.as_bytes()).await;
        let _ = stream.shutdown().await;
        return Err(Cause::Tls);
    }
    let round = gate.hub.trust_round();
    let stream = tls.accept(stream).await.map_err(|error| {
        tracing::debug!(listener = "http", %error, "TLS");
        if let Some(why) = tls::refused_certificate(&error) {
            gate.access.note_refused_certificate(&from.to_string(), &why);
        }
        Cause::Tls
    })?;
    let known = listen::known(stream.get_ref().1.peer_certificates());
    let certified = known.map(|(principal, chain)| Certified { principal, chain, round });
    Ok((stream, certified))
}

/// Answers each accepted connection, at most `at_once` at a time, until the task is dropped. `what`
/// names their source in the log.
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

/// Whether an answer of a connection lasts as long as its client reads it, and has its own bounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lasting(Arc<AtomicBool>);

impl Lasting {
    /// Marks that such an answer begins.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Waits the time for a last answer; for ever if it is one that lasts.
    async fn last_answer(&self) {
        tokio::time::sleep(LAST_ANSWER).await;
        if self.0.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

/// Answers the requests of a connection, one after the other. `what` names its source in the log,
/// `remote` for authorisation.
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
            .with_upgrades()
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

async fn metrics(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> impl IntoResponse {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::wanted(accepts);
    ([(CONTENT_TYPE, format.content_type()), (CACHE_CONTROL, "no-store")], pages.metrics.text(format))
}

/// Whether clients are served, and the number of configured peers that are reached. A broker serves
/// even without its peers.
async fn ready(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    let (status, mut text) = match *pages.phase.borrow() {
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n".to_owned()),
        Phase::Ready => (StatusCode::OK, "ready\n".to_owned()),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()),
    };
    let peers = pages.hub.peers();
    if !peers.is_empty() {
        let reached = peers.iter().filter(|peer| peer.is_reached).count();
        text += &format!("peers: {reached} of {} reached\n", peers.len());
    }
    (status, text)
}

/// MQTT over WebSocket: once the answer is written, the hub takes the connection.
async fn mqtt(State(pages): State<Arc<Pages>>, Extension(remote): Extension<Remote>, mut request: Ask) -> Response {
    let (gate, metrics) = (&pages.gate, &pages.listener);
    let refuse = |cause, status, why: String| {
        metrics.failed(cause);
        websocket::refusal(status, why).into_response()
    };
    let Some(address) = remote.address() else { return StatusCode::NOT_FOUND.into_response() };
    if gate.is_full() || *pages.phase.borrow() == Phase::Draining {
        let why = "the broker takes no more connections now: try again later, or another broker";
        return refuse(Cause::ConnectionLimit, StatusCode::SERVICE_UNAVAILABLE, why.to_owned());
    }
    let plan = gate.access.plan();
    if !plan.dev && !plan.judges() && remote.certified().is_none() {
        gate.access.note_refused_certificate(remote.text(), "no certificate was shown");
        let why = "clients of this broker show certificates, and this one has shown none";
        return refuse(Cause::NoCertificate, StatusCode::UNAUTHORIZED, why.to_owned());
    }
    let answer = match websocket::upgrade(&request, (&gate.access, address)) {
        Ok(answer) => answer,
        Err((cause, status, why)) => return refuse(cause, status, why),
    };
    let upgraded = tokio::time::timeout(gate.handshake_timeout, hyper::upgrade::on(&mut request));
    let (gate, metrics, origin) = (gate.clone(), metrics.clone(), pages.origin);
    tokio::spawn(async move {
        match upgraded.await {
            Ok(Ok(upgraded)) => {
                let stream = TokioIo::new(upgraded);
                let stream = ByteStream::after_upgrade(stream, Vec::new(), gate.max_packet, metrics).await;
                gate.hub.serve_stream(stream, origin, remote.as_client());
            }
            Ok(Err(_)) => metrics.failed(Cause::BadRequest),
            Err(_) => metrics.failed(Cause::HandshakeTimeout),
        }
    });
    answer.into_response()
}

async fn certificate(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    match &pages.certificate {
        Some(pem) => ([(CONTENT_TYPE, "application/x-pem-file")], pem.clone()).into_response(),
        None => (StatusCode::NOT_FOUND, "this broker has its certificate from a file\n").into_response(),
    }
}
