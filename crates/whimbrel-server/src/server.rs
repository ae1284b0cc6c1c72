//! A running broker: listeners, HTTP, signals and its end.

mod certificate;
mod end;
mod links;
mod signals;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use whimbrel_mqtt::Origin;

use crate::access::{Access, ByRules};
use crate::api::access::{Authorizer, Everyone};
use crate::api::answers::Listeners;
use crate::api::{About, Api};
use crate::config::{Config, Listener};
use crate::discovery::{self, Running};
use crate::drive::Hub;
use crate::engine::{EngineEnd, EngineKeeper, EngineStartError, Monitor};
use crate::fences::{Keeper, Outcome};
use crate::http::{self, Front, Pages};
use crate::listen::{self, Door, Gate};
use crate::metrics::Metrics;
use crate::proxy::Proxies;
use crate::store::{self, Lock, Opened};
use crate::telemetry::Flusher;
use crate::{control, logging, process, service, telemetry};
use certificate::Presented;
use links::{Links, open_overlay};
use signals::{Asked, Signals};

/// Files kept for other uses than clients: listeners, HTTP, logs, the runtime.
const RESERVED_FILES: u64 = 128;

/// The most connections a broker can number.
const MAX_CONNECTIONS: u64 = 10_000_000;

/// Phase of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server does not accept connections yet.
    Starting,
    /// The server serves.
    Ready,
    /// The server accepts no more connections and closes those it has.
    Draining,
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be bound.
    #[error("cannot listen on {address} (`{key}`): {cause}. {}", hint(cause))]
    Listen {
        /// The setting.
        key: String,
        /// The address.
        address: SocketAddr,
        /// Why.
        cause: io::Error,
    },
    /// The password threads or the audit could not be started.
    #[error("cannot start judging who may do what: {0}. Can the file of identity.audit be written?")]
    Access(io::Error),
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}. Give one with --tls-cert and --tls-key")]
    Certificate(io::Error),
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] crate::store::OpenError),
    /// The broker cannot go on with its engine.
    #[error(transparent)]
    Engine(#[from] EngineEnd),
    /// The control socket could not be opened.
    #[error("cannot open the control socket {path}: {cause}. Name another path (--control), or \"off\" for none")]
    Control {
        /// Its path.
        path: String,
        /// Why.
        cause: io::Error,
    },
    /// The runtime or signal handling could not be set up.
    #[error("cannot start: {0}. The system may be out of files, threads or memory")]
    System(io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "Another process has it; stop that, or choose another port, or 0 for any free one",
        io::ErrorKind::PermissionDenied => "Ports below 1024 need a privilege; choose a higher one",
        io::ErrorKind::AddrNotAvailable => "This machine does not have the address; see `ip address`",
        _ => "Choose another address or port, or turn this listener off",
    }
}

/// The addresses that a server listens on. Serialises to the JSON of the ready line; listeners that
/// are not open are left out.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    ready: bool,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<PathBuf>,
    #[serde(flatten)]
    open: Listeners,
}

impl Ready {
    fn new(name: &str) -> Ready {
        Ready { ready: true, name: name.to_owned(), control: None, open: Listeners::default() }
    }

    fn slot(&mut self, listener: Listener) -> &mut Option<SocketAddr> {
        match listener {
            Listener::Mqtt => &mut self.open.mqtt,
            Listener::Tls => &mut self.open.tls,
            Listener::Ws => &mut self.open.ws,
            Listener::Wss => &mut self.open.wss,
            Listener::Http => &mut self.open.http,
            Listener::Overlay => &mut self.open.overlay,
        }
    }

    /// The address of a listener, if it is open.
    pub fn address(&self, listener: Listener) -> Option<SocketAddr> {
        self.clone().slot(listener).take()
    }

    /// The ready line as JSON, without the end of the line.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("addresses and names are JSON")
    }
}

/// A broker that serves. Dropping it only closes the listeners; [`Server::drain`] also says goodbye
/// to the clients.
#[derive(Debug)]
pub struct Server {
    ready: Ready,
    hub: Arc<Hub>,
    fences: Arc<Keeper>,
    /// Notified when the API is asked for a drain.
    drain: Arc<Notify>,
    max_connections: usize,
    /// Sends the traces that wait, if there is a collector.
    traces: Option<Flusher>,
    phase: watch::Sender<Phase>,
    doors: JoinSet<()>,
    /// HTTP, and the watch over files and the system's clock, go on while clients are drained.
    http: JoinSet<()>,
    /// Discovery, if it runs.
    discovery: Option<Running>,
    /// Keeps the broker's name in its engine, if it has one.
    keeper: Option<Arc<EngineKeeper>>,
    /// Links to other brokers; cut when this is dropped.
    _links: Links,
    /// Lock of the data directory, if there is one.
    _lock: Option<Lock>,
}

impl Server {
    /// Opens the data directory, then all listeners, and begins to serve. Call it within a tokio
    /// runtime.
    ///
    /// # Errors
    /// The data directory or a listener cannot be opened, or no certificate can be made. Everything
    /// is closed again then.
    pub async fn start(config: &Config, version: &str) -> Result<Server, Error> {
        let shown = Presented::of(config)?;
        let Foundation { hub, lock, keeper, monitor } = Foundation::lay(config).await?;
        let mut ready = Ready::new(&config.name);
        ready.open.http_tls = !config.http_plain;
        let mut sockets = Vec::new();
        for (listener, address) in config.listen.iter().filter(|(listener, _)| !listener.is_udp()) {
            let fault = |cause| Error::Listen { key: listener.key(), address: *address, cause };
            let socket = listen::bind(*address).map_err(fault)?;
            *ready.slot(*listener) = Some(socket.local_addr().map_err(fault)?);
            sockets.push((*listener, socket));
        }
        let access = start_access(config, &hub)?;
        let (links, address) = open_overlay(config, version, &hub, &access)?;
        *ready.slot(Listener::Overlay) = address;
        let (max_connections, handshake) = (max_connections(config), config.limits.handshake_timeout);
        let (mut http, mut doors) = (JoinSet::new(), JoinSet::new());
        let (traces, traced) = telemetry::begin(config, version, &hub, &mut http);
        let metrics = Arc::new(Metrics::new(hub.clone(), config, version, (max_connections, traced), keeper.clone()));
        let fences = Arc::new(Keeper::new(hub.clone(), metrics.fences(), access.clone(), config));
        let gate = Arc::new(Gate::new(hub.clone(), max_connections, handshake, max_packet(config), access.clone()));
        let (phase, watching) = watch::channel(Phase::Starting);
        let api = Api::new(hub.clone(), about(config, version, &hub, &ready), watching.clone(), fences.clone());
        for (listener, socket) in sockets {
            if listener == Listener::Http {
                let pages = pages(&hub, &metrics, &gate, &shown, watching.clone());
                let (tls, proxies) = (shown.http.clone(), proxies(config, listener));
                let metrics = metrics.listener(listener);
                let front = Front { socket: Arc::new(socket), tls, proxies, metrics, limit: handshake };
                let authorizer = authorizer(config, &access);
                http.spawn(http::serve(front, pages, api.router(&authorizer), authorizer));
            } else {
                let (proxies, metrics) = (proxies(config, listener), metrics.listener(listener));
                let door = Door::new(gate.clone(), listener, shown.clients.clone(), proxies, metrics);
                doors.spawn(door.serve(socket, watching.clone()));
            }
        }
        if config.origin.file.is_some() || config.certificate.is_from_files() {
            http.spawn(fences.clone().watch(config.limits.fence_poll));
        }
        if let Some(monitor) = monitor {
            http.spawn(monitor.watch());
        }
        http.spawn(hub.clock().clone().watch());
        http.spawn(api.run());
        let drain = api.drain();
        if let Some(place) = &config.control {
            let fault = |cause| Error::Control { path: place.path.display().to_string(), cause };
            let listening = control::socket::listen(&place.path, place.is_guarded).map_err(fault)?;
            ready.control = Some(place.path.clone());
            http.spawn(control::serve(listening, api, access));
        }
        let discovery = discovery::begin(config, version, &hub, &ready.open, metrics.discovery());
        phase.send_replace(Phase::Ready);
        Ok(Server {
            ready,
            hub,
            fences,
            drain,
            max_connections,
            traces,
            phase,
            doors,
            http,
            discovery,
            keeper,
            _links: links,
            _lock: lock,
        })
    }

    /// The addresses that the server listens on.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// The rules in force, and the audit.
    pub fn access(&self) -> &Arc<Access> {
        self.hub.access().expect("it is set before the server starts")
    }

    /// The hub of the clients' connections.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Reads the configuration file again for its fences, partitions, topics, rights, and the
    /// certificate files. Either all of it comes into force or, if there is any mistake in it, the
    /// settings before stay. `None`: there is no configuration file, nor another file that could be
    /// read again.
    pub async fn reload(&self) -> Option<Outcome> {
        self.fences.reload().await.map(|reload| reload.outcome)
    }
}

/// Facts about the server that the API tells and that do not change.
fn about(config: &Config, version: &str, hub: &Hub, ready: &Ready) -> About {
    About {
        name: config.name.clone(),
        version: version.to_owned(),
        deployment: config.deployment.clone(),
        dev: config.dev,
        listeners: ready.open.clone(),
        place: config.telling.place,
        started_ms: hub.clock().now().as_nanos() / 1_000_000,
    }
}

/// The largest packet that is accepted, bytes.
fn max_packet(config: &Config) -> usize {
    config.broker.limits.max_packet_size as usize
}

/// Starts judging who may do what.
fn start_access(config: &Config, hub: &Arc<Hub>) -> Result<Arc<Access>, Error> {
    let access = Access::start(config.access.clone()).map_err(Error::Access)?;
    hub.set_access(access.clone(), config.certificate.trust());
    Ok(access)
}

/// The pages of the HTTP listener beside the console and the API.
fn pages(
    hub: &Arc<Hub>,
    metrics: &Arc<Metrics>,
    gate: &Arc<Gate>,
    shown: &Presented,
    phase: watch::Receiver<Phase>,
) -> Pages {
    Pages {
        metrics: metrics.clone(),
        phase,
        hub: hub.clone(),
        certificate: shown.made.clone(),
        gate: gate.clone(),
        origin: if shown.http.is_some() { Origin::Wss } else { Origin::Ws },
        listener: metrics.listener(Listener::Http),
    }
}

/// The proxies in front of a listener, if any.
fn proxies(config: &Config, listener: Listener) -> Option<Proxies> {
    let stands_behind = config.proxy.listeners.contains(&listener);
    stands_behind.then(|| Proxies { from: config.proxy.from.clone(), limit: config.limits.handshake_timeout })
}

/// Authorises requests of the HTTP listener.
fn authorizer(config: &Config, access: &Arc<Access>) -> Arc<dyn Authorizer> {
    if config.dev {
        return Arc::new(Everyone("anonymous"));
    }
    Arc::new(ByRules { access: access.clone(), trust: config.certificate.trust().cloned() })
}

/// What a server stands on.
struct Foundation {
    hub: Arc<Hub>,
    lock: Option<Lock>,
    keeper: Option<Arc<EngineKeeper>>,
    /// Looks at the servers of the engine, if there is one.
    monitor: Option<Arc<Monitor>>,
}

impl Foundation {
    /// Opens the data directory and its engine, if the broker has them.
    async fn lay(config: &Config) -> Result<Foundation, Error> {
        let (broker, seed) = (config.broker.clone(), seed().map_err(Error::System)?);
        let Some(opening) = config.data.clone() else {
            return Ok(Foundation { hub: Hub::new(broker, seed), lock: None, keeper: None, monitor: None });
        };
        let monitor = opening.engine.as_ref().map(|engine| Monitor::new(engine.monitors.clone()));
        if let Some(monitor) = &monitor {
            let checked = monitor.check_at_start().await;
            checked.map_err(|error| store::OpenError::from(EngineStartError::from(error)))?;
        }
        let (looks, takes) = (monitor.clone(), opening.engine.as_ref().is_some_and(|engine| engine.takes));
        let opened = tokio::task::spawn_blocking(move || store::open(&opening, broker, seed, looks)).await;
        let Opened { broker, store, clock, lock, keeper } =
            opened.map_err(|error| Error::System(io::Error::other(error)))??;
        if takes {
            listen::await_free(config.listen.iter().map(|(listener, address)| (*listener, *address))).await;
        }
        let hub = Hub::with_store(broker, store, clock);
        Ok(Foundation { hub, lock: Some(lock), keeper: keeper.map(Arc::new), monitor })
    }
}

/// Runs a broker until SIGTERM or SIGINT. `announce` gets its addresses as soon as it serves.
///
/// # Errors
/// The broker could not start.
pub fn run(config: &Config, version: &str, announce: impl FnOnce(&Ready)) -> Result<(), Error> {
    logging::start(&config.telling.log);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if let Err(error) = process::raise_file_limit() {
        tracing::warn!(%error, "cannot raise the file limit to the hard one");
    }
    let workers = match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    };
    // With one CPU, a second thread would only add a wake-up per message.
    let mut runtime = match workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(workers).enable_all().build().map_err(Error::System)?;
    let result = runtime.block_on(async {
        let mut signals = Signals::new().map_err(Error::System)?;
        let server = tokio::select! {
            started = Server::start(config, version) => started?,
            () = signals.termination() => {
                tracing::info!("ended by a signal before the broker served");
                return Ok(());
            }
        };
        log_start(config, version, workers, &server);
        announce(server.ready());
        service::ready().await;
        tokio::spawn(service::live(server.hub.clone()));
        loop {
            let asked = tokio::select! {
                asked = signals.next() => asked,
                () = server.drain.notified() => Asked::End,
                end = server.failure() => {
                    tracing::error!("{end}");
                    service::stopping().await;
                    tokio::select! {
                        () = server.abandon() => {}
                        () = signals.termination() => tracing::warn!("signal: ending at once"),
                    }
                    return Err(Error::Engine(end));
                }
            };
            match asked {
                Asked::End => break,
                Asked::Reload => reload_beside(server.fences.clone()),
                Asked::AcceptClock => server.hub.accept_clock(),
            }
        }
        service::stopping().await;
        tokio::select! {
            () = server.drain(config.limits.drain_timeout) => tracing::info!("drained"),
            () = signals.termination() => tracing::warn!("second signal: ending without draining"),
        }
        Ok(())
    });
    // Connections that remain must not hold up the end.
    runtime.shutdown_background();
    result
}

/// Reads the fences again, while signals to end are still handled.
fn reload_beside(fences: Arc<Keeper>) {
    tokio::spawn(async move {
        if fences.reload().await.is_none() {
            tracing::warn!("SIGHUP: there is no configuration file to read again");
        }
    });
}

fn log_start(config: &Config, version: &str, workers: usize, server: &Server) {
    let file = config.origin.file.as_ref().map_or_else(|| "none".into(), |file| file.display().to_string());
    let (files, connections) = (process::file_limit(), server.max_connections);
    tracing::info!(name = config.name, version, file, workers, "whimbrel starts");
    tracing::info!(files, connections, "file limit, and the client connections that it allows");
    if config.dev {
        tracing::warn!("--dev: no authentication; everyone who reaches a listener may publish and subscribe");
    }
    if config.data.is_none() {
        tracing::info!("no data directory (--data): what is not delivered lives as long as this process");
    }
    for listener in Listener::ALL {
        if let Some(address) = server.ready().address(listener) {
            tracing::info!(listener = listener.name(), %address, "listening");
        }
    }
}

/// The configured number of connections, if the file limit allows it.
fn max_connections(config: &Config) -> usize {
    let files = process::file_limit();
    let possible = files.saturating_sub(RESERVED_FILES).clamp(1, MAX_CONNECTIONS) as usize;
    match config.limits.max_connections {
        Some(wanted) if wanted > possible => {
            tracing::warn!(wanted, possible, files, "limits.max_connections is more than the file limit allows");
            possible
        }
        Some(wanted) => wanted,
        None => possible,
    }
}

fn seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let random = ring::default_provider().secure_random.fill(&mut bytes);
    random.map_err(|_| io::Error::other("the system has no randomness to give"))?;
    Ok(u64::from_le_bytes(bytes))
}
