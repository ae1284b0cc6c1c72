//! The overlay's UDP socket: dialling and accepting links, and their bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming,
    MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use whimbrel_core::HangUp;

use super::admit::{Gate, Place};
use super::counts::{Counts, LinkCounts, chain_of};
use super::dscp::Dscp;
use super::fault::LinkFaults;
use super::link::{self, Streams};
use super::output::{Beat, MeasuredPaths, PACKERS_MAX, PortPlan, WINDOW_MAX};
use super::refused::{self, Said};
use super::runtime::Runtime;
use super::{LINKS_MAX, Uplink, channel, dial};
use crate::access::Access;
use crate::identity::Identity;
use crate::identity::credentials::Credentials;
use crate::identity::trust::Trust;

/// A link without a packet for this time has ended.
const IDLE: Duration = Duration::from_secs(10);

/// Period of keep-alive packets on an idle link.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// How long the handshake of a link may take, its streams included.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Bytes that the other end may send in one stream before they are read.
const STREAM_WINDOW: u32 = 2 << 20;

/// Bytes that the other end may send in all streams before they are read. Ordinary events, bulk and
/// a successor of one of them have a stream window each, so there is more for control and urgent
/// events.
const RECEIVE_WINDOW: u32 = 3 * STREAM_WINDOW + (1 << 20);

/// Bytes that may be in flight to the other end, or wait for that: more than ordinary events and
/// bulk may use.
const SEND_WINDOW: u64 = WINDOW_MAX + (1 << 20);

/// Bytes of datagrams that wait, each way. With the windows, and the 7.25 MiB at which the core
/// stops giving: less than 21 MiB a link, and less than 1 MiB for each of two channels while they
/// arrive compressed.
pub(super) const DATAGRAMS: usize = 512 << 10;

/// The round-trip time that is assumed before the first is measured: links are often long.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Packets that the other end may leave unacknowledged before it must answer at once, unless one is
/// missing: an acknowledgement costs both ends as much as a packet with events. With more, a link
/// with a small window would wait for the acknowledgements' timer, 25 ms.
const UNACKNOWLEDGED_MAX: u32 = 5;

/// Handshakes of incoming links at once. More are refused.
const HANDSHAKES_MAX: usize = 64;

/// With more handshakes than this, an incoming link must prove its address before anything is
/// computed for it.
const HANDSHAKES_CALM: usize = 8;

/// Incoming handshakes that wait to be accepted.
const INCOMING_MAX: usize = 256;

/// Bytes kept of one waiting handshake, and of all together.
const INCOMING_BYTES: (u64, u64) = (16 << 10, 1 << 20);

/// Bytes that the system is asked to buffer for the socket, each way; it may have a lower bound.
const SOCKET_BYTES: usize = 2 << 20;

/// Addresses at once that are dialled or have led to links.
const DIALED_MAX: usize = 2 * LINKS_MAX;

/// Close code when this broker ends.
const ENDING: VarInt = VarInt::from_u32(0);

/// Time that a broker waits at its end until the others have been told.
const PARTING: Duration = Duration::from_secs(1);

/// Why the overlay cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("{0}")]
    Bind(io::Error),
    /// The system has no timer left.
    #[error("no timer: {0}")]
    Timer(io::Error),
    /// The credentials are of no use for QUIC.
    #[error("the credentials cannot be used for QUIC: {0}")]
    Credentials(String),
}

/// Settings of an overlay.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where other brokers dial this one; 0 is any free port.
    pub listen: SocketAddr,
    /// Whether other brokers may dial this one.
    pub is_open: bool,
    /// `HOST:PORT` of the peers that are dialled as long as this broker lives.
    pub peers: Vec<String>,
    /// This broker's certificate, and those that it believes.
    pub credentials: Credentials,
    /// The rules for which believed brokers may link; `None`: all.
    pub access: Option<Arc<Access>>,
    /// How packets are marked: those of all links, as they share a socket.
    pub dscp: Dscp,
    /// Whether events are compressed on links that are thin.
    pub compresses: bool,
    /// Bytes of events per second that are sent to some brokers, by their names.
    pub caps: BTreeMap<String, u64>,
    /// Faults that a test builds in.
    pub faults: LinkFaults,
}

/// State that all links share.
pub(super) struct Shared {
    endpoint: Endpoint,
    client: ClientConfig,
    uplink: Arc<dyn Uplink>,
    pub(super) gate: Arc<Gate>,
    handshakes: AtomicUsize,
    local: SocketAddr,
    access: Option<Arc<Access>>,
    trust: Option<Arc<Trust>>,
    beat: Arc<Beat>,
    /// What holds for all links.
    port_plan: PortPlan,
    /// Number of links that have ended.
    pub(super) ends: watch::Sender<u64>,
}

/// This broker's end of the overlay. Dropping it cuts all links.
pub struct Overlay {
    shared: Arc<Shared>,
    tasks: Arc<Mutex<Tasks>>,
}

#[derive(Default)]
struct Tasks {
    /// Addresses being dialled or linked, each once.
    dialed: BTreeSet<String>,
    running: JoinSet<()>,
}

impl std::fmt::Debug for Overlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay").field("local", &self.shared.local).finish_non_exhaustive()
    }
}

impl Overlay {
    /// Binds the socket. No link is made before [`Overlay::begin`]. Call it within a tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub fn start(plan: &Plan, uplink: Arc<dyn Uplink>, counts: Arc<Counts>) -> Result<Overlay, StartError> {
        let socket = bind(plan.listen).map_err(StartError::Bind)?;
        let unusable = |error: &dyn std::fmt::Display| StartError::Credentials(error.to_string());
        let transport = Arc::new(transport(plan.faults));
        let crypto = QuicClientConfig::try_from(plan.credentials.client.clone()).map_err(|error| unusable(&error))?;
        let mut client = ClientConfig::new(Arc::new(crypto));
        client.transport_config(transport.clone());
        let crypto = QuicServerConfig::try_from(plan.credentials.server.clone()).map_err(|error| unusable(&error))?;
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(transport).max_incoming(INCOMING_MAX);
        server.incoming_buffer_size(INCOMING_BYTES.0).incoming_buffer_size_total(INCOMING_BYTES.1);
        let server = plan.is_open.then_some(server);
        let endpoint = Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(Runtime { dscp: plan.dscp }));
        let endpoint = endpoint.map_err(StartError::Bind)?;
        let local = endpoint.local_addr().map_err(StartError::Bind)?;
        let (gate, ends) = (Gate::new(counts), watch::Sender::new(0));
        let handshakes = AtomicUsize::new(0);
        let beat = Arc::new(Beat::start().map_err(StartError::Timer)?);
        let shared = Arc::new(Shared {
            endpoint,
            client,
            uplink,
            gate,
            handshakes,
            local,
            access: plan.access.clone(),
            trust: plan.credentials.trust.clone(),
            beat,
            port_plan: PortPlan {
                packers: Arc::new(Semaphore::new(if plan.compresses { PACKERS_MAX } else { 0 })),
                caps: Arc::new(plan.caps.clone()),
            },
            ends,
        });
        Ok(Overlay { shared, tasks: Arc::default() })
    }

    /// Accepts links, and dials `peers` for as long as this broker lives.
    pub fn begin(&self, peers: &[String]) {
        let mut tasks = self.tasks.lock();
        tasks.running.spawn(accept_all(self.shared.clone()));
        let beat = self.shared.beat.clone();
        tasks.running.spawn(async move { drop(beat.keep().await) });
        for peer in peers.iter().take(LINKS_MAX) {
            if tasks.dialed.insert(peer.clone()) {
                self.shared.gate.counts.peers.add(peer);
                tasks.running.spawn(dial::keep(self.shared.clone(), peer.clone()));
            }
        }
    }

    /// The address of the socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// Dials `HOST:PORT` once, unless it is being dialled, there is a link to it, or `DIALED_MAX`
    /// is reached.
    pub fn dial(&self, address: &str) {
        let mut tasks = self.tasks.lock();
        while tasks.running.try_join_next().is_some() {}
        if tasks.dialed.contains(address) || tasks.dialed.len() >= DIALED_MAX {
            return;
        }
        tasks.dialed.insert(address.to_owned());
        let (shared, known, address) = (self.shared.clone(), self.tasks.clone(), address.to_owned());
        tasks.running.spawn(async move {
            dial::once(&shared, &address).await;
            known.lock().dialed.remove(&address);
        });
    }

    /// Dials an address as long as it is announced, unless there is a link to it or `DIALED_MAX` is
    /// reached. The second of two brokers that find each other `waits` for the other one first.
    pub fn dial_found(&self, address: SocketAddr, waits: bool) {
        let mut tasks = self.tasks.lock();
        while tasks.running.try_join_next().is_some() {}
        let text = address.to_string();
        if tasks.dialed.len() >= DIALED_MAX || !self.shared.gate.counts.peers.find(&text) {
            return;
        }
        tasks.dialed.insert(text.clone());
        let (shared, known) = (self.shared.clone(), self.tasks.clone());
        tasks.running.spawn(async move {
            loop {
                dial::keep_found(&shared, address, waits).await;
                // Under the lock of `dial_found`, by which the address may be wanted again.
                let mut tasks = known.lock();
                if shared.gate.counts.peers.remove_unwanted(&text) {
                    tasks.dialed.remove(&text);
                    return;
                }
            }
        });
    }

    /// Dials an address no more that was found. A link stays as it is.
    pub fn leave_found(&self, address: SocketAddr) {
        self.shared.gate.counts.peers.leave(&address.to_string());
    }

    /// Makes no new links from now on: a broker whose link ends must not get another one while this
    /// broker ends.
    pub fn close_gate(&self) {
        self.shared.gate.close();
    }

    /// Cuts all links.
    pub fn cut(&self) {
        self.tasks.lock().running.abort_all();
        self.shared.endpoint.close(ENDING, b"the broker ends");
    }

    /// Closes all links, and waits at most `PARTING` until the other brokers have been told.
    pub async fn close(&self) {
        self.cut();
        let _ = timeout(PARTING, self.shared.endpoint.wait_idle()).await;
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        self.cut();
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // Smaller buffers cost packets when many arrive at once, and no more.
    let _ = socket.set_recv_buffer_size(SOCKET_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BYTES);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// The transport of links.
pub(super) fn transport(faults: LinkFaults) -> TransportConfig {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(UNACKNOWLEDGED_MAX));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(channel::STREAMS_ALLOWED))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE).expect("seconds are within QUIC's range")))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .send_window(SEND_WINDOW)
        .congestion_controller_factory(Arc::new(MeasuredPaths::new(faults)))
        // Else a stream that always has bytes to send keeps streams of a higher priority from
        // sending.
        .send_fairness(true)
        .datagram_receive_buffer_size(Some(DATAGRAMS))
        .datagram_send_buffer_size(DATAGRAMS)
        .initial_rtt(INITIAL_RTT)
        .mtu_discovery_config(Some(MtuDiscoveryConfig::default()))
        .ack_frequency_config(Some(acks))
        .enable_segmentation_offload(true);
    transport
}

/// Accepts links until the endpoint closes.
async fn accept_all(shared: Arc<Shared>) {
    let mut links = JoinSet::new();
    while let Some(incoming) = shared.endpoint.accept().await {
        while links.try_join_next().is_some() {}
        if let Some((incoming, place)) = shared.admit(incoming) {
            let shared = shared.clone();
            links.spawn(async move { shared.welcome(incoming, place).await });
        }
    }
}

impl Shared {
    /// An incoming handshake that may go on, with its place for a link.
    fn admit(&self, incoming: Incoming) -> Option<(Incoming, Place)> {
        let handshakes = self.handshakes.load(Ordering::SeqCst);
        if handshakes >= HANDSHAKES_CALM && !incoming.remote_address_validated() {
            // A handshake that cannot be answered like this is dropped.
            let _ = incoming.retry();
            return None;
        }
        let place = if handshakes < HANDSHAKES_MAX { self.gate.enter() } else { None };
        let Some(place) = place else {
            self.gate.turned_away(&incoming.remote_address().to_string());
            incoming.refuse();
            return None;
        };
        self.handshakes.fetch_add(1, Ordering::SeqCst);
        Some((incoming, place))
    }

    async fn welcome(&self, incoming: Incoming, place: Place) {
        let address = incoming.remote_address();
        let shaken = timeout(HANDSHAKE, async {
            let connection = incoming.accept()?.await?;
            let streams = link::open_streams(&connection).await?;
            Ok((connection, streams))
        });
        let shaken = shaken.await.unwrap_or(Err(ConnectionError::TimedOut));
        self.handshakes.fetch_sub(1, Ordering::SeqCst);
        match shaken {
            Ok((connection, streams)) => drop(self.serve(connection, streams, false).await),
            Err(error) => self.failed(&address.to_string(), &error),
        }
        drop(place);
    }

    /// Counts, logs and records why there is no link with `who`, an address.
    pub(super) fn failed(&self, who: &str, error: &ConnectionError) {
        let refused = self.gate.failed(who, error);
        if let Some((access, why)) = self.access.as_ref().zip(refused) {
            access.note_refused_peer(("", who), why.text());
        }
    }

    /// Dials, and shakes hands.
    pub(super) async fn connect(&self, address: SocketAddr) -> Result<(Connection, Streams), ConnectionError> {
        let shaken = timeout(HANDSHAKE, async {
            // The name is not used: a broker is known by the name in its certificate.
            let dialed = self.endpoint.connect_with(self.client.clone(), address, "broker.whimbrel");
            let connection = dialed.map_err(|_| ConnectionError::LocallyClosed)?.await?;
            let streams = link::open_streams(&connection).await?;
            Ok((connection, streams))
        });
        shaken.await.unwrap_or(Err(ConnectionError::TimedOut))
    }

    /// Serves a link until it ends. Returns why one of the two cores hung up, if one did.
    pub(super) async fn serve(&self, connection: Connection, streams: Streams, dialed: bool) -> Option<HangUp> {
        let (address, name) = (connection.remote_address(), name_of(&connection));
        let peer = name.clone().unwrap_or_else(|| address.to_string());
        if self.is_denied(&connection, (name.as_deref(), address)) {
            return None;
        }
        if self.gate.is_closed() {
            // The other end has finished its handshake meanwhile.
            connection.close(ENDING, b"the broker ends");
            return None;
        }
        tracing::info!(peer, %address, dialed, "link to another broker");
        let counts = Arc::new(LinkCounts::new(peer.clone(), connection.clone()));
        let up = self.gate.counts.up(counts.clone());
        // Trust and rules may have changed since. [`Counts::review`] judges only links that are up.
        if self.is_denied(&connection, (name.as_deref(), address)) {
            return None;
        }
        let (uplink, beat, plan) = (self.uplink.clone(), self.beat.clone(), self.port_plan.clone());
        let streams = (connection.clone(), streams);
        let ended = link::run(uplink, streams, counts, beat, plan, (dialed, name)).await;
        drop(up);
        let here = ended.hung_up;
        if let Some(misuse) = ended.misuse {
            self.gate.misused(&peer, misuse);
        }
        let why = connection.close_reason().unwrap_or(ConnectionError::LocallyClosed);
        self.tell_end((&peer, address), here, &why);
        self.ends.send_modify(|ends| *ends += 1);
        here.or_else(|| refused::hung_up(&why))
    }

    /// Whether the broker at the other end, with that name, may not be linked with. If so, it is
    /// told, and the refusal is counted and recorded.
    fn is_denied(&self, connection: &Connection, (name, address): (Option<&str>, SocketAddr)) -> bool {
        let Some((access, name)) = self.access.as_ref().zip(name) else { return false };
        let chain = chain_of(connection);
        let why = access.refuses_peer((name, &address.to_string()), self.trust.as_deref().zip(chain.as_deref()));
        if let Some(why) = why {
            self.gate.refused(name, why);
            connection.close(VarInt::from_u32(channel::NOT_ALLOWED), why.text().as_bytes());
        }
        why.is_some()
    }

    /// Logs how a link has ended. `here` is why this broker's core has hung up, if it has.
    fn tell_end(&self, (peer, address): (&str, SocketAddr), here: Option<HangUp>, why: &ConnectionError) {
        match (here, Said::of(why)) {
            (Some(here), _) if here.is_passing() => {
                tracing::info!(peer, %address, why = here.text(), "a link to another broker is hung up");
            }
            (Some(here), _) => {
                let help = refused::of_hang_up(here);
                tracing::warn!(peer, %address, why = here.text(), help, "another broker is refused");
            }
            (None, Some(said)) if said.is_lasting() => self.gate.refused_by_peer(peer, &said),
            (None, _) => tracing::info!(peer, %address, %why, "a link to another broker has ended"),
        }
    }

    /// Whether an address is of a kind that the socket can send to.
    pub(super) fn reaches(&self, address: &SocketAddr) -> bool {
        self.local.is_ipv6() == address.is_ipv6() || (self.local.is_ipv6() && self.local.ip().is_unspecified())
    }
}

/// The name in the other end's certificate, which the handshake has judged.
fn name_of(connection: &Connection) -> Option<String> {
    Identity::of(chain_of(connection)?.first()?).map(|identity| identity.name)
}
