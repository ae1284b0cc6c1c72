//! A client with tracked subscriptions: it keeps its position as an application would, is often
//! away, and resumes.
//!
//! For each subscription it remembers the token of the SUBACK and the last event id of each pubend
//! since; the token of a notice of silence replaces both. Its `w-from` after a return depends on
//! its [`Habit`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{MaximumPacketSize, Property, Qos, ReceiveMaximum, UserProperty};
use whimbrel_event::Time;

use super::Act;
use super::habits::{Class, Habit, Habits, Plan};
use crate::check::moment_text;
use crate::choice::Choice;
use crate::packets::next_packet;
use crate::random::Random;
use crate::rig::START;
use crate::speech::{Ack, Heard, Hello, Message, Said, Wanted, event_name, user_properties};

/// How long a client waits for CONNACK before it connects anew.
const PATIENCE: Duration = Duration::from_secs(4);

/// A client that resumes by time begins this long before its last message.
const MARGIN: Duration = Duration::from_secs(1);

/// [`MARGIN`] before a moment, but not before the start of the world.
fn earlier(than: Time) -> Time {
    START + than.since(START).saturating_sub(MARGIN)
}

/// How long a client waits after a refusal because the log is full, or has failed.
const AGAIN: Duration = Duration::from_millis(500);

/// The topic on which tokens are acknowledged.
pub(crate) const ACKNOWLEDGED: &str = "$whimbrel/ack";

/// The reason given to `expect` for values that are constants here.
const IN_RANGE: &str = "a value in the range of the property";

/// The state that an application has kept for one subscription.
#[derive(Clone, Default, Debug)]
struct Kept {
    token: Option<String>,
    /// The last event of each pubend since: its tick and its id.
    ids: BTreeMap<String, (u64, String)>,
    /// When the last message arrived.
    heard: Option<Time>,
    /// Whether the client has subscribed in its present session.
    subscribed: bool,
    /// The packet identifier of a SUBSCRIBE whose SUBACK is awaited.
    asked: Option<u16>,
}

/// The state of the client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    Down { until: Time },
    Greeting { until: Time },
    Up { next_action: Time },
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Follower {
    name: String,
    habits: Habits,
    random: Random,
    stand: Stand,
    calm: bool,
    heard: Vec<u8>,
    answers: VecDeque<(Time, Said)>,
    stalled_until: Option<Time>,
    /// When it asks again for what was refused.
    again_at: Option<Time>,
    keep_alive: Duration,
    last_sent: Time,
    next_id: u16,
    /// QoS 2 packet identifiers whose PUBREL has not arrived.
    unreleased: BTreeSet<u16>,
    kept: Vec<Kept>,
}

impl Follower {
    /// A client that connects for the first time a little after `now`.
    pub fn new(name: String, habits: Habits, mut random: Random, now: Time) -> Self {
        let until = now + random.span(habits.downtime);
        let kept = vec![Kept::default(); habits.plans.len()];
        Follower {
            name,
            habits,
            random,
            stand: Stand::Down { until },
            calm: false,
            heard: Vec::new(),
            answers: VecDeque::new(),
            stalled_until: None,
            again_at: None,
            keep_alive: Duration::ZERO,
            last_sent: now,
            next_id: 0,
            unreleased: BTreeSet::new(),
            kept,
        }
    }

    pub(super) fn next_wake(&self) -> Option<Time> {
        match self.stand {
            Stand::Down { until } | Stand::Greeting { until } => Some(until),
            Stand::Up { next_action } => {
                let answer = self.answers.front().map(|(at, _)| *at);
                let action = (!self.calm && self.habits.acts()).then_some(next_action);
                [answer, action, self.ping_at(), self.stalled_until, self.again_at].into_iter().flatten().min()
            }
        }
    }

    fn ping_at(&self) -> Option<Time> {
        (!self.keep_alive.is_zero()).then(|| self.last_sent + self.keep_alive / 2)
    }

    pub(super) fn wake(&mut self, now: Time, acts: &mut Vec<Act>) {
        match self.stand {
            Stand::Down { until } if now >= until => self.greet(now, acts),
            Stand::Greeting { until } if now >= until => {
                acts.push(Act::Reset);
                self.closed(now);
            }
            Stand::Up { next_action } => self.wake_up(now, next_action, acts),
            _ => {}
        }
    }

    fn wake_up(&mut self, now: Time, next_action: Time, acts: &mut Vec<Act>) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            for plan in 0..self.kept.len() {
                if !self.kept[plan].subscribed {
                    self.subscribe(now, plan, true, acts);
                }
            }
        }
        while self.answers.front().is_some_and(|(at, _)| *at <= now) {
            let (_, answer) = self.answers.pop_front().expect("just seen");
            self.say(now, &answer, acts);
        }
        if self.stalled_until.is_some_and(|until| until <= now) {
            self.stalled_until = None;
            acts.push(Act::Resume);
        }
        if self.ping_at().is_some_and(|at| at <= now) {
            self.say(now, &Said::Ping, acts);
        }
        if !self.calm && self.habits.acts() && next_action <= now {
            self.stand = Stand::Up { next_action: now + self.pause() };
            self.act(now, acts);
        }
    }

    fn pause(&mut self) -> Duration {
        self.random.span(self.habits.uptime) + Duration::from_micros(1)
    }

    fn act(&mut self, now: Time, acts: &mut Vec<Act>) {
        let plan = self.random.below(self.kept.len() as u64) as usize;
        match self.random.weighted(&self.habits.weights) {
            0 => self.end(now, Act::Vanish, acts),
            1 => self.end(now, Act::Reset, acts),
            2 => {
                self.say(now, &Said::Disconnect { code: 0, expiry: None }, acts);
                self.end(now, Act::Finish, acts);
            }
            3 => self.greet(now, acts),
            4 => {
                acts.push(Act::Stall);
                self.stalled_until = Some(now + self.random.span(self.habits.stall));
            }
            // Subscribes again. A subscription that it gives up is made again at the next such
            // action.
            5 => {
                let again = !self.by_token() || self.random.chance(500);
                self.subscribe(now, plan, again, acts);
            }
            7 => self.acknowledge(now, plan, acts),
            8 => {
                self.habits.plans[plan].choice = self.random.chance(700).then(|| Choice::draw(&mut self.random));
                self.subscribe(now, plan, false, acts);
            }
            _ if self.kept[plan].subscribed => {
                let (id, filters) = (self.fresh_id(), vec![self.habits.plans[plan].filter.clone()]);
                self.kept[plan].subscribed = false;
                self.say(now, &Said::Unsubscribe { id, filters }, acts);
            }
            _ => self.subscribe(now, plan, true, acts),
        }
    }

    fn end(&mut self, now: Time, act: Act, acts: &mut Vec<Act>) {
        acts.push(act);
        self.closed(now);
    }

    pub(super) fn closed(&mut self, now: Time) {
        let pause = if self.calm { Duration::from_millis(500) } else { self.random.span(self.habits.downtime) };
        self.stand = Stand::Down { until: now + pause };
    }

    pub(super) fn calm(&mut self, now: Time, acts: &mut Vec<Act>) {
        self.calm = true;
        if let Stand::Down { until } = &mut self.stand {
            *until = now;
        }
        if self.stalled_until.take().is_some() {
            acts.push(Act::Resume);
        }
    }

    fn greet(&mut self, now: Time, acts: &mut Vec<Act>) {
        let mut hello = Hello::v5(&self.name).clean_start(self.habits.expiry == 0);
        if self.habits.expiry > 0 {
            hello = hello.session_expiry(self.habits.expiry);
        }
        if let Some(maximum) = self.habits.receive_maximum {
            hello = hello.property(ReceiveMaximum::new(maximum).expect(IN_RANGE));
        }
        if let Some(maximum) = self.habits.packet_maximum {
            hello = hello.property(MaximumPacketSize::new(maximum).expect(IN_RANGE));
        }
        self.heard.clear();
        self.answers.clear();
        (self.stalled_until, self.again_at) = (None, None);
        self.keep_alive = Duration::ZERO;
        self.kept.iter_mut().for_each(|kept| kept.asked = None);
        self.stand = Stand::Greeting { until: now + PATIENCE };
        acts.push(Act::Open);
        self.say(now, &Said::Connect(hello), acts);
    }

    /// Whether the client keeps the positions of durable subscriptions.
    fn by_token(&self) -> bool {
        self.habits.class == Class::DurableByToken
    }

    /// Acknowledges its position.
    fn acknowledge(&mut self, now: Time, plan: usize, acts: &mut Vec<Act>) {
        let kept = &self.kept[plan];
        let Some(token) = kept.token.clone().filter(|_| kept.subscribed && kept.asked.is_none()) else { return };
        let identifier = (plan + 1).to_string();
        let mut message = Message::new(ACKNOWLEDGED, token);
        message = message.property(UserProperty::new("w-subscription", &*identifier).expect(IN_RANGE));
        if self.random.chance(800) {
            message = message.qos(Qos::AtLeastOnce, self.fresh_id());
        }
        self.say(now, &Said::Publish(message), acts);
    }

    /// Subscribes; `again`: also tells where to begin if the session knows.
    fn subscribe(&mut self, now: Time, plan: usize, again: bool, acts: &mut Vec<Act>) {
        if self.kept[plan].asked.is_some() {
            return;
        }
        let from = if again || !self.kept[plan].subscribed { self.from(plan) } else { None };
        let Plan { filter, qos, choice, notices, retain_as_published, retain_handling } =
            self.habits.plans[plan].clone();
        let mut wanted = Wanted::new(&filter, qos);
        // More messages may be retained than its queue takes, at each return.
        let retain_handling = if self.calm { 2 } else { retain_handling };
        (wanted.retain_as_published, wanted.retain_handling) = (retain_as_published, retain_handling);
        let term = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let class = if self.habits.class == Class::SemiDurable { "semi-durable" } else { "durable" };
        let mut terms = vec![term("w-durability", class)];
        terms.extend(self.by_token().then(|| term("w-ack", "token")));
        terms.extend(notices.then(|| term("w-notices", "on")));
        terms.extend(from.map(|from| term("w-from", &from)));
        let (id, identifier) = (self.fresh_id(), plan as u32 + 1);
        self.kept[plan].asked = Some(id);
        let selector = choice.map(|choice| choice.to_string());
        self.say(now, &Said::Subscribe { id, identifier, selector, terms, wanted: vec![wanted] }, acts);
    }

    /// The value of `w-from`.
    fn from(&mut self, plan: usize) -> Option<String> {
        let kept = &self.kept[plan];
        let ids: Vec<&str> = kept.ids.values().map(|(_, id)| &**id).collect();
        if !self.calm && self.random.chance(self.habits.lie_permille) {
            return Some(self.lie(plan));
        }
        match self.habits.habit {
            Habit::Session => None,
            Habit::Earliest => Some("earliest".to_owned()),
            Habit::Time => kept.heard.map(|heard| moment_text(earlier(heard))),
            Habit::Ids if ids.is_empty() => kept.token.clone(),
            Habit::Ids => Some(ids.join(",")),
            Habit::Token => kept.token.as_ref().map(|token| [&[&**token], &ids[..]].concat().join(",")),
        }
    }

    /// A wrong position: rubbish, a token that was cut, altered or is from another world, or an
    /// event that does not exist yet.
    fn lie(&mut self, plan: usize) -> String {
        let kept = &self.kept[plan];
        let token = kept.token.clone().unwrap_or_else(|| "AQ".to_owned());
        match (self.random.below(6), kept.ids.iter().next()) {
            (0, _) => "no place!".to_owned(),
            (1, _) => token[..token.len() / 2].to_owned(),
            (2, _) => {
                let at = self.random.below(token.len() as u64) as usize;
                format!("{}{}{}", &token[..at], self.random.pick(&["A", "Z", "7", "_"]), &token[at + 1..])
            }
            (3, Some((pubend, (tick, _)))) => format!("{token},{pubend}:{}", tick + 3_600_000_000_000),
            (4, Some((pubend, (tick, _)))) => format!("{pubend}:{}", tick.saturating_sub(1)),
            _ => format!("{:x}:{}", self.random.next(), self.random.below(2_000_000_000_000_000_000)),
        }
    }

    fn fresh_id(&mut self) -> u16 {
        self.next_id = self.next_id % u16::MAX + 1;
        self.next_id
    }

    fn say(&mut self, now: Time, said: &Said, acts: &mut Vec<Act>) {
        self.last_sent = now;
        acts.push(Act::Send(said.encode(Version::V5_0)));
    }

    pub(super) fn hear(&mut self, now: Time, bytes: &[u8], acts: &mut Vec<Act>) {
        self.heard.extend_from_slice(bytes);
        let mut at = 0;
        // Checkers report bytes that are not a packet: this client reads nothing more on that
        // connection.
        while let Ok(Some(packet)) = next_packet(Version::V5_0, &self.heard, &mut at) {
            self.understand(now, Heard::from(packet), acts);
        }
        self.heard.drain(..at.min(self.heard.len()));
    }

    fn understand(&mut self, now: Time, heard: Heard, acts: &mut Vec<Act>) {
        match heard {
            Heard::Connack { code: 0, session_present, properties } => {
                self.welcomed(now, session_present, &properties, acts);
            }
            Heard::Publish(message) => {
                self.note(now, &message);
                match message.qos {
                    Qos::AtMostOnce => {}
                    Qos::AtLeastOnce => self.answer(now, Ack::Puback, message.id),
                    Qos::ExactlyOnce => {
                        self.unreleased.insert(message.id);
                        self.answer(now, Ack::Pubrec, message.id);
                    }
                }
            }
            Heard::Ack { ack: Ack::Pubrel, id, .. } => {
                self.unreleased.remove(&id);
                self.answer(now, Ack::Pubcomp, id);
            }
            Heard::Suback { id, codes, properties } => self.subscribed(now, id, &codes, &properties, acts),
            _ => {}
        }
    }

    fn welcomed(&mut self, now: Time, session_present: bool, properties: &[Property], acts: &mut Vec<Act>) {
        self.stand = Stand::Up { next_action: now + self.pause() };
        for property in properties {
            if let Property::ServerKeepAlive(p) = property {
                self.keep_alive = Duration::from_secs(p.val().into());
            }
        }
        if !session_present {
            self.unreleased.clear();
            self.kept.iter_mut().for_each(|kept| kept.subscribed = false);
        }
        for plan in 0..self.kept.len() {
            let keeps = session_present && self.habits.habit == Habit::Session && self.kept[plan].subscribed;
            let keeps = keeps && !self.by_token();
            if !keeps || self.random.chance(300) {
                self.subscribe(now, plan, !keeps, acts);
            }
        }
    }

    fn subscribed(&mut self, now: Time, id: u16, codes: &[u8], properties: &[Property], acts: &mut Vec<Act>) {
        let Some(plan) = self.kept.iter().position(|kept| kept.asked == Some(id)) else { return };
        let kept = &mut self.kept[plan];
        kept.asked = None;
        if codes.iter().any(|code| *code >= 0x80) {
            if codes.contains(&0x97) {
                // The log is full, or has failed.
                kept.subscribed = false;
                self.again_at = Some(now + AGAIN);
                return;
            }
            // Its position is unusable: it begins anew.
            *kept = Kept { subscribed: kept.subscribed, ..Kept::default() };
            if !kept.subscribed {
                self.subscribe(now, plan, true, acts);
            }
            return;
        }
        kept.subscribed = true;
        let token = user_properties(properties).into_iter().find(|(name, _)| name == "w-token");
        kept.token = token.map(|(_, token)| token);
        kept.ids.clear();
    }

    /// Keeps the position up to date.
    fn note(&mut self, now: Time, message: &Message) {
        let identifier = message.subscription_identifiers().first().copied().unwrap_or(0);
        let Some(kept) = (identifier as usize).checked_sub(1).and_then(|plan| self.kept.get_mut(plan)) else { return };
        kept.heard = Some(now);
        if message.topic == "$whimbrel/notice" {
            let text = String::from_utf8_lossy(&message.payload);
            if let Some((token, _)) = text.split_once("\"token\":\"").and_then(|(_, rest)| rest.split_once('"')) {
                kept.token = Some(token.to_owned());
                kept.ids.clear();
            }
            return;
        }
        let Some(id) = message.user_property("w-id") else { return };
        let Some((pubend, tick)) = event_name(id) else { return };
        let known = kept.ids.entry(format!("{pubend:x}")).or_insert((tick, id.to_owned()));
        if known.0 < tick {
            *known = (tick, id.to_owned());
        }
    }

    fn answer(&mut self, now: Time, ack: Ack, id: u16) {
        let delay = if self.calm { Duration::ZERO } else { self.random.span(self.habits.ack_delay) };
        let at = self.answers.back().map_or(now + delay, |(last, _)| (now + delay).max(*last));
        self.answers.push_back((at, Said::Ack { ack, id, code: 0 }));
    }
}
