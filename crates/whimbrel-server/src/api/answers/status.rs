//! Answers about a broker: its state now, and its numbers over the last half hour.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A broker at this moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The broker's clock.
    pub now_ms: u64,
    /// When its process began to serve, by the same clock.
    pub started_ms: u64,
    /// Its name.
    pub name: String,
    /// The version of its program.
    pub version: String,
    /// Its host: the number that its streams bear.
    pub host: String,
    /// Its life: greater after each start. Missing without an overlay.
    pub incarnation: Option<u64>,
    /// The deployment that it belongs to.
    pub deployment: String,
    /// `starting`, `ready` or `draining`.
    pub phase: String,
    /// It was started with `--dev`: everybody may do everything.
    pub dev: bool,
    /// What it listens on.
    pub listeners: Listeners,
    /// The latitude of where it is, degrees of WGS 84, if its configuration tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lat: Option<f64>,
    /// The longitude of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lon: Option<f64>,
    /// Connections of clients.
    pub connections: u64,
    /// Sessions, those of absent clients included.
    pub sessions: u64,
    /// Subscriptions, members of shared ones included.
    pub subscriptions: u64,
    /// Brokers to which there is a way, this one included.
    pub brokers_reachable: u64,
    /// Brokers that are known, this one included.
    pub brokers_known: u64,
    /// The peers of the configuration and those found in the local network, by their addresses.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// What has happened since the start.
    pub counters: Counters,
}

/// A peer of the configuration (`overlay.peers`, `--peer`), or one that was found (`discover`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// `HOST:PORT`, as it was configured or found.
    pub address: String,
    /// It was found in the local network, and the configuration does not have it.
    #[serde(default)]
    pub found: bool,
    /// There is a link to its broker, by this address or another one.
    pub reached: bool,
    /// For how long it is reached, or is not.
    pub for_ms: u64,
    /// Why it is not reached; missing if it is, or was not tried yet.
    pub error: Option<String>,
}

/// Addresses that a broker listens on, as `ADDRESS:PORT`; those that are closed are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listeners {
    /// MQTT over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub mqtt: Option<SocketAddr>,
    /// MQTT over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub tls: Option<SocketAddr>,
    /// MQTT over WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ws: Option<SocketAddr>,
    /// MQTT over WebSocket with TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub wss: Option<SocketAddr>,
    /// This API, the console, metrics, health, and MQTT over WebSocket at `/mqtt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub http: Option<SocketAddr>,
    /// HTTP is within TLS: https and wss.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub http_tls: bool,
    /// Other brokers, over QUIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub overlay: Option<SocketAddr>,
}

/// What has happened since the start of the process, but for `memory_bytes` and `journal_bytes`,
/// which are of this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Events of clients that got their id here.
    pub events_accepted: u64,
    /// Events that were given to the journal.
    pub events_logged: u64,
    /// Deliveries to clients.
    pub deliveries: u64,
    /// Bytes of MQTT received.
    pub bytes_in: u64,
    /// Bytes of MQTT handed to connections.
    pub bytes_out: u64,
    /// MQTT packets received.
    pub packets_in: u64,
    /// MQTT packets sent.
    pub packets_out: u64,
    /// CONNECTs, publishes and subscriptions that were refused.
    pub refused: u64,
    /// What subscribers did not get.
    pub lost: Lost,
    /// Gaps that subscribers were told of, for whatever reason, but those of best effort.
    pub gaps: u64,
    /// Gaps of streams of best effort, of which nothing is promised.
    #[serde(default)]
    pub gaps_best_effort: u64,
    /// Bytes of frames of other brokers, over all links since the start.
    pub overlay_bytes_in: u64,
    /// Bytes of frames to other brokers, over all links since the start.
    pub overlay_bytes_out: u64,
    /// CPU time that the process has used.
    pub cpu_ms: u64,
    /// Memory of the process that is resident.
    pub memory_bytes: u64,
    /// Bytes of the journal's files.
    pub journal_bytes: u64,
}

/// What subscribers did not get, by the kind of promise that they had. A gap counts once, however
/// many events may have been in it; one that only says that a client named no position is in none
/// of these, nor one of best effort, of which nothing was promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// Deliveries that were dropped because a client read too slowly or its queue was full, and
    /// gaps of subscriptions that have only notices.
    pub nondurable: u64,
    /// Gaps of semi-durable subscriptions.
    pub semi_durable: u64,
    /// Gaps of durable subscriptions.
    pub durable: u64,
}

/// A broker at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// When.
    pub at_ms: u64,
    /// Connections of clients.
    pub connections: u64,
    /// Sessions, those of absent clients included.
    pub sessions: u64,
    /// What had happened up to then since the start.
    pub counters: Counters,
}

/// What a broker was like lately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The broker's clock.
    pub now_ms: u64,
    /// How far these samples are apart.
    pub every_ms: u64,
    /// Oldest first.
    pub samples: Vec<Sample>,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhoAmI {
    /// The name under which the request was accepted.
    pub principal: String,
    /// What it may do: `observe`, `administer`, or nothing of these.
    pub may: Vec<String>,
    /// Everybody may do everything here.
    pub dev: bool,
    /// The broker that was asked.
    #[serde(default)]
    pub broker: String,
    /// The deployment that it belongs to.
    #[serde(default)]
    pub deployment: String,
    /// Where it takes MQTT over WebSocket: `ws` and `wss`; the others are left out.
    #[serde(default)]
    pub listeners: Listeners,
}

/// A drain has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Draining {
    /// Connections that are told to go.
    pub connections: u64,
}

/// The configuration was read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// Something else is in force now.
    pub changed: bool,
}
