//! A broker in virtual time and the clients of a test. Whatever the broker sends is checked against
//! what holds always: packets are well-formed, no larger than the client allows, and use no topic
//! alias that the client did not offer.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_core::cache::Plan;
use whimbrel_mqtt::{Config, ConnId, Origin, Stats};
use whimbrel_sim::rig::Rig;

use crate::wire::{self, Connect, Encode, Message, Packet, Subscribe, V5, property};

/// A configuration without `$SYS` messages.
pub fn quiet() -> Config {
    Config { sys_interval: None, ..Config::default() }
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What a client has told about itself, and what it has read.
struct Client {
    version: u8,
    maximum_packet_size: usize,
    topic_alias_maximum: u32,
    aliases: BTreeMap<u32, String>,
    /// How many of the received bytes have been taken as packets.
    taken: usize,
}

/// Of all randomness of the broker.
const SEED: u64 = 5;

/// The broker and its clients.
pub struct World {
    rig: Rig,
    clients: BTreeMap<ConnId, Client>,
}

impl World {
    pub fn new() -> Self {
        World::with(quiet())
    }

    pub fn with(config: Config) -> Self {
        World { rig: Rig::new(config, SEED), clients: BTreeMap::new() }
    }

    /// A broker with other randomness: another one, with streams of its own.
    pub fn seeded(seed: u64) -> Self {
        World { rig: Rig::new(quiet(), seed), clients: BTreeMap::new() }
    }

    /// Divides the cache anew.
    pub fn divide(&mut self, plan: &Plan) {
        self.rig.divide(plan);
    }

    /// The clients with most gaps.
    pub fn gappy_clients(&self) -> Vec<(String, u64)> {
        self.rig.broker().gappy_clients()
    }

    /// The broker's own account of itself.
    pub fn stats(&self) -> Stats {
        self.rig.stats()
    }

    /// A transport connection on which nothing has been sent, by a client of MQTT 5.
    pub fn open(&mut self) -> ConnId {
        let conn = self.rig.open(Origin::Tcp);
        self.clients.insert(conn, Client::new(&Connect::v5("")));
        conn
    }

    /// Sends CONNECT on a new connection.
    pub fn start(&mut self, connect: &Connect) -> ConnId {
        let conn = self.rig.open(Origin::Tcp);
        self.clients.insert(conn, Client::new(connect));
        self.rig.send(conn, &connect.bytes());
        conn
    }

    /// Connects and must be accepted; what follows CONNACK at once can be taken with
    /// [`World::packets`].
    pub fn connect(&mut self, connect: &Connect) -> ConnId {
        let (conn, answer) = self.try_connect(connect);
        assert!(matches!(answer, Packet::Connack { code: 0, .. }), "refused with {answer:?}");
        conn
    }

    /// Connects as a clean client of MQTT 5 without keep-alive.
    pub fn client(&mut self, client_id: &str) -> ConnId {
        self.connect(&Connect::v5(client_id))
    }

    /// Connects, and returns the first packet received.
    pub fn try_connect(&mut self, connect: &Connect) -> (ConnId, Packet) {
        let conn = self.start(connect);
        let answer = self.next(conn).expect("an answer to CONNECT");
        (conn, answer)
    }

    /// Connects and returns session present.
    pub fn reconnect(&mut self, connect: &Connect) -> (ConnId, bool) {
        match self.try_connect(connect) {
            (conn, Packet::Connack { code: 0, present, .. }) => (conn, present),
            (_, answer) => panic!("refused with {answer:?}"),
        }
    }

    pub fn send(&mut self, conn: ConnId, what: impl Encode) {
        let bytes = what.encode(self.clients[&conn].version);
        self.rig.send(conn, &bytes);
    }

    /// Sends, and returns the one packet that comes back.
    pub fn ask(&mut self, conn: ConnId, what: impl Encode) -> Packet {
        self.send(conn, what);
        let mut packets = self.packets(conn);
        assert_eq!(packets.len(), 1, "one answer expected, got {packets:?}");
        packets.remove(0)
    }

    /// Subscribes with the QoS and options in `options`; it must be granted. Retained messages stay
    /// to be taken.
    pub fn subscribe(&mut self, conn: ConnId, filter: &str, options: u8) {
        self.send(conn, Subscribe::new(1, &[(filter, options)]));
        match self.next(conn) {
            Some(Packet::Suback { id: 1, codes, .. }) => assert_eq!(codes, [options & 3]),
            other => panic!("SUBACK expected, got {other:?}"),
        }
    }

    /// The next packet received.
    pub fn next(&mut self, conn: ConnId) -> Option<Packet> {
        let client = self.clients.get_mut(&conn).expect("a connection of this test");
        client.take(self.rig.received(conn))
    }

    /// The bytes received and not yet taken.
    pub fn peek(&self, conn: ConnId) -> &[u8] {
        &self.rig.received(conn)[self.clients[&conn].taken..]
    }

    /// All packets received since the last time.
    pub fn packets(&mut self, conn: ConnId) -> Vec<Packet> {
        let packets = std::iter::from_fn(|| self.next(conn)).collect();
        let rest = self.peek(conn);
        assert!(rest.is_empty(), "a part of a packet was left: {rest:x?}");
        packets
    }

    /// All packets received since the last time, which must be messages.
    pub fn messages(&mut self, conn: ConnId) -> Vec<Message> {
        let message = |packet| match packet {
            Packet::Publish(message) => message,
            other => panic!("PUBLISH expected, got {other:?}"),
        };
        self.packets(conn).into_iter().map(message).collect()
    }

    /// The payloads of all messages received since the last time.
    pub fn payloads(&mut self, conn: ConnId) -> Vec<String> {
        self.messages(conn).iter().map(|message| message.text().to_owned()).collect()
    }

    /// The one message received since the last time.
    pub fn message(&mut self, conn: ConnId) -> Message {
        let mut messages = self.messages(conn);
        assert_eq!(messages.len(), 1, "one message expected, got {messages:?}");
        messages.remove(0)
    }

    /// The client's network fails.
    pub fn fail(&mut self, conn: ConnId) {
        self.rig.close(conn);
    }

    /// The client leaves with reason 0x00.
    pub fn leave(&mut self, conn: ConnId) {
        self.send(conn, wire::DISCONNECT);
        assert!(self.rig.is_closed(conn));
    }

    pub fn is_closed(&self, conn: ConnId) -> bool {
        self.rig.is_closed(conn)
    }

    /// The server shuts down.
    pub fn drain(&mut self) {
        self.rig.drain();
    }

    pub fn advance(&mut self, span: Duration) {
        self.rig.advance(span);
    }

    /// The connection must have been closed with this DISCONNECT and nothing else.
    #[track_caller]
    pub fn assert_disconnected(&mut self, conn: ConnId, code: u8) {
        match self.packets(conn).as_slice() {
            [Packet::Disconnect { code: got, .. }] if *got == code => {}
            other => panic!("DISCONNECT {code:#x} expected, got {other:x?}"),
        }
        assert!(self.is_closed(conn), "open after DISCONNECT {code:#x}");
    }

    /// The connection is in order: it is open, has got nothing, and answers.
    #[track_caller]
    pub fn assert_undisturbed(&mut self, conn: ConnId) {
        assert!(!self.is_closed(conn));
        assert_eq!(self.ask(conn, wire::PINGREQ), Packet::Pingresp);
    }
}

impl Client {
    fn new(connect: &Connect) -> Self {
        let told = connect.told();
        Client {
            version: connect.version,
            maximum_packet_size: told.number(property::MAXIMUM_PACKET_SIZE).map_or(usize::MAX, |size| size as usize),
            topic_alias_maximum: told.number(property::TOPIC_ALIAS_MAXIMUM).unwrap_or(0),
            aliases: BTreeMap::new(),
            taken: 0,
        }
    }

    fn take(&mut self, received: &[u8]) -> Option<Packet> {
        let (mut packet, size) = wire::decode(self.version, &received[self.taken..])?;
        assert!(size <= self.maximum_packet_size, "{size} bytes are more than the client takes: {packet:?}");
        self.taken += size;
        if let Packet::Publish(message) = &mut packet {
            self.resolve_alias(message);
        }
        Some(packet)
    }

    fn resolve_alias(&mut self, message: &mut Message) {
        let Some(alias) = message.props.number(property::TOPIC_ALIAS) else {
            assert!(!message.topic.is_empty(), "neither topic nor alias: {message:?}");
            return;
        };
        assert!((1..=self.topic_alias_maximum).contains(&alias), "alias out of bounds: {message:?}");
        if message.topic.is_empty() {
            message.topic = self.aliases.get(&alias).expect("the alias has been set").clone();
        } else {
            self.aliases.insert(alias, message.topic.clone());
        }
    }
}

impl Connect {
    /// Its properties as the broker reads them.
    fn told(&self) -> wire::Properties {
        if self.version == V5 { wire::read_properties(&self.props) } else { wire::Properties::default() }
    }
}
