//! Brokers' cores, the paper's publishers and subscribers, and the truth of the links between them,
//! in virtual time.

use std::time::Duration;

use whimbrel_core::{Broker, Durability, Link, Profile};
use whimbrel_event::{
    Attributes, Event, EventId, EventRef, Headers, HostId, PubendId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_sim::random::Random;

use super::audience::{Audience, NUMBER_BYTES};
use super::judge::HopLog;
use super::scene::{ALL_PAIRS, BROKERS, Contender, DEADLINE, EVERY, PUBLISHERS, TOPICS, Technique};
use super::truth::Truth;
use crate::cores::costs::Costs;
use crate::cores::{Ask, Cores, START, Setup, Wish};

/// The time for brokers to find each other.
const JOIN: Duration = Duration::from_secs(3);

/// When publishers begin: subscriptions are answered within a second.
pub const BEGIN: Duration = Duration::from_secs(5);

/// The length of a commit, of brokers that log.
const COMMIT: Duration = Duration::from_millis(1);

/// The link of the publisher of the first topic, behind those of all subscribers.
const PUBLISHER: u32 = 100;

/// Random phases are drawn in steps of a microsecond.
const PHASES: u64 = EVERY.as_micros() as u64;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Play<'a> {
    /// How paths are chosen.
    pub contender: Contender,
    /// The kind of the events.
    pub reliability: Reliability,
    /// Bytes of an event's body.
    pub body: usize,
    /// Whether anything is published.
    pub publishes: bool,
    /// Whether hops are recorded, for the judge of late events.
    pub is_judged: bool,
    /// The truth of the links.
    pub truth: &'a Truth,
    /// The seed of all randomness but the truth's.
    pub seed: u64,
}

impl<'a> Play<'a> {
    /// Events of best effort with the body of the paper's smallest message.
    pub fn new(contender: Contender, truth: &'a Truth, seed: u64) -> Play<'a> {
        let reliability = Reliability::BestEffort;
        Play { contender, reliability, body: BODY, publishes: true, is_judged: false, truth, seed }
    }
}

/// Bytes of an event's body where its size does not matter.
pub const BODY: usize = 100;

/// See the module's documentation.
pub struct MeshWorld {
    /// The brokers.
    pub net: Cores,
    /// Their clients.
    pub audience: Audience,
    reliability: Reliability,
    body: Vec<u8>,
    /// By topic: when the next event is published.
    next: [Time; TOPICS.len()],
}

impl MeshWorld {
    /// Brokers that know each other, clients that are connected, and publishers that begin at
    /// [`BEGIN`], each with its own phase.
    pub fn new(play: &Play<'_>) -> MeshWorld {
        let mut random = Random::new(play.seed);
        let mut net = Cores::new(Costs::FREE, play.seed << 16);
        let (routing, pace) = (play.contender.version.routing(), play.contender.preset.pace());
        let commit = (play.reliability == Reliability::Reliable).then_some(COMMIT);
        for _ in 0..BROKERS {
            net.add(Setup { commit, routing, pace, profiles: profiles(play.contender.version), ..Setup::default() });
        }
        for link in &play.truth.links {
            net.link_over(link.ends, link.courses.clone());
        }
        let phase = |random: &mut Random| Duration::from_micros(random.below(PHASES));
        let begin = |random: &mut Random| if play.publishes { START + BEGIN + phase(random) } else { Time::MAX };
        let mut audience = Audience::new(START, &TOPICS, ALL_PAIRS.len());
        audience.hops = play.is_judged.then(HopLog::default);
        let mut world = MeshWorld {
            net,
            audience,
            reliability: play.reliability,
            body: vec![b'.'; play.body.max(NUMBER_BYTES)],
            next: std::array::from_fn(|_| begin(&mut random)),
        };
        world.run_until(START + JOIN);
        world.connect();
        world
    }

    fn connect(&mut self) {
        let mut attach = |node: usize, number: u32| {
            let (link, client) = (Link(number), format!("client-{number}"));
            let ask = Ask::Attach { link, client, lasting: Duration::ZERO, window: u16::MAX };
            self.net.ask(node, ask, &mut self.audience);
            link
        };
        let publishers = (PUBLISHER..).zip(PUBLISHERS);
        publishers.for_each(|(number, node)| {
            attach(node, number);
        });
        let subscribers: Vec<_> = (0..).zip(ALL_PAIRS).map(|(number, pair)| (attach(pair.to, number), pair)).collect();
        for (link, pair) in subscribers {
            let wish = Box::new(plain_wish(TOPICS[pair.topic]));
            self.net.ask(pair.to, Ask::Subscribe(link, wish), &mut self.audience);
        }
        self.run_until(START + BEGIN);
        assert_eq!(self.audience.answered, ALL_PAIRS.len(), "brokers that know each other answer at once");
    }

    /// Lets time pass until a moment.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let (topic, at) = (0..).zip(self.next).min_by_key(|(_, at)| *at).expect("there are topics");
            if at > end {
                return self.net.run_until(end, &mut self.audience);
            }
            self.net.run_until(at, &mut self.audience);
            self.publish(topic);
        }
    }

    /// No publisher publishes any more.
    pub fn fall_silent(&mut self) {
        self.next = [Time::MAX; TOPICS.len()];
    }

    fn publish(&mut self, topic: usize) {
        let now = self.next[topic];
        self.next[topic] = now + EVERY;
        let sent = &mut self.audience.sent[topic];
        self.body[..NUMBER_BYTES].copy_from_slice(&(sent.len() as u64).to_le_bytes());
        sent.push(now);
        let event = event(TOPICS[topic], self.reliability, Some(DEADLINE), &self.body);
        let event = Event::keep(EventId { pubend: PubendId(0), tick: Tick(0) }, now, &event);
        let link = Link(PUBLISHER + topic as u32);
        self.net.ask(PUBLISHERS[topic], Ask::Publish(link, 1, event), &mut self.audience);
    }

    /// The machine of a broker stops: its links lose everything from now on, and no other end is
    /// told.
    pub fn lose(&mut self, victim: usize) {
        for node in (0..BROKERS).filter(|node| *node != victim) {
            self.net.cut([victim, node]);
        }
        self.net.kill(victim);
    }

    /// The hosts of the brokers.
    pub fn hosts(&self) -> [HostId; BROKERS] {
        std::array::from_fn(|node| self.core(node).host())
    }

    /// A broker's core.
    pub fn core(&self, node: usize) -> &Broker {
        self.net.core(node)
    }
}

/// The profiles of all topics: with a version that reacts they have a deadline.
fn profiles(version: Technique) -> Vec<Profile> {
    let (deadline, paths) = (version.reacts().then_some(DEADLINE), version.paths());
    TOPICS.map(|topic| Profile { filter: topic.into(), deadline, paths, ..Profile::default() }).into()
}

/// A subscription to a topic from now on.
pub fn plain_wish(topic: &'static str) -> Wish {
    Wish {
        filter: topic.into(),
        selector: None,
        durability: Durability::Nondurable,
        qos: Qos::AtMostOnce,
        from: None,
        by_token: false,
        notices: false,
    }
}

/// An event with a deadline, if it is to have one.
pub fn event<'a>(
    topic: &'a str,
    reliability: Reliability,
    deadline: Option<Duration>,
    payload: &'a [u8],
) -> EventRef<'a> {
    EventRef {
        topic,
        attributes: Attributes::EMPTY,
        payload,
        headers: Headers::EMPTY,
        qos: Qos::AtMostOnce,
        reliability,
        importance: whimbrel_event::IMPORTANCE_DEFAULT,
        expires: None,
        deadline_ms: deadline.map(|deadline| deadline.as_millis() as u32),
        publisher: Publisher::UNKNOWN,
    }
}
