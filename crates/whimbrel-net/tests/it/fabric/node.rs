//! The composition above one network layer: as little as makes it carry events, entries of a map
//! and messages.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{Deployment, Domains, EventId, HostId, PubendId, Reliability, Tick, Time};
use whimbrel_net::interest::own::{AddedInterest, InterestChange};
use whimbrel_net::route::TopicPaths;
use whimbrel_net::rpc::MessageContent;
use whimbrel_net::traces::TraceStep;
use whimbrel_net::{Config, Identity, Io, Net, NetEvent, NetStep, Pace, PeerInput, Routing, Work};
use whimbrel_selector::{TopicFilter, TopicName};
use whimbrel_wire::{Dest, EventFrame, MessageFrame, Nack, Silence, compact};

use super::reception::{Delivered, Reception};
use super::sender::{Content, STREAMS, Sender, Surroundings};
use super::shelf::Shelf;
use super::{START, Side};

/// The interval at which a node tells silence and asks for what it lacks.
pub const ROUND_EVERY: Duration = Duration::from_millis(100);

/// Most steps of one input or deadline.
const STEPS_MAX: usize = 1 << 20;

/// Most deadlines that are met at one moment.
const DEADLINES_MAX: usize = 1 << 16;

/// The kind of a message that its receiver echoes.
pub const KIND_ASK: u8 = 200;
/// The kind of an echo.
pub const KIND_ECHO: u8 = 201;
/// The kind of a message that each node on its path is given.
pub const KIND_EXAMINED: u8 = 202;

/// The host of a node; hosts are in the order of their numbers.
pub fn host_of(number: usize) -> HostId {
    HostId::new((number as u64 + 1) << 8)
}

/// The number of the node with this host.
pub fn number_of(host: HostId) -> usize {
    (host.as_u64() >> 8) as usize - 1
}

/// The configuration of a node.
#[derive(Clone)]
pub struct Setup {
    /// Its name, which is in its certificate, too.
    pub name: String,
    /// Its deployment.
    pub deployment: Deployment,
    /// See [`Config::expects_peers`].
    pub expects_peers: bool,
    /// See [`Config::links_wanted`].
    pub links_wanted: usize,
    /// See [`Config::domains`].
    pub domains: Domains,
    /// See [`Config::surcharges`].
    pub surcharges: BTreeMap<Box<str>, u32>,
    /// See [`Config::young_for`].
    pub young_for: Duration,
    /// See [`Config::routing`].
    pub routing: Routing,
    /// See [`Config::pace`].
    pub pace: Pace,
    /// See [`Config::release_mark`].
    pub release_mark: usize,
    /// The paths that its events with a deadline take.
    pub paths: TopicPaths,
    /// The minor version of the protocol that its hello tells, instead of its own one.
    pub minor: Option<u8>,
    /// By how much its clock is faster than the fabric's time, parts per million.
    pub clock_ppm: i64,
    /// A change of the network layer when it is made, such as a fault.
    pub change: fn(&mut Net),
}

impl Setup {
    /// A node of this name.
    pub fn named(name: impl Into<String>) -> Setup {
        let (deployment, young_for) = (Deployment(7), Duration::from_secs(2));
        Setup {
            name: name.into(),
            deployment,
            expects_peers: true,
            links_wanted: 0,
            domains: Domains::default(),
            surcharges: BTreeMap::new(),
            young_for,
            routing: Routing::default(),
            pace: Pace::DEFAULT,
            release_mark: usize::MAX,
            paths: TopicPaths::One,
            minor: None,
            clock_ppm: 0,
            change: |_| {},
        }
    }

    /// The moment on the node's clock.
    pub fn local(&self, at: Time) -> Time {
        at.by_clock_ahead(at.ahead_of(START) / 1_000_000 * self.clock_ppm)
    }

    /// The first moment at which the node's clock shows this one.
    pub fn global(&self, at: Time) -> Time {
        let mut found = at.by_clock_ahead(-(at.ahead_of(START) / (1_000_000 + self.clock_ppm) * self.clock_ppm));
        while self.local(found) < at {
            found = found.by_clock_ahead(1_000);
        }
        found
    }
}

/// A change of a key of a map.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// The number of the map, 0 or 1.
    pub map: u8,
    pub key: &'a str,
    /// `None`: the key is removed.
    pub value: Option<&'a str>,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub from: HostId,
    pub to: HostId,
    pub kind: u8,
    pub hops: u8,
    pub body: Box<[u8]>,
}

/// What the network layer has told this node.
#[derive(Debug, Default)]
pub struct Told {
    /// Events, in the order of their delivery.
    pub delivered: Vec<Delivered>,
    /// Events that it did not want. A broker that has lost silence may ask for a range that ends
    /// in another one's event, and a merged answer has that.
    pub unwanted: Vec<EventId>,
    /// Messages for this node.
    pub messages: Vec<Received>,
    /// Messages for others that it was given on their way.
    pub passing: Vec<Received>,
    /// Neighbours whose links came up, and whether they were known before.
    pub links_up: Vec<(HostId, bool)>,
    /// Hosts whose link states were offered.
    pub offered: Vec<HostId>,
    /// Brokers whose link states were new, and whether they were known before.
    pub known: Vec<(HostId, bool)>,
    /// Brokers that have expired.
    pub expired: Vec<HostId>,
    /// How often it was told that it knows all brokers.
    pub joined: u32,
    /// How often it was told to repeat state.
    pub refreshed: u32,
    /// How often it was told of ended hosts.
    pub previous: u32,
}

/// A node: a network layer, and its composition.
pub struct Node {
    pub net: Net,
    /// Its maps, by their numbers.
    pub shelves: [Shelf; 2],
    pub told: Told,
    /// Whether it sends messages on that it was given on their way.
    pub passes_messages: bool,
    filters: BTreeMap<Box<str>, u64>,
    next_key: u64,
    sender: Sender,
    receptions: BTreeMap<PubendId, Reception>,
    round_at: Time,
}

impl Node {
    /// A node that begins now.
    pub fn new(now: Time, number: usize, setup: &Setup) -> Node {
        let host = host_of(number);
        let birth = Tick(now.as_nanos());
        // As in the core: the low bits differ for each host.
        let incarnation = ((now.as_nanos() >> 20) << 20) | (number as u64 + 1);
        let [_, first_further, last] = STREAMS;
        let (reliable, further) = (1, last - first_further + 1);
        let identity = Identity { host, incarnation, deployment: setup.deployment, birth, reliable, further };
        let config = Config {
            name: setup.name.as_str().into(),
            version: "fabric".into(),
            addresses: vec![format!("{}:1", setup.name).into()],
            interest_max: 64,
            expects_peers: setup.expects_peers,
            links_wanted: setup.links_wanted,
            surcharges: setup.surcharges.clone(),
            domains: setup.domains.clone(),
            young_for: setup.young_for,
            routing: setup.routing,
            pace: setup.pace,
            release_mark: setup.release_mark,
            examined_kinds: &[KIND_EXAMINED],
        };
        let mut net = Net::new(now, identity, false, config);
        (setup.change)(&mut net);
        Node {
            net,
            shelves: Default::default(),
            told: Told::default(),
            passes_messages: true,
            filters: BTreeMap::new(),
            next_key: 0,
            sender: Sender::new(birth, setup.paths),
            receptions: BTreeMap::new(),
            round_at: now + ROUND_EVERY,
        }
    }

    /// Handles what happens on a link.
    pub fn input(&mut self, now: Time, input: PeerInput<'_>, side: &mut Side) {
        let work = self.net.begin(now, input, side);
        self.finish(now, work, side);
        self.check_ways(now);
    }

    /// When something is due next.
    pub fn next_deadline(&self) -> Time {
        self.net.next_deadline().map_or(self.round_at, |(at, _)| at.min(self.round_at))
    }

    /// Meets the deadlines that are due.
    pub fn meet(&mut self, now: Time, side: &mut Side) {
        self.net.hold_routes(now);
        for _ in 0..DEADLINES_MAX {
            let Some(work) = self.net.begin_due(now) else { break };
            self.finish(now, work, side);
        }
        if self.round_at <= now {
            self.round_at = now + ROUND_EVERY;
            self.sender.tell_all(Surroundings { net: &mut self.net, now, out: side });
            self.ask_for_holes(now, side);
        }
        self.check_ways(now);
    }

    fn check_ways(&mut self, now: Time) {
        if self.net.check_ways(now) && self.net.check_joined(now) {
            self.told.joined += 1;
        }
    }

    fn finish(&mut self, now: Time, mut work: Work<'_>, side: &mut Side) {
        for _ in 0..STEPS_MAX {
            match self.net.step(&mut work, &mut Io { now, out: side, maps: &[&self.shelves[0], &self.shelves[1]] }) {
                NetStep::Event(event) => self.on_event(now, event, side),
                NetStep::More => {}
                NetStep::Done => return,
            }
        }
        panic!("an input ends within {STEPS_MAX} steps");
    }

    fn on_event(&mut self, now: Time, event: NetEvent<'_>, side: &mut Side) {
        match event {
            NetEvent::LinkUp { link: _, hello, was_known } => self.told.links_up.push((hello.host, was_known)),
            NetEvent::StateOffered(state) => self.told.offered.push(state.host),
            NetEvent::BrokerKnown { host, was_known } => self.told.known.push((host, was_known)),
            NetEvent::Outbid => assert_eq!(self.net.outbid(now, u64::MAX), None),
            NetEvent::Joined => self.told.joined += 1,
            NetEvent::InterestChanged { host } => {
                self.sender.adopt(Surroundings { net: &mut self.net, now, out: side }, host);
            }
            NetEvent::InterestDue => {
                self.net.tell_interest(&mut Io { now, out: side, maps: &[&self.shelves[0], &self.shelves[1]] });
            }
            NetEvent::Expired(hosts) => self.forget(&hosts),
            NetEvent::Refreshed => self.told.refreshed += 1,
            NetEvent::Event { frame, own, age_us, .. } => self.take_event(now, &frame, own, age_us),
            NetEvent::Silence(silence) => self.take_silence(&silence),
            NetEvent::Nack { link, nack } => {
                let nack: Nack = nack;
                self.sender.answer(Surroundings { net: &mut self.net, now, out: side }, link, &nack);
            }
            NetEvent::Entries { map, link, registry } => {
                for entry in &registry.entries {
                    if self.shelves[usize::from(map)].take(now, entry) {
                        self.net.record_entry(map, entry.key, Some(link));
                    }
                }
            }
            NetEvent::PreviousIdentities(_) => self.told.previous += 1,
            NetEvent::Message(message) => self.take_message(now, &message, side),
            NetEvent::Passing(message) => {
                self.told.passing.push(received(&message));
                if self.passes_messages {
                    self.net.pass_on_message(now, &message, side);
                }
            }
        }
    }

    fn forget(&mut self, hosts: &[HostId]) {
        for host in hosts {
            self.net.forget(*host);
            self.sender.forget(*host);
        }
        self.told.expired.extend(hosts);
    }

    fn take_event(&mut self, now: Time, frame: &EventFrame<'_>, own: Dest, age_us: u64) {
        let id = frame.id();
        let Ok(event) = compact::read(frame.event, id) else { return self.net.refuse_event() };
        self.net.record_step(now, id, TraceStep::Passed);
        let (topic, payload) = (event.event.topic.into(), event.event.payload.into());
        let event = Delivered { id, arrived: now, age_us, is_answer: frame.answer, topic, payload };
        let version = self.net.own_interest().version_of(own.tag);
        let reception = self.receptions.entry(id.pubend).or_default();
        let events = reception.on_event(event, version, own.previous);
        self.deliver(events);
    }

    fn deliver(&mut self, events: Vec<Delivered>) {
        for event in events {
            if self.wants(&event.topic) {
                self.told.delivered.push(event);
            } else {
                self.told.unwanted.push(event.id);
            }
        }
    }

    /// Whether a topic matches a subscription of this node.
    pub fn wants(&self, topic: &str) -> bool {
        let topic = TopicName::checked(topic);
        self.filters.keys().any(|filter| TopicFilter::checked(filter).matches(topic))
    }

    fn take_silence(&mut self, silence: &Silence<'_>) {
        let (version, began) = (self.net.own_interest().version(), self.net.own_interest().began());
        for part in silence.parts.iter().filter(|_| silence.version <= version) {
            let reception = self.receptions.entry(silence.from.pubend(part.index)).or_default();
            let events = reception.on_silence(part, silence.version, began);
            self.deliver(events);
        }
    }

    fn take_message(&mut self, now: Time, message: &MessageFrame<'_>, side: &mut Side) {
        self.told.messages.push(received(message));
        if message.kind == KIND_ASK {
            let content =
                MessageContent { kind: KIND_ECHO, body: message.body, is_bulk: message.is_bulk, label: message.label };
            self.net.send_to(now, message.from, content, side);
        }
    }

    fn ask_for_holes(&mut self, now: Time, side: &mut Side) {
        let (from, incarnation) = (self.net.host(), self.net.incarnation());
        let version = self.net.own_interest().version();
        for (pubend, reception) in &self.receptions {
            let ranges = reception.holes(version);
            if !ranges.is_empty() && pubend.reliability() == Reliability::Reliable {
                self.net.send_nack(now, &Nack { pubend: *pubend, from, incarnation, hops: 0, ranges }, side);
            }
        }
    }

    /// Subscribes to a filter; other nodes are told soon.
    pub fn subscribe(&mut self, now: Time, filter: &str) {
        self.next_key += 1;
        let added = AddedInterest { filter: filter.into(), selector: None, durable: false, replier: false };
        if self.filters.insert(filter.into(), self.next_key).is_none() {
            self.net.want(InterestChange::Added(self.next_key, added));
            self.net.tell_interest_soon(now);
        }
    }

    /// Removes a subscription; other nodes are told soon.
    pub fn unsubscribe(&mut self, now: Time, filter: &str) {
        let key = self.filters.remove(filter).expect("it was subscribed to");
        self.net.want(InterestChange::Removed(key, filter.into()));
        self.net.tell_interest_soon(now);
    }

    /// Publishes an event.
    pub fn publish(&mut self, now: Time, content: Content<'_>, side: &mut Side) -> EventId {
        self.sender.publish(Surroundings { net: &mut self.net, now, out: side }, content)
    }

    /// Changes a key of a map, and tells all neighbours.
    pub fn put(&mut self, now: Time, change: Change<'_>, side: &mut Side) {
        let Change { map, key, value } = change;
        self.shelves[usize::from(map)].put(now, self.net.host(), key, value);
        self.net.tell_entry(&mut Io { now, out: side, maps: &[&self.shelves[0], &self.shelves[1]] }, map, key);
    }

    /// Ranges of other nodes' streams that were lost.
    pub fn lost(&self) -> u64 {
        self.receptions.values().map(|reception| reception.lost).sum()
    }
}

fn received(message: &MessageFrame<'_>) -> Received {
    let MessageFrame { to, hops, from, kind, body, .. } = *message;
    Received { from, to, kind, hops, body: body.into() }
}
