//! Brokers' cores, the paper's publishers and subscribers, and the truth of the links between them,
//! in virtual time.

use std::borrow::Cow;
use std::time::Duration;

use whimbrel_core::{Broker, Durability, Link, Profile, TopicTransport};
use whimbrel_event::{
    Attributes, Event, EventId, EventRef, Headers, HostId, PubendId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_sim::random::Random;

use super::area::{Area, AreaTopic};
use super::audience::{Audience, NUMBER_BYTES};
use super::judge::HopLog;
use super::scene::Contender;
use super::truth::Truth;
use crate::cores::costs::Costs;
use crate::cores::{Ask, Cores, START, Setup, Wish};

/// The time for brokers to find each other.
const JOIN: Duration = Duration::from_secs(3);

/// When publishers begin: subscriptions are answered within a second.
pub const BEGIN: Duration = Duration::from_secs(5);

/// The length of a commit, of brokers that log.
const COMMIT: Duration = Duration::from_millis(1);

/// The link of the publisher of the first topic, behind those of all subscribers; with more
/// subscribers their number.
const PUBLISHER: u32 = 100;

/// What is played.
#[derive(Clone, Debug)]
pub struct Play<'a> {
    /// Who takes part.
    pub area: Area,
    /// How paths are chosen.
    pub contender: Contender,
    /// The kind of the events.
    pub reliability: Reliability,
    /// How events of best effort go over links, with versions whose topics have a deadline.
    pub transport: TopicTransport,
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
    /// Events of best effort with the body of the paper's smallest message, and the paper's
    /// publishers and subscribers.
    pub fn new(contender: Contender, truth: &'a Truth, seed: u64) -> Play<'a> {
        Play {
            area: Area::mesh(),
            contender,
            reliability: Reliability::BestEffort,
            transport: TopicTransport::Stream,
            body: BODY,
            publishes: true,
            is_judged: false,
            truth,
            seed,
        }
    }
}

/// Bytes of an event's body where its size does not matter.
pub const BODY: usize = 100;

/// See the module's documentation.
pub struct AreaWorld {
    /// The brokers.
    pub net: Cores,
    /// Their clients.
    pub audience: Audience,
    /// Who takes part.
    pub area: Area,
    reliability: Reliability,
    body: Vec<u8>,
    /// By topic: when the next event is published.
    next: Vec<Time>,
}

impl AreaWorld {
    /// Brokers that know each other, clients that are connected, and publishers that begin at
    /// [`BEGIN`], each with its own phase.
    pub fn new(play: &Play<'_>) -> AreaWorld {
        let mut random = Random::new(play.seed);
        let mut net = Cores::new(Costs::FREE, play.seed << 16);
        let (routing, pace) = (play.contender.version.routing(), play.contender.preset.pace());
        let commit = (play.reliability == Reliability::Reliable).then_some(COMMIT);
        for _ in 0..play.area.brokers {
            net.add(Setup { commit, routing, pace, profiles: profiles(play), ..Setup::default() });
        }
        for link in &play.truth.links {
            net.link_over(link.ends, link.courses.clone());
        }
        // Phases are drawn in steps of a microsecond.
        let phases = play.area.every.as_micros() as u64;
        let phase = |random: &mut Random| Duration::from_micros(random.below(phases));
        let begin = |random: &mut Random| if play.publishes { START + BEGIN + phase(random) } else { Time::MAX };
        let names = play.area.topics.iter().map(|topic| topic.name.clone()).collect();
        let mut audience = Audience::new(START, names, play.area.flows.len());
        audience.hops = play.is_judged.then(HopLog::default);
        let mut world = AreaWorld {
            net,
            audience,
            area: play.area.clone(),
            reliability: play.reliability,
            body: vec![b'.'; play.body.max(NUMBER_BYTES)],
            next: play.area.topics.iter().map(|_| begin(&mut random)).collect(),
        };
        world.run_until(START + JOIN);
        world.connect();
        world
    }

    fn connect(&mut self) {
        let first_publisher = self.first_publisher();
        let mut attach = |node: usize, number: u32| {
            let (link, client) = (Link(number), format!("client-{number}"));
            let ask = Ask::Attach { link, client, lasting: Duration::ZERO, window: u16::MAX };
            self.net.ask(node, ask, &mut self.audience);
            link
        };
        let publishers = (first_publisher..).zip(&self.area.topics);
        publishers.for_each(|(number, topic)| {
            attach(topic.from, number);
        });
        let flows = &self.area.flows;
        let subscribers: Vec<_> = (0..).zip(flows).map(|(number, flow)| (attach(flow.to, number), *flow)).collect();
        for (link, flow) in subscribers {
            let wish = Box::new(plain_wish(self.area.topics[flow.topic].name.clone()));
            self.net.ask(flow.to, Ask::Subscribe(link, wish), &mut self.audience);
        }
        self.run_until(START + BEGIN);
        assert_eq!(self.audience.answered, self.area.flows.len(), "brokers that know each other answer at once");
    }

    fn first_publisher(&self) -> u32 {
        PUBLISHER.max(self.area.flows.len() as u32)
    }

    /// Lets time pass until a moment.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let (topic, at) = (0..).zip(&self.next).min_by_key(|(_, at)| **at).expect("there are topics");
            let at = *at;
            if at > end {
                return self.net.run_until(end, &mut self.audience);
            }
            self.net.run_until(at, &mut self.audience);
            self.publish(topic);
        }
    }

    /// No publisher publishes any more.
    pub fn fall_silent(&mut self) {
        self.next.fill(Time::MAX);
    }

    fn publish(&mut self, topic: usize) {
        let now = self.next[topic];
        self.next[topic] = now + self.area.every;
        let sent = &mut self.audience.sent[topic];
        self.body[..NUMBER_BYTES].copy_from_slice(&(sent.len() as u64).to_le_bytes());
        sent.push(now);
        let AreaTopic { name, from } = &self.area.topics[topic];
        let event = event(name, self.reliability, Some(self.area.deadline), &self.body);
        let event = Event::keep(EventId { pubend: PubendId(0), tick: Tick(0) }, now, &event);
        let link = Link(self.first_publisher() + topic as u32);
        self.net.ask(*from, Ask::Publish(link, 1, event), &mut self.audience);
    }

    /// The machine of a broker stops: its links lose everything from now on, and no other end is
    /// told.
    pub fn lose(&mut self, victim: usize) {
        for node in (0..self.area.brokers).filter(|node| *node != victim) {
            self.net.cut([victim, node]);
        }
        self.net.kill(victim);
    }

    /// The hosts of the brokers.
    pub fn hosts(&self) -> Vec<HostId> {
        (0..self.area.brokers).map(|node| self.core(node).host()).collect()
    }

    /// A broker's core.
    pub fn core(&self, node: usize) -> &Broker {
        self.net.core(node)
    }
}

/// The profiles of all topics: with a version that reacts they have a deadline.
fn profiles(play: &Play<'_>) -> Vec<Profile> {
    let Play { area, contender: Contender { version, .. }, .. } = play;
    let deadline = version.reacts().then_some(area.deadline);
    let transport = if version.reacts() { play.transport } else { TopicTransport::Stream };
    let profile = |topic: &AreaTopic| Profile {
        filter: topic.name.as_str().into(),
        deadline,
        paths: version.paths(),
        transport,
        ..Profile::default()
    };
    area.topics.iter().map(profile).collect()
}

/// A subscription to a topic from now on.
pub fn plain_wish(topic: impl Into<Cow<'static, str>>) -> Wish {
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
