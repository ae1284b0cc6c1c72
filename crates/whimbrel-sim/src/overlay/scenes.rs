//! Scenes made for one fault each: drawn worlds reach them too seldom.

use std::time::Duration;

use whimbrel_core::{Mutant, NetMutant};
use whimbrel_mqtt::Config;

use super::book::Rule;
use super::client::Class;
use super::line::Edge;
use super::logs::Log;
use super::tests::{path, publisher, subscriber};
use super::world::{Fault, World};
use crate::random::Random;
use crate::rig::START;
use crate::trunk::Shape;
use crate::wan::WanProfile;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A world of brokers that may have a fault, some of them with a disk.
fn brokers(mutant: Option<Mutant>, disks: &[bool]) -> World<'static> {
    let starter = move |broker: &mut whimbrel_mqtt::MqttBroker| {
        if let Some(mutant) = mutant {
            broker.build_in(mutant);
        }
    };
    let mut world = World::new(7, Config::default(), None, Box::new(starter));
    for has_disk in disks {
        let log = has_disk.then(|| Log::new(Vec::new(), Random::new(5)));
        world.add_machine(0, log);
    }
    world
}

fn connect(world: &mut World<'_>, ends: (usize, usize), delay: Duration) -> usize {
    let profile = WanProfile { delay, ..path() };
    world.net.add_edge(Edge::new(ends, Shape::over(profile)))
}

/// The rules that a scene breaks, each once.
fn broken(world: &mut World<'_>) -> Vec<Rule> {
    super::finish(world);
    super::check_repairs(world);
    let mut rules: Vec<Rule> = world.book.violations.iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// A broker's interest grows; it tells two others, of which one does not receive that. The other
/// restarts, learns the old interest from the first, and publishes. For a moment it matches under
/// the old version, though the new one was told to be in force.
fn an_older_version_comes_back(mutant: Option<Mutant>) -> Vec<Rule> {
    let mut world = brokers(mutant, &[false, false, true]);
    let (near, far) = (connect(&mut world, (0, 2), 20 * MILLISECOND), connect(&mut world, (0, 1), 200 * MILLISECOND));
    let between = connect(&mut world, (1, 2), 20 * MILLISECOND);
    subscriber(&mut world, (0, Class::Noticed), "a/#", SECOND);
    world.run_until(START + SECOND * 3);
    for edge in [far, between] {
        world.happen(Fault::Cut(edge, [true; 2]));
    }
    subscriber(&mut world, (0, Class::Noticed), "d/#", SECOND * 4);
    world.run_until(START + SECOND * 8);
    world.happen(Fault::Cut(near, [true; 2]));
    world.happen(Fault::Crash(2, true));
    world.happen(Fault::Start(2, 0));
    world.happen(Fault::Heal(between));
    publisher(&mut world, 2, (4 * MILLISECOND, 0), SECOND * 9);
    world.run_until(START + SECOND * 14);
    world.happen(Fault::Heal(far));
    world.run_until(START + SECOND * 20);
    broken(&mut world)
}

#[test]
fn what_came_before_an_event_is_not_believed_under_an_older_version() {
    assert_eq!(an_older_version_comes_back(None), []);
    assert_eq!(an_older_version_comes_back(Some(Mutant::IntervalAcrossVersions)), [Rule::Lost]);
}

/// A broker ends to which two others have links. These know a way around each other, and have told
/// their links a moment before. They tell the loss later, and meanwhile each takes the other for
/// the way.
fn two_lead_to_one_that_is_gone(mutant: Option<Mutant>) -> Vec<Rule> {
    let mut world = brokers(mutant, &[false; 5]);
    for ends in [(0, 1), (1, 2), (1, 3), (2, 3), (1, 4), (2, 4)] {
        connect(&mut world, ends, MILLISECOND);
    }
    subscriber(&mut world, (3, Class::Noticed), "#", SECOND);
    subscriber(&mut world, (2, Class::Noticed), "a/b", SECOND);
    publisher(&mut world, 0, (2 * MILLISECOND, 0), SECOND * 3 - 20 * MILLISECOND);
    world.run_until(START + SECOND * 3);
    world.happen(Fault::Crash(4, true));
    world.run_until(START + SECOND * 3 + 4 * MILLISECOND);
    world.happen(Fault::Crash(3, true));
    world.run_until(START + SECOND * 3 + 120 * MILLISECOND);
    world.hush();
    broken(&mut world)
}

#[test]
fn what_is_repaired_does_not_go_round() {
    assert_eq!(two_lead_to_one_that_is_gone(None), []);
    assert_eq!(two_lead_to_one_that_is_gone(Some(Mutant::Net(NetMutant::RepairLoop))), [Rule::Bounds]);
}

/// One side forgets the other, which has not forgotten it, and learns of it again.
#[test]
fn who_forgets_and_is_not_forgotten_loses_nothing() {
    let mut world = brokers(None, &[false; 3]);
    let edge = connect(&mut world, (0, 1), 20 * MILLISECOND);
    let other = connect(&mut world, (1, 2), 20 * MILLISECOND);
    let pause = 50 * MILLISECOND;
    for node in [0, 1] {
        publisher(&mut world, node, (pause, 0), SECOND);
        subscriber(&mut world, (node, Class::Noticed), "a/#", SECOND);
        // These are answered while one of the brokers is not known.
        for filter in ["#", "d/#"] {
            subscriber(&mut world, (node, Class::Noticed), filter, SECOND * 106);
            subscriber(&mut world, (node, Class::Plain), filter, SECOND * 107);
        }
    }
    // By then the last link state of one broker is old, and the other's is not.
    world.run_until(START + SECOND * 27);
    world.happen(Fault::Reset(other));
    world.run_until(START + SECOND * 29);
    world.happen(Fault::Cut(edge, [true; 2]));
    world.run_until(START + SECOND * 110);
    let expired = [0, 1].map(|node: usize| {
        let stats = world.net.nodes[node].broker.as_ref().and_then(|broker| broker.core().overlay_stats());
        stats.expect("it is there").net.brokers_expired
    });
    assert_eq!(expired, [0, 1], "one of them has forgotten the other");
    world.happen(Fault::Heal(edge));
    world.run_until(START + SECOND * 125);
    assert_eq!(broken(&mut world), [], "{:?}", world.book.violations);
    assert!(world.book.counts.due > 1_000);
}
