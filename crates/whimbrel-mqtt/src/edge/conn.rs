//! The state of one connection.

use core::time::Duration;

use hashbrown::HashTable;
use whimbrel_access::Principal;
use whimbrel_event::{Seeded, Time};

use super::clients::{Traffic, Wire};
use super::guard::ConnIdentity;
use crate::codec::{ReasonCode, Version};

/// The kind of listener that a connection came over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Origin {
    /// Plain TCP.
    Tcp,
    /// TLS.
    Tls,
    /// WebSocket.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

impl Origin {
    /// All kinds, in the order of [`crate::Stats::connections_opened`].
    pub const ALL: [Origin; 4] = [Origin::Tcp, Origin::Tls, Origin::Ws, Origin::Wss];
}

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// There is no such connection, or it has been released.
    Gone,
    /// The first packet must be CONNECT.
    ExpectConnect,
    /// The CONNECT is understood, and the client is being identified: until then no packet is
    /// handled.
    Identifying,
    /// The CONNECT is understood, and the session may be at another broker: until that is known no
    /// packet is handled.
    Awaiting,
    /// The connection is attached to a session.
    Attached,
}

impl State {
    /// Whether the CONNECT is understood, and not answered yet.
    pub(crate) const fn is_waiting(self) -> bool {
        matches!(self, State::Identifying | State::Awaiting)
    }
}

/// State that few connections need.
#[derive(Debug, Default)]
pub(crate) struct RareConn {
    /// Topics by the client's aliases; alias 1 comes first.
    pub(crate) aliases_in: Vec<Option<Box<str>>>,
    /// Topics to which the broker has given an alias on this connection.
    pub(crate) aliases_out: AliasesOut,
    /// The driver does not read it for now: a lack of packets does not mean silence.
    pub(crate) paused: bool,
    /// Not read any more: the broker disconnects it as soon as it has its answers.
    pub(crate) leaving: bool,
    /// Not read until this time, at which it ends: a publish was refused without an answer.
    pub(crate) ends_at: Option<Time>,
    /// The connection's refused publishes.
    pub(crate) refused: Option<Box<super::RefusedPublishes>>,
    /// Not read before this time, because its principal's quota is used up.
    pub(crate) throttled: Option<Time>,
    /// QoS 2 publishes of earlier connections that were unreleased when this one began.
    pub(crate) carried: usize,
    /// The client is a bridge of another broker: it does not get its own publishes, and retain
    /// flags are kept as published.
    pub(crate) bridge: bool,
    /// The principal of the certificate that it has shown.
    pub(crate) certified: Option<Principal>,
    /// The ticket of the question, and its CONNECT, while the client is being identified.
    pub(crate) asked: Option<Box<(u64, Box<[u8]>)>>,
    /// SUBSCRIBEs of which some filters are refused and others not answered yet.
    pub(crate) denied: Vec<(u16, Box<[Option<ReasonCode>]>)>,
    /// The connection has ended; its last packets are handled once it has its session.
    pub(crate) ended: bool,
    /// The connection is to be read to its end before the broker disconnects it.
    pub(crate) unread: bool,
    /// The connection seems to be silent: whether it is, is known when it has been read to its end.
    pub(crate) listening: bool,
    /// Contents of the CONNACK beside success, while the session is awaited.
    pub(crate) greeting: Option<Box<super::Greeting>>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: State,
    pub(crate) version: Version,
    /// A CONNECT of a known version has arrived: a refusal can be answered.
    pub(crate) asked: bool,
    /// Reason strings and user properties are accepted in all packets.
    pub(crate) problem_information: bool,
    /// The connection is in the list of connections with output.
    pub(crate) dirty: bool,
    /// The driver is told to close the connection after its output.
    pub(crate) closing: bool,
    /// Output is held back.
    pub(crate) corked: bool,
    /// The core waits until the output has room.
    pub(crate) full: bool,
    /// A publish was refused without an answer: until the connection ends, its requests are neither
    /// accepted nor acknowledged. Its acknowledgements of deliveries count, and so does its
    /// DISCONNECT.
    pub(crate) deaf: bool,
    /// An incomplete packet.
    pub(crate) partial: Vec<u8>,
    pub(crate) wire: Wire,
    /// Output of the current step.
    pub(crate) pending: Vec<u8>,
    /// Bytes that `pending` may reach before no more is delivered in this step.
    pub(crate) room: usize,
    /// The largest packet that the client accepts.
    pub(crate) max_packet: u32,
    /// The time without any byte received after which the connection ends; zero: no limit.
    pub(crate) patience: Duration,
    pub(crate) last_heard: Time,
    /// The time to which its timer is set.
    pub(crate) timer: Option<Time>,
    /// The expiry that CONNECT asked for was zero: DISCONNECT may not change it.
    pub(crate) expiry_zero: bool,
    pub(crate) topic_alias_maximum: u16,
    pub(crate) rare: Option<Box<RareConn>>,
    /// Identity and permissions; `None` where every client may do everything.
    pub(crate) who: Option<Box<ConnIdentity>>,
}

impl Conn {
    pub(crate) fn new(now: Time, origin: Origin) -> Self {
        Conn {
            state: State::ExpectConnect,
            version: Version::V5,
            asked: false,
            problem_information: true,
            dirty: false,
            closing: false,
            corked: false,
            full: false,
            deaf: false,
            partial: Vec::new(),
            wire: Wire { origin, since: now, traffic: Traffic::default(), unread: 0 },
            pending: Vec::new(),
            room: 0,
            max_packet: u32::MAX,
            patience: Duration::ZERO,
            last_heard: now,
            timer: None,
            expiry_zero: true,
            topic_alias_maximum: 0,
            rare: None,
            who: None,
        }
    }

    /// Whether packets of the connection are handled.
    pub(crate) fn is_heard(&self) -> bool {
        self.state != State::Gone
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.deaf || self.rare.as_ref().is_some_and(|rare| rare.paused || rare.leaving || rare.throttled.is_some())
    }

    /// QoS 2 publishes of earlier connections that were unreleased when this one began.
    pub(crate) fn carried(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.carried)
    }

    /// Sets the number of these.
    pub(crate) fn carry(&mut self, carried: usize) {
        if carried != self.carried() {
            self.rare().carried = carried;
        }
    }

    pub(crate) fn rare(&mut self) -> &mut RareConn {
        self.rare.get_or_insert_default()
    }
}

/// Aliases for the first topics that a connection delivers; when the client's maximum is reached,
/// further topics are sent in full.
#[derive(Debug, Default)]
pub(crate) struct AliasesOut {
    topics: Vec<Box<str>>,
    by_topic: HashTable<u16>,
}

/// The encoding of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aliased {
    /// In full.
    No,
    /// In full, and from now on it has this alias.
    New(u16),
    /// By this alias only.
    Known(u16),
}

impl AliasesOut {
    pub(crate) fn find(&self, topic: &str, maximum: u16, hasher: &Seeded) -> Aliased {
        let known = self.by_topic.find(hasher.hash_one(topic), |&at| &*self.topics[at as usize] == topic);
        match known {
            Some(&at) => Aliased::Known(at + 1),
            None if self.topics.len() < maximum as usize => Aliased::New(self.topics.len() as u16 + 1),
            None => Aliased::No,
        }
    }

    /// Records that the topic has been sent with the next alias.
    pub(crate) fn add(&mut self, topic: &str, hasher: &Seeded) {
        let topics = &mut self.topics;
        topics.push(topic.into());
        let rehash = |&at: &u16| hasher.hash_one(&*topics[at as usize]);
        self.by_topic.insert_unique(hasher.hash_one(topic), topics.len() as u16 - 1, rehash);
    }

    /// Removes the newest alias: the packet that introduced it could not be sent.
    pub(crate) fn forget_last(&mut self, hasher: &Seeded) {
        if let Some(topic) = self.topics.pop() {
            let last = self.topics.len() as u16;
            if let Ok(entry) = self.by_topic.find_entry(hasher.hash_one(&*topic), |&at| at == last) {
                entry.remove();
            }
        }
    }
}
