//! One connection's state.

use core::time::Duration;

use hashbrown::HashTable;
use whimbrel_access::Principal;
use whimbrel_event::{Seeded, Time};

use super::clients::{Traffic, Wire};
use super::guard::ConnIdentity;
use crate::codec::{ReasonCode, Version};

/// Over which kind of listener a connection came.
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
    /// All of them, in the order of [`crate::Stats::connections_opened`].
    pub const ALL: [Origin; 4] = [Origin::Tcp, Origin::Tls, Origin::Ws, Origin::Wss];
}

/// What a connection may do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// There is no such connection, or the edge has let go of it.
    Gone,
    /// The first packet must be CONNECT.
    ExpectConnect,
    /// Its CONNECT is understood, and it is being found out who sent it: nothing of it is read
    /// until that is known.
    Identifying,
    /// Its CONNECT is understood, and its session may be at another broker: nothing of it is read
    /// until that is known.
    Awaiting,
    /// It is attached to a session.
    Attached,
}

impl State {
    /// Whether its CONNECT is understood, and not answered yet.
    pub(crate) const fn is_waiting(self) -> bool {
        matches!(self, State::Identifying | State::Awaiting)
    }
}

/// What few connections use.
#[derive(Debug, Default)]
pub(crate) struct RareConn {
    /// Topics that the client has given an alias; alias 1 comes first.
    pub(crate) aliases_in: Vec<Option<Box<str>>>,
    /// Topics that the broker has given an alias on this connection.
    pub(crate) aliases_out: AliasesOut,
    /// The driver does not read it for now: its silence says nothing.
    pub(crate) paused: bool,
    /// Nor any more: the broker takes leave of it as soon as it has its answers.
    pub(crate) leaving: bool,
    /// Nor until this, when it ends: a publish of it was refused without an answer.
    pub(crate) ends_at: Option<Time>,
    /// Its publishes that were refused.
    pub(crate) refused: Option<Box<super::RefusedPublishes>>,
    /// Nor before this, as its principal's quota is used up.
    pub(crate) throttled: Option<Time>,
    /// QoS 2 publishes of earlier connections that were unreleased when this one began.
    pub(crate) carried: usize,
    /// The client is a bridge of another broker: it gets nothing back that it has published, and
    /// retain marks as published.
    pub(crate) bridge: bool,
    /// Whose certificate it has shown.
    pub(crate) certified: Option<Principal>,
    /// Its CONNECT, while it is found out who sent it, and the ticket that was given for that.
    pub(crate) asked: Option<Box<(u64, Box<[u8]>)>>,
    /// SUBSCRIBEs of which some filters are refused and others not answered yet.
    pub(crate) denied: Vec<(u16, Box<[Option<ReasonCode>]>)>,
    /// It has ended, and what it has sent is handled once it has its session.
    pub(crate) ended: bool,
    /// It is to be read to its end before the broker takes leave of it.
    pub(crate) unread: bool,
    /// It seems to be silent: whether that is so is known when it has been read to its end.
    pub(crate) listening: bool,
    /// What the CONNACK tells beside success, while it is awaited.
    pub(crate) greeting: Option<Box<super::Greeting>>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: State,
    pub(crate) version: Version,
    /// A CONNECT of a known version has come: a refusal can be told.
    pub(crate) asked: bool,
    /// Reason strings and user properties are welcome in all packets.
    pub(crate) problem_information: bool,
    /// It is in the list of connections with output.
    pub(crate) dirty: bool,
    /// It is told to the driver that the connection closes after its output.
    pub(crate) closing: bool,
    /// Its output is kept back.
    pub(crate) corked: bool,
    /// The core waits for room.
    pub(crate) full: bool,
    /// A publish of it was refused without an answer: until it ends nothing that it asks for is
    /// taken or acknowledged. What it says of deliveries counts, and so does its DISCONNECT.
    pub(crate) deaf: bool,
    /// An incomplete packet.
    pub(crate) partial: Vec<u8>,
    pub(crate) wire: Wire,
    /// Output of the present step.
    pub(crate) pending: Vec<u8>,
    /// How long `pending` may grow before no more is delivered in this step.
    pub(crate) room: usize,
    /// The largest packet that the client accepts.
    pub(crate) max_packet: u32,
    /// Silence that ends the connection; zero: none does.
    pub(crate) patience: Duration,
    pub(crate) last_heard: Time,
    /// When its timer is set to.
    pub(crate) timer: Option<Time>,
    /// The expiry that CONNECT asked for was zero: DISCONNECT may not change it.
    pub(crate) expiry_zero: bool,
    pub(crate) topic_alias_maximum: u16,
    pub(crate) rare: Option<Box<RareConn>>,
    /// Who it is and what it may; nobody asks where everything is allowed.
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

    /// Whether what it sends is handled.
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

    /// So many were.
    pub(crate) fn carry(&mut self, carried: usize) {
        if carried != self.carried() {
            self.rare().carried = carried;
        }
    }

    pub(crate) fn rare(&mut self) -> &mut RareConn {
        self.rare.get_or_insert_default()
    }
}

/// Aliases for the first topics that a connection delivers; when all are given away, further topics
/// go in full.
#[derive(Debug, Default)]
pub(crate) struct AliasesOut {
    topics: Vec<Box<str>>,
    by_topic: HashTable<u16>,
}

/// How a topic goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aliased {
    /// In full.
    No,
    /// In full, and from now on it has this alias.
    New(u16),
    /// As this alias alone.
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

    /// Notes that the topic has been sent with the next alias.
    pub(crate) fn add(&mut self, topic: &str, hasher: &Seeded) {
        let topics = &mut self.topics;
        topics.push(topic.into());
        let rehash = |&at: &u16| hasher.hash_one(&*topics[at as usize]);
        self.by_topic.insert_unique(hasher.hash_one(topic), topics.len() as u16 - 1, rehash);
    }

    /// Takes the newest alias back: the packet that was to introduce it could not be sent.
    pub(crate) fn forget_last(&mut self, hasher: &Seeded) {
        if let Some(topic) = self.topics.pop() {
            let last = self.topics.len() as u16;
            if let Ok(entry) = self.by_topic.find_entry(hasher.hash_one(&*topic), |&at| at == last) {
                entry.remove();
            }
        }
    }
}
