//! Clients of worlds of many brokers: publishers, subscribers that connect, leave and move, and one
//! witness at each broker.
//!
//! They know their position as an application does: by the token of their SUBACK, the names of
//! later events, and notices of silence.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Qos, UserProperty};
use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use super::deed::Deed;
use super::door::Told;
use super::net::Fabric;
use crate::check::notice::{self, Notice};
use crate::choice::Choice;
use crate::packets::next_packet;
use crate::random::Random;
use crate::speech::{Ack, Heard, Hello, Message, Said, Wanted, event_name, user_properties};

/// Topics that publishers use.
pub(super) const TOPICS: [&str; 8] = ["a", "a/b", "a/c", "a/b/c", "d/b", "d/c", "e", "e/f/g"];

/// Filters that subscribers use.
const FILTERS: [&str; 13] = ["r/+", "a/b", "a/c", "d/b", "e", "a/+", "+/b", "a/#", "d/#", "+/+/c", "e/#", "a/b/#", "#"];

/// How long a session is kept, in seconds: longer than a world lasts.
const SESSION_SECONDS: u32 = 1_000;

/// The attribute that tells which broker accepted an event.
pub(super) const ORIGIN: &str = "origin";

/// The attribute that identifies an event without payload.
pub(super) const KEY: &str = "key";

/// How many of 1,000 retained events have no payload: they clear the topic's retained message.
const CLEARS_PERMILLE: u64 = 200;

/// The reason given to `expect` for text that is a constant here.
pub(super) const VALID: &str = "valid text";

/// The promise to a subscription.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Nothing is kept, and gaps are not told.
    Plain,
    /// Gaps are told.
    Noticed,
    /// Events from the time of its absence are delivered later, by any broker; gaps are told.
    SemiDurable,
    /// Its broker, which has a disk, keeps its session: events logged there are delivered whatever
    /// crashes; gaps of other events are told.
    Durable,
}

/// A subscriber's filter and selector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    pub(super) filter: String,
    pub(super) choice: Option<Choice>,
    pub(super) qos: Qos,
}

impl Wish {
    pub(super) fn draw(random: &mut Random) -> Wish {
        let choice = random.chance(400).then(|| Choice::draw(random));
        let qos = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce][random.weighted(&[1, 4, 1])];
        Wish { filter: (*random.pick(&FILTERS)).to_owned(), choice, qos }
    }
}

/// The state of a subscriber.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) class: Class,
    pub(super) wish: Wish,
    /// The mean time between two changes of subscription or place; `None`: it stays as it is.
    pub(super) changes: Option<Duration>,
    token: Option<String>,
    /// By stream: the tick and the name of the last event since the token.
    ids: BTreeMap<String, (u64, String)>,
    /// Whether its SUBSCRIBE continues the subscription that the broker has.
    goes_on: bool,
    /// SUBACK has arrived: a client without a position waits for it.
    is_there: bool,
    /// Packet ids of deliveries at [`Qos::ExactlyOnce`] that are not completed.
    received: BTreeSet<u16>,
}

impl Life {
    /// One that has not started.
    pub(super) fn new(class: Class, wish: Wish, changes: Option<Duration>) -> Life {
        let (token, ids, received) = (None, BTreeMap::new(), BTreeSet::new());
        Life { class, wish, changes, token, ids, goes_on: false, is_there: false, received }
    }
}

/// How a publisher behaves.
#[derive(Debug)]
pub(super) struct Trade {
    /// The mean time between two events.
    pub(super) pause: Duration,
    /// How many of 1,000 events are to be retained.
    pub(super) retained: u64,
    /// The payload of the largest events, bytes.
    pub(super) bytes: u64,
    /// The weight of each QoS.
    pub(super) qos: [u64; 3],
}

#[derive(Debug)]
pub(super) enum Role {
    /// Sees what its broker accepts.
    Witness,
    Publisher(Trade),
    Subscriber(Box<Life>),
    /// Subscribes to everything that is retained.
    Collector,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) node: usize,
    pub(super) role: Role,
    conn: Option<ConnId>,
    heard: Vec<u8>,
    next_id: u16,
    random: Random,
    /// When it next acts by itself.
    pub(super) wake: Option<Time>,
    /// A publisher that publishes only when it is told to.
    is_hushed: bool,
}

impl Client {
    pub(super) fn new(name: String, node: usize, role: Role, random: Random, wake: Time) -> Client {
        Client {
            name,
            node,
            role,
            conn: None,
            heard: Vec::new(),
            next_id: 0,
            random,
            wake: Some(wake),
            is_hushed: false,
        }
    }

    /// Whether it has a session that one broker keeps.
    fn is_durable(&self) -> bool {
        matches!(&self.role, Role::Subscriber(life) if life.class == Class::Durable)
    }

    /// A subscriber with a drawn filter and selector.
    pub(super) fn life(class: Class, changes: Option<Duration>, random: &mut Random) -> Role {
        let mut wish = Wish::draw(random);
        if class == Class::Durable && wish.qos == Qos::AtMostOnce {
            wish.qos = Qos::ExactlyOnce;
        }
        Role::Subscriber(Box::new(Life::new(class, wish, changes)))
    }

    /// A publisher publishes nothing more by itself, although it connects only later.
    pub(super) fn hush(&mut self) {
        if matches!(self.role, Role::Publisher(_)) {
            self.is_hushed = true;
            self.wake = None;
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.conn.is_some()
    }

    fn fresh_id(&mut self) -> u16 {
        self.next_id = self.next_id % u16::MAX + 1;
        self.next_id
    }

    fn say(&mut self, net: &mut Fabric, said: &Said) {
        if let Some(conn) = self.conn {
            net.say(self.node, conn, &said.encode(Version::V5_0));
        }
    }

    /// Acts when its wake time has come. `number`: its number in the world. `calm`: nothing changes
    /// any more, and clients that are away return.
    pub(super) fn act(&mut self, net: &mut Fabric, number: usize, calm: bool, deeds: &mut Vec<Deed>) {
        self.wake = None;
        if self.conn.is_none() {
            return self.connect(net, number, calm);
        }
        match &self.role {
            Role::Publisher(trade) => {
                let pause = trade.pause;
                self.wake = Some(net.now + self.random.exponential(pause) + Duration::from_micros(1));
                self.publish(net, deeds);
            }
            Role::Subscriber(life) if !calm && life.changes.is_some() => self.change(net, deeds),
            _ => {}
        }
    }

    fn connect(&mut self, net: &mut Fabric, number: usize, calm: bool) {
        let is_bound = !matches!(self.role, Role::Subscriber(_)) || self.is_durable();
        if !net.is_up(self.node) {
            if is_bound || calm && net.nodes.iter().all(|node| node.broker.is_none()) {
                self.wake = Some(net.now + Duration::from_millis(200));
                return;
            }
            self.node = self.random.below(net.nodes.len() as u64) as usize;
            self.wake = Some(net.now + Duration::from_millis(1 + self.random.below(200)));
            return;
        }
        self.conn = Some(net.open(self.node, number));
        self.heard.clear();
        let mut hello = Hello::v5(&self.name);
        if self.is_durable() {
            hello = hello.clean_start(false).session_expiry(SESSION_SECONDS);
        }
        self.say(net, &Said::Connect(hello));
    }

    /// A subscriber changes its subscription or its place.
    fn change(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        let Role::Subscriber(life) = &mut self.role else { return };
        let pause = life.changes.unwrap_or_default();
        let class = life.class;
        self.wake = Some(net.now + self.random.exponential(pause) + Duration::from_millis(1));
        if !core::mem::take(&mut life.is_there) && life.token.is_none() {
            return;
        }
        if class == Class::Durable {
            self.leave(net, deeds);
            self.wake = Some(net.now + self.random.span(Duration::from_secs(2)));
            return;
        }
        match self.random.weighted(&[4, 3, 1]) {
            // It moves, or only leaves for a while.
            0 => {
                if self.random.chance(600) {
                    self.node = self.moved(net, deeds);
                } else {
                    self.leave(net, deeds);
                }
                let Role::Subscriber(life) = &mut self.role else { return };
                life.goes_on = class == Class::SemiDurable;
                let away =
                    if self.random.chance(300) { Duration::ZERO } else { self.random.span(Duration::from_secs(2)) };
                self.wake = Some(net.now + away);
            }
            1 => {
                let wish = Wish::draw(&mut self.random);
                self.unsubscribe(net, deeds);
                let Role::Subscriber(life) = &mut self.role else { return };
                (life.wish, life.goes_on) = (wish, false);
                (life.token, life.ids) = (None, BTreeMap::new());
                self.subscribe(net, deeds);
            }
            _ => {
                self.unsubscribe(net, deeds);
                let Role::Subscriber(life) = &mut self.role else { return };
                life.goes_on = class == Class::SemiDurable;
                self.subscribe(net, deeds);
            }
        }
    }

    fn moved(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) -> usize {
        self.leave(net, deeds);
        self.random.below(net.nodes.len() as u64) as usize
    }

    fn leave(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        if let Some(conn) = self.conn {
            if self.random.chance(500) {
                self.say(net, &Said::Disconnect { code: 0, expiry: None });
            }
            net.close(self.node, conn);
            self.conn = None;
            deeds.push(Deed::Gone);
        }
    }

    fn unsubscribe(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        let id = self.fresh_id();
        let Role::Subscriber(life) = &self.role else { return };
        let filters = vec![life.wish.filter.clone()];
        deeds.push(Deed::Unsubscribes);
        self.say(net, &Said::Unsubscribe { id, filters });
    }

    fn subscribe(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        let id = self.fresh_id();
        let (mut terms, mut selector) = (Vec::new(), None);
        let mut term = |name: &str, value: &str| terms.push((name.to_owned(), value.to_owned()));
        let mut wanted = match &self.role {
            Role::Witness => {
                term("w-notices", "on");
                selector = Some(format!("{ORIGIN} = '{}'", net.nodes[self.node].name));
                Wanted::new("#", Qos::AtLeastOnce)
            }
            Role::Collector => Wanted::new("#", Qos::AtLeastOnce),
            Role::Subscriber(life) => {
                let Life { class, wish, .. } = &**life;
                if *class != Class::Plain {
                    term("w-notices", "on");
                }
                let mut goes_on = false;
                if *class == Class::Durable {
                    term("w-durability", "durable");
                }
                if *class == Class::SemiDurable {
                    term("w-durability", "semi-durable");
                    if let Some(token) = life.token.as_ref().filter(|_| life.goes_on) {
                        goes_on = true;
                        let ids = life.ids.values().map(|(_, id)| &**id);
                        let from: Vec<&str> = core::iter::once(&**token).chain(ids).collect();
                        term("w-from", &from.join(","));
                    }
                }
                selector = wish.choice.map(|choice| choice.to_string());
                deeds.push(Deed::Subscribes { id, class: *class, wish: wish.clone(), goes_on });
                Wanted::new(&wish.filter, wish.qos)
            }
            Role::Publisher(_) => return,
        };
        wanted.retain_handling = if matches!(self.role, Role::Collector) { 0 } else { 2 };
        self.say(net, &Said::Subscribe { id, identifier: 0, selector, terms, wanted: vec![wanted] });
    }

    /// Publishes an event; the book knows it by the number in its payload.
    pub(super) fn publish(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        let Role::Publisher(Trade { retained, bytes, qos, .. }) = self.role else { return };
        if self.conn.is_none() {
            return;
        }
        let id = self.fresh_id();
        let qos = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce][self.random.weighted(&qos)];
        let retain = self.random.chance(retained);
        let topic =
            if retain { format!("r/{}", self.random.below(4)) } else { (*self.random.pick(&TOPICS)).to_owned() };
        let mut payload = format!("{}-{} ", self.name, self.next_id).into_bytes();
        let length = self.random.below(bytes + 1) as usize;
        if self.random.chance(100) && payload.len() < length {
            payload.resize(length, b'.');
        }
        // It clears what is retained of the topic; the book identifies it by an attribute.
        let clears = retain && self.random.chance(CLEARS_PERMILLE);
        let key = format!("{}-{}", self.name, self.next_id);
        if clears {
            payload.clear();
        }
        let property = |name: &str, value: &str| UserProperty::new(name, value).expect(VALID);
        let mut message = Message::new(&topic, payload).retain(retain);
        if self.random.chance(900) {
            message = message.property(property("fuel", &self.random.below(100).to_string()));
        }
        if self.random.chance(800) {
            message = message.property(property("line", &self.random.below(12).to_string()));
        }
        if clears {
            message = message.property(property(KEY, &key));
        }
        message = message.property(property(ORIGIN, &net.nodes[self.node].name));
        let message = message.qos(qos, if qos == Qos::AtMostOnce { 0 } else { id });
        deeds.push(Deed::Said(Said::Publish(message.clone())));
        self.say(net, &Said::Publish(message));
    }

    /// Its broker has sent it something.
    pub(super) fn hear(&mut self, net: &mut Fabric, told: Told, deeds: &mut Vec<Deed>) {
        if self.conn.is_none() {
            return;
        }
        match told {
            Told::Closed => {
                self.conn = None;
                if let Role::Subscriber(life) = &mut self.role
                    && life.class != Class::Durable
                {
                    life.goes_on = life.class == Class::SemiDurable && life.token.is_some();
                }
                deeds.push(Deed::Gone);
                self.wake = Some(net.now + Duration::from_millis(1 + self.random.below(500)));
            }
            Told::Bytes(bytes) => {
                self.heard.extend_from_slice(&bytes);
                let mut at = 0;
                let heard = core::mem::take(&mut self.heard);
                while let Some(packet) = next_packet(Version::V5_0, &heard, &mut at).expect("brokers say packets") {
                    self.understand(net, Heard::from(packet), deeds);
                }
                self.heard = heard[at..].to_vec();
            }
        }
    }

    fn understand(&mut self, net: &mut Fabric, heard: Heard, deeds: &mut Vec<Deed>) {
        let answer = |ack, id| Said::Ack { ack, id, code: 0 };
        let mut said = None;
        match &heard {
            // Its connection ends, and it connects again.
            Heard::Connack { code, .. } if *code >= 0x80 => {}
            Heard::Connack { session_present, .. } => {
                match &mut self.role {
                    Role::Subscriber(life) if *session_present && life.goes_on => life.is_there = true,
                    Role::Subscriber(life) => {
                        life.received.clear();
                        self.subscribe(net, deeds);
                    }
                    _ => self.subscribe(net, deeds),
                }
                self.wake = match &self.role {
                    Role::Publisher(_) if self.is_hushed => None,
                    Role::Publisher(trade) => Some(net.now + self.random.exponential(trade.pause)),
                    Role::Subscriber(life) => life.changes.map(|pause| net.now + self.random.exponential(pause)),
                    Role::Witness | Role::Collector => None,
                };
            }
            Heard::Publish(message) => {
                if self.had(message) {
                    return self.say(net, &answer(Ack::Pubrec, message.id));
                }
                self.note(message);
                said = match message.qos {
                    Qos::AtMostOnce => None,
                    Qos::AtLeastOnce => Some(answer(Ack::Puback, message.id)),
                    Qos::ExactlyOnce => Some(answer(Ack::Pubrec, message.id)),
                };
            }
            Heard::Ack { ack: Ack::Pubrel, id, .. } => {
                if let Role::Subscriber(life) = &mut self.role {
                    life.received.remove(id);
                }
                said = Some(answer(Ack::Pubcomp, *id));
            }
            Heard::Ack { ack: Ack::Pubrec, id, .. } => said = Some(answer(Ack::Pubrel, *id)),
            // A SUBACK for a subscription that it has ended since is ignored.
            Heard::Suback { id, properties, .. } if *id == self.next_id => {
                if let Role::Subscriber(life) = &mut self.role {
                    life.is_there = true;
                    life.goes_on |= life.class == Class::Durable;
                    let token = user_properties(properties).into_iter().find(|(name, _)| name == "w-token");
                    if let Some((_, token)) = token.filter(|_| !life.goes_on || life.token.is_none()) {
                        (life.token, life.ids) = (Some(token), BTreeMap::new());
                    }
                }
            }
            _ => {}
        }
        deeds.push(Deed::Heard(heard));
        if let Some(said) = said {
            self.say(net, &said);
        }
    }

    /// Whether it already has a delivery of [`Qos::ExactlyOnce`].
    fn had(&mut self, message: &Message) -> bool {
        match &mut self.role {
            Role::Subscriber(life) if life.class == Class::Durable && message.qos == Qos::ExactlyOnce => {
                !life.received.insert(message.id)
            }
            _ => false,
        }
    }

    /// Advances its position.
    fn note(&mut self, message: &Message) {
        let Role::Subscriber(life) = &mut self.role else { return };
        if message.topic == notice::TOPIC {
            if let Ok(Notice::Silence { token, .. }) = Notice::parse(&message.payload) {
                (life.token, life.ids) = (Some(token), BTreeMap::new());
            }
            return;
        }
        let Some(id) = message.user_property("w-id") else { return };
        let Some((stream, tick)) = event_name(id) else { return };
        life.ids.insert(format!("{stream:x}"), (tick, id.to_owned()));
    }
}
