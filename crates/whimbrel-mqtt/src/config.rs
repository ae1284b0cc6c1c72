//! Limits and settings of an operator, and their defaults.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use whimbrel_access::{Principal, Quota, Rules};

/// Unsent bytes of a connection at the driver above which its client gets no more deliveries.
pub const HIGH_WATER: usize = 256 << 10;

/// Unsent bytes of a connection at or below which the driver reports that it has drained.
pub const LOW_WATER: usize = 64 << 10;

/// Bytes of answers (acknowledgements, ping responses) for a client that has more than
/// [`HIGH_WATER`] unsent: at this amount the client is disconnected, because it goes on asking
/// without reading.
pub const ANSWERS_MAX: usize = 1 << 20;

/// Bytes kept of what a client sends before its CONNECT is answered; the answer takes a while if
/// the session is at another broker. What drivers have read already when they are asked to pause
/// fits between [`AHEAD_ENOUGH`] and this.
pub const AHEAD_MAX: usize = 256 << 10;

/// Above this many bytes sent ahead, drivers are asked to pause reading. Below it they read on, so
/// that the end of a waiting connection is noticed.
pub const AHEAD_ENOUGH: usize = 64 << 10;

/// Connections that have ended while they waited for their sessions, and whose last packets are
/// still to be handled. Beyond this number such packets are dropped, as if the connection had ended
/// a moment before: each holds up to [`AHEAD_MAX`] bytes.
pub const ENDED_WAITING_MAX: usize = 256;

/// Bytes that a driver reads at most of a connection's sent data, when [`crate::Output::read_out`]
/// asks for it.
pub const READ_OUT_BYTES: usize = 64 << 10;

/// Time limit for reading a connection that seems silent to its end, before it is ended for its
/// silence.
pub const LISTEN_MAX: Duration = Duration::from_secs(1);

/// A connection whose session was not found for this time is refused, even if the core never
/// reports it.
pub const AWAIT_MAX: Duration = Duration::from_secs(5);

/// A connection whose client was not identified for this time is refused, even if the driver never
/// answers.
pub const IDENTIFY_MAX: Duration = Duration::from_secs(10);

/// The longest time for which a broker that is about to end waits for pending answers to its
/// clients, before it disconnects them: several commits of a slow disk.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The time for which a connection of MQTT 3.1.1 is not read after the refusal of a publish that
/// may be accepted later, such as when the log is full. Then it ends without an acknowledgement,
/// and its client sends the publish again. It ends sooner when there is room again.
pub const REFUSED_UNREAD: Duration = Duration::from_secs(10);

/// Incomplete packets up to this size, in bytes, are held for every connection.
pub const PARTIAL_FREE: usize = 16 << 10;

/// Bounds of the protocol's edge.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Unreleased QoS 2 publishes of one client; announced as Receive Maximum. At least 1.
    pub receive_maximum: u16,
    /// The largest packet that is accepted, bytes, header included; announced as Maximum Packet
    /// Size.
    pub max_packet_size: u32,
    /// Bytes of incomplete packets over all connections, those of at most [`PARTIAL_FREE`] not
    /// counted. When it is reached, the client with the largest is disconnected (0x97).
    pub partial_bytes: usize,
    /// Topic aliases that a client may set; announced as Topic Alias Maximum.
    pub topic_alias_maximum: u16,
    /// Topic aliases that the broker sets at most, even if the client offers more.
    pub topic_alias_out_maximum: u16,
    /// The longest keep-alive, seconds: a longer one, or none, is replaced for MQTT 5 clients. 0:
    /// no bound.
    pub keep_alive_max: u16,
    /// Time in which a connection has to send its CONNECT.
    pub connect_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            receive_maximum: 1024,
            max_packet_size: 16 << 20,
            partial_bytes: 256 << 20,
            topic_alias_maximum: 256,
            topic_alias_out_maximum: 256,
            keep_alive_max: 0,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// Permissions and quotas at this broker.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The rules. By default they allow nothing.
    pub rules: Arc<Rules>,
    /// The quotas; valid by [`whimbrel_access::Meter::check`].
    pub quotas: Arc<[Quota]>,
    /// Whether user names and passwords can be checked: [`crate::Output::identify`] is answered.
    pub judges: bool,
    /// Principals that can be identified by a password.
    pub users: Arc<BTreeSet<Principal>>,
    /// Marks of the keys whose tokens are accepted, as in [`crate::Identity::by_token`].
    pub keys: BTreeSet<u64>,
    /// Whether a client is disconnected when it publishes what no rule allows. Otherwise the
    /// acknowledgement says so if the protocol version can, and the publish is acknowledged if not.
    pub disconnects_denied: bool,
}

impl Access {
    /// Every client may do everything.
    pub fn everything() -> Access {
        Access { rules: Arc::new(Rules::everything()), ..Access::default() }
    }
}

/// Configuration of a [`crate::MqttBroker`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The broker's name, told under `$SYS`.
    pub name: String,
    /// The software's version, told under `$SYS`.
    pub version: String,
    /// Bounds of the edge.
    pub limits: Limits,
    /// Bounds of the core.
    pub core: whimbrel_core::Limits,
    /// Permissions and quotas.
    pub access: Access,
    /// The interval at which `$SYS` is updated; `None`: never.
    pub sys_interval: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            name: "whimbrel".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            limits: Limits::default(),
            core: whimbrel_core::Limits::default(),
            access: Access::everything(),
            sys_interval: Some(Duration::from_secs(10)),
        }
    }
}
