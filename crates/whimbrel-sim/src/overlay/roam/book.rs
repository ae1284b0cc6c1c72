//! The book of roaming clients: what was published, what each client received, and the rules that
//! are broken the moment a packet is received.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_event::{CheckpointToken, HostId, Packed, PubendId, Reliability, Time};

use super::client::{Keeper, UNAVAILABLE};
use super::counts::Counts;
use super::deed::Deed;
use super::fact::Fact;
use super::repeat::{Got, may_repeat};
use super::trouble::{COPY, LINGER, Troubles};
use super::web::Reach;
use crate::check::notice::{self, Notice};
use crate::disk::packed_of;
use crate::overlay::book::{Process, Rule, Violation, key_of, name_of, wants};
use crate::overlay::client::Wish;
use crate::rig::START;
use crate::speech::{Ack, Heard, Message, user_properties};

/// How long SUBSCRIBE may wait for its answer.
const SUBSCRIBE_MAX: Duration = Duration::from_millis(2_600);

/// By this time after the start of a world its brokers have found each other.
const FOUND: Duration = Duration::from_secs(6);

/// An event that takes longer to its delivery may have been held for an earlier one.
const HELD_MAX: Duration = Duration::from_millis(4_500);
/// The number of violations that are kept as text, at most.
const VIOLATIONS_MAX: usize = 20;
/// An event's name: its stream and tick.
pub(super) type Name = (u64, u64);

/// A subscription from its SUBSCRIBE on, until it is begun anew.
#[derive(Default)]
pub(super) struct Era {
    pub(super) asked: (Time, u16),
    pub(super) began: Option<Time>,
    /// The process that granted it.
    pub(super) granted: Option<Process>,
    pub(super) pending: Vec<String>,
    /// The hosts of which the granting broker had heard.
    pub(super) known: BTreeSet<HostId>,
    pub(super) got: BTreeMap<usize, Got>,
    pub(super) gaps: Vec<(Name, u64, String, Time)>,
    /// Its position, as last told.
    pub(super) token: Option<CheckpointToken>,
    /// The last tick of each stream on this connection.
    last: BTreeMap<u64, u64>,
    /// The greatest tick of each stream among events that were not repeated.
    first: BTreeMap<u64, u64>,
    /// The greatest number of each publisher, and its event.
    numbers: BTreeMap<(usize, bool), (u64, usize)>,
    pub(super) is_answered: bool,
    pub(super) is_over: bool,
    /// Its session was lost with all brokers that had it; the client went on by itself.
    pub(super) is_forgiven: bool,
}

impl Era {
    /// Whether an event of a stream was received.
    pub(super) fn has_had(&self, stream: u64) -> bool {
        self.first.contains_key(&stream)
    }
}

/// A client that subscribes.
pub(super) struct Account {
    pub(super) name: String,
    pub(super) keeper: Keeper,
    pub(super) wish: Wish,
    pub(super) eras: Vec<Era>,
    connection: u32,
    /// When CONNECT was sent, whether it was clean, and whether it must not be refused.
    asked: Option<(Time, bool, bool)>,
    /// Since when it has a connection with a session, and where.
    pub(super) attached: Option<(Time, Process)>,
    /// Where its session was begun.
    founded: Option<(Time, Process)>,
    /// Where its session was last known to be.
    pub(super) home: Option<(Time, Process)>,
    /// When it last came to a broker from another one.
    moved: Option<Time>,
    /// When it last returned to a machine that had lost its disk: another broker has the name now.
    renewed: Option<Time>,
    tags: BTreeMap<u16, usize>,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Book {
    pub(super) facts: Vec<Fact>,
    by_key: BTreeMap<String, usize>,
    pub(super) accounts: BTreeMap<usize, Account>,
    unanswered: BTreeMap<(usize, u16), usize>,
    /// When each client last received a CONNACK.
    welcomed: BTreeMap<usize, Time>,
    pub(super) troubles: Troubles,
    pub(super) names: Vec<String>,
    pub(super) gives_up: bool,
    pub(super) counts: Counts,
    pub(super) violations: Vec<Violation>,
}

impl Book {
    /// An empty book. `gives_up`: brokers give up old events that subscriptions still need.
    pub(super) fn new(gives_up: bool) -> Book {
        Book { gives_up, ..Book::default() }
    }

    pub(super) fn breaks(&mut self, rule: Rule, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { rule, what });
        }
    }

    pub(super) fn open(&mut self, client: usize, name: &str, keeper: Keeper, wish: Wish) {
        let account = Account {
            name: name.to_owned(),
            keeper,
            wish,
            eras: Vec::new(),
            connection: 0,
            asked: None,
            attached: None,
            founded: None,
            home: None,
            moved: None,
            renewed: None,
            tags: BTreeMap::new(),
        };
        self.accounts.insert(client, account);
    }

    /// Records what a client did or received at a process. `reach`: that process's surroundings.
    pub(super) fn note(&mut self, now: Time, (client, at): (usize, Process), deed: Deed, reach: Reach<'_>) {
        match deed {
            Deed::Publishes { number, message } => self.published((now, reach.clock()), (client, at), number, message),
            Deed::Takes(message) => self.took(now, client, at, &message),
            Deed::Heard(Heard::Ack { ack: Ack::Puback | Ack::Pubrec, id, code }) => {
                let Some(fact) = self.unanswered.remove(&(client, id)) else { return };
                if code >= 0x80 {
                    return self.breaks(Rule::Answer, format!("a publish is refused with {code:02x}"));
                }
                self.facts[fact].answered.get_or_insert((now, at));
            }
            Deed::Heard(Heard::Connack { code, session_present, .. }) => {
                self.welcomed.insert(client, now);
                self.connected(now, (client, at), (code, session_present), reach);
            }
            Deed::Heard(Heard::Suback { id, codes, properties }) => {
                let named = user_properties(&properties).into_iter().filter(|(name, _)| name == "w-pending");
                let broker = reach.net.nodes[reach.node].broker.as_ref();
                let known = broker.map(|broker| self.troubles.known_to(broker.core()).collect()).unwrap_or_default();
                self.subscribed(now, client, (id, &codes), (named.map(|(_, name)| name).collect(), known));
            }
            Deed::Heard(_) => {}
            Deed::Connects { is_clean, forces } => {
                if let Some(account) = self.accounts.get_mut(&client) {
                    account.asked = Some((now, is_clean, forces));
                    account.connection += 1;
                }
            }
            Deed::Subscribes { id, goes_on } => self.subscribes(now, client, id, goes_on),
            Deed::Settles { id } => {
                let Some(account) = self.accounts.get_mut(&client) else { return };
                let Some(fact) = account.tags.get(&id).copied() else { return };
                let got = account.eras.last_mut().and_then(|era| era.got.get_mut(&fact));
                got.into_iter().for_each(|got| got.settled = got.settled.or(Some((now, at))));
            }
            Deed::Gone => self.gone(now, client, reach),
            Deed::Haunted => {
                let account = self.accounts.get(&client).and_then(|account| Some((&account.name, account.attached?.0)));
                let Some((name, since)) = account else { return };
                if !self.troubles.any(since, now) {
                    let what = format!("the older connection of {name} is open {:?} after the newer", now.since(since));
                    self.breaks(Rule::Takeover, what);
                }
            }
        }
    }

    fn gone(&mut self, now: Time, client: usize, reach: Reach<'_>) {
        let Some(account) = self.accounts.get_mut(&client) else { return };
        account.tags.clear();
        let asked = account.asked.take().map(|(at, ..)| at).filter(|at| !self.troubles.held_up(*at, now));
        if let Some((_, process)) = account.attached.take() {
            account.home = Some((now, process));
        }
        if let Some(asked) = asked.filter(|asked| now.since(*asked) > reach.connect_max()) {
            let what = format!("{} gets no answer to its CONNECT in {:?}", account.name, now.since(asked));
            self.breaks(Rule::Answer, what);
        }
    }

    fn published(&mut self, (now, clock): (Time, Time), (client, at): (usize, Process), number: u64, message: Message) {
        let (key, id) = (key_of(&message), message.id);
        let fact = match self.by_key.get(&key) {
            Some(fact) => {
                self.counts.again += 1;
                *fact
            }
            None => {
                self.counts.published += 1;
                self.by_key.insert(key.clone(), self.facts.len());
                self.facts.push(Fact {
                    key,
                    message,
                    publisher: client,
                    number,
                    sent: Vec::new(),
                    since: self.welcomed.get(&client).copied().unwrap_or(now),
                    clocks: Vec::new(),
                    answered: None,
                    names: BTreeMap::new(),
                    is_marked: false,
                    written: BTreeSet::new(),
                });
                self.facts.len() - 1
            }
        };
        self.facts[fact].sent.push((now, at));
        self.facts[fact].clocks.push(clock);
        self.unanswered.insert((client, id), fact);
    }

    fn connected(
        &mut self,
        now: Time,
        (client, at): (usize, Process),
        (code, is_present): (u8, bool),
        reach: Reach<'_>,
    ) {
        self.counts.refused += u64::from(code == UNAVAILABLE);
        if code >= 0x80 && code != UNAVAILABLE {
            return self.breaks(Rule::Answer, format!("client {client} is refused with {code:02x}"));
        }
        let changed = self.troubles.changed;
        let is_settled = changed.map_or(now.since(START) > FOUND, |changed| now.since(changed) > LINGER);
        let out_of_reach = reach.missing();
        let Some(account) = self.accounts.get_mut(&client) else { return };
        let Some((asked, is_clean, forces)) = account.asked.take() else { return };
        let who = format!("{} at {at:?}", account.name);
        if code == UNAVAILABLE {
            let is_settled = is_settled && !self.troubles.held_up(asked, now);
            if is_clean || forces || is_settled && out_of_reach <= 1 {
                let calm = if is_settled { "all is calm" } else { "there is a storm" };
                let asks = format!("clean: {is_clean}, forced: {forces}");
                self.breaks(Rule::Session, format!("{who} is refused, {asks}, {out_of_reach} out of reach, {calm}"));
            }
            return;
        }
        if now.since(asked) > reach.connect_max() && !self.troubles.held_up(asked, now) {
            self.breaks(Rule::Answer, format!("{who} waits {:?} for its CONNACK", now.since(asked)));
        }
        let Some(account) = self.accounts.get_mut(&client) else { return };
        let before = account.home.replace((now, at));
        account.attached = Some((now, at));
        let founded = account.founded;
        if !is_present {
            account.founded = Some((now, at));
        }
        let Some(era) = account.eras.last_mut().filter(|era| era.began.is_some() && !era.is_over) else { return };
        era.last.clear();
        let is_elsewhere = before.is_none_or(|(_, home)| home.0 != at.0);
        account.moved = if is_elsewhere { Some(now) } else { account.moved };
        let is_renewed = before.is_some_and(|(at, home)| self.troubles.lost_disk_of(home.0, at));
        account.renewed = if is_renewed { Some(now) } else { account.renewed };
        if is_present {
            *(if is_elsewhere { &mut self.counts.moved } else { &mut self.counts.resumed }) += 1;
            return;
        }
        (era.is_over, era.is_forgiven) = (true, true);
        let began = era.began.unwrap_or(now);
        self.counts.gone += 1;
        // Owner and replica may be lost together, or the owner before a replica had a copy.
        let from = Time::from_nanos(before.map_or(began, |(at, _)| at).min(now).as_nanos() - LINGER.as_nanos() as u64);
        let troubles = &self.troubles;
        let is_lost = troubles.lost_disk(from, now)
            && (troubles.gone(from, now) > 1 || troubles.cut(from, now) || troubles.any(began, began + COPY));
        // No broker here was linked with the one that began the session: a stranger is served too.
        let is_unheard_of = founded.is_some_and(|(since, home)| !troubles.has_heard((home.0, since), (at.0, now)));
        if !is_clean && !forces && !is_lost && !is_unheard_of {
            self.breaks(Rule::Session, format!("the session of {who} is gone, which was at {before:?}"));
        }
    }

    fn subscribes(&mut self, now: Time, client: usize, id: u16, goes_on: bool) {
        let Some(account) = self.accounts.get_mut(&client) else { return };
        match account.eras.last_mut() {
            Some(era) if goes_on => {
                (era.asked, era.is_over, era.is_answered) = ((now, id), false, false);
                era.last.clear();
            }
            before => {
                before.into_iter().for_each(|era| era.is_over = true);
                account.eras.push(Era { asked: (now, id), ..Era::default() });
            }
        }
    }

    fn subscribed(
        &mut self,
        now: Time,
        client: usize,
        (id, codes): (u16, &[u8]),
        (pending, known): (Vec<String>, BTreeSet<HostId>),
    ) {
        let Some(account) = self.accounts.get_mut(&client) else { return };
        let (who, process) = (account.name.clone(), account.attached.map(|(_, process)| process));
        let Some(era) = account.eras.last_mut().filter(|era| era.asked.1 == id) else { return };
        let (asked_at, waited) = (era.asked.0, now.since(era.asked.0));
        era.is_answered = true;
        self.counts.pending += u64::from(!pending.is_empty());
        if era.began.is_none() {
            (era.began, era.granted, era.pending, era.known) = (Some(now), process, pending, known);
        }
        if codes.iter().any(|code| *code >= 0x80) {
            self.breaks(Rule::Answer, format!("{who} is refused: {codes:02x?}"));
        }
        if waited > SUBSCRIBE_MAX && !self.troubles.held_up(asked_at, now) {
            self.breaks(Rule::Answer, format!("{who} waits {waited:?} for its SUBACK"));
        }
    }

    /// The witness at a broker receives an event there.
    pub(super) fn witnessed(&mut self, at: Process, message: &Message) {
        let Some(fact) = self.by_key.get(&key_of(message)).copied() else { return };
        if let Some(name) = name_of(message) {
            self.facts[fact].names.insert(name, Some(at));
        }
        self.facts[fact].is_marked |= message.user_property("w-maybe-repeat").is_some();
    }

    /// A record was found on a disk.
    pub(super) fn logged(&mut self, (node, disk): (usize, u32), (pubend, tick, record): (u8, u64, &[u8])) {
        let packed = packed_of(record);
        let event = Packed::kept(&packed).view();
        let key = event.payload.split(|byte| *byte == b' ').next().and_then(|key| str::from_utf8(key).ok());
        let Some(fact) = key.and_then(|key| self.by_key.get(key)).copied() else { return };
        let fact = &mut self.facts[fact];
        fact.is_marked |= event.headers.maybe_repeat;
        self.counts.logged += u64::from(fact.written.is_empty());
        fact.written.insert((node, disk, pubend, tick));
    }

    fn took(&mut self, now: Time, client: usize, at: Process, message: &Message) {
        let Some(account) = self.accounts.get_mut(&client) else { return };
        let who = format!("{} ({:?})", account.name, account.keeper);
        let Some(era) = account.eras.last_mut() else {
            return self.breaks(Rule::Unwanted, format!("{who} gets something before it subscribes"));
        };
        if message.topic == notice::TOPIC {
            match Notice::parse(&message.payload) {
                Ok(Notice::Gap { pubend, from, to, reason }) => {
                    self.counts.gaps += 1;
                    self.counts.released += u64::from(reason == "released");
                    let is_reliable = PubendId(pubend).reliability() == Reliability::Reliable;
                    self.counts.unbuffered += u64::from(reason == "not-buffered" && is_reliable);
                    let last = era.last.entry(pubend).or_default();
                    *last = to.max(*last);
                    era.gaps.push(((pubend, from), to, reason, now));
                }
                Ok(Notice::Silence { token, .. }) => era.token = token.parse().ok(),
                Ok(Notice::Overdue { .. } | Notice::Stalled) => {}
                Err(why) => self.breaks(Rule::Unwanted, format!("{who} gets a notice that makes no sense: {why}")),
            }
            return;
        }
        let key = key_of(message);
        let (Some(fact), Some(name)) = (self.by_key.get(&key).copied(), name_of(message)) else {
            return self.breaks(Rule::Unwanted, format!("{who} gets {key}, which nobody published, or has no name"));
        };
        account.tags.insert(message.id, fact);
        self.counts.delivered += 1;
        let known = &mut self.facts[fact];
        known.names.entry(name).or_default();
        known.is_marked |= message.user_property("w-maybe-repeat").is_some();
        self.counts.remote += u64::from(known.sent.iter().all(|(_, to)| *to != at));
        let is_same = known.message.topic == message.topic && known.message.payload == message.payload;
        if !is_same || !wants(&account.wish, &known.message) {
            let what = format!("{who} gets {key}, and wants {:?}", account.wish);
            return self.breaks(Rule::Unwanted, what);
        }
        let before = era.last.insert(name.0, name.1).unwrap_or(0);
        if name.1 <= before {
            self.breaks(Rule::Order, format!("{who} gets {key} ({:x}:{}) after {before}", name.0, name.1));
        }
        self.arrived(now, (client, at), fact, name, message);
    }

    /// A wanted event arrived: for the first time, or again.
    fn arrived(&mut self, now: Time, (client, at): (usize, Process), fact: usize, name: Name, message: &Message) {
        let Some(account) = self.accounts.get_mut(&client) else { return };
        let who = format!("{} ({:?}) at {at:?}", account.name, account.keeper);
        let Some(era) = account.eras.last_mut() else { return };
        let of = &self.facts[fact];
        let connection = account.connection;
        let (moved, renewed) = (account.moved, account.renewed);
        let has_moved = |got: &Got| [moved, renewed].map(|at| at.is_some_and(|at| at >= got.at)).into();
        if let Some(got) = era.got.get_mut(&fact) {
            self.counts.repeated += 1;
            got.last = now;
            let what = format!("{who} gets {} again, first at {:?} by {:?}", of.key, got.at, got.process);
            if got.name != name {
                if !of.is_marked {
                    let names = [got.name, name].map(|(stream, tick)| format!("{stream:x}:{tick}"));
                    self.breaks(Rule::Duplicate, format!("{what}, under two names, {names:?}"));
                }
                return;
            }
            // An event that was published at least once is delivered at least once.
            let is_weaker = account.keeper == Keeper::Exactly && message.qos == Qos::AtLeastOnce;
            let keeper = if is_weaker { Keeper::AtLeast } else { account.keeper };
            let is_allowed =
                got.connection != connection && may_repeat(&self.troubles, (keeper, has_moved(got)), got, (now, at));
            let must_say = !self.troubles.any(got.at, now);
            let (settled, dup) = (got.settled, message.dup);
            if !is_allowed || must_say && !dup && message.qos != Qos::AtMostOnce {
                self.breaks(Rule::Duplicate, format!("{what}, settled: {settled:?}, dup: {dup}"));
            }
            return;
        }
        era.got.insert(fact, Got { at: now, last: now, process: at, connection, name, settled: None });
        let first = era.first.entry(name.0).or_default();
        let before = core::mem::replace(first, name.1.max(*first));
        // If all later events may be delivered again, the client has gone back to before them.
        let is_later = |got: &&Got| got.name.0 == name.0 && got.name.1 > name.1;
        let has_gone_back = |got: &Got| may_repeat(&self.troubles, (account.keeper, has_moved(got)), got, (now, at));
        // Events sent before the grant are not promised, nor is their order.
        let is_due = era.began.is_some_and(|began| of.sent[0].0 > began);
        if name.1 <= before && is_due && !era.got.values().filter(is_later).all(has_gone_back) {
            let what = format!("{who} gets {} ({:x}:{}) late, after {before}", of.key, name.0, name.1);
            self.breaks(Rule::Order, what);
        }
        self.check_numbers(now, client, fact);
    }

    /// Checks that one publisher's order survives its moves.
    fn check_numbers(&mut self, now: Time, client: usize, fact: usize) {
        let Some(account) = self.accounts.get_mut(&client) else { return };
        let Some(era) = account.eras.last_mut() else { return };
        let of = &self.facts[fact];
        let known = era.numbers.entry((of.publisher, of.is_apart())).or_insert((of.number, fact));
        if of.number >= known.0 {
            *known = (of.number, fact);
            return;
        }
        let other = &self.facts[known.1];
        self.counts.disordered += 1;
        let sent = of.sent[0].0;
        let was_there = account.attached.is_some_and(|(since, _)| since < sent);
        // One of the two may be outside the publisher's order.
        let is_pure = of.is_answered_once() && other.is_answered_once();
        let is_calm = was_there && now.since(sent) < HELD_MAX && !self.troubles.any(sent, now);
        let is_due = era.began.is_some_and(|began| sent > began) && era.pending.is_empty();
        let of_stream =
            |fact: &Fact| fact.names.keys().all(|name| PubendId(name.0).reliability() == Reliability::Reliable);
        let host = of.names.keys().next().map(|name| PubendId(name.0).host());
        // Where both brokers could reach this event's host, the other event had to wait for this
        // one.
        let is_held = is_due
            && of_stream(of)
            && of_stream(other)
            && era.got.get(&known.1).zip(host).is_some_and(|(got, host)| {
                let (asked, (sent, at)) = (other.since, other.sent[0]);
                let is_long = got.at.since(sent) >= HELD_MAX;
                let was_away = |node, from, to| self.troubles.was_away(host, node, (from, to));
                !is_long && !was_away(at.0, asked, sent) && !was_away(got.process.0, sent, got.at)
            });
        if is_pure && (is_calm || is_held) {
            let what = format!("{} gets {} after {}", account.name, of.key, other.key);
            self.breaks(Rule::Order, what);
        }
    }
}
