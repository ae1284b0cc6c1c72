//! Worlds made by hand: cases that were found by thinking rather than by drawing.

use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_core::cache::{Capacity, DefaultPlan, Plan, Policy};
use whimbrel_mqtt::Config;

use super::client::{Class, Client, Life, Role, Trade, Wish};
use super::line::Edge;
use super::world::{Fault, World};
use crate::rig::START;
use crate::trunk::Shape;
use crate::wan::WanProfile;

const SECOND: Duration = Duration::from_secs(1);

/// A chain of brokers.
fn line(brokers: usize, profile: WanProfile) -> World<'static> {
    let mut world = World::new(7, Config::default(), None, Box::new(|_| {}));
    for _ in 0..brokers {
        world.add_node(0);
    }
    for node in 1..brokers {
        world.net.add_edge(Edge::new((node - 1, node), Shape::over(profile)));
    }
    world
}

pub(super) fn path() -> WanProfile {
    WanProfile { delay: Duration::from_millis(20), ..WanProfile::PERFECT }
}

/// Adds a subscriber to `filter` that starts `after` the world's beginning.
pub(super) fn subscriber(world: &mut World<'_>, (node, class): (usize, Class), filter: &str, after: Duration) {
    let wish = Wish { filter: filter.to_owned(), choice: None, qos: Qos::AtLeastOnce };
    let name = format!("s{}", world.clients.len());
    let random = world.random.fork();
    world.add(Client::new(name, node, Role::Subscriber(Box::new(Life::new(class, wish, None))), random, START + after));
}

/// Adds a publisher of QoS 1 that starts `after` the world's beginning.
pub(super) fn publisher(world: &mut World<'_>, node: usize, (pause, bytes): (Duration, u64), after: Duration) {
    let role = Role::Publisher(Trade { pause, retained: 0, bytes, qos: [0, 1, 0] });
    let name = format!("p{}", world.clients.len());
    let random = world.random.fork();
    world.add(Client::new(name, node, role, random, START + after));
}

/// Checks that no rule was broken in the end.
fn end(world: &mut World<'_>) {
    super::finish(world);
    let all: Vec<String> = world.book.violations.iter().map(ToString::to_string).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
    assert!(world.book.counts.due > 0, "something had to come");
}

/// More waits on a link than its bound: events that are not sent then are asked for later.
#[test]
fn what_finds_no_room_comes_later() {
    let mut world = line(2, WanProfile { rate: 600_000, queue: 64 << 10, ..path() });
    subscriber(&mut world, (0, Class::Noticed), "#", SECOND);
    subscriber(&mut world, (0, Class::Plain), "#", SECOND);
    publisher(&mut world, 1, (Duration::from_millis(4), 100_000), SECOND * 2);
    world.run_until(START + SECOND * 12);
    let held_back: u64 = world.net.sum_of_links(|link| link.counters.events_held_back);
    assert!(held_back > 0, "the link was full");
    world.hush();
    world.run_until(START + SECOND * 150);
    end(&mut world);
}

/// A broker is started without its state, beside one that knows an old interest of a third.
#[test]
fn a_broker_starts_beside_a_stale_one() {
    let mut world = line(3, path());
    subscriber(&mut world, (0, Class::Noticed), "a/#", SECOND);
    world.run_until(START + SECOND * 2);
    world.happen(Fault::Cut(0, [true; 2]));
    subscriber(&mut world, (0, Class::Noticed), "d/#", SECOND * 3);
    world.run_until(START + SECOND * 5);
    world.happen(Fault::Crash(2, true));
    world.happen(Fault::Start(2, 0));
    publisher(&mut world, 2, (Duration::from_millis(20), 0), SECOND * 5);
    world.run_until(START + SECOND * 7);
    world.happen(Fault::Heal(0));
    world.run_until(START + SECOND * 10);
    end(&mut world);
}

/// Events that are published as soon as a broker is up reach subscriptions that have long waited.
#[test]
fn the_first_events_of_a_broker_come() {
    for first in [5, 30, 100] {
        let mut world = line(3, path());
        world.happen(Fault::Crash(2, false));
        subscriber(&mut world, (0, Class::Plain), "#", SECOND);
        subscriber(&mut world, (1, Class::SemiDurable), "#", SECOND);
        world.run_until(START + SECOND * 5);
        world.happen(Fault::Start(2, 0));
        publisher(&mut world, 2, (Duration::from_millis(5), 0), SECOND * 5 + Duration::from_millis(first));
        world.run_until(START + SECOND * 7);
        end(&mut world);
    }
}

/// Interests change while messages about them are lost.
#[test]
fn lost_silence_over_versions_loses_nothing() {
    let mut world = line(2, path());
    publisher(&mut world, 1, (Duration::from_millis(20), 0), SECOND);
    subscriber(&mut world, (0, Class::Noticed), "a/b", SECOND);
    world.run_until(START + SECOND * 2);
    for (number, filter) in ["a/c", "d/#", "e"].into_iter().enumerate() {
        world.happen(Fault::Cut(0, [false, true]));
        subscriber(&mut world, (0, Class::Noticed), filter, SECOND * (2 + 2 * number as u32));
        world.run_until(START + SECOND * (2 + 2 * number as u32) + Duration::from_millis(900));
        world.happen(Fault::Heal(0));
        world.run_until(START + SECOND * (4 + 2 * number as u32));
    }
    end(&mut world);
}

/// Events that the cache has overwritten are told as a gap.
#[test]
fn a_tiny_cache_makes_gaps() {
    let mut world = World::new(7, Config::default(), None, Box::new(|_| {}));
    let default = DefaultPlan { capacity: Capacity::Events(10), policy: Policy::Lrp };
    world.net.cache = Some(Plan { default, ..Plan::default() });
    world.add_node(0);
    world.add_node(0);
    world.net.add_edge(Edge::new((0, 1), Shape::over(path())));
    publisher(&mut world, 1, (Duration::from_millis(10), 0), SECOND);
    subscriber(&mut world, (0, Class::Noticed), "#", SECOND);
    world.run_until(START + SECOND * 3);
    world.happen(Fault::Cut(0, [true; 2]));
    world.run_until(START + SECOND * 8);
    world.happen(Fault::Heal(0));
    world.run_until(START + SECOND * 10);
    end(&mut world);
    assert!(world.book.counts.excused > 100, "most of what was published meanwhile is gone, and told to be");
}

/// Other subscriptions change all the time; those that stay receive everything.
#[test]
fn churn_of_interest_is_no_loss() {
    let mut world = line(3, path());
    for node in 0..3 {
        subscriber(&mut world, (node, Class::Plain), "a/#", SECOND);
        publisher(&mut world, node, (Duration::from_millis(20), 0), SECOND);
        for _ in 0..4 {
            let mut random = world.random.fork();
            let role = Client::life(Class::Noticed, Some(Duration::from_millis(50)), &mut random);
            let name = format!("s{}", world.clients.len());
            world.add(Client::new(name, node, role, random, START + SECOND));
        }
    }
    world.run_until(START + SECOND * 11);
    end(&mut world);
}

/// Two brokers that ask each other for a link, and one that asks itself.
#[test]
fn double_links_and_links_to_oneself_end() {
    let mut world = line(2, path());
    for ends in [(1, 0), (0, 1), (0, 0)] {
        let mut edge = Edge::new(ends, Shape::over(path()));
        edge.is_stubborn = true;
        world.net.add_edge(edge);
    }
    subscriber(&mut world, (0, Class::Noticed), "#", SECOND);
    publisher(&mut world, 1, (Duration::from_millis(50), 0), SECOND);
    world.run_until(START + SECOND * 5);
    assert!(world.net.traffic.hung_up > 0, "some of the links are too many");
    end(&mut world);
}
