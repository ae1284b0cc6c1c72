//! Publishers at a PHB and durable subscribers at SHBs, in virtual time.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};
use whimbrel_core::{Durability, Link};
use whimbrel_event::{
    AttributesBuf, Event, EventId, EventRef, Headers, PubendId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_selector::Selector;

use super::people::{FIRST, People};
use crate::cores::costs::Costs;
use crate::cores::{Ask, Cores, START, Setup, Wish};
use crate::durable::crowd::{ACKNOWLEDGE_EVERY, Absences};
use crate::durable::publisher::{class_of, name_of};
use crate::durable::{BODY, CLASSES, PUBLISHERS, SESSION_SECONDS, TOPIC};

/// The time for brokers to find each other, and for subscriptions to be known everywhere.
const SETTLE: Duration = Duration::from_secs(3);

/// The properties of the brokers.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// The costs of operations.
    pub costs: Costs,
    /// How long a commit takes.
    pub commit: Duration,
    /// The delay of each link.
    pub delay: Duration,
    /// Events per second.
    pub rate: u64,
    /// The seed of all randomness.
    pub seed: u64,
}

/// See the module's documentation.
pub struct World {
    /// The brokers.
    pub net: Cores,
    /// Their subscribers.
    pub people: People,
    /// By place: the broker.
    hosting: Vec<usize>,
    selectors: Vec<Selector>,
    /// The number of the next event, and the packet identifier of each publisher's last one.
    pub sent: u64,
    tag: u16,
    acknowledges_at: Time,
    absences: Option<Absences>,
    /// The next departure or return of each subscriber.
    moves: Vec<(Time, usize)>,
    random: fastrand::Rng,
    /// The recorded progress: seconds, delivered, released.
    pub history: Vec<[f64; 3]>,
    keeps_history: bool,
}

impl World {
    /// A PHB and a number of SHBs.
    ///
    /// # Errors
    /// When this program is inconsistent.
    pub fn star(shbs: usize, ground: Ground) -> Result<World> {
        let ends = (1..=shbs).map(|shb| [0, shb]).collect();
        World::new(1 + shbs, ends, (1..=shbs).collect(), ground)
    }

    /// A chain with a number of links; subscribers are at its end.
    ///
    /// # Errors
    /// As [`World::star`].
    pub fn chain(links: usize, ground: Ground) -> Result<World> {
        World::new(links + 1, (0..links).map(|one| [one, one + 1]).collect(), vec![links], ground)
    }

    fn new(brokers: usize, links: Vec<[usize; 2]>, hosting: Vec<usize>, ground: Ground) -> Result<World> {
        let Ground { costs, commit, delay, rate, seed } = ground;
        let mut net = Cores::new(costs, seed);
        for _ in 0..brokers {
            net.add(Setup { commit: Some(commit), ..Setup::default() });
        }
        links.into_iter().for_each(|ends| net.link(ends, delay));
        let selector = |class| Selector::parse(&format!("class = {class}")).context("making a selector");
        let began = START + SETTLE;
        let mut world = World {
            net,
            people: People::new(began, rate),
            hosting,
            selectors: (0..CLASSES).map(selector).collect::<Result<_>>()?,
            sent: 0,
            tag: 0,
            acknowledges_at: began,
            absences: None,
            moves: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            history: Vec::new(),
            keeps_history: false,
        };
        for index in 0..PUBLISHERS {
            let attach = Ask::Attach {
                link: Link(index as u32),
                client: name_of(index),
                lasting: Duration::ZERO,
                window: u16::MAX,
            };
            world.net.ask(0, attach, &mut world.people);
        }
        world.net.run_until(began, &mut world.people);
        Ok(world)
    }

    /// The broker of a place.
    pub fn shb(&self, place: usize) -> usize {
        self.hosting[place]
    }

    /// Adds subscribers at one place, which are connected soon, and returns their indices.
    pub fn add(&mut self, place: usize, more: usize) -> Range<usize> {
        let which = self.people.all.len()..self.people.all.len() + more;
        for index in which.clone() {
            self.people.add(index, self.hosting[place]);
            self.come(index);
        }
        which
    }

    /// Adds the same number of subscribers at each place.
    pub fn add_everywhere(&mut self, each: usize) {
        for place in 0..self.hosting.len() {
            self.add(place, each);
        }
    }

    /// A subscriber connects and subscribes from its position.
    pub fn come(&mut self, index: usize) {
        let (link, sent, now) = (Link(FIRST + index as u32), self.sent, self.net.now);
        let person = &mut self.people.all[index];
        let (node, from) = (person.node, person.place());
        person.behind = from.is_some().then_some((now, sent));
        let wish = Wish {
            filter: TOPIC.into(),
            selector: Some(self.selectors[person.class].clone()),
            durability: Durability::Durable,
            qos: Qos::AtMostOnce,
            from,
            by_token: true,
            notices: false,
        };
        let lasting = Duration::from_secs(SESSION_SECONDS.into());
        let attach = Ask::Attach { link, client: format!("durable-{index}"), lasting, window: u16::MAX };
        self.net.ask(node, attach, &mut self.people);
        self.net.ask(node, Ask::Subscribe(link, Box::new(wish)), &mut self.people);
    }

    fn leave(&mut self, index: usize) {
        let person = &mut self.people.all[index];
        let node = person.node;
        (person.is_there, person.behind) = (false, None);
        self.net.ask(node, Ask::Detach(Link(FIRST + index as u32)), &mut self.people);
    }

    /// The broker of a place is killed, and its subscribers are away.
    pub fn kill(&mut self, place: usize) {
        let node = self.hosting[place];
        for person in self.people.all.iter_mut().filter(|person| person.node == node) {
            (person.is_there, person.behind) = (false, None);
        }
        self.net.kill(node);
    }

    /// Subscribers leave and return from now on, each at its own times.
    pub fn begin_absences(&mut self, absences: Absences) {
        let now = self.net.now;
        self.absences = Some(absences);
        let random = &mut self.random;
        self.moves =
            (0..self.people.all.len()).map(|index| (now + absences.period.mul_f64(random.f64()), index)).collect();
    }

    /// Subscribers no longer leave, and those that are away return.
    pub fn end_absences(&mut self) {
        (self.absences, self.moves) = (None, Vec::new());
        let away: Vec<usize> = (0..self.people.all.len()).filter(|index| !self.people.all[*index].is_there).collect();
        away.into_iter().for_each(|index| self.come(index));
    }

    /// Records progress from now on.
    pub fn keep_history(&mut self) {
        self.keeps_history = true;
    }

    /// Runs events for a time.
    pub fn run(&mut self, span: Duration) {
        let end = self.net.now + span;
        loop {
            let publish = self.people.due(self.sent);
            let moves = self.moves.iter().map(|(at, _)| *at).min().unwrap_or(end);
            let next = publish.min(self.acknowledges_at).min(moves);
            if next >= end {
                break;
            }
            self.net.run_until(next.max(self.net.now), &mut self.people);
            if next == publish {
                self.publish();
            } else if next == self.acknowledges_at {
                self.acknowledge();
            } else {
                self.move_some();
            }
        }
        self.net.run_until(end, &mut self.people);
    }

    /// Stops events for a time: those in flight arrive.
    pub fn rest(&mut self, span: Duration) {
        let end = self.net.now + span;
        self.net.run_until(end, &mut self.people);
        self.acknowledges_at = self.acknowledges_at.max(end);
        // Events that would have been due meanwhile are left out.
        let passed = end.since(self.people.due(self.sent).min(end));
        self.people.began = self.people.began + passed;
    }

    fn publish(&mut self) {
        let number = self.sent;
        self.sent += 1;
        if number.is_multiple_of(PUBLISHERS as u64) {
            self.tag = self.tag.checked_add(1).unwrap_or(1);
        }
        let mut body = [b'.'; BODY];
        body[..8].copy_from_slice(&number.to_be_bytes());
        let mut attributes = AttributesBuf::new();
        attributes.push("class", &class_of(number).to_string());
        attributes.push("quality", "inspected and found to be good");
        let event = EventRef {
            topic: TOPIC,
            attributes: attributes.as_attributes(),
            payload: &body,
            headers: Headers::EMPTY,
            qos: Qos::AtLeastOnce,
            reliability: Reliability::Reliable,
            importance: 1,
            expires: None,
            deadline_ms: None,
            publisher: Publisher::UNKNOWN,
        };
        // Its name is given by the broker that accepts it.
        let event = Event::keep(EventId { pubend: PubendId(0), tick: Tick(0) }, self.net.now, &event);
        let link = Link((number % PUBLISHERS as u64) as u32);
        self.net.ask(0, Ask::Publish(link, self.tag, event), &mut self.people);
    }

    fn acknowledge(&mut self) {
        self.acknowledges_at = self.acknowledges_at + ACKNOWLEDGE_EVERY;
        for index in 0..self.people.all.len() {
            let person = &mut self.people.all[index];
            let node = person.node;
            if let Some(token) = person.acknowledges() {
                let ask = Ask::Acknowledge(Link(FIRST + index as u32), Box::new(token));
                self.net.ask(node, ask, &mut self.people);
            }
        }
        if self.keeps_history {
            let live = self.people.all.iter().filter(|person| person.is_there && person.behind.is_none());
            let before = self.history.last().map_or(0.0, |last| last[1]);
            let seconds = |number: u64| self.people.due(number).since(self.people.began).as_secs_f64();
            let delivered = live.map(|person| person.reached().0).min().map_or(before, seconds);
            let released = self.people.all.iter().map(|person| person.reached().1).min().map_or(0.0, seconds);
            let now = self.net.now.since(self.people.began).as_secs_f64();
            self.history.push([now, delivered, released]);
        }
    }

    fn move_some(&mut self) {
        let Some(Absences { period, away }) = self.absences else { return };
        let now = self.net.now;
        for at in 0..self.moves.len() {
            let (due, index) = self.moves[at];
            if due > now {
                continue;
            }
            let is_there = self.people.all[index].is_there;
            self.moves[at].0 = due + if is_there { away } else { period - away };
            if is_there {
                self.leave(index);
            } else {
                self.come(index);
            }
        }
    }

    /// Events that all brokers have logged.
    pub fn logged(&self, brokers: usize) -> u64 {
        (0..brokers).map(|broker| self.net.logged(broker)).sum()
    }

    /// Events that the PHB has sent again to brokers that lacked them.
    pub fn asked_of_phb(&self) -> u64 {
        self.net.core(0).overlay_stats().map_or(0, |stats| stats.net.events_answered + stats.events_lent)
    }
}
