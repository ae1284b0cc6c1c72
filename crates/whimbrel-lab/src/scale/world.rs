//! Many brokers in virtual time: they start at the same moment, clients subscribe, and the costs
//! are counted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use whimbrel_core::overlay::OverlaySize;
use whimbrel_core::{Durability, Link};
use whimbrel_event::{
    Attributes, Event, EventId, EventRef, Headers, HostId, PubendId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_selector::Selector;
use whimbrel_sim::random::Random;

use super::map::Map;
use super::people::People;
use crate::cores::costs::Costs;
use crate::cores::meter::{Kind, Meter};
use crate::cores::{Ask, Cores, START, Setup, Wish};

/// The subscriptions of one client, at most.
const OF_CLIENT: usize = 5_000;

/// A client that was refused connects again after this time.
const COME_AGAIN: Duration = Duration::from_millis(250);

/// The time between two checks of a condition; with more brokers than [`FEW`], for which a check
/// takes longer, it is longer.
const LOOK: Duration = Duration::from_millis(50);
const FEW: usize = 100;

/// How long clients are waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// The topics of the subscriptions that only take room.
const VEHICLES: u64 = 1_000_000;

/// The number of brokers of a world whose work is replayed alone, at most.
const ALONE: usize = 10;

/// The kinds of turns of brokers at rest.
pub const REST_KINDS: [Kind; 2] = [Kind::Control, Kind::Silence];

/// Bytes of an event.
const BODY: usize = 100;

/// The parameters of a world.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// The subscriptions at each broker.
    pub each: usize,
    /// Whether sessions move.
    pub moves: bool,
    /// The seed of all randomness.
    pub seed: u64,
}

/// A burst of events.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// The number of events.
    pub events: usize,
    /// The time between two of them.
    pub pause: Duration,
    /// The time from the first event of one burst to the first of the next.
    pub every: Duration,
}

/// See the module's documentation.
pub struct World {
    net: Cores,
    /// Their clients.
    pub people: People,
    /// The places of brokers.
    pub map: Map,
    hosts: Vec<HostId>,
    is_up: Vec<bool>,
    random: Random,
    next_link: u32,
    /// By client: its broker, its connection, and how many subscriptions it is to have.
    clients: Vec<(usize, Link, usize)>,
    tag: u16,
    /// The brokers whose input is recorded, so that their work can be replayed alone.
    alone: Vec<usize>,
}

/// The brokers that stand for all in the replay on a processor of their own.
fn alone(brokers: usize) -> Vec<usize> {
    (0..brokers).step_by(brokers.div_ceil(ALONE)).collect()
}

impl World {
    /// Starts all brokers and their clients.
    pub fn new(map: Map, ground: Ground) -> World {
        let Ground { each, moves, seed } = ground;
        let brokers = map.brokers();
        let mut net = Cores::new(Costs::FREE, seed << 32);
        let alone = alone(brokers);
        for node in 0..brokers {
            net.add(Setup { moves_sessions: moves, is_recorded: alone.contains(&node), ..Setup::default() });
        }
        net.meter = Some(Meter::new(brokers));
        map.links.iter().for_each(|ends| net.link(*ends, map.delay(ends[0], ends[1])));
        let hosts = (0..brokers).map(|node| net.core(node).host()).collect();
        let mut world = World {
            net,
            people: People::new(START),
            map,
            hosts,
            is_up: vec![true; brokers],
            random: Random::new(seed),
            next_link: 0,
            clients: Vec::new(),
            tag: 0,
            alone,
        };
        for node in 0..brokers {
            let mut left = each;
            while left > 0 {
                let some = left.min(OF_CLIENT);
                world.come(node, some);
                left -= some;
            }
        }
        world
    }

    /// The present time.
    pub fn now(&self) -> Time {
        self.net.now
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.net.now + span;
        self.net.run_until(end, &mut self.people);
    }

    /// A client connects to a broker, to have a number of subscriptions.
    fn come(&mut self, node: usize, subscriptions: usize) -> Link {
        self.next_link += 1;
        let link = Link(self.next_link);
        self.clients.push((node, link, subscriptions));
        self.attach(node, link);
        link
    }

    fn attach(&mut self, node: usize, link: Link) {
        let client = format!("client-{}", link.0);
        let attach = Ask::Attach { link, client, lasting: Duration::ZERO, window: u16::MAX };
        self.net.ask(node, attach, &mut self.people);
    }

    /// Clients with a session subscribe, and those that were refused connect again.
    fn tend(&mut self) {
        let refused = std::mem::take(&mut self.people.refused);
        if !refused.is_empty() {
            self.run(COME_AGAIN);
        }
        for link in refused {
            if let Some((node, ..)) = self.clients.iter().find(|(_, known, _)| *known == link).copied() {
                self.attach(node, link);
            }
        }
        for at in 0..self.clients.len() {
            let (node, link, subscriptions) = self.clients[at];
            if subscriptions > 0 && self.people.attached.contains(&link) {
                self.clients[at].2 = 0;
                for _ in 0..subscriptions {
                    let (filter, selector) = self.wish();
                    self.subscribe(node, link, filter, selector);
                }
            }
        }
    }

    /// A subscription that takes room: every second one has a selector.
    fn wish(&mut self) -> (String, Option<Selector>) {
        let vehicle = self.random.below(VEHICLES);
        let from = self.random.below(1_000);
        let text = format!("speed BETWEEN {from} AND {}", from + 10);
        let selector = self.random.chance(500).then(|| Selector::parse(&text).expect("it is a selector"));
        (format!("v/{vehicle}/position"), selector)
    }

    /// A connected client subscribes to a topic.
    pub fn subscribe_to(&mut self, node: usize, link: Link, topic: &str) {
        self.subscribe(node, link, topic.to_owned(), None);
    }

    fn subscribe(&mut self, node: usize, link: Link, filter: String, selector: Option<Selector>) {
        let wish = Wish {
            filter: filter.into(),
            selector,
            durability: Durability::Nondurable,
            qos: Qos::AtMostOnce,
            from: None,
            by_token: false,
            notices: false,
        };
        self.net.ask(node, Ask::Subscribe(link, Box::new(wish)), &mut self.people);
    }

    /// Lets time pass until a condition holds, which is checked now and then; returns how long it
    /// took.
    ///
    /// # Errors
    /// When it does not hold after `most`.
    pub fn until(&mut self, what: &str, most: Duration, mut is_so: impl FnMut(&mut World) -> bool) -> Result<Duration> {
        let began = self.net.now;
        let pause = LOOK * self.hosts.len().div_ceil(FEW).min(5) as u32;
        while !is_so(self) {
            ensure!(self.net.now.since(began) < most, "{what}: not after {most:?}");
            self.run(pause);
        }
        Ok(self.net.now.since(began))
    }

    /// Lets time pass until all brokers reach each other; returns how long it took.
    ///
    /// # Errors
    /// When they do not in the end.
    pub fn until_linked(&mut self, most: Duration) -> Result<Duration> {
        let mut open: Vec<usize> = self.alive();
        let brokers = open.len();
        self.until("all brokers reach each other", most, |world| {
            world.tend();
            open.retain(|node| world.net.core(*node).brokers_reached() < brokers);
            open.is_empty()
        })
    }

    /// Lets time pass until all clients are answered, and all interests are in force everywhere;
    /// returns how long it took.
    ///
    /// # Errors
    /// When that is not so in the end.
    pub fn until_known(&mut self, most: Duration) -> Result<Duration> {
        let mut open: Vec<usize> = self.alive();
        self.until("what is wanted is in force everywhere", most, |world| {
            world.tend();
            let is_waiting = world.clients.iter().any(|(_, _, subscriptions)| *subscriptions > 0);
            open.retain(|node| !world.is_known(*node));
            open.is_empty() && !is_waiting
        })
    }

    fn is_known(&self, node: usize) -> bool {
        self.net.core(node).interests(0, 1).iter().all(|own| own.unconfirmed.is_empty())
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|node| self.is_up[*node]).collect()
    }

    /// Connects a new client at each of these brokers; returns their connections.
    ///
    /// # Errors
    /// When one is refused.
    pub fn come_to(&mut self, nodes: &[usize]) -> Result<Vec<Link>> {
        let links: Vec<Link> = nodes.iter().map(|node| self.come(*node, 0)).collect();
        let mut open = links.clone();
        self.until("clients have their sessions", PATIENCE, |world| {
            world.tend();
            open.retain(|link| !world.people.attached.contains(link));
            open.is_empty()
        })?;
        Ok(links)
    }

    /// A new client at a broker subscribes; returns its connection, how long the answer took, and
    /// how many brokers did not know of the subscription.
    ///
    /// # Errors
    /// When it is not answered.
    pub fn ask_for(&mut self, node: usize, topic: &str) -> Result<(Link, Duration, usize)> {
        let link = self.come_to(&[node])?[0];
        let began = self.net.now;
        self.subscribe_to(node, link, topic);
        self.until("a subscription is answered", PATIENCE, |world| world.people.answered.contains_key(&link))?;
        let (at, pending) = self.people.answered[&link][0];
        Ok((link, at.since(began), pending))
    }

    /// Publishes an event; its number is the next one.
    pub fn publish(&mut self, (node, link): (usize, Link), topic: &str) {
        let number = self.people.sent.len();
        self.people.sent.push(self.net.now);
        self.tag = self.tag.checked_add(1).unwrap_or(1);
        let mut body = [b'.'; BODY];
        body[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let event = EventRef {
            topic,
            attributes: Attributes::EMPTY,
            payload: &body,
            headers: Headers::EMPTY,
            qos: Qos::AtLeastOnce,
            reliability: Reliability::Reliable,
            importance: 1,
            expires: None,
            deadline_ms: None,
            publisher: Publisher::UNKNOWN,
        };
        let event = Event::keep(EventId { pubend: PubendId(0), tick: Tick(0) }, self.net.now, &event);
        self.net.ask(node, Ask::Publish(link, self.tag, event), &mut self.people);
    }

    /// Publishes a number of events, in bursts.
    pub fn publish_many(&mut self, who: (usize, Link), topic: &str, (count, burst): (usize, Burst)) {
        let Burst { events, pause, every } = burst;
        let mut left = count;
        while left > 0 {
            let next = self.net.now + every;
            for _ in 0..left.min(events) {
                self.publish(who, topic);
                self.run(pause);
            }
            left -= left.min(events);
            self.run(next.since(self.net.now));
        }
    }

    /// The brokers on the path from one to another.
    ///
    /// # Errors
    /// When there is no path.
    pub fn path(&self, from: usize, to: usize) -> Result<Vec<usize>> {
        let known = self.net.core(from).topology(self.net.now);
        let state = known.iter().find(|state| state.host == self.hosts[to]).context("a broker is not known")?;
        let number = |name: &str| name.get(1..).and_then(|number| number.parse().ok()).context("a strange name");
        ensure!(!state.path.is_empty(), "there is no way from {from} to {to}");
        state.path.iter().map(|name| number(name)).collect()
    }

    /// Everything sent between two brokers is lost from now on.
    pub fn cut(&mut self, ends: [usize; 2]) {
        self.net.cut(ends);
    }

    /// A machine is silently gone.
    pub fn vanish(&mut self, node: usize) {
        self.map.links.iter().filter(|ends| ends.contains(&node)).for_each(|ends| self.net.cut(*ends));
        self.net.kill(node);
        self.is_up[node] = false;
    }

    /// Whether no broker takes a link, or a broker, which is a pair of itself, to be up.
    pub fn is_gone(&self, gone: [usize; 2]) -> bool {
        let [one, other] = gone.map(|node| self.hosts[node]);
        let is_there = |node: usize| {
            let core = self.net.core(node);
            if one == other { core.way_us(one).is_some() } else { core.are_linked(one, other) }
        };
        !self.alive().into_iter().any(is_there)
    }

    /// Lets time pass until [`World::is_gone`]; returns how long it took.
    ///
    /// # Errors
    /// When it does not come to that in the end.
    pub fn until_gone(&mut self, gone: [usize; 2], most: Duration) -> Result<Duration> {
        self.until("all know what is gone", most, |world| world.is_gone(gone))
    }

    /// The bytes that brokers have sent each other over links that are up, and the number of those
    /// links.
    pub fn sent_bytes(&self) -> (u64, usize) {
        let links = self.alive().into_iter().flat_map(|node| self.net.core(node).links());
        let (bytes, ends) = links.fold((0, 0), |(bytes, ends), link| (bytes + link.counters.bytes_out, ends + 1));
        (bytes, ends / 2)
    }

    /// Replays the work of some brokers so far, one after the other, each with the processor and
    /// its caches to itself. Returns the processor time from a moment on, relative to the metered
    /// time that they spent since then in turn with all others.
    ///
    /// # Errors
    /// When the output of one differs in the replay.
    pub fn share_alone(&mut self, from: Time, meter: &Meter) -> Result<f64> {
        let (mut alone, mut in_turn) = (Duration::ZERO, Duration::ZERO);
        for node in std::mem::take(&mut self.alone) {
            let again = self.net.replay(node, from);
            let said: u64 = self.net.core(node).links().into_iter().map(|link| link.counters.bytes_out).sum();
            ensure!(again.said == said, "broker {node} said {said} B, and {} when it did the same again", again.said);
            alone += again.spent;
            in_turn += REST_KINDS.map(|kind| meter.of(node, kind).0).iter().sum::<Duration>();
        }
        Ok(alone.as_secs_f64() / in_turn.as_secs_f64())
    }

    /// Starts a new count of processor times; returns the old one.
    pub fn meter(&mut self) -> Meter {
        let fresh = Meter::new(self.hosts.len());
        self.net.meter.replace(fresh).expect("there is one")
    }

    /// A broker's processor time per event in turns of a kind.
    pub fn each_event(meter: &Meter, node: usize, kind: Kind, events: usize) -> f64 {
        meter.of(node, kind).0.as_secs_f64() * 1e6 / events as f64
    }

    /// The average state of a broker, of each kind.
    pub fn sizes(&self) -> Vec<OverlaySize> {
        let all: Vec<Vec<OverlaySize>> =
            self.alive().into_iter().map(|node| self.net.core(node).overlay_sizes()).collect();
        let mean = |at: usize, part: fn(&OverlaySize) -> usize| {
            all.iter().map(|one| part(&one[at])).sum::<usize>() / all.len()
        };
        let kinds = all.first().map_or(0, Vec::len);
        (0..kinds)
            .map(|at| OverlaySize {
                what: all[0][at].what,
                entries: mean(at, |size| size.entries),
                bytes: mean(at, |size| size.bytes),
            })
            .collect()
    }
}
