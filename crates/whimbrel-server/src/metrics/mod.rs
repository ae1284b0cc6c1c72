//! Metrics in the Prometheus text format. Their names are stable; `docs/metrics.md` lists them.

mod access;
mod broker;
mod cache;
mod classic;
mod discovery;
pub(crate) mod encoding;
mod engine;
mod fences;
mod journal;
mod latency;
mod links;
mod overlay;
mod punctuality;
mod selectors;
mod traces;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

pub use classic::Format;
pub use discovery::DiscoveryMetrics;
pub use fences::{FenceMetrics, Outcome};

use crate::config::{Certificate, Config, Listener};
use crate::drive::{Account, Hub};
use crate::engine::EngineKeeper;
use crate::process;
use crate::telemetry::Counts;
use encoding::{commit_latency, put, put_family};

/// Why a connection did not begin MQTT, or was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The connection limit was reached.
    ConnectionLimit,
    /// The process had no file left.
    FileLimit,
    /// TLS handshake or WebSocket upgrade took too long.
    HandshakeTimeout,
    /// The TLS handshake failed.
    Tls,
    /// A WebSocket upgrade at another path.
    WrongPath,
    /// A WebSocket upgrade without the subprotocol `mqtt`.
    NoSubprotocol,
    /// A WebSocket upgrade from a web page of another origin.
    ForeignOrigin,
    /// A WebSocket upgrade by a client without a certificate where only certificates authenticate
    /// clients.
    NoCertificate,
    /// No valid WebSocket upgrade.
    BadRequest,
    /// A text frame on a WebSocket connection.
    TextFrame,
    /// A malformed or too large WebSocket message.
    BadFrame,
    /// A connection to a listener with the PROXY protocol from an address that is not a proxy's.
    ProxyUntrusted,
    /// No valid header of the PROXY protocol where one is required, or one that is too long.
    ProxyHeader,
    /// The header of the PROXY protocol took too long.
    ProxyTimeout,
}

impl Cause {
    const ALL: [Cause; 14] = [
        Cause::ConnectionLimit,
        Cause::FileLimit,
        Cause::HandshakeTimeout,
        Cause::Tls,
        Cause::WrongPath,
        Cause::NoSubprotocol,
        Cause::ForeignOrigin,
        Cause::NoCertificate,
        Cause::BadRequest,
        Cause::TextFrame,
        Cause::BadFrame,
        Cause::ProxyUntrusted,
        Cause::ProxyHeader,
        Cause::ProxyTimeout,
    ];

    /// The cause's label.
    pub fn name(self) -> &'static str {
        match self {
            Cause::ConnectionLimit => "connection_limit",
            Cause::FileLimit => "file_limit",
            Cause::HandshakeTimeout => "handshake_timeout",
            Cause::Tls => "tls",
            Cause::WrongPath => "wrong_path",
            Cause::NoSubprotocol => "no_subprotocol",
            Cause::ForeignOrigin => "foreign_origin",
            Cause::NoCertificate => "no_certificate",
            Cause::BadRequest => "bad_request",
            Cause::TextFrame => "text_frame",
            Cause::BadFrame => "bad_frame",
            Cause::ProxyUntrusted => "proxy_untrusted",
            Cause::ProxyHeader => "proxy_header",
            Cause::ProxyTimeout => "proxy_timeout",
        }
    }

    /// For a cause of the PROXY protocol: the text for the log, with what to do.
    pub fn of_proxy(self) -> Option<&'static str> {
        match self {
            Cause::ProxyUntrusted => Some(
                "the listener is in proxy_listeners, and no network of proxy_from has this address; add the proxy's, or connect by way of it",
            ),
            Cause::ProxyHeader => Some(
                "it does not begin with a PROXY header that is valid and not too long; have the proxy send one, or take the listener out of proxy_listeners",
            ),
            Cause::ProxyTimeout => Some(
                "no complete PROXY header came within limits.handshake_timeout; have the proxy send one, or take the listener out of proxy_listeners",
            ),
            _ => None,
        }
    }

    /// For a cause of a handshake: the text for the log, with what to do; empty for other causes.
    pub fn of_handshake(self) -> &'static str {
        match self {
            Cause::HandshakeTimeout => "TLS and the WebSocket upgrade took longer than limits.handshake_timeout",
            Cause::Tls => {
                "the TLS handshake failed: the client does not believe the certificate, has none that is believed here, or does not speak TLS; at the log level debug the \
                 log tells more"
            }
            Cause::WrongPath => "a WebSocket upgrade at another path than /mqtt",
            Cause::NoSubprotocol => "a WebSocket upgrade without the subprotocol mqtt",
            Cause::ForeignOrigin => "a page of another site: name its origin in identity.origins if it may come",
            Cause::BadRequest => "no valid WebSocket upgrade: is it a client without WebSocket?",
            _ => "",
        }
    }

    /// Whether the cause can occur at this kind of listener.
    fn concerns(self, listener: Listener) -> bool {
        match self {
            Cause::ConnectionLimit => true,
            Cause::FileLimit => listener != Listener::Http,
            Cause::WrongPath => listener.is_websocket(),
            Cause::ProxyUntrusted | Cause::ProxyHeader | Cause::ProxyTimeout => true,
            Cause::HandshakeTimeout => listener.is_tls() || listener.takes_websocket(),
            Cause::Tls => listener.is_tls() || listener == Listener::Http,
            Cause::NoCertificate => listener == Listener::Http,
            _ => listener.takes_websocket(),
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ListenerLabel {
    listener: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailureLabels {
    listener: &'static str,
    cause: &'static str,
}

/// The counters of one listener.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    listener: Listener,
    accepted: Counter,
    failures: Family<FailureLabels, Counter>,
}

impl ListenerMetrics {
    /// Counts a connection that the system handed over.
    pub fn accepted(&self) {
        self.accepted.inc();
    }

    /// Counts a connection that failed or ended for a reason of the transport.
    pub fn failed(&self, cause: Cause) {
        self.failures.get_or_create(&FailureLabels { listener: self.listener.name(), cause: cause.name() }).inc();
    }
}

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    accepted: Family<ListenerLabel, Counter>,
    failures: Family<FailureLabels, Counter>,
    fences: FenceMetrics,
    discovery: DiscoveryMetrics,
}

impl Metrics {
    /// The metrics of `hub` and of this process.
    pub fn new(
        hub: Arc<Hub>,
        config: &Config,
        version: &str,
        (max_connections, traced): (usize, Arc<Counts>),
        keeper: Option<Arc<EngineKeeper>>,
    ) -> Metrics {
        let mut registry = Registry::default();
        let (accepted, failures) = (Family::default(), Family::default());
        let help = "Connections accepted from the system";
        registry.register("whimbrel_listener_accepted", help, accepted.clone());
        let help = "Connections refused or ended before or below MQTT";
        registry.register("whimbrel_listener_failures", help, failures.clone());
        let fences = FenceMetrics::new(&mut registry);
        let discovery = DiscoveryMetrics::new(&mut registry);
        let build = vec![("name".to_owned(), config.name.clone()), ("version".to_owned(), version.to_owned())];
        let snapshot = Snapshot {
            hub,
            build,
            max_connections,
            traced,
            keeper,
            certificate: config.certificate.clone(),
            started: Instant::now(),
        };
        registry.register_collector(Box::new(snapshot));
        Metrics { registry, accepted, failures, fences, discovery }
    }

    /// Metrics of fences.
    pub fn fences(&self) -> FenceMetrics {
        self.fences.clone()
    }

    /// Metrics of discovery.
    pub fn discovery(&self) -> DiscoveryMetrics {
        self.discovery.clone()
    }

    /// The counters of a listener, all of them present from now on.
    pub fn listener(&self, listener: Listener) -> ListenerMetrics {
        let accepted = self.accepted.get_or_create_owned(&ListenerLabel { listener: listener.name() });
        for cause in Cause::ALL.into_iter().filter(|cause| cause.concerns(listener)) {
            drop(self.failures.get_or_create(&FailureLabels { listener: listener.name(), cause: cause.name() }));
        }
        ListenerMetrics { listener, accepted, failures: self.failures.clone() }
    }

    /// All metrics as text.
    pub fn text(&self, format: Format) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a string takes whatever is written");
        format.of_open_metrics(text)
    }
}

/// Source of the metrics that are read from the broker and the system on request.
struct Snapshot {
    hub: Arc<Hub>,
    build: Vec<(String, String)>,
    max_connections: usize,
    keeper: Option<Arc<EngineKeeper>>,
    traced: Arc<Counts>,
    /// The shown and believed certificates, for the metrics of their ends.
    certificate: Certificate,
    started: Instant,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let account = self.hub.account();
        let Account { stats, filters, partitions, gaps, gappy, .. } = &account;
        let Account { brokers: (known, reachable), overlay, roaming, links, store: journal, .. } = &account;
        for (name, help, read) in broker::COUNTERS {
            put(&mut encoder, name, help, &ConstCounter::new(read(stats)))?;
        }
        for (name, help, read) in broker::GAUGES {
            put(&mut encoder, name, help, &ConstGauge::new(read(stats)))?;
        }
        let opened = Listener::CLIENTS.map(Listener::name).into_iter().zip(stats.connections_opened);
        put_family(
            &mut encoder,
            "whimbrel_connections_opened",
            "Client connections that came to the broker",
            "listener",
            opened,
        )?;
        for (name, help, packet, read) in broker::BY_REASON {
            let counts = broker::by_reason(read(stats), *packet);
            put_family(&mut encoder, name, help, "reason", counts)?;
        }
        selectors::encode(&mut encoder, account.expensive.clone())?;
        cache::encode(&mut encoder, filters, partitions)?;
        cache::encode_gaps(&mut encoder, &stats.core, gaps, gappy)?;
        overlay::encode(&mut encoder, overlay, links)?;
        let help = "Brokers that are known, this one included";
        put(&mut encoder, "whimbrel_brokers_known", help, &ConstGauge::new(*known))?;
        let help = "Brokers to which there is a way, this one included";
        put(&mut encoder, "whimbrel_brokers_reachable", help, &ConstGauge::new(*reachable))?;
        let help = "Other brokers whose configurations have other topic profiles than this one's";
        let differing = ConstGauge::new(account.differing_profiles);
        put(&mut encoder, "whimbrel_topic_profiles_differing", help, &differing)?;
        punctuality::encode(&mut encoder, &account.punctualities)?;
        for (name, help, read) in overlay::ROAMING {
            put(&mut encoder, name, help, &ConstGauge::new(read(roaming)))?;
        }
        if let Some(counts) = self.hub.access() {
            access::encode(&mut encoder, counts)?;
        }
        let commits = account.latency.clone().unwrap_or_else(commit_latency);
        journal::encode(&mut encoder, journal, &commits, account.congested)?;
        let engine = self.keeper.as_ref().map(|keeper| keeper.account()).unwrap_or_default();
        engine::encode(&mut encoder, &engine, journal.overdue)?;
        latency::encode(&mut encoder, &account.latencies, links)?;
        links::encode(&mut encoder, &self.hub.overlay_account(), &self.hub.peers())?;
        traces::encode(&mut encoder, &self.traced)?;
        self.encode_certificates(&mut encoder)?;
        self.encode_clock(&mut encoder)?;
        self.encode_process(&mut encoder)
    }
}

impl Snapshot {
    fn encode_certificates(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "When a certificate from a file ends, the first of its chain to do so, in seconds since 1970";
        let name = "whimbrel_tls_certificate_not_after_seconds";
        let kind = ConstGauge::new(0i64).metric_type();
        let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
        for (which, at) in self.certificate.not_after() {
            ConstGauge::new(at).encode(metric.encode_family(&[("certificate", which)])?)?;
        }
        Ok(())
    }

    fn encode_clock(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let (offset, refused) = self.hub.clock().numbers();
        put(
            encoder,
            "whimbrel_clock_offset_seconds",
            "How far the system's clock was ahead of the broker's when it was looked at last",
            &ConstGauge::new(offset),
        )?;
        let help = "Steps of the system's clock by more than a minute forward that were not followed at once";
        put(encoder, "whimbrel_clock_steps_refused", help, &ConstCounter::new(refused))
    }

    fn encode_process(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let gauge = |value: u64| ConstGauge::new(value);
        put(
            encoder,
            "whimbrel_connections_max",
            "Client connections that are allowed at once",
            &gauge(self.max_connections as u64),
        )?;
        let uptime = ConstGauge::new(self.started.elapsed().as_secs_f64());
        put(encoder, "whimbrel_uptime_seconds", "Time since the start", &uptime)?;
        let build = prometheus_client::metrics::info::Info::new(self.build.clone());
        put(encoder, "whimbrel_build", "The broker's name and version", &build)?;
        let cpu = ConstCounter::new(process::cpu_seconds());
        put(encoder, "process_cpu_seconds", "User and system CPU time used, in seconds", &cpu)?;
        if let Some(bytes) = process::resident_bytes() {
            put(encoder, "process_resident_memory_bytes", "Resident memory, in bytes", &gauge(bytes))?;
        }
        if let Some(files) = process::open_files() {
            put(encoder, "process_open_fds", "Open files", &gauge(files))?;
        }
        put(encoder, "process_max_fds", "Open files that are allowed", &gauge(process::file_limit()))
    }
}
