//! Accepting client connections, within bounds.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use rustix::io::Errno;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use whimbrel_access::Principal;
use whimbrel_mqtt::Origin;

use crate::access::Access;
use crate::config::Listener;
use crate::drive::{Caller, Hub};
use crate::identity::Identity;
use crate::logging::Throttle;
use crate::metrics::{Cause, ListenerMetrics};
use crate::proxy::Proxies;
use crate::server::Phase;
use crate::{tls, websocket};

/// Connections that the system may hold until they are accepted. The system may have a lower bound.
const BACKLOG: u32 = 4096;

/// PROXY headers, TLS handshakes and WebSocket upgrades at once, per listener. More connections
/// wait in the backlog.
const MAX_HANDSHAKES: usize = 1024;

/// Pause in accepting when the system lacks resources for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a broker waits for the addresses of the process whose name it has taken: that learns it
/// within some seconds.
const FREED_WITHIN: Duration = Duration::from_secs(10);

/// Pause between two looks whether an address is free.
const FREED_LOOK: Duration = Duration::from_millis(100);

/// Refusals are logged at most once in this period.
const LOG_PERIOD: Duration = Duration::from_secs(5);

/// Binds a listener.
///
/// # Errors
/// The address is in use, not this machine's, or not permitted.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Waits until this machine's addresses are free that a former process of the broker may still
/// have, at most for [`FREED_WITHIN`]. What is wrong otherwise is told where they are bound.
pub async fn await_free(addresses: impl Iterator<Item = (Listener, SocketAddr)>) {
    let end = Instant::now() + FREED_WITHIN;
    for (listener, address) in addresses {
        let is_taken = || {
            let bound = if listener.is_udp() { UdpSocket::bind(address).map(drop) } else { bind(address).map(drop) };
            bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        };
        while is_taken() && Instant::now() < end {
            tokio::time::sleep(FREED_LOOK).await;
        }
    }
}

/// State that all listeners for clients share.
#[derive(Debug)]
pub struct Gate {
    /// Serves the connections.
    pub hub: Arc<Hub>,
    /// Connections at once, those in their handshake included.
    pub max_connections: usize,
    /// Time for TLS and WebSocket together; a PROXY header before them has its own limit.
    pub handshake_timeout: Duration,
    /// The largest MQTT packet, in bytes.
    pub max_packet: usize,
    /// Has the origins of web pages that may open WebSockets.
    pub access: Arc<Access>,
    /// Connections in their handshake.
    handshakes: AtomicUsize,
    refusals: Throttle,
    /// Throttle of the log of failed handshakes, separate from `refusals`: a port scanner can cause
    /// any number of them.
    failures: Throttle,
}

impl Gate {
    /// A gate to `hub`.
    pub fn new(
        hub: Arc<Hub>,
        max_connections: usize,
        handshake_timeout: Duration,
        max_packet: usize,
        access: Arc<Access>,
    ) -> Gate {
        let handshakes = AtomicUsize::new(0);
        let (refusals, failures) = (Throttle::new(LOG_PERIOD), Throttle::new(LOG_PERIOD));
        Gate { hub, max_connections, handshake_timeout, max_packet, access, handshakes, refusals, failures }
    }

    /// Whether [`Gate::max_connections`] is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.hub.connections() + self.handshakes.load(Ordering::Relaxed) >= self.max_connections
    }
}

/// One listener for clients.
pub struct Door {
    gate: Arc<Gate>,
    listener: Listener,
    tls: Option<TlsAcceptor>,
    /// For the PROXY header that each connection begins with, if it does.
    proxies: Option<Proxies>,
    metrics: ListenerMetrics,
    permits: Arc<Semaphore>,
    /// Closed for a moment when the process has no file left, so that a connection can be accepted
    /// and closed.
    spare: Option<File>,
}

impl Door {
    /// A listener of the given kind; `tls` is used where the kind has TLS.
    pub(crate) fn new(
        gate: Arc<Gate>,
        listener: Listener,
        tls: Option<TlsAcceptor>,
        proxies: Option<Proxies>,
        metrics: ListenerMetrics,
    ) -> Door {
        let (tls, permits) = (tls.filter(|_| listener.is_tls()), Arc::new(Semaphore::new(MAX_HANDSHAKES)));
        Door { gate, listener, tls, proxies, metrics, permits, spare: spare_file() }
    }

    /// Accepts until the server drains.
    pub async fn serve(mut self, socket: TcpListener, mut phase: watch::Receiver<Phase>) {
        tokio::select! {
            () = self.accept_all(&socket) => {}
            _ = phase.wait_for(|phase| *phase == Phase::Draining) => {}
        }
    }

    // While connections wait in the backlog, `accept` does not suspend (except for fairness), so a
    // burst is taken in one go.
    async fn accept_all(&mut self, socket: &TcpListener) {
        loop {
            let permit = match self.listener {
                Listener::Mqtt if self.proxies.is_none() => None,
                _ => Some(self.permits.clone().acquire_owned().await.expect("the semaphore is never closed")),
            };
            match socket.accept().await {
                Ok((stream, address)) => self.admit(stream, address, permit),
                Err(error) => self.failed(socket, &error).await,
            }
        }
    }

    fn admit(&self, stream: TcpStream, address: SocketAddr, permit: Option<OwnedSemaphorePermit>) {
        self.metrics.accepted();
        if self.gate.is_full() {
            self.refuse(stream, Cause::ConnectionLimit);
            return;
        }
        let Some(permit) = permit else {
            self.gate.hub.serve_tcp(stream, Some(address));
            return;
        };
        let handshake = Handshake {
            gate: self.gate.clone(),
            listener: self.listener,
            tls: self.tls.clone(),
            proxies: self.proxies.clone(),
            metrics: self.metrics.clone(),
        };
        handshake.gate.handshakes.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            if let Err(cause) = handshake.take(stream, address).await {
                handshake.metrics.failed(cause);
                handshake.tell(cause, address);
            }
            handshake.gate.handshakes.fetch_sub(1, Ordering::Relaxed);
            drop(permit);
        });
    }

    fn refuse(&self, stream: TcpStream, cause: Cause) {
        drop(stream);
        self.metrics.failed(cause);
        if let Some(more) = self.gate.refusals.pass(Instant::now()) {
            let limit = self.gate.max_connections;
            match cause {
                Cause::FileLimit => tracing::warn!(more, "connection refused: no file left (ulimit -n)"),
                _ => tracing::warn!(limit, more, "connection refused: limits.max_connections is reached"),
            }
        }
    }

    /// Handles that the system could not hand over a connection.
    async fn failed(&mut self, socket: &TcpListener, error: &io::Error) {
        let errno = Errno::from_io_error(error);
        if errno == Some(Errno::MFILE) && self.spare.take().is_some() {
            if let Some(Ok((stream, _))) = socket.accept().now_or_never() {
                self.metrics.accepted();
                self.refuse(stream, Cause::FileLimit);
            }
            self.spare = spare_file();
        } else if !matches!(errno, Some(Errno::CONNABORTED | Errno::INTR)) {
            if let Some(more) = self.gate.refusals.pass(Instant::now()) {
                tracing::warn!(%error, more, "cannot accept connections for a moment");
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
            self.spare = self.spare.take().or_else(spare_file);
        }
    }
}

fn spare_file() -> Option<File> {
    File::open("/dev/null").ok()
}

/// The steps before MQTT, as far as the listener has them: a PROXY header, TLS, WebSocket.
struct Handshake {
    gate: Arc<Gate>,
    listener: Listener,
    tls: Option<TlsAcceptor>,
    proxies: Option<Proxies>,
    metrics: ListenerMetrics,
}

impl Handshake {
    /// Does the handshakes within their limits; then the hub takes the connection.
    async fn take(&self, mut stream: TcpStream, mut address: SocketAddr) -> Result<(), Cause> {
        if let Some(proxies) = &self.proxies {
            address = proxies.client(&mut stream, address).await?;
        }
        let secured = tokio::time::timeout(self.gate.handshake_timeout, self.secure(stream, address));
        secured.await.unwrap_or(Err(Cause::HandshakeTimeout))
    }

    /// Does the handshakes of TLS and WebSocket.
    async fn secure(&self, stream: TcpStream, address: SocketAddr) -> Result<(), Cause> {
        let (gate, metrics, from, address) = (&self.gate, &self.metrics, address, Some(address));
        // Without it a small packet may wait for the acknowledgement of the one before. A failure
        // costs only latency.
        let _ = stream.set_nodelay(true);
        let (max_packet, upgraded, access) = (gate.max_packet, metrics.clone(), (gate.access.clone(), from));
        let Some(tls) = &self.tls else {
            if !self.listener.is_websocket() {
                gate.hub.serve_tcp(stream, address);
                return Ok(());
            }
            let stream = websocket::accept(stream, max_packet, upgraded, access).await?;
            gate.hub.serve_stream(stream, Origin::Ws, Caller { address, ..Caller::default() });
            return Ok(());
        };
        let round = gate.hub.trust_round();
        let stream = tls.accept(stream).await.map_err(|error| {
            tracing::debug!(listener = self.listener.name(), %error, "TLS");
            if let Some(why) = tls::refused_certificate(&error) {
                gate.access.note_refused_certificate(&from.to_string(), &why);
            }
            Cause::Tls
        })?;
        let caller = Caller { address, known: known(stream.get_ref().1.peer_certificates()), round };
        if self.listener.is_websocket() {
            let stream = websocket::accept(stream, max_packet, upgraded, access).await?;
            gate.hub.serve_stream(stream, Origin::Wss, caller);
        } else {
            gate.hub.serve_stream(stream, Origin::Tls, caller);
        }
        Ok(())
    }

    /// Logs why a handshake failed. A malformed PROXY header is logged as a warning, as the
    /// operator has to know of it.
    fn tell(&self, cause: Cause, from: SocketAddr) {
        let listener = self.listener.name();
        match cause.of_proxy() {
            Some(why) => {
                if let Some(more) = self.gate.refusals.pass(Instant::now()) {
                    tracing::warn!(listener, %from, more, "connection refused: {why}");
                }
            }
            None => {
                if let Some(more) = self.gate.failures.pass(Instant::now()) {
                    let (cause, why) = (cause.name(), cause.of_handshake());
                    tracing::info!(listener, %from, cause, why, more, "a connection comes to nothing");
                }
            }
        }
    }
}

/// The principal of a certificate that the handshake has judged, and the certificates.
pub(crate) fn known(chain: Option<&[CertificateDer<'static>]>) -> Option<(Principal, Box<[CertificateDer<'static>]>)> {
    let chain = chain?;
    let principal = Principal::new(&Identity::of(chain.first()?)?.name).ok()?;
    Some((principal, chain.into()))
}
