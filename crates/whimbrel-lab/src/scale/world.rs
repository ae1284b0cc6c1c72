//! Many brokers in virtual time: they begin in the same moment, clients subscribe, and what all
//! that takes is counted.

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

/// Subscriptions of one client.
const OF_CLIENT: usize = 5_000;

/// A client that was refused comes again after so long.
const COME_AGAIN: Duration = Duration::from_millis(250);

/// How often it is looked whether all is as it should be; where there are more brokers than
/// [`FEW`], which takes longer, less often.
const LOOK: Duration = Duration::from_millis(50);
const FEW: usize = 100;

/// How long clients are waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Topics of the subscriptions that only take room.
const VEHICLES: u64 = 1_000_000;

/// Brokers of a world that do again alone what they did among others, at most.
const ALONE: usize = 10;

/// What brokers do when nothing happens.
pub const REST_KINDS: [Kind; 2] = [Kind::Control, Kind::Silence];

/// Bytes of an event.
const BODY: usize = 100;

/// What a world is like.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// Subscriptions at each broker.
    pub each: usize,
    /// Sessions move.
    pub moves: bool,
    /// Of all that is random.
    pub seed: u64,
}

/// Events that come close together.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// So many.
    pub events: usize,
    /// Between two of them.
    pub pause: Duration,
    /// From the first of one burst to the first of the next.
    pub every: Duration,
}

/// See the module's documentation.
pub struct World {
    net: Cores,
    /// Their clients.
    pub people: People,
    /// Where brokers are.
    pub map: Map,
    hosts: Vec<HostId>,
    is_up: Vec<bool>,
    random: Random,
    next_link: u32,
    /// Which client is where, and how many subscriptions it is to have.
    clients: Vec<(usize, Link, usize)>,
    tag: u16,
    /// What comes to these is kept, so that they can do it again alone.
    alone: Vec<usize>,
}

/// Brokers that stand for all where each of them is to have a processor to itself.
fn alone(brokers: usize) -> Vec<usize> {
    (0..brokers).step_by(brokers.div_ceil(ALONE)).collect()
}

impl World {
    /// All brokers begin, and so do their clients.
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

    /// The present moment.
    pub fn now(&self) -> Time {
        self.net.now
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.net.now + span;
        self.net.run_until(end, &mut self.people);
    }

    /// A client comes to a broker that is to have so many subscriptions.
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

    /// Clients that have their sessions subscribe, and those that were refused come again.
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

    /// Something that takes room: every second is about content as well.
    fn wish(&mut self) -> (String, Option<Selector>) {
        let vehicle = self.random.below(VEHICLES);
        let from = self.random.below(1_000);
        let text = format!("speed BETWEEN {from} AND {}", from + 10);
        let selector = self.random.chance(500).then(|| Selector::parse(&text).expect("it is a selector"));
        (format!("v/{vehicle}/position"), selector)
    }

    /// A client that is there subscribes to a topic.
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

    /// Lets time pass until something is so, which is looked at now and then; how long that took.
    ///
    /// # Errors
    /// When it is not so after `most`.
    pub fn until(&mut self, what: &str, most: Duration, mut is_so: impl FnMut(&mut World) -> bool) -> Result<Duration> {
        let began = self.net.now;
        let pause = LOOK * self.hosts.len().div_ceil(FEW).min(5) as u32;
        while !is_so(self) {
            ensure!(self.net.now.since(began) < most, "{what}: not after {most:?}");
            self.run(pause);
        }
        Ok(self.net.now.since(began))
    }

    /// Lets time pass until all brokers reach each other; how long that took.
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

    /// Lets time pass until all clients are answered, and all that is wanted is in force
    /// everywhere; how long that took.
    ///
    /// # Errors
    /// When it is not in the end.
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

    /// A new client at each of these brokers has its session; their connections.
    ///
    /// # Errors
    /// When one is not let in.
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

    /// A new client at a broker subscribes: its connection, and how long its answer took, with how
    /// many brokers did not know of it.
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

    /// An event is published; its number is the next one.
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

    /// So many events, in bursts.
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

    /// The brokers on the way from one to another.
    ///
    /// # Errors
    /// When there is no way.
    pub fn path(&self, from: usize, to: usize) -> Result<Vec<usize>> {
        let known = self.net.core(from).topology(self.net.now);
        let state = known.iter().find(|state| state.host == self.hosts[to]).context("a broker is not known")?;
        let number = |name: &str| name.get(1..).and_then(|number| number.parse().ok()).context("a strange name");
        ensure!(!state.path.is_empty(), "there is no way from {from} to {to}");
        state.path.iter().map(|name| number(name)).collect()
    }

    /// What is sent between two brokers is lost from now on.
    pub fn cut(&mut self, ends: [usize; 2]) {
        self.net.cut(ends);
    }

    /// A machine is gone without a word.
    pub fn vanish(&mut self, node: usize) {
        self.map.links.iter().filter(|ends| ends.contains(&node)).for_each(|ends| self.net.cut(*ends));
        self.net.kill(node);
        self.is_up[node] = false;
    }

    /// Whether nobody takes a link, or a broker, which is a pair of itself, to be there.
    pub fn is_gone(&self, gone: [usize; 2]) -> bool {
        let [one, other] = gone.map(|node| self.hosts[node]);
        let is_there = |node: usize| {
            let core = self.net.core(node);
            if one == other { core.way_us(one).is_some() } else { core.are_linked(one, other) }
        };
        !self.alive().into_iter().any(is_there)
    }

    /// Lets time pass until that is so; how long it took.
    ///
    /// # Errors
    /// When it is not in the end.
    pub fn until_gone(&mut self, gone: [usize; 2], most: Duration) -> Result<Duration> {
        self.until("all know what is gone", most, |world| world.is_gone(gone))
    }

    /// Bytes that brokers have sent each other over links that are up, and those links.
    pub fn sent_bytes(&self) -> (u64, usize) {
        let links = self.alive().into_iter().flat_map(|node| self.net.core(node).links());
        let (bytes, ends) = links.fold((0, 0), |(bytes, ends), link| (bytes + link.counters.bytes_out, ends + 1));
        (bytes, ends / 2)
    }

    /// Some brokers do again, one after the other, what they have done so far, each with the
    /// processor and its caches to itself. What they spend for that from a moment on, of what they
    /// spent for it in turn with all others since then, which was metered.
    ///
    /// # Errors
    /// When one does not say what it said.
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

    /// From now on what processors spend is counted anew; what was counted.
    pub fn meter(&mut self) -> Meter {
        let fresh = Meter::new(self.hosts.len());
        self.net.meter.replace(fresh).expect("there is one")
    }

    /// What one broker spends on an event in a turn that is about something.
    pub fn each_event(meter: &Meter, node: usize, kind: Kind, events: usize) -> f64 {
        meter.of(node, kind).0.as_secs_f64() * 1e6 / events as f64
    }

    /// What brokers hold: of each kind, on average.
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
