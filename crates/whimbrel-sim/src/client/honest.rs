//! A client that follows the protocol, whatever its network does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{
    MaximumPacketSize, MessageExpiryInterval, Property, Qos, ReceiveMaximum, TopicAlias, TopicAliasMaximum,
    UserProperty,
};
use whimbrel_event::Time;

use super::persona::{QOS, random_filter, random_topic};
use super::{Act, Action, Persona};
use crate::choice::Choice;
use crate::packets::next_packet;
use crate::random::Random;
use crate::speech::{Ack, Heard, Hello, Message, Said, Wanted};

/// Unacknowledged messages of a client, at most.
const OUTSTANDING_MAX: usize = 20;

/// As [`OUTSTANDING_MAX`], for 3.1.1, whose clients are not told how many the broker takes: fewer
/// than any broker here takes.
const OUTSTANDING_MAX_V311: usize = 4;

/// Messages of one burst, at most.
const BURST_MAX: u64 = 150;

/// Filters of a client, at most.
const FILTERS_MAX: usize = 8;

/// How long a client waits for CONNACK before it connects anew.
const PATIENCE: Duration = Duration::from_secs(4);

/// The reason given to `expect` for values that are constants here.
const IN_RANGE: &str = "a value in the range of the property";

/// The state of an unacknowledged message of the client.
#[derive(Clone, PartialEq, Debug)]
enum Unacked {
    /// PUBACK or PUBREC is awaited.
    Published(Message),
    /// PUBCOMP is awaited.
    Released,
}

/// The state of the client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    /// No connection until this time.
    Down { until: Time },
    /// CONNACK is awaited until this time.
    Greeting { until: Time },
    /// Connected.
    Up,
}

/// State that lasts as long as one connection.
#[derive(Debug, Default)]
struct Talk {
    heard: Vec<u8>,
    decoded: usize,
    /// Messages and acknowledgements to be sent at their times, in order.
    answers: VecDeque<(Time, Said)>,
    aliases: BTreeMap<u16, String>,
    /// The broker's Topic Alias Maximum, and its Receive Maximum.
    alias_maximum: u16,
    receive_maximum: u16,
    /// The keep-alive interval that the broker wants, seconds.
    keep_alive: u16,
    last_sent: Time,
    next_action: Time,
    /// When it reads again.
    stalled_until: Option<Time>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Honest {
    name: String,
    persona: Persona,
    random: Random,
    stand: Stand,
    talk: Talk,
    calm: bool,
    /// The number of payloads so far.
    published: u64,
    next_id: u16,
    next_identifier: u32,
    /// The client's own messages, oldest first.
    unacked: Vec<(u16, Unacked)>,
    /// The broker's messages: QoS 2 packet identifiers whose PUBREL has not arrived.
    unreleased: BTreeSet<u16>,
    filters: Vec<String>,
}

impl Honest {
    /// A client that connects for the first time a little after `now`.
    pub fn new(name: String, persona: Persona, mut random: Random, now: Time) -> Self {
        let until = now + random.span(persona.downtime);
        Honest {
            name,
            persona,
            random,
            stand: Stand::Down { until },
            talk: Talk::default(),
            calm: false,
            published: 0,
            next_id: 0,
            next_identifier: 0,
            unacked: Vec::new(),
            unreleased: BTreeSet::new(),
            filters: Vec::new(),
        }
    }

    pub(super) fn next_wake(&self) -> Option<Time> {
        match self.stand {
            Stand::Down { .. } if self.calm && !self.persona.is_persistent() => None,
            Stand::Down { until } | Stand::Greeting { until } => Some(until),
            Stand::Up => {
                let answer = self.talk.answers.front().map(|(at, _)| *at);
                let action = (!self.calm).then_some(self.talk.next_action);
                [answer, action, self.ping_at(), self.talk.stalled_until].into_iter().flatten().min()
            }
        }
    }

    fn ping_at(&self) -> Option<Time> {
        let half = Duration::from_millis(500) * u32::from(self.talk.keep_alive);
        (self.talk.keep_alive > 0).then(|| self.talk.last_sent + half)
    }

    pub(super) fn wake(&mut self, now: Time, acts: &mut Vec<Act>) {
        match self.stand {
            Stand::Down { until } if now >= until => self.greet(now, acts),
            Stand::Greeting { until } if now >= until => {
                acts.push(Act::Reset);
                self.closed(now);
            }
            Stand::Up => self.wake_up(now, acts),
            _ => {}
        }
    }

    fn wake_up(&mut self, now: Time, acts: &mut Vec<Act>) {
        while self.talk.answers.front().is_some_and(|(at, _)| *at <= now) {
            let (_, answer) = self.talk.answers.pop_front().expect("just seen");
            self.say(now, &answer, acts);
        }
        if self.talk.stalled_until.is_some_and(|until| until <= now) {
            self.talk.stalled_until = None;
            acts.push(Act::Resume);
        }
        if self.ping_at().is_some_and(|at| at <= now) {
            self.say(now, &Said::Ping, acts);
        }
        if !self.calm && self.talk.next_action <= now {
            self.talk.next_action = now + self.random.span(self.persona.pace) + Duration::from_micros(1);
            let action = Action::ALL[self.random.weighted(&self.persona.weights)];
            self.act(now, action, acts);
        }
    }

    fn act(&mut self, now: Time, action: Action, acts: &mut Vec<Act>) {
        match action {
            Action::Publish => self.publish(now, acts),
            Action::Burst => {
                for _ in 0..self.random.between(10, BURST_MAX) {
                    self.publish(now, acts);
                }
            }
            Action::Clear => {
                let clear = Message::new(&random_topic(&mut self.random), "").retain(true);
                self.say(now, &Said::Publish(clear), acts);
            }
            Action::Subscribe => self.subscribe(now, acts),
            Action::Unsubscribe => {
                if !self.filters.is_empty() {
                    let at = self.random.below(self.filters.len() as u64) as usize;
                    let (id, filters) = (self.fresh_id(), vec![self.filters.swap_remove(at)]);
                    self.say(now, &Said::Unsubscribe { id, filters }, acts);
                }
            }
            Action::Leave | Action::LeaveWithWill => {
                let code = if action == Action::LeaveWithWill { 4 } else { 0 };
                self.say(now, &Said::Disconnect { code, expiry: None }, acts);
                self.end(now, Act::Finish, acts);
            }
            Action::Close => self.end(now, Act::Finish, acts),
            Action::Reset => self.end(now, Act::Reset, acts),
            Action::Vanish => self.end(now, Act::Vanish, acts),
            Action::TakeOver => self.greet(now, acts),
            Action::Stall => {
                acts.push(Act::Stall);
                self.talk.stalled_until = Some(now + self.random.span(Duration::from_secs(6)));
            }
        }
    }

    fn end(&mut self, now: Time, act: Act, acts: &mut Vec<Act>) {
        acts.push(act);
        self.closed(now);
    }

    pub(super) fn closed(&mut self, now: Time) {
        let pause = if self.calm { Duration::from_millis(10) } else { self.random.span(self.persona.downtime) };
        self.stand = Stand::Down { until: now + pause };
    }

    pub(super) fn calm(&mut self, now: Time, acts: &mut Vec<Act>) {
        self.calm = true;
        if let Stand::Down { until } = &mut self.stand {
            *until = now;
        }
        if self.talk.stalled_until.take().is_some() && self.stand == Stand::Up {
            acts.push(Act::Resume);
        }
    }

    fn greet(&mut self, now: Time, acts: &mut Vec<Act>) {
        let hello = self.hello();
        self.talk = Talk { last_sent: now, next_action: now, receive_maximum: u16::MAX, ..Talk::default() };
        self.talk.keep_alive = hello.keep_alive;
        self.stand = Stand::Greeting { until: now + PATIENCE };
        acts.push(Act::Open);
        self.say(now, &Said::Connect(hello), acts);
    }

    fn hello(&mut self) -> Hello {
        let persona = &self.persona;
        let five = persona.version == Version::V5_0;
        let mut hello = if five { Hello::v5(&self.name) } else { Hello::v311(&self.name) };
        let clean = !self.calm && self.random.chance(persona.clean_permille);
        // In 3.1.1 Clean Session ends a session with its connection.
        hello = hello.clean_start(if five { clean } else { clean || persona.expiry == 0 });
        hello = hello.keep_alive(persona.keep_alive);
        if five && persona.expiry > 0 {
            hello = hello.session_expiry(persona.expiry);
        }
        if let Some(maximum) = persona.receive_maximum {
            hello = hello.property(ReceiveMaximum::new(maximum).expect(IN_RANGE));
        }
        if persona.alias_maximum > 0 {
            hello = hello.property(TopicAliasMaximum::new(persona.alias_maximum).expect(IN_RANGE));
        }
        if let Some(maximum) = persona.packet_maximum {
            hello = hello.property(MaximumPacketSize::new(maximum).expect(IN_RANGE));
        }
        if !self.calm && self.random.chance(persona.will.permille) {
            let topic = random_topic(&mut self.random);
            self.published += 1;
            let payload = format!("{}/will{}", self.name, self.published);
            hello = hello.will(Message::new(&topic, payload).qos(persona.will.qos, 0).retain(persona.will.retain));
            if persona.will.delay > 0 {
                hello = hello.will_delay(persona.will.delay);
            }
        }
        hello
    }

    fn publish(&mut self, now: Time, acts: &mut Vec<Act>) {
        let qos = QOS[self.random.weighted(&self.persona.qos_weights)];
        let most = match self.persona.version {
            Version::V5_0 => OUTSTANDING_MAX.min(self.talk.receive_maximum.into()),
            _ => OUTSTANDING_MAX_V311,
        };
        if qos != Qos::AtMostOnce && self.unacked.len() >= most {
            return;
        }
        self.published += 1;
        let mut payload = format!("{}/{}", self.name, self.published).into_bytes();
        payload.resize(payload.len() + self.random.below(self.persona.payload_max) as usize, b'.');
        let retain = self.random.chance(self.persona.retain_permille);
        let topic = random_topic(&mut self.random);
        let mut message = Message::new(&topic, payload).retain(retain);
        if qos != Qos::AtMostOnce {
            message = message.qos(qos, self.fresh_id());
        }
        if self.persona.version == Version::V5_0 {
            message.properties = self.draw_properties();
            if self.persona.numbers && qos != Qos::AtMostOnce {
                let number = self.published.to_string();
                message.properties.push(UserProperty::new("w-seq", &*number).expect(IN_RANGE).into());
            }
        }
        if qos != Qos::AtMostOnce {
            self.unacked.push((message.id, Unacked::Published(message.clone())));
        }
        self.alias(&mut message);
        self.say(now, &Said::Publish(message), acts);
    }

    fn draw_properties(&mut self) -> Vec<Property> {
        let mut properties = Vec::new();
        if self.random.chance(self.persona.expiring_permille) {
            let seconds = self.random.between(1, 5) as u32;
            properties.push(MessageExpiryInterval::new(seconds).expect(IN_RANGE).into());
        }
        for name in ["line", "line", "fuel"] {
            if self.random.chance(300) {
                let value = self.random.below(100).to_string();
                properties.push(UserProperty::new(name, &*value).expect(IN_RANGE).into());
            }
        }
        if self.random.chance(300) {
            let importance = self.random.between(1, 10).to_string();
            properties.push(UserProperty::new("w-importance", &*importance).expect(IN_RANGE).into());
        }
        properties
    }

    /// Replaces the topic by its alias if it has one, or gives it one.
    fn alias(&mut self, message: &mut Message) {
        if self.talk.alias_maximum == 0 || !self.random.chance(500) {
            return;
        }
        let alias = self.random.between(1, self.talk.alias_maximum.min(3).into()) as u16;
        if self.talk.aliases.get(&alias) == Some(&message.topic) {
            message.topic.clear();
        } else {
            self.talk.aliases.insert(alias, message.topic.clone());
        }
        message.properties.push(TopicAlias::new(alias).expect(IN_RANGE).into());
    }

    fn subscribe(&mut self, now: Time, acts: &mut Vec<Act>) {
        let five = self.persona.version == Version::V5_0;
        let shared = five && self.random.chance(self.persona.shared_permille);
        let count = if shared { 1 } else { self.random.between(1, 2) };
        let mut wanted: Vec<Wanted> = Vec::new();
        for _ in 0..count {
            let again = !self.filters.is_empty() && (self.filters.len() >= FILTERS_MAX || self.random.chance(200));
            let filter = match again {
                true => self.random.pick(&self.filters).clone(),
                false if shared => format!("$share/g/{}", self.random.pick(&["a/#", "b/#", "+/c"])),
                false => random_filter(&mut self.random),
            };
            if wanted.iter().any(|other| other.filter == filter) || filter.starts_with("$share") != shared {
                continue;
            }
            if !self.filters.contains(&filter) {
                self.filters.push(filter.clone());
            }
            let mut one = Wanted::new(&filter, QOS[self.random.weighted(&self.persona.qos_weights)]);
            if five {
                one.no_local = !shared && self.random.chance(200);
                one.retain_as_published = self.random.chance(300);
                one.retain_handling = self.random.below(3) as u8;
            }
            wanted.push(one);
        }
        if wanted.is_empty() {
            return;
        }
        // Every subscription has its own identifier, or none. Shared ones must have one: it tells
        // their deliveries apart.
        self.next_identifier += 1;
        let identifier = if five && (shared || self.random.chance(700)) { self.next_identifier } else { 0 };
        let id = self.fresh_id();
        let selector = self.draw_choice(&wanted[0].filter, shared).map(|choice| choice.to_string());
        // Any term makes the broker tell the names of events; this one changes nothing else.
        let term = || ("w-notices".to_owned(), "off".to_owned());
        let terms = self.persona.is_told_names.then(term).into_iter().collect();
        self.say(now, &Said::Subscribe { id, identifier, selector, terms, wanted }, acts);
    }

    /// A selector, or none. Members of a shared subscription use the same one: it follows from the
    /// filter.
    fn draw_choice(&mut self, filter: &str, shared: bool) -> Option<Choice> {
        if shared {
            return filter.ends_with("b/#").then_some(Choice::NotLess(30));
        }
        self.random.chance(self.persona.selector_permille).then(|| Choice::draw(&mut self.random))
    }

    /// A packet identifier that no unacknowledged packet of the client has.
    fn fresh_id(&mut self) -> u16 {
        loop {
            self.next_id = self.next_id % u16::MAX + 1;
            if self.unacked.iter().all(|(id, _)| *id != self.next_id) {
                return self.next_id;
            }
        }
    }

    fn say(&mut self, now: Time, said: &Said, acts: &mut Vec<Act>) {
        self.talk.last_sent = now;
        acts.push(Act::Send(said.encode(self.persona.version)));
    }

    pub(super) fn hear(&mut self, now: Time, bytes: &[u8], acts: &mut Vec<Act>) {
        self.talk.heard.extend_from_slice(bytes);
        // Checkers report bytes that are not a packet: this client reads nothing more on that
        // connection.
        while let Ok(Some(packet)) = next_packet(self.persona.version, &self.talk.heard, &mut self.talk.decoded) {
            self.understand(now, Heard::from(packet), acts);
        }
        if self.talk.decoded == self.talk.heard.len() {
            self.talk.heard.clear();
            self.talk.decoded = 0;
        }
    }

    fn understand(&mut self, now: Time, heard: Heard, acts: &mut Vec<Act>) {
        match heard {
            Heard::Connack { code: 0, session_present, properties } => {
                self.welcomed(now, session_present, &properties, acts);
            }
            Heard::Publish(message) => match message.qos {
                Qos::AtMostOnce => {}
                Qos::AtLeastOnce => self.answer(now, Ack::Puback, message.id, 0),
                Qos::ExactlyOnce => {
                    let refuse = self.persona.version == Version::V5_0 && self.random.chance(20);
                    if !refuse || self.unreleased.contains(&message.id) {
                        self.unreleased.insert(message.id);
                        self.answer(now, Ack::Pubrec, message.id, 0);
                    } else {
                        self.answer(now, Ack::Pubrec, message.id, 0x97);
                    }
                }
            },
            Heard::Ack { ack: Ack::Pubrel, id, .. } => {
                self.unreleased.remove(&id);
                self.answer(now, Ack::Pubcomp, id, 0);
            }
            Heard::Ack { ack: Ack::Pubrec, id, code } if code < 0x80 => {
                if let Some((_, state)) = self.unacked.iter_mut().find(|(known, _)| *known == id) {
                    *state = Unacked::Released;
                }
                self.say(now, &Said::Ack { ack: Ack::Pubrel, id, code: 0 }, acts);
            }
            // A refused number is repeated before any other, on another connection.
            Heard::Ack { ack: Ack::Puback | Ack::Pubrec, code, .. } if code >= 0x80 && self.persona.numbers => {
                self.end(now, Act::Reset, acts);
            }
            Heard::Ack { id, .. } => self.unacked.retain(|(known, _)| *known != id),
            _ => {}
        }
    }

    fn answer(&mut self, now: Time, ack: Ack, id: u16, code: u8) {
        let at = self.answer_at(now);
        self.talk.answers.push_back((at, Said::Ack { ack, id, code }));
    }

    /// The time of the next answer: answers keep their order.
    fn answer_at(&mut self, now: Time) -> Time {
        let delay = if self.calm { Duration::ZERO } else { self.random.span(self.persona.ack_delay) };
        self.talk.answers.back().map_or(now + delay, |(last, _)| (now + delay).max(*last))
    }

    fn welcomed(&mut self, now: Time, session_present: bool, properties: &[Property], acts: &mut Vec<Act>) {
        self.stand = Stand::Up;
        self.talk.next_action = now + self.random.span(self.persona.pace);
        for property in properties {
            match property {
                Property::TopicAliasMaximum(p) => self.talk.alias_maximum = p.val(),
                Property::ReceiveMaximum(p) => self.talk.receive_maximum = p.val(),
                Property::ServerKeepAlive(p) => self.talk.keep_alive = p.val(),
                _ => {}
            }
        }
        if !session_present {
            // Numbered messages are repeated in any session.
            let repeats = self.persona.numbers;
            self.unacked.retain(|(_, state)| repeats && matches!(state, Unacked::Published(_)));
            self.unreleased.clear();
            self.filters.clear();
        }
        for (id, state) in self.unacked.clone() {
            let again = match state {
                Unacked::Published(message) => Said::Publish(message.dup(true)),
                Unacked::Released => Said::Ack { ack: Ack::Pubrel, id, code: 0 },
            };
            self.say(now, &again, acts);
        }
    }
}
