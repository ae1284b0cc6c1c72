//! Configuration: flags before environment variables before `whimbrel.toml` before defaults,
//! checked as a whole.

mod access;
mod address;
mod certificate;
mod engine;
pub mod fence;
mod identity;
pub mod location;
pub mod overlay;
pub mod partition;
pub mod peer;
mod problem;
pub mod proxy;
pub mod schema;
mod settings;
mod source;
pub(crate) mod topic;
pub mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use certificate::Certificate;
pub use problem::{Place, Problem};
use settings::Settings;
pub use settings::{Given, Override};
use whimbrel_core::Profile;
use whimbrel_event::Deployment;
use whimbrel_journal::{HEAD, SEGMENTS_MIN};

use crate::access as access_plan;
use crate::control;
use crate::engine::EngineOptions;
use crate::store::Opening;
use crate::telemetry::Plan;

/// The configuration file that is read if it exists and no other one is named.
pub const DEFAULT_FILE: &str = "whimbrel.toml";

/// The longest name of a broker or a deployment, in bytes.
const MAX_NAME: usize = 64;

/// Default period between two looks at the fence files.
const FENCE_POLL: Duration = Duration::from_secs(2);

/// A kind of listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Listener {
    /// MQTT over TCP.
    Mqtt,
    /// MQTT over TLS.
    Tls,
    /// MQTT over WebSocket.
    Ws,
    /// MQTT over WebSocket with TLS.
    Wss,
    /// The API, the console, metrics, health, and MQTT over WebSocket.
    Http,
    /// Other brokers, over QUIC.
    Overlay,
}

impl Listener {
    /// All kinds.
    pub const ALL: [Listener; 6] =
        [Listener::Mqtt, Listener::Tls, Listener::Ws, Listener::Wss, Listener::Http, Listener::Overlay];

    /// The kinds that clients connect to.
    pub const CLIENTS: [Listener; 4] = [Listener::Mqtt, Listener::Tls, Listener::Ws, Listener::Wss];

    /// The kind's name in the ready line, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Listener::Mqtt => "mqtt",
            Listener::Tls => "tls",
            Listener::Ws => "ws",
            Listener::Wss => "wss",
            Listener::Http => "http",
            Listener::Overlay => "overlay",
        }
    }

    /// The setting of its address.
    pub fn key(self) -> String {
        format!("listen_{}", self.name())
    }

    /// Whether its connections begin with a TLS handshake.
    pub fn is_tls(self) -> bool {
        matches!(self, Listener::Tls | Listener::Wss)
    }

    /// Whether it is UDP, not TCP.
    pub fn is_udp(self) -> bool {
        self == Listener::Overlay
    }

    /// Whether it accepts MQTT over WebSocket, even beside other protocols.
    pub fn takes_websocket(self) -> bool {
        self.is_websocket() || self == Listener::Http
    }

    /// Whether all its MQTT is within WebSocket.
    pub fn is_websocket(self) -> bool {
        matches!(self, Listener::Ws | Listener::Wss)
    }
}

/// Format of log lines.
#[derive(Clone, Debug)]
pub struct Log {
    /// One JSON object per line instead of text.
    pub json: bool,
    /// The least severe level: `off`, `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
}

/// Limits of the server itself; see `docs/configuration.md` for each.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Client connections at once; `None`: as many as the file limit allows.
    pub max_connections: Option<usize>,
    /// Time for the TLS handshake and the WebSocket upgrade together, and for a header of the PROXY
    /// protocol before them.
    pub handshake_timeout: Duration,
    /// Time for clients, when the broker ends, to read what was sent to them.
    pub drain_timeout: Duration,
    /// Period between two looks at the fence files and the configuration file.
    pub fence_poll: Duration,
}

/// Settings of the broker's logs, location and traces.
#[derive(Clone, Debug)]
pub struct Telling {
    /// Format of log lines.
    pub log: Log,
    /// Location of the broker.
    pub place: Option<location::Location>,
    /// Destination of traces, if there is a collector.
    pub telemetry: Option<Plan>,
}

/// Settings that were given, by their paths, as text.
pub type Fixed = BTreeMap<String, String>;

/// Sources of a configuration, for reading it again.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Settings given outside of the file: they prevail when the file is read again.
    pub overrides: Vec<Override>,
    /// The given settings that stay in force until the broker is restarted.
    pub fixed: Fixed,
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The broker's name.
    pub name: String,
    /// The name of the deployment that it belongs to.
    pub deployment: String,
    /// No authentication.
    pub dev: bool,
    /// Authentication and access rules.
    pub access: Arc<access_plan::Plan>,
    /// Links to other brokers.
    pub overlay: overlay::Asked,
    /// The broker is announced in the local network, and dials those that it finds there.
    pub discover: bool,
    /// Addresses to listen on; a kind that is off is missing.
    pub listen: Vec<(Listener, SocketAddr)>,
    /// Listeners behind proxies, and the networks of the proxies.
    pub proxy: proxy::Asked,
    /// The certificate for TLS, WebSocket with TLS, HTTP and links.
    pub certificate: Certificate,
    /// The HTTP listener speaks no TLS.
    pub http_plain: bool,
    /// The server's own limits.
    pub limits: Limits,
    /// The broker's limits.
    pub broker: whimbrel_mqtt::Config,
    /// Threads that serve connections; 0: one per CPU.
    pub workers: usize,
    /// Logs, location and traces.
    pub telling: Telling,
    /// Fences, and their files.
    pub fences: fence::Sources,
    /// The cache for semi-durable subscriptions.
    pub division: partition::Division,
    /// Profiles of topics, in the order in which they count.
    pub topics: Vec<Profile>,
    /// The data directory; without one everything lives as long as the process.
    pub data: Option<Opening>,
    /// Place of the control socket.
    pub control: Option<control::Place>,
    /// Sources of this configuration.
    pub origin: Origin,
    /// Settings that are allowed and probably not meant.
    pub warnings: Vec<String>,
}

impl Config {
    /// Gathers and checks the configuration. `file` is the one that the operator named; without it,
    /// [`DEFAULT_FILE`] in the working directory is read if it exists.
    ///
    /// # Errors
    /// All mistakes in it, each with its place and help.
    pub fn load(file: Option<&Path>, overrides: &[Override]) -> Result<Config, Vec<Problem>> {
        let default = Path::new(DEFAULT_FILE);
        let file = file.or_else(|| default.is_file().then_some(default));
        let mut settings = Settings::default();
        if let Some(file) = file {
            settings.open_file(file);
        }
        settings.read_overrides(overrides);
        Config::judge(settings, file.map(Path::to_owned), overrides.to_vec())
    }

    fn judge(mut settings: Settings, file: Option<PathBuf>, overrides: Vec<Override>) -> Result<Config, Vec<Problem>> {
        let mut warnings = Vec::new();
        check_name("name", &mut settings);
        check_name("deployment", &mut settings);
        let certificate = identity::load(&mut settings);
        let (name, deployment, dev) = (settings.text("name"), settings.text("deployment"), settings.switch("dev"));
        let listen = identity::listeners(&mut settings, &mut warnings);
        check_clashes(&listen, &mut settings);
        if dev {
            identity::check_reach(&listen, &mut settings, &mut warnings);
        }
        let overlay = overlay::load(&listen, &mut settings, &mut warnings);
        let discover = identity::discovers(&listen, &mut settings);
        let proxy = proxy::load(&listen, &mut settings, &mut warnings);
        let access = access::load(&mut settings, &mut warnings);
        let place = location::load(&mut settings);
        let fences = fence::load(&mut settings);
        let division = partition::load(&mut settings, &fences.fences);
        let topics = topic::load(&mut settings);
        let engine = engine::load(&mut settings);
        let data = data(&mut settings, &topics, engine);
        match certificate {
            Some(certificate) if settings.problems.is_empty() => Ok(Config {
                name,
                deployment,
                dev,
                access: access.clone(),
                overlay,
                discover,
                listen,
                proxy,
                certificate,
                http_plain: identity::is_http_plain(&settings),
                limits: Limits {
                    max_connections: Some(settings.number("limits.max_connections") as usize).filter(|max| *max > 0),
                    handshake_timeout: settings.duration("limits.handshake_timeout"),
                    drain_timeout: settings.duration("drain_timeout"),
                    fence_poll: FENCE_POLL,
                },
                broker: whimbrel_mqtt::Config { access: access.of_edge(), ..broker_config(&settings) },
                workers: settings.number("workers") as usize,
                telling: telling(&settings, place),
                fences,
                division,
                topics,
                control: control(&settings),
                data,
                origin: Origin { file, overrides, fixed: settings.fixed() },
                warnings,
            }),
            _ => {
                settings.sort_problems();
                Err(settings.problems)
            }
        }
    }
}

fn broker_config(settings: &Settings) -> whimbrel_mqtt::Config {
    let number = |name: &str| settings.number(&format!("limits.{name}"));
    let duration = |name: &str| settings.duration(&format!("limits.{name}"));
    // The table of settings keeps each number within its type.
    let small = |name: &str| u16::try_from(number(name)).unwrap_or(u16::MAX);
    let edge = whimbrel_mqtt::Limits::default();
    let max_packet_size = u32::try_from(number("max_packet_size")).unwrap_or(u32::MAX);
    whimbrel_mqtt::Config {
        name: settings.text("name"),
        limits: whimbrel_mqtt::Limits {
            receive_maximum: small("receive_maximum"),
            max_packet_size,
            // A few packets of the largest size must fit beside each other.
            partial_bytes: edge.partial_bytes.max(4 * max_packet_size as usize),
            topic_alias_maximum: small("topic_alias_maximum"),
            topic_alias_out_maximum: small("topic_alias_out_maximum"),
            keep_alive_max: u16::try_from(duration("max_keep_alive").as_secs()).unwrap_or(u16::MAX),
            connect_timeout: duration("connect_timeout"),
        },
        core: whimbrel_core::Limits {
            inflight_max: small("max_inflight"),
            session_queue_bytes: number("session_queue") as usize,
            best_effort_queue_bytes: number("best_effort_queue") as usize,
            total_queue_bytes: number("total_queue") as usize,
            sessions_max: number("max_sessions") as usize,
            subscriptions_per_session: number("max_subscriptions") as usize,
            selector_bytes_per_session: number("max_selectors") as usize,
            session_expiry_max: duration("max_session"),
            retained_max: number("max_retained") as usize,
            retained_bytes: number("retained_size") as usize,
            tracked_queue_bytes: number("tracked_queue") as usize,
            silence_after: duration("silence_after"),
            max_retain: Some(settings.duration("journal.max_retain")).filter(|span| !span.is_zero()),
            deployment: Deployment::named(&settings.text("deployment")),
            ..whimbrel_core::Limits::default()
        },
        sys_interval: Some(duration("sys_interval")).filter(|interval| !interval.is_zero()),
        ..whimbrel_mqtt::Config::default()
    }
}

fn telling(settings: &Settings, place: Option<location::Location>) -> Telling {
    let log = Log { json: settings.text("log.format") == "json", level: settings.text("log.level") };
    Telling { log, place, telemetry: telemetry(settings) }
}

/// Destination of traces, if a collector is named.
fn telemetry(settings: &Settings) -> Option<Plan> {
    let endpoint = Some(settings.text("telemetry.otlp_endpoint")).filter(|endpoint| !endpoint.is_empty())?;
    Some(Plan { endpoint, sample: settings.ratio("telemetry.sample") })
}

/// Place of the control socket: in the data directory, unless it is set.
fn control(settings: &Settings) -> Option<control::Place> {
    match settings.path("control") {
        Some(path) if path.as_os_str() == "off" => None,
        Some(path) => Some(control::Place { path, is_guarded: false }),
        None => directory(settings).map(|data| control::Place { path: data.join(control::SOCKET), is_guarded: true }),
    }
}

/// The control socket of a broker with this configuration; for the arguments see [`Config::load`].
/// Mistakes in the file do not keep an operator from a running broker if the socket is given.
///
/// # Errors
/// No socket is given, and the file cannot be read, or has mistakes.
pub fn control_place(file: Option<&Path>, overrides: &[Override]) -> Result<Option<PathBuf>, Vec<Problem>> {
    let default = Path::new(DEFAULT_FILE);
    let mut settings = Settings::default();
    if let Some(file) = file.or_else(|| default.is_file().then_some(default)) {
        settings.open_file(file);
    }
    settings.read_overrides(overrides);
    match control(&settings) {
        None if !settings.problems.is_empty() => Err(settings.problems),
        place => Ok(place.map(|place| place.path)),
    }
}

/// The data directory, if there is one.
fn directory(settings: &Settings) -> Option<PathBuf> {
    settings.path("data").or_else(|| engine::default_directory(settings))
}

/// How the broker of a configuration opens its journal and its engine; for the arguments see
/// [`Config::load`]. Nothing else of the configuration is checked.
///
/// # Errors
/// The file cannot be read, or these settings have mistakes.
pub fn journal_place(file: Option<&Path>, overrides: &[Override]) -> Result<Option<Opening>, Vec<Problem>> {
    let default = Path::new(DEFAULT_FILE);
    let mut settings = Settings::default();
    if let Some(file) = file.or_else(|| default.is_file().then_some(default)) {
        settings.open_file(file);
    }
    settings.read_overrides(overrides);
    let engine = engine::load(&mut settings);
    let opening = data(&mut settings, &[], engine);
    if settings.problems.is_empty() { Ok(opening) } else { Err(settings.problems) }
}

/// How the journal is opened, if there is a data directory.
fn data(settings: &mut Settings, topics: &[Profile], engine: Option<EngineOptions>) -> Option<Opening> {
    let (max_bytes, asked) = (settings.number("journal.max_log"), settings.number("journal.segment"));
    // The table of settings keeps it within a file's size.
    let segment_bytes = u32::try_from(asked).unwrap_or(u32::MAX) / HEAD as u32 * HEAD as u32;
    if max_bytes < u64::from(SEGMENTS_MIN) * u64::from(segment_bytes) {
        let place = settings.place("journal.max_log").or(settings.place("journal.segment"));
        let problem = Problem::new(format!("`max_log` has no room for {SEGMENTS_MIN} segments")).at(place, "here");
        settings.problems.push(problem.help("raise `max_log`, or write a smaller `segment`"));
    }
    let accept_clock = settings.switch("accept_clock");
    let topics = topics.to_vec();
    let directory = directory(settings)?;
    Some(Opening { directory, segment_bytes, max_bytes, accept_clock, topics, keeps_nothing: false, engine })
}

fn check_name(setting: &str, settings: &mut Settings) {
    let name = settings.text(setting);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() > MAX_NAME || !name.chars().all(allowed) {
        let problem = Problem::new(format!("`{setting}` is longer than {MAX_NAME} bytes or has unusual characters"))
            .at(settings.place(setting), "here")
            .help("use letters, digits, '-', '_' and '.'");
        settings.problems.push(problem);
    }
}

fn check_clashes(listen: &[(Listener, SocketAddr)], settings: &mut Settings) {
    for (later, (b, address_b)) in listen.iter().enumerate() {
        let Some((a, _)) = listen[..later]
            .iter()
            .find(|(a, address_a)| a.is_udp() == b.is_udp() && address::clash(*address_a, *address_b))
        else {
            continue;
        };
        let (key_a, key_b) = (a.key(), b.key());
        let place = settings.place(&key_b).or(settings.place(&key_a));
        let problem = Problem::new(format!("`{key_a}` and `{key_b}` cannot share {address_b}"))
            .at(place, "taken twice")
            .help("give each listener its own port, or turn one of them \"off\"");
        settings.problems.push(problem);
    }
}
