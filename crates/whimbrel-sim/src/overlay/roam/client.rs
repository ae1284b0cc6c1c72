//! Clients that move between all brokers, and one witness at each broker. A client has two
//! connection slots, as it may connect anew before its older connection is closed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Qos, UserProperty};
use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use super::deed::Deed;
use super::habit::Habit;
use super::publisher::Trade;
use crate::check::notice::{self, Notice};
use crate::overlay::client::{ORIGIN, VALID, Wish};
use crate::overlay::door::Told;
use crate::overlay::net::Fabric;
use crate::packets::next_packet;
use crate::random::Random;
use crate::speech::{Ack, Heard, Hello, Message, Said, Wanted, event_name, user_properties};

/// How long a session is kept, in seconds: longer than a world lasts.
const SESSION_SECONDS: u32 = 1_000;

/// How long a client waits for an answer before it gives up and connects again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of refusals after which a client begins anew, with a clean start.
const REFUSALS_MAX: u32 = 40;

/// How long an older connection may stay open after a newer one has replaced it.
const HAUNTED_MAX: Duration = Duration::from_secs(5);

/// The topic on which tokens are acknowledged.
const ACKNOWLEDGED: &str = "$whimbrel/ack";

/// CONNACK's code when no broker that knows the session can be asked.
pub(super) const UNAVAILABLE: u8 = 0x88;

/// The side that keeps the position of a subscription, and the repeats that are allowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Keeper {
    /// The client, which acknowledges with its token: nothing twice.
    Client,
    /// The broker, at QoS 2: nothing twice, except what a replica does not know of yet.
    Exactly,
    /// The broker, at QoS 1: what was not durably acknowledged is delivered again.
    AtLeast,
}

/// The state of a subscriber.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) keeper: Keeper,
    pub(super) wish: Wish,
    habit: Habit,
    token: Option<String>,
    /// By stream: the tick and the name of the last event since the token.
    ids: BTreeMap<String, (u64, String)>,
    /// Whether it has a session with its subscription, as far as it knows.
    is_there: bool,
    /// Packet ids of deliveries at [`Qos::ExactlyOnce`] that are not completed.
    received: BTreeSet<u16>,
    /// Acknowledgements that it will send later.
    withheld: VecDeque<Said>,
}

impl Life {
    /// One that has not started.
    pub(super) fn new(keeper: Keeper, wish: Wish, habit: Habit) -> Life {
        let (ids, received, withheld) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        Life { keeper, wish, habit, token: None, ids, is_there: false, received, withheld }
    }
}

#[derive(Debug)]
pub(super) enum Role {
    /// Sees what its broker accepts.
    Witness,
    Publisher(Box<Trade>),
    Subscriber(Box<Life>),
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) node: usize,
    pub(super) role: Role,
    number: usize,
    pub(super) conn: Option<ConnId>,
    /// Its older connection, to which it no longer listens, and since when.
    pub(super) ghost: Option<(usize, ConnId, Time)>,
    /// The connection slot that it uses, 0 or 1.
    slot: usize,
    is_welcome: bool,
    refusals: u32,
    heard: Vec<u8>,
    next_id: u16,
    pub(super) random: Random,
    /// When it next acts by itself.
    pub(super) wake: Option<Time>,
}

impl Client {
    /// A client with its number in the world.
    pub(super) fn new(name: String, (number, node): (usize, usize), role: Role, random: Random, wake: Time) -> Client {
        Client {
            name,
            node,
            role,
            number,
            conn: None,
            ghost: None,
            slot: 0,
            is_welcome: false,
            refusals: 0,
            heard: Vec::new(),
            next_id: 0,
            random,
            wake: Some(wake),
        }
    }

    /// Whether its CONNECT was accepted.
    pub(super) fn is_welcome(&self) -> bool {
        self.conn.is_some() && self.is_welcome
    }

    pub(super) fn fresh_id(&mut self) -> u16 {
        self.next_id = self.next_id % u16::MAX + 1;
        self.next_id
    }

    pub(super) fn say(&mut self, net: &mut Fabric, said: &Said) {
        if let Some(conn) = self.conn {
            net.say(self.node, conn, &said.encode(Version::V5_0));
        }
    }

    /// Acts when its wake time has come. `calm`: nothing changes any more, and clients that are
    /// away return.
    pub(super) fn act(&mut self, net: &mut Fabric, calm: bool, deeds: &mut Vec<Deed>) {
        self.wake = None;
        let is_old = |(_, _, since): &(usize, ConnId, Time)| net.now.since(*since) > HAUNTED_MAX;
        if let Some((node, conn, _)) = self.ghost.filter(is_old).filter(|_| self.is_welcome()) {
            net.close(node, conn);
            self.ghost = None;
            deeds.push(Deed::Haunted);
        }
        if self.conn.is_some() && !self.is_welcome {
            self.leave(net, deeds);
        }
        if self.conn.is_none() {
            return self.connect(net, deeds);
        }
        match &self.role {
            Role::Publisher(_) => self.trade(net, calm, deeds),
            Role::Subscriber(_) => self.live(net, calm, deeds),
            Role::Witness => {}
        }
    }

    fn is_bound(&self) -> bool {
        match &self.role {
            Role::Witness => true,
            Role::Publisher(trade) => trade.moves.is_none(),
            Role::Subscriber(life) => life.habit.is_bound,
        }
    }

    fn connect(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        self.node = net.door(self.node, &mut self.random);
        if !net.is_up(self.node) {
            if !self.is_bound() {
                self.node = net.any_machine(&mut self.random);
            }
            self.wake = Some(net.now + Duration::from_millis(1 + self.random.below(300)));
            return;
        }
        let mut hello = Hello::v5(&self.name);
        let (mut is_clean, mut forces) = (true, false);
        match &mut self.role {
            Role::Witness => {}
            Role::Publisher(trade) => is_clean = !trade.has_session,
            Role::Subscriber(life) => {
                is_clean = self.refusals >= REFUSALS_MAX;
                forces = !is_clean && self.refusals > 2 && life.keeper == Keeper::Client;
                if is_clean {
                    **life = Life::new(life.keeper, life.wish.clone(), life.habit);
                }
            }
        }
        if !is_clean || matches!(self.role, Role::Subscriber(_)) {
            hello = hello.clean_start(is_clean).session_expiry(SESSION_SECONDS);
        }
        if forces {
            hello = hello.property(UserProperty::new("w-session", "client").expect(VALID));
        }
        self.conn = Some(net.open(self.node, self.number * 2 + self.slot));
        self.is_welcome = false;
        self.heard.clear();
        deeds.push(Deed::Connects { is_clean, forces });
        self.wake = Some(net.now + PATIENCE);
        self.say(net, &Said::Connect(hello));
    }

    /// A subscriber stays, moves, or sends what it has withheld.
    fn live(&mut self, net: &mut Fabric, calm: bool, deeds: &mut Vec<Deed>) {
        let Role::Subscriber(life) = &mut self.role else { return };
        let (habit, keeper, is_there) = (life.habit, life.keeper, life.is_there);
        if calm {
            life.habit.withholds = 0;
        }
        let Some(pause) = habit.pause.filter(|_| !calm && is_there) else {
            self.wake = Some(net.now + Duration::from_secs(2));
            return self.settle_all(net, deeds);
        };
        self.wake = Some(net.now + self.random.exponential(pause) + Duration::from_millis(1));
        match self.random.weighted(&[5, 2, 2]) {
            0 => {
                if self.random.chance(habit.haunts) {
                    self.haunt(net, deeds);
                } else {
                    self.leave(net, deeds);
                }
                if !habit.is_bound {
                    self.node = net.any_machine(&mut self.random);
                }
            }
            1 => self.leave(net, deeds),
            _ => return self.settle_all(net, deeds),
        }
        let is_quick = self.random.chance(400);
        let mut away = if is_quick { Duration::ZERO } else { self.random.span(habit.away) };
        if keeper == Keeper::Client && self.random.chance(200) {
            away *= 2;
        }
        self.wake = Some(net.now + away);
    }

    /// Sends its withheld acknowledgements, and its position.
    fn settle_all(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        let Role::Subscriber(life) = &mut self.role else { return };
        for said in core::mem::take(&mut life.withheld) {
            self.settle(net, &said, deeds);
        }
        let id = self.fresh_id();
        let Role::Subscriber(life) = &self.role else { return };
        if life.keeper == Keeper::Client && life.is_there {
            let message = Message::new(ACKNOWLEDGED, life.from()).qos(Qos::AtLeastOnce, id);
            self.say(net, &Said::Publish(message));
        }
    }

    /// Sends an acknowledgement; one that a congested broker does not take at once may never
    /// arrive.
    fn settle(&mut self, net: &mut Fabric, said: &Said, deeds: &mut Vec<Deed>) {
        if let Said::Ack { ack: Ack::Puback | Ack::Pubrec, id, .. } = said
            && !net.is_congested(self.node)
        {
            deeds.push(Deed::Settles { id: *id });
        }
        self.say(net, said);
    }

    /// Ends its connection, with or without DISCONNECT.
    pub(super) fn leave(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        if let Some(conn) = self.conn {
            if self.is_welcome && self.random.chance(500) {
                self.say(net, &Said::Disconnect { code: 0, expiry: None });
            }
            net.close(self.node, conn);
            self.forget(deeds);
        }
    }

    /// Leaves its connection open and no longer listens to it.
    fn haunt(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        if let Some((node, conn, _)) = self.ghost.take() {
            net.close(node, conn);
        }
        if let Some(conn) = self.conn {
            self.ghost = Some((self.node, conn, net.now));
            self.slot = 1 - self.slot;
            self.forget(deeds);
        }
    }

    fn forget(&mut self, deeds: &mut Vec<Deed>) {
        (self.conn, self.is_welcome) = (None, false);
        if let Role::Subscriber(life) = &mut self.role {
            life.withheld.clear();
        }
        deeds.push(Deed::Gone);
    }

    fn subscribe(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        let id = self.fresh_id();
        let (mut terms, mut goes_on) = (vec![("w-notices".to_owned(), "on".to_owned())], false);
        let mut term = |name: &str, value: &str| terms.push((name.to_owned(), value.to_owned()));
        let (mut wanted, selector) = match &self.role {
            Role::Witness => {
                let selector = format!("{ORIGIN} = '{}'", net.nodes[self.node].name);
                (Wanted::new("#", Qos::AtLeastOnce), Some(selector))
            }
            Role::Subscriber(life) => {
                term("w-durability", "durable");
                if life.keeper == Keeper::Client {
                    term("w-ack", "token");
                    if life.token.is_some() {
                        goes_on = true;
                        term("w-from", &life.from());
                    }
                }
                let wish = &life.wish;
                (Wanted::new(&wish.filter, wish.qos), wish.choice.map(|choice| choice.to_string()))
            }
            Role::Publisher(_) => return,
        };
        wanted.retain_handling = 2;
        deeds.push(Deed::Subscribes { id, goes_on });
        self.say(net, &Said::Subscribe { id, identifier: 0, selector, terms, wanted: vec![wanted] });
    }

    /// A broker has sent something on, or closed, one of its connections.
    pub(super) fn hear(&mut self, net: &mut Fabric, (slot, told): (usize, Told), deeds: &mut Vec<Deed>) {
        if slot != self.slot || self.conn.is_none() {
            if told == Told::Closed && slot != self.slot {
                self.ghost = None;
            }
            return;
        }
        match told {
            Told::Closed => {
                self.forget(deeds);
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
        match heard {
            Heard::Connack { code, session_present, .. } => {
                deeds.push(Deed::Heard(heard));
                self.answered(net, (code, session_present), deeds);
            }
            Heard::Publish(message) => self.take(net, message, deeds),
            Heard::Ack { ack: Ack::Pubrel, id, .. } => {
                if let Role::Subscriber(life) = &mut self.role {
                    life.received.remove(&id);
                }
                deeds.push(Deed::Heard(heard));
                self.answer(net, Said::Ack { ack: Ack::Pubcomp, id, code: 0 }, deeds);
            }
            Heard::Ack { ack: Ack::Pubrec, id, code } => {
                if code < 0x80 {
                    self.say(net, &Said::Ack { ack: Ack::Pubrel, id, code: 0 });
                }
                self.accepted(id);
                deeds.push(Deed::Heard(heard));
            }
            Heard::Ack { id, .. } => {
                self.accepted(id);
                deeds.push(Deed::Heard(heard));
            }
            Heard::Suback { id, ref codes, ref properties } if id == self.next_id => {
                if let Role::Subscriber(life) = &mut self.role
                    && codes.iter().all(|code| *code < 0x80)
                {
                    life.is_there = true;
                    let token = user_properties(properties).into_iter().find(|(name, _)| name == "w-token");
                    if let Some((_, token)) = token.filter(|_| life.token.is_none()) {
                        (life.token, life.ids) = (Some(token), BTreeMap::new());
                    }
                }
                deeds.push(Deed::Heard(heard));
            }
            other => deeds.push(Deed::Heard(other)),
        }
    }

    /// CONNECT was answered.
    fn answered(&mut self, net: &mut Fabric, (code, is_present): (u8, bool), deeds: &mut Vec<Deed>) {
        if code >= 0x80 {
            self.refusals += 1;
            self.leave(net, deeds);
            if !self.is_bound() && self.random.chance(500) {
                self.node = net.any_machine(&mut self.random);
            }
            self.wake = Some(net.now + Duration::from_millis(300 + self.random.below(400)));
            return;
        }
        (self.is_welcome, self.refusals) = (true, 0);
        if let Some((_, _, since)) = &mut self.ghost {
            *since = net.now;
        }
        let mut wake = None;
        match &mut self.role {
            Role::Witness => self.subscribe(net, deeds),
            Role::Publisher(trade) => {
                wake = Some(trade.pause);
                self.repeat(net, deeds);
            }
            Role::Subscriber(life) => {
                wake = life.habit.pause.or(Some(Duration::from_secs(2)));
                if !is_present {
                    life.received.clear();
                }
                if !is_present || !life.is_there || life.keeper == Keeper::Client {
                    life.is_there = false;
                    self.subscribe(net, deeds);
                }
            }
        }
        self.wake = wake.map(|mean| net.now + self.random.exponential(mean) + Duration::from_millis(1));
    }

    /// A message arrives; one that the client already has is only answered.
    fn take(&mut self, net: &mut Fabric, message: Message, deeds: &mut Vec<Deed>) {
        let (id, qos) = (message.id, message.qos);
        let had = match &mut self.role {
            Role::Subscriber(life) if qos == Qos::ExactlyOnce => !life.received.insert(id),
            _ => false,
        };
        if !had {
            self.note(&message);
            deeds.push(Deed::Takes(message));
        }
        let answer = |ack| Said::Ack { ack, id, code: 0 };
        match qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.answer(net, answer(Ack::Puback), deeds),
            Qos::ExactlyOnce => self.answer(net, answer(Ack::Pubrec), deeds),
        }
    }

    /// Answers now or later, in order.
    fn answer(&mut self, net: &mut Fabric, said: Said, deeds: &mut Vec<Deed>) {
        if let Role::Subscriber(life) = &mut self.role
            && (!life.withheld.is_empty() || self.random.chance(life.habit.withholds))
        {
            return life.withheld.push_back(said);
        }
        self.settle(net, &said, deeds);
    }

    /// Advances the position that the client keeps.
    fn note(&mut self, message: &Message) {
        let Role::Subscriber(life) = &mut self.role else { return };
        let mut reach = |stream: &str, tick: u64| {
            let known = life.ids.entry(stream.to_owned()).or_default();
            if known.0 < tick {
                *known = (tick, format!("{stream}:{tick}"));
            }
        };
        if message.topic == notice::TOPIC {
            match Notice::parse(&message.payload) {
                Ok(Notice::Silence { token, .. }) => (life.token, life.ids) = (Some(token), BTreeMap::new()),
                Ok(Notice::Gap { pubend, to, .. }) => reach(&format!("{pubend:x}"), to),
                Ok(Notice::Overdue { .. } | Notice::Stalled) | Err(_) => {}
            }
            return;
        }
        if let Some((stream, tick)) = message.user_property("w-id").and_then(event_name) {
            reach(&format!("{stream:x}"), tick);
        }
    }
}

impl Life {
    /// Its position: its token, and the last event of each stream since.
    fn from(&self) -> String {
        let ids = self.ids.values().map(|(_, id)| &**id);
        core::iter::once(self.token.as_deref().unwrap_or_default()).chain(ids).collect::<Vec<_>>().join(",")
    }
}
