//! What an operator may set, and its defaults.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use whimbrel_access::{Principal, Quota, Rules};

/// While a driver has more unsent bytes of a connection than this, its client gets no more
/// deliveries.
pub const HIGH_WATER: usize = 256 << 10;

/// A driver tells that a connection has drained when no more than this is unsent.
pub const LOW_WATER: usize = 64 << 10;

/// Answers (acknowledgements, ping responses) to a client with more than [`HIGH_WATER`] unsent, in
/// bytes: a client that asks on and on without reading is disconnected when so many have come
/// together.
pub const ANSWERS_MAX: usize = 1 << 20;

/// Bytes that are kept of what a client sends before its CONNECT is answered, which may take a
/// moment where its session comes from another broker: what drivers have read when they are asked
/// to read no more finds room behind [`AHEAD_ENOUGH`].
pub const AHEAD_MAX: usize = 256 << 10;

/// With more than so many of these bytes drivers are asked to read no more for now. With less they
/// read on, so that the end of a connection that waits is noticed.
pub const AHEAD_ENOUGH: usize = 64 << 10;

/// Connections that have ended while they waited for their sessions, and whose last packets are
/// still to be handled. Of more than that those packets are dropped, as if the connection had ended
/// a moment before: each holds up to [`AHEAD_MAX`] bytes.
pub const ENDED_WAITING_MAX: usize = 256;

/// Bytes that a driver reads at most of what a connection has already sent, when
/// [`crate::Output::read_out`] asks for it.
pub const READ_OUT_BYTES: usize = 64 << 10;

/// How long a connection that seems to be silent may take to be read to its end before it is ended
/// for that.
pub const LISTEN_MAX: Duration = Duration::from_secs(1);

/// A connection whose session was not found for so long is refused, also if the core should never
/// say so.
pub const AWAIT_MAX: Duration = Duration::from_secs(5);

/// A connection of which it was not found out who it is for so long is refused, also if the driver
/// should never say so.
pub const IDENTIFY_MAX: Duration = Duration::from_secs(10);

/// How long a broker that is about to end waits at most for the answers that its clients are owed,
/// before it tells them to go: several commits of a slow disk.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// How long a connection of MQTT 3.1.1 is not read after a publish was refused that may be accepted
/// later, as when the log is full: it then ends, without an acknowledgement, and its client sends
/// the publish again. It ends sooner when there is room again.
pub const REFUSED_UNREAD: Duration = Duration::from_secs(10);

/// Incomplete packets up to this size, in bytes, are held for every connection.
pub const PARTIAL_FREE: usize = 16 << 10;

/// Bounds of the protocol's edge.
#[derive(Clone, Debug)]
pub struct Limits {
    /// QoS 2 publishes that one client may have unreleased; announced to it as Receive Maximum. At
    /// least 1.
    pub receive_maximum: u16,
    /// The largest packet that is accepted, bytes, header included; announced as Maximum Packet
    /// Size.
    pub max_packet_size: u32,
    /// Bytes of incomplete packets over all connections, those of at most [`PARTIAL_FREE`] not
    /// counted. When it is reached, the client with the largest is disconnected (0x97).
    pub partial_bytes: usize,
    /// Topic aliases that a client may set; announced as Topic Alias Maximum.
    pub topic_alias_maximum: u16,
    /// Topic aliases that the broker sets at most, whatever the client offers.
    pub topic_alias_out_maximum: u16,
    /// The longest keep-alive, seconds: a longer one, or none, is replaced for MQTT 5 clients. 0:
    /// no bound.
    pub keep_alive_max: u16,
    /// How long a connection may take to send its CONNECT.
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

/// Who may do what at this broker.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// What is allowed. By default nothing is.
    pub rules: Arc<Rules>,
    /// How much of it; sound, as [`whimbrel_access::Meter::check`] says.
    pub quotas: Arc<[Quota]>,
    /// Whether user names and passwords can be judged: [`crate::Output::identify`] is answered.
    pub judges: bool,
    /// Those who can be known by a password.
    pub users: Arc<BTreeSet<Principal>>,
    /// The marks of the keys by which tokens are believed, as of [`crate::Identity::by_token`].
    pub keys: BTreeSet<u64>,
    /// A client that publishes what no rule allows is disconnected; otherwise it is told so where
    /// its version of the protocol can say it, and acknowledged where not.
    pub disconnects_denied: bool,
}

impl Access {
    /// Everything is allowed to everybody.
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
    /// Who may do what.
    pub access: Access,
    /// How often `$SYS` is brought up to date; `None`: never.
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
