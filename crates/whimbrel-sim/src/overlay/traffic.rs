//! Traffic between brokers: with many subscriptions whose selectors let little through, and with
//! one that wants everything.

use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Qos, UserProperty};
use whimbrel_mqtt::{Config, ConnId};

use super::line::Edge;
use super::net::Fabric;
use crate::random::Random;
use crate::rig::START;
use crate::speech::{Hello, Message, Said, Wanted};
use crate::trunk::Shape;
use crate::wan::WanProfile;

/// Values of the attribute `x`.
const VALUES: u64 = 1_000_000;

/// Vehicles, each with a topic of its own.
const VEHICLES: u64 = 500;

/// How long brokers and subscriptions settle before counting begins.
const SETTLE: Duration = Duration::from_secs(10);

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The world's seed.
    pub seed: u64,
    /// Brokers, in a tree with a few more links.
    pub brokers: usize,
    /// Subscriptions at each broker.
    pub subscriptions: usize,
    /// Entries of one broker's interest, at most.
    pub interest_max: usize,
    /// Events that are published at each broker.
    pub events: u64,
    /// The time between two events of one broker.
    pub pause: Duration,
    /// The payload of an event, bytes.
    pub payload: usize,
    /// The share of all events that the subscriptions of one broker let through, about.
    pub share: f64,
    /// Whether all brokers have the same subscriptions.
    pub alike: bool,
    /// Whether each broker has a subscription to everything.
    pub everything: bool,
}

/// Counters of the time in which events were published, over all links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Bytes of frames.
    pub bytes: u64,
    /// Events, counted once per link.
    pub events: u64,
    /// Events that arrived at a broker for its subscriptions.
    pub received: u64,
    /// Events among these that no subscription there wanted.
    pub unwanted: u64,
    /// Bytes of frames before the first event: link states, interests.
    pub before: u64,
}

/// Subscriptions of one broker that together let `share` of all events through: 6 of 10 by values
/// of all vehicles, 2 by values of single vehicles, and 2 by ranges that lie close together.
fn subscriptions(random: &mut Random, count: usize, share: f64) -> Vec<(String, String)> {
    let (values, count_all) = (VALUES as f64, count as f64);
    let scattered = share * 0.5 * values / (0.9 * 0.6 * count_all);
    let single = share * 0.25 * values * VEHICLES as f64 / (0.9 * 0.2 * count_all);
    let window = share * 0.25 * values / 0.1;
    let begin = random.below(VALUES / 2);
    let mut one = |number: usize| {
        let (filter, from, width) = match number % 10 {
            0..6 => ("v/+/pos".to_owned(), random.below(VALUES), scattered),
            6..8 => (format!("v/{}/pos", random.below(VEHICLES)), random.below(VALUES), single),
            _ => ("w/+/state".to_owned(), begin + random.below(window as u64 + 1), window * 20.0 / count_all),
        };
        (filter, format!("x BETWEEN {from} AND {}", from + (width.round() as u64).max(1) - 1))
    };
    (0..count).map(&mut one).collect()
}

/// Runs the measurement.
pub fn measure(load: &Load) -> Figures {
    let mut random = Random::new(load.seed);
    let mut net = Fabric::new(START, random.fork());
    net.interest_max = load.interest_max;
    for node in 0..load.brokers {
        net.add_node(0);
        net.start(node, Config::default(), |_| {});
    }
    let profile =
        WanProfile { delay: Duration::from_millis(5), rate: 125_000_000, queue: 4 << 20, ..WanProfile::PERFECT };
    for node in 1..load.brokers {
        net.add_edge(Edge::new((random.below(node as u64) as usize, node), Shape::over(profile)));
        if node % 4 == 0 {
            net.add_edge(Edge::new((node - 2, node), Shape::over(profile)));
        }
    }
    let mut clients = 0;
    let mut publishers = Vec::new();
    let drawn = random.next();
    for node in 0..load.brokers {
        let mut wishes = Random::new(drawn ^ if load.alike { 0 } else { node as u64 });
        for (filter, selector) in subscriptions(&mut wishes, load.subscriptions, load.share) {
            let conn = connect(&mut net, node, &mut clients);
            subscribe(&mut net, (node, conn), &filter, Some(selector));
        }
        let conn = connect(&mut net, node, &mut clients);
        if load.everything {
            subscribe(&mut net, (node, conn), "#", None);
        }
        publishers.push(connect(&mut net, node, &mut clients));
    }
    run_until(&mut net, START + SETTLE);
    let before = net.sum_of_links(|link| link.counters.bytes_out);
    for _ in 0..load.events {
        for (node, conn) in publishers.iter().enumerate() {
            let message = event(&mut random, load.payload);
            net.say(node, *conn, &Said::Publish(message).encode(Version::V5_0));
        }
        let until = net.now + load.pause;
        run_until(&mut net, until);
    }
    let until = net.now + Duration::from_secs(1);
    run_until(&mut net, until);
    Figures {
        bytes: net.sum_of_links(|link| link.counters.bytes_out) - before,
        events: net.sum_of_links(|link| link.counters.events_out),
        received: net.sum(|stats| stats.events_received),
        unwanted: net.sum(|stats| stats.events_unwanted),
        before,
    }
}

fn connect(net: &mut Fabric, node: usize, clients: &mut usize) -> ConnId {
    let conn = net.open(node, *clients);
    *clients += 1;
    net.say(node, conn, &Said::Connect(Hello::v5(&format!("c{clients}"))).encode(Version::V5_0));
    conn
}

fn subscribe(net: &mut Fabric, (node, conn): (usize, ConnId), filter: &str, selector: Option<String>) {
    let mut wanted = Wanted::new(filter, Qos::AtMostOnce);
    wanted.retain_handling = 2;
    let said = Said::Subscribe { id: 1, identifier: 0, selector, terms: Vec::new(), wanted: vec![wanted] };
    net.say(node, conn, &said.encode(Version::V5_0));
}

fn event(random: &mut Random, payload: usize) -> Message {
    let topic = match random.below(10) {
        0 => format!("w/{}/state", random.below(5)),
        _ => format!("v/{}/pos", random.below(VEHICLES)),
    };
    let x = random.below(VALUES).to_string();
    let x = UserProperty::new("x", x.as_str()).expect("a number is text");
    Message::new(&topic, vec![b'.'; payload]).property(x).qos(Qos::AtLeastOnce, 1)
}

/// Runs the net until a moment; what clients receive is ignored.
fn run_until(net: &mut Fabric, until: whimbrel_event::Time) {
    while net.next().is_some_and(|at| at <= until) {
        net.step();
        net.told.clear();
    }
    net.told.clear();
    net.now = until;
}
