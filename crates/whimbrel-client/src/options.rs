//! Options of a connection.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use whimbrel_mqtt::codec::Version;

use crate::{Publish, Session, Tap};

/// The certificates that are trusted over TLS.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// Certificates signed by an authority that the system trusts.
    #[default]
    System,
    /// Certificates signed by an authority in this PEM file.
    Authority(String),
    /// Any certificate: for development, with self-signed certificates of brokers.
    Insecure,
    /// A configuration read before ([`crate::tls_config`]), the own certificate included: for many
    /// connections.
    Prepared(Arc<ClientConfig>),
}

/// The certificate by which the broker identifies this client.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The PEM file of the certificate and those between it and its authority.
    pub certificate: String,
    /// The PEM file of its private key.
    pub key: String,
}

/// A message that the broker publishes when this client ends without DISCONNECT.
#[derive(Clone, Debug)]
pub struct Will {
    pub(crate) message: Publish,
    pub(crate) delay: Option<u32>,
}

impl Will {
    /// Publishes this message, without delay.
    pub fn new(message: Publish) -> Will {
        Will { message, delay: None }
    }

    /// Seconds that the broker waits for the session to be resumed (MQTT 5).
    pub fn delay(mut self, seconds: u32) -> Will {
        self.delay = Some(seconds);
        self
    }
}

/// Address, identity and limits of a connection.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) address: String,
    pub(crate) version: Version,
    pub(crate) client_id: String,
    pub(crate) clean_start: bool,
    pub(crate) session_expiry: u32,
    pub(crate) keep_alive: Duration,
    pub(crate) receive_maximum: u16,
    pub(crate) topic_alias_maximum: u16,
    pub(crate) max_packet_size: u32,
    pub(crate) user: Option<(String, Vec<u8>)>,
    pub(crate) will: Option<Will>,
    pub(crate) tls: Tls,
    pub(crate) identity: Option<Identity>,
    pub(crate) timeout: Duration,
    pub(crate) session: Session,
    pub(crate) has_names: bool,
    pub(crate) tap: Option<Arc<dyn Tap>>,
}

impl Options {
    /// Options for a broker at `mqtt://HOST:PORT`, `mqtts://HOST:PORT` (TLS),
    /// `ws://HOST:PORT/PATH`, `wss://HOST:PORT/PATH` (WebSocket), or `HOST:PORT`: MQTT 5, a clean
    /// start, a client id that the broker chooses, 60 s of keep-alive.
    pub fn new(address: impl Into<String>) -> Options {
        Options {
            address: address.into(),
            version: Version::V5,
            client_id: String::new(),
            clean_start: true,
            session_expiry: 0,
            keep_alive: Duration::from_secs(60),
            receive_maximum: 1024,
            topic_alias_maximum: 64,
            max_packet_size: 256 << 20,
            user: None,
            will: None,
            tls: Tls::System,
            identity: None,
            timeout: Duration::from_secs(10),
            session: Session::new(),
            has_names: false,
            tap: None,
        }
    }

    /// The protocol version.
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// The client id, under which the broker keeps sessions.
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// Whether to begin with a new session (in MQTT 3.1.1 the session then also ends with the
    /// connection).
    pub fn clean_start(mut self, clean_start: bool) -> Self {
        self.clean_start = clean_start;
        self
    }

    /// Seconds for which the broker keeps the session after the connection; `u32::MAX`: as long as
    /// its configuration permits (MQTT 5).
    pub fn session_expiry(mut self, seconds: u32) -> Self {
        self.session_expiry = seconds;
        self
    }

    /// Time without a packet after which this side pings the broker; whole seconds, at most 65,535;
    /// 0: it never does.
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// QoS 1 and 2 messages that the broker may have unacknowledged on this connection, at least 1
    /// (MQTT 5).
    pub fn receive_maximum(mut self, messages: u16) -> Self {
        self.receive_maximum = messages.max(1);
        self
    }

    /// Topic aliases that the broker may set (MQTT 5).
    pub fn topic_alias_maximum(mut self, aliases: u16) -> Self {
        self.topic_alias_maximum = aliases;
        self
    }

    /// The largest packet to accept, bytes.
    pub fn max_packet_size(mut self, bytes: u32) -> Self {
        self.max_packet_size = bytes.max(1);
        self
    }

    /// User name and password.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<Vec<u8>>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// The message that the broker publishes when this client ends without DISCONNECT.
    pub fn will(mut self, will: Will) -> Self {
        self.will = Some(will);
        self
    }

    /// The certificates that are trusted over TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Shows a certificate over TLS: PEM files of the chain and of its private key.
    pub fn certificate(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.identity = Some(Identity { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Time limit for connecting, and for each answer of the broker.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Resumes the state that an earlier connection left ([`crate::Client::session`]).
    pub fn session(mut self, session: Session) -> Self {
        self.session = session;
        self
    }

    /// The broker has the session from an earlier process, which has asked for event ids with a
    /// subscription: they are read ([`crate::Message::id`]) before this process subscribes, too.
    pub fn has_names(mut self) -> Self {
        self.has_names = true;
        self
    }

    /// Shows the bytes of the connection to a tap.
    pub fn tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }
}
