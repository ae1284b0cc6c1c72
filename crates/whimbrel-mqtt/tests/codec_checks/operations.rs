//! Sequences of operations on a whole broker: whatever clients and the driver do, in whatever
//! order, what the broker sends to each connection is well-formed, within what its client accepts,
//! and in the protocol's order.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Duration;

use whimbrel_core::Limits as CoreLimits;
use whimbrel_event::Time;
use whimbrel_mqtt::codec::{
    Ack, Connect, ConnectProperties, Filter, Filters, Packet, PacketId, Publish, PublishProperties, QoS, ReasonCode,
    Subscribe, SubscribeProperties, Topics, Unsubscribe, UnsubscribeProperties, Version, Will, WillProperties,
    answer_version, decode, frame,
};
use whimbrel_mqtt::{Config, ConnId, Input, LOW_WATER, Limits, MqttBroker, Origin, Output};

use super::generate::{Choices, mutated_packet, packet};

/// Operations in one sequence.
const OPERATIONS_MAX: usize = 400;

/// Connections at once.
const CONNECTIONS: usize = 6;

/// Times that a deadline may be due without time moving on.
const DEADLINES_AT_ONCE_MAX: usize = 1_000;

const CLIENT_IDS: [&str; 5] = ["", "a", "b", "c", "d"];
const TOPICS: [&str; 5] = ["t", "t/1", "t/2", "u/1", "$x"];
const FILTERS: [&str; 7] = ["t", "t/+", "t/#", "#", "u/1", "$share/g/t/#", "+/1"];

/// A connection as its client sees it.
struct Client {
    version: Version,
    /// Sent, and not a whole packet yet.
    sent: Vec<u8>,
    /// The CONNECT is sent.
    asked: bool,
    /// A CONNACK that says success has come.
    accepted: bool,
    max_packet: usize,
    receive_maximum: usize,
    alias_maximum: u16,
    aliases: BTreeSet<u16>,
    /// Packet ids of unsettled deliveries; `None` once it is not known in what order the broker saw
    /// our answers.
    unsettled: Option<BTreeMap<PacketId, QoS>>,
    /// Taken by the driver, not written yet.
    backlog: usize,
    wants_drained: bool,
    sent_in_step: bool,
    closed_by_broker: bool,
}

impl Client {
    fn new() -> Client {
        Client {
            version: Version::V4,
            sent: Vec::new(),
            asked: false,
            accepted: false,
            max_packet: usize::MAX,
            receive_maximum: usize::from(u16::MAX),
            alias_maximum: 0,
            aliases: BTreeSet::new(),
            unsettled: Some(BTreeMap::new()),
            backlog: 0,
            wants_drained: false,
            sent_in_step: false,
            closed_by_broker: false,
        }
    }

    /// Learns from what the client is about to send: one packet as a rule, or some bytes.
    fn note_sent(&mut self, bytes: &[u8]) {
        let mut stream = std::mem::take(&mut self.sent);
        stream.extend_from_slice(bytes);
        if frame(&stream, usize::MAX).ok().flatten().is_none_or(|cut| cut.whole.len() != stream.len()) {
            self.unsettled = None;
        }
        let mut rest = &stream[..];
        while let Ok(Some(cut)) = frame(rest, usize::MAX) {
            self.note_packet(cut.first_byte, cut.body);
            rest = &rest[cut.whole.len()..];
        }
        self.sent = rest.to_vec();
    }

    fn note_packet(&mut self, first_byte: u8, body: &[u8]) {
        if first_byte >> 4 == 1 && !self.asked {
            // A refusal comes in the version asked for, even if the rest of the CONNECT cannot be
            // read.
            self.version = answer_version(body).unwrap_or(self.version);
        }
        match decode(self.version, first_byte, body) {
            Ok(Packet::Connect(connect)) if !self.asked => {
                self.asked = true;
                let p = &connect.properties;
                self.max_packet = p.maximum_packet_size.map_or(usize::MAX, |max| max as usize);
                self.receive_maximum = p.receive_maximum.map_or(usize::from(u16::MAX), |max| usize::from(max.get()));
                self.alias_maximum = p.topic_alias_maximum.unwrap_or(0);
            }
            // A client may answer with the wrong packet; a broker may take that as the end of the
            // hand-over or not.
            Ok(Packet::PubAck(ack) | Packet::PubComp(ack)) => self.settle(&ack),
            Ok(Packet::PubRec(ack)) if ack.reason.is_error() => self.settle(&ack),
            _ => {}
        }
    }

    fn settle(&mut self, ack: &Ack<'_>) {
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.remove(&ack.packet_id);
        }
    }

    /// Checks what the broker sends: whole packets, each as the client may expect it.
    fn hear(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let cut = frame(bytes, usize::MAX).expect("the broker's packets are framed").expect("and sent whole");
            assert!(
                cut.whole.len() <= self.max_packet,
                "{} bytes, but the client takes {}",
                cut.whole.len(),
                self.max_packet
            );
            let packet = decode(self.version, cut.first_byte, cut.body).unwrap_or_else(|error| {
                panic!("the broker sent a bad packet: {error}: {:02x?}", &bytes[..cut.whole.len()])
            });
            self.hear_packet(&packet);
            bytes = &bytes[cut.whole.len()..];
        }
    }

    fn hear_packet(&mut self, packet: &Packet<'_>) {
        if let Packet::ConnAck(connack) = packet {
            assert!(!self.accepted, "a second CONNACK");
            self.accepted = connack.reason == ReasonCode::SUCCESS;
            return;
        }
        assert!(self.accepted, "before a CONNACK: {packet:?}");
        match packet {
            Packet::Publish(publish) => self.hear_publish(publish),
            Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubRel(_) | Packet::PubComp(_) => {}
            Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {}
            Packet::Disconnect(_) if self.version == Version::V5 => {}
            other => panic!("no server sends this: {other:?}"),
        }
    }

    fn hear_publish(&mut self, publish: &Publish<'_>) {
        if let Some(alias) = publish.properties.topic_alias {
            assert!(alias.get() <= self.alias_maximum, "alias {alias} is above the client's maximum");
            let new = self.aliases.insert(alias.get());
            assert!(!new || !publish.topic.is_empty(), "alias {alias} is used before it is set");
        }
        let (Some(packet_id), Some(unsettled)) = (publish.packet_id, &mut self.unsettled) else { return };
        let before = unsettled.insert(packet_id, publish.qos);
        assert_eq!(before, None, "packet id {packet_id} is in use");
        assert!(unsettled.len() <= self.receive_maximum, "more than the receive maximum {}", self.receive_maximum);
    }
}

#[derive(Default)]
struct Wires {
    open: BTreeMap<u32, Client>,
}

impl Wires {
    fn of(&mut self, conn: ConnId) -> &mut Client {
        self.open.get_mut(&conn.0).expect("the broker speaks of open connections")
    }
}

impl Output for Wires {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        let client = self.of(conn);
        assert!(!client.closed_by_broker, "a send behind a close");
        assert!(!std::mem::replace(&mut client.sent_in_step, true), "a second send in one step");
        client.backlog += bytes.len();
        client.hear(bytes);
        bytes.clear();
    }

    fn close(&mut self, conn: ConnId) {
        assert!(!std::mem::replace(&mut self.of(conn).closed_by_broker, true), "a second close");
    }

    fn backlog(&self, conn: ConnId) -> usize {
        self.open.get(&conn.0).map_or(0, |client| client.backlog)
    }

    fn notify_drained(&mut self, conn: ConnId) {
        self.of(conn).wants_drained = true;
    }
}

struct World {
    broker: MqttBroker,
    wires: Wires,
    now: Time,
    drained: bool,
}

impl World {
    fn step(&mut self, input: Input<'_>) {
        for client in self.wires.open.values_mut() {
            client.sent_in_step = false;
        }
        self.broker.handle(self.now, input, &mut self.wires);
        self.wires.open.retain(|_, client| !client.closed_by_broker);
        assert_eq!(self.broker.stats().connections, self.wires.open.len() as u64);
    }

    fn send(&mut self, conn: u32, bytes: &[u8], c: &mut Choices<'_>) {
        if let Some(client) = self.wires.open.get_mut(&conn) {
            client.note_sent(bytes);
        }
        let cut = c.below(bytes.len() + 1);
        for part in [&bytes[..cut], &bytes[cut..]] {
            // A broker that has closed the connection is told no more of it.
            if !part.is_empty() && self.wires.open.contains_key(&conn) {
                self.step(Input::Bytes { conn: ConnId(conn), bytes: part });
            }
        }
    }

    fn send_packet(&mut self, conn: u32, packet: &Packet<'_>, c: &mut Choices<'_>) {
        let Some(client) = self.wires.open.get(&conn) else { return };
        let version = match packet {
            Packet::Connect(connect) => connect.version,
            _ => client.version,
        };
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).expect("small");
        self.send(conn, &bytes, c);
    }

    fn advance(&mut self, span: Duration) {
        let until = self.now.after(span);
        for _ in 0..DEADLINES_AT_ONCE_MAX {
            let Some((at, _)) = self.broker.next_deadline().filter(|(at, _)| *at <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(at);
            self.step(Input::Deadline);
        }
        // `$SYS` and keep-alives recur; what must not happen is that time stands still.
        let (at, reason) = self.broker.next_deadline().expect("just seen");
        assert!(at > self.now, "{reason:?} stays due");
        self.now = until.min(at);
    }

    fn drain_backlog(&mut self, conn: u32, written: usize) {
        let Some(client) = self.wires.open.get_mut(&conn) else { return };
        client.backlog = client.backlog.saturating_sub(written);
        if client.backlog <= LOW_WATER && std::mem::take(&mut client.wants_drained) {
            self.step(Input::Drained { conn: ConnId(conn) });
        }
    }
}

fn qos(c: &mut Choices<'_>) -> QoS {
    [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][c.below(3)]
}

fn packet_id(c: &mut Choices<'_>) -> PacketId {
    PacketId::new(c.below(5) as u16 + 1).expect("at least 1")
}

fn pick<'a>(c: &mut Choices<'_>, from: &[&'a str]) -> &'a str {
    from[c.below(from.len())]
}

fn connect(world: &mut World, conn: u32, c: &mut Choices<'_>) {
    let version = if c.flag() { Version::V5 } else { Version::V4 };
    let properties = ConnectProperties {
        session_expiry: [None, Some(0), Some(5), Some(u32::MAX)][c.below(4)],
        receive_maximum: core::num::NonZeroU16::new(c.below(4) as u16),
        maximum_packet_size: [None, None, Some(20), Some(60)][c.below(4)],
        topic_alias_maximum: Some(c.below(3) as u16),
        ..ConnectProperties::default()
    };
    let will = c.flag().then(|| Will {
        topic: pick(c, &TOPICS),
        payload: b"will",
        qos: qos(c),
        retain: c.flag(),
        properties: WillProperties { delay: Some(c.below(4) as u32), ..WillProperties::default() },
    });
    let connect = Connect {
        version,
        bridge: version == Version::V4 && c.below(4) == 0,
        clean_start: c.flag(),
        keep_alive: c.below(3) as u16 * 10,
        properties: if version == Version::V5 { properties } else { ConnectProperties::default() },
        client_id: pick(c, &CLIENT_IDS),
        will: will.map(|will| match version {
            Version::V5 => will,
            Version::V4 => Will { properties: WillProperties::default(), ..will },
        }),
        user_name: None,
        password: None,
    };
    world.send_packet(conn, &Packet::Connect(connect), c);
}

fn publish(world: &mut World, conn: u32, c: &mut Choices<'_>) {
    let qos = qos(c);
    let len = [0, 3, 30, 2_000][c.below(4)];
    let payload = vec![b'p'; len];
    let publish = Publish {
        dup: qos != QoS::AtMostOnce && c.flag(),
        qos,
        retain: c.flag(),
        topic: pick(c, &TOPICS),
        packet_id: (qos != QoS::AtMostOnce).then(|| packet_id(c)),
        properties: PublishProperties {
            message_expiry: [None, Some(0), Some(3)][c.below(3)],
            topic_alias: core::num::NonZeroU16::new(c.below(4) as u16),
            ..PublishProperties::EMPTY
        },
        payload: &payload,
    };
    world.send_packet(conn, &Packet::Publish(publish), c);
}

fn subscribe(world: &mut World, conn: u32, c: &mut Choices<'_>) {
    let filters: Vec<_> = (0..=c.below(3)).map(|_| Filter::new(pick(c, &FILTERS), qos(c))).collect();
    let properties = SubscribeProperties {
        subscription_id: [None, Some(1), Some(200)][c.below(3)],
        ..SubscribeProperties::default()
    };
    let subscribe = Subscribe { packet_id: packet_id(c), properties, filters: Filters::list(&filters) };
    world.send_packet(conn, &Packet::Subscribe(subscribe), c);
}

fn unsubscribe(world: &mut World, conn: u32, c: &mut Choices<'_>) {
    let filters = [pick(c, &FILTERS), pick(c, &FILTERS)];
    let unsubscribe = Unsubscribe {
        packet_id: packet_id(c),
        properties: UnsubscribeProperties::default(),
        filters: Topics::list(&filters[..=c.below(2)]),
    };
    world.send_packet(conn, &Packet::Unsubscribe(unsubscribe), c);
}

/// Answers one of the deliveries that are unsettled, or an invented one.
fn answer(world: &mut World, conn: u32, c: &mut Choices<'_>) {
    let Some(client) = world.wires.open.get(&conn) else { return };
    let known = client.unsettled.iter().flatten().map(|(id, qos)| (*id, *qos)).nth(c.below(3));
    let (id, qos) = known.unwrap_or_else(|| (packet_id(c), qos(c)));
    let ack = Ack::success(id);
    let packet = match (qos, c.below(8)) {
        (_, 0) => Packet::PubRel(ack),
        (QoS::ExactlyOnce, 1) if client.version == Version::V5 => {
            Packet::PubRec(Ack { reason: ReasonCode::UNSPECIFIED_ERROR, ..ack })
        }
        (QoS::ExactlyOnce, 1..=4) => Packet::PubRec(ack),
        (QoS::ExactlyOnce, _) => Packet::PubComp(ack),
        _ => Packet::PubAck(ack),
    };
    world.send_packet(conn, &packet, c);
}

fn operate(world: &mut World, c: &mut Choices<'_>) {
    let conn = c.below(CONNECTIONS) as u32;
    if let Entry::Vacant(free) = world.wires.open.entry(conn) {
        free.insert(Client::new());
        world.step(Input::Opened { conn: ConnId(conn), origin: Origin::ALL[c.below(4)] });
        // Most go on as clients do.
        if world.wires.open.contains_key(&conn) && c.below(8) > 0 {
            connect(world, conn, c);
        }
        return;
    }
    match c.below(32) {
        0 => connect(world, conn, c),
        1..=10 => publish(world, conn, c),
        11..=15 => subscribe(world, conn, c),
        16 => unsubscribe(world, conn, c),
        17..=22 => answer(world, conn, c),
        23 => world.send_packet(conn, &Packet::PingReq, c),
        24 => world.send_packet(conn, &Packet::Disconnect(whimbrel_mqtt::codec::Disconnect::new(ReasonCode(4))), c),
        25 => {
            let bytes = if c.flag() { packet(c).1 } else { mutated_packet(c).1 };
            world.send(conn, &bytes, c);
        }
        26 => {
            world.wires.open.remove(&conn);
            world.step(Input::Closed { conn: ConnId(conn) });
        }
        27 | 28 => world.drain_backlog(conn, [100, 1 << 20][c.below(2)]),
        29 | 30 => world.advance(Duration::from_millis([1, 900, 6_000, 40_000][c.below(4)])),
        _ if c.below(16) == 0 && !world.drained => {
            world.drained = true;
            world.step(Input::Drain { within: Duration::ZERO });
        }
        _ => {
            let rel = Packet::PubRel(Ack::success(packet_id(c)));
            world.send_packet(conn, &rel, c);
        }
    }
}

/// Runs the sequence of operations that `bytes` choose.
pub fn operations(bytes: &[u8]) {
    let mut c = Choices::new(bytes);
    let now = Time::from_nanos(1_767_225_600_000_000_000);
    let config = Config {
        sys_interval: c.flag().then_some(Duration::from_secs(7)),
        limits: Limits { receive_maximum: 2, topic_alias_maximum: 2, max_packet_size: 4_096, ..Limits::default() },
        core: CoreLimits {
            session_queue_bytes: 4_000,
            best_effort_queue_bytes: 4_000,
            sessions_max: 4,
            subscriptions_per_session: 4,
            retained_max: 3,
            ..CoreLimits::default()
        },
        ..Config::default()
    };
    let broker = MqttBroker::new(config, u64::from(c.byte()), now);
    let mut world = World { broker, wires: Wires::default(), now, drained: false };
    for _ in 0..OPERATIONS_MAX {
        if c.is_empty() {
            return;
        }
        operate(&mut world, &mut c);
    }
}
