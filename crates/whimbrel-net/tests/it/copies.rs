//! Events with a deadline take two paths.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{EventId, HostId, Reliability, split_mix};
use whimbrel_net::route::{Availability, TopicPaths};
use whimbrel_net::traces::TraceStep;
use whimbrel_net::{Hop, Net, NetStats};

use crate::fabric::node::Setup;
use crate::fabric::{Content, Fabric, Trouble};
use crate::scenarios::{MILLI, SECOND};
use crate::watching::SILENT;

const DEADLINE_MS: u32 = 100;

/// The events' interval.
const EVERY: Duration = Duration::from_millis(10);

/// A fabric in which node 0 publishes events with a deadline over two paths.
pub struct Copied {
    pub fabric: Fabric,
    wanting: Vec<usize>,
    next: u32,
}

impl Copied {
    /// Nodes with wires of 10 ms, and those that want all events.
    pub fn new(nodes: usize, wires: &[[usize; 2]], wanting: &[usize], change: fn(&mut Net)) -> Copied {
        Copied::over(TopicPaths::Two, nodes, wires, wanting, change)
    }

    /// As [`Copied::new`], over these paths.
    fn over(paths: TopicPaths, nodes: usize, wires: &[[usize; 2]], wanting: &[usize], change: fn(&mut Net)) -> Copied {
        let setup = |number: usize| Setup { change, paths, ..Setup::named(format!("b{number}")) };
        let mut fabric = Fabric::new((0..nodes).map(setup));
        for ends in wires {
            fabric.link(*ends, MILLI * 10);
        }
        fabric.run(SECOND * 2);
        for node in wanting {
            fabric.subscribe(*node, "a");
        }
        fabric.run(SECOND);
        Copied { fabric, wanting: wanting.to_vec(), next: 0 }
    }

    /// Node 0 publishes events for some time.
    pub fn flow(&mut self, span: Duration) {
        for _ in 0..span.as_millis() / EVERY.as_millis() {
            self.next += 1;
            let payload = self.next.to_be_bytes();
            let (reliability, deadline_ms) = (Reliability::Reliable, Some(DEADLINE_MS));
            self.fabric.publish(0, Content { topic: "a", payload: &payload, reliability, deadline_ms });
            self.fabric.run(EVERY);
        }
    }

    /// The number of events that were not everywhere by their deadline.
    pub fn late(&self) -> usize {
        let is_late =
            |id: &EventId| self.wanting.iter().any(|node| !self.fabric.has_within(*node, *id, MILLI * DEADLINE_MS));
        self.fabric.ledger.published.keys().filter(|id| is_late(id)).count()
    }

    /// By event: how often it was sent over the link, in one direction, that it was sent over most.
    /// Answers do not count.
    fn most_over_a_link(&self) -> BTreeMap<EventId, usize> {
        let mut sent: BTreeMap<(EventId, usize, HostId), usize> = BTreeMap::new();
        for note in &self.fabric.ledger.hops {
            if let Hop::Sent { to, is_answer: false } = note.hop {
                *sent.entry((note.id, note.node, to)).or_default() += 1;
            }
        }
        let mut most: BTreeMap<EventId, usize> = BTreeMap::new();
        for ((id, ..), times) in sent {
            let known = most.entry(id).or_default();
            *known = times.max(*known);
        }
        most
    }

    /// The sum of a counter over all nodes.
    fn sum(&self, of: fn(&NetStats) -> u64) -> u64 {
        self.fabric.alive().into_iter().map(|node| of(self.fabric.node(node).net.stats())).sum()
    }
}

/// Node 3 behind nodes 1 and 2, and node 4 behind node 3 alone.
const DIAMOND: [[usize; 2]; 5] = [[0, 1], [0, 2], [1, 3], [2, 3], [3, 4]];

#[test]
fn each_destination_has_its_event_over_two_paths_and_no_link_twice() {
    let mut world = Copied::new(5, &DIAMOND, &[3, 4], |_| {});
    world.flow(SECOND);
    world.fabric.run(SECOND);
    assert_eq!(world.late(), 0);
    assert!(world.most_over_a_link().into_values().all(|times| times == 1));
    let relayed = |node: usize| world.fabric.node(node).net.stats().events_relayed;
    assert_eq!((relayed(1), relayed(2)), (100, 100));
    let stats = world.fabric.node(3).net.stats();
    assert_eq!(stats.copies_joined, 100, "the second copy for node 4 ends at node 3");
    world.fabric.check().expect("each event has arrived once, in order");
    // Its trace says so, and by which neighbours the copies came.
    let id = *world.fabric.ledger.published.keys().next().expect("there are events");
    let host = |node: usize| world.fabric.node(node).net.host();
    let steps = world.fabric.node(3).net.trace_of(id).map(|note| note.what);
    let is_hop = |step: &TraceStep| matches!(step, TraceStep::Came(..) | TraceStep::Sent(_) | TraceStep::Joined(_));
    let mut steps: Vec<TraceStep> = steps.filter(is_hop).collect();
    let came = |step: TraceStep| if let TraceStep::Came(from, _) = step { Some(from) } else { None };
    let (first, second) = (came(steps.remove(0)), came(steps.remove(1)));
    assert!(first != second && [first, second].iter().all(|from| [Some(host(1)), Some(host(2))].contains(from)));
    assert_eq!(steps, [TraceStep::Sent(host(4)), TraceStep::Joined(host(4))]);
}

#[test]
fn a_link_or_a_broker_that_falls_silent_delays_no_event() {
    for silent in [[0, 1], [0, 2], [2, 3]] {
        let mut world = Copied::new(5, &DIAMOND, &[3, 4], |_| {});
        world.flow(SECOND);
        let wire = DIAMOND.iter().position(|ends| *ends == silent).expect("it is a wire");
        for node in silent {
            world.fabric.trouble(wire, node, SILENT);
        }
        world.flow(SECOND);
        world.fabric.trouble(wire, silent[0], Trouble::default());
        world.fabric.trouble(wire, silent[1], Trouble::default());
        world.flow(SECOND);
        world.fabric.run(SECOND);
        assert_eq!(world.late(), 0, "{silent:?}");
        world.fabric.check().expect("each event has arrived once, in order");
    }
    let mut world = Copied::new(5, &DIAMOND, &[3, 4], |_| {});
    world.flow(SECOND);
    world.fabric.kill(1);
    world.flow(SECOND);
    world.fabric.run(SECOND);
    assert_eq!(world.late(), 0);
}

/// Node 6 behind five others, each of which is linked to node 0.
const FIVE_WAYS: [[usize; 2]; 10] = [[0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [1, 6], [2, 6], [3, 6], [4, 6], [5, 6]];

/// Two links of one end fall silent one after the other, and when that is known, two others at
/// once. Returns the number of late events, and of those that took more than two paths.
fn failing_at_one_end(paths: TopicPaths, failing: [[usize; 2]; 4]) -> (usize, u64) {
    let mut world = Copied::over(paths, 7, &FIVE_WAYS, &[6], |_| {});
    world.flow(SECOND);
    for (number, wire) in failing.into_iter().enumerate() {
        let at = FIVE_WAYS.iter().position(|ends| *ends == wire).expect("it is a wire");
        wire.iter().for_each(|node| world.fabric.trouble(at, *node, SILENT));
        world.flow(if number < 2 { SECOND } else { Duration::ZERO });
    }
    // The others are not yet known to be silent.
    world.flow(MILLI * 60);
    world.fabric.run(MILLI * 150);
    (world.late(), world.sum(|stats| stats.events_targeted))
}

#[test]
fn around_an_end_in_trouble_every_way_is_taken() {
    let [destination, source] = [[[1, 6], [2, 6], [3, 6], [4, 6]], [[0, 1], [0, 2], [0, 3], [0, 4]]];
    for failing in [destination, source] {
        let (late, targeted) = failing_at_one_end(TopicPaths::Targeted, failing);
        assert!(late == 0 && targeted > 0, "{failing:?}: {late} late, {targeted} over more paths");
        let (late, targeted) = failing_at_one_end(TopicPaths::Two, failing);
        assert!(late > 0 && targeted == 0, "{failing:?}: {late} late with two paths");
    }
    let mut calm = Copied::over(TopicPaths::Targeted, 7, &FIVE_WAYS, &[6], |_| {});
    calm.flow(SECOND);
    assert_eq!(calm.sum(|stats| stats.events_targeted), 0, "without trouble two paths are enough");
}

#[test]
fn an_event_takes_as_many_paths_as_its_availability_needs() {
    // Nothing is known of outages: a way over two links and a broker is in order for 0.9997.
    for (ppm, ways) in [(999_000, 1), (999_900, 2), (999_999, 2)] {
        let target = Availability::of_ppm(ppm).expect("it is in the range");
        let mut world = Copied::over(TopicPaths::Available(target), 7, &FIVE_WAYS, &[6], |_| {});
        world.flow(MILLI * 100);
        world.fabric.run(SECOND);
        let relayed = world.sum(|stats| stats.events_relayed);
        assert_eq!((world.late(), relayed), (0, 10 * ways), "{ppm}");
        world.fabric.check().expect("each event has arrived once, in order");
    }
}

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        (split_mix(&mut self.0) % end as u64) as usize
    }
}

/// Nodes that are all linked, with `more` wires beside for each node; some want all events.
fn drawn(seed: u64, more: usize, change: fn(&mut Net)) -> (Copied, Vec<[usize; 2]>, Numbers) {
    let mut numbers = Numbers(seed);
    let nodes = 4 + numbers.below(5);
    let mut wires: Vec<[usize; 2]> = (1..nodes).map(|node| [numbers.below(node), node]).collect();
    for _ in 0..more * nodes {
        let ends = [numbers.below(nodes), numbers.below(nodes)];
        if ends[0] < ends[1] && !wires.contains(&ends) {
            wires.push(ends);
        }
    }
    let wanting: Vec<usize> = (1..nodes).filter(|_| numbers.below(2) == 0).collect();
    let wanting = if wanting.is_empty() { vec![nodes - 1] } else { wanting };
    (Copied::new(nodes, &wires, &wanting, change), wires, numbers)
}

/// The number of events that arrived late, or more than once over a link, where nothing breaks.
fn undisturbed(seed: u64, change: fn(&mut Net)) -> usize {
    let (mut world, ..) = drawn(seed, seed as usize % 4, change);
    world.flow(MILLI * 500);
    world.fabric.run(SECOND);
    let twice = world.most_over_a_link().into_values().filter(|times| *times > 1).count();
    world.late() + twice
}

#[test]
fn where_nothing_breaks_no_event_is_late_or_crosses_a_link_twice() {
    for seed in 0..200 {
        assert_eq!(undisturbed(seed, |_| {}), 0, "seed {seed}");
    }
}

/// Wires fall silent and become slow while events flow. Returns the number of late events.
fn disturbed(seed: u64, change: fn(&mut Net)) -> Result<usize, String> {
    let (mut world, wires, mut numbers) = drawn(seed, seed as usize % 4, change);
    world.flow(MILLI * 300);
    for _ in 0..20 {
        let (wire, side) = (numbers.below(wires.len()), numbers.below(2));
        let more = MILLI * [0, 20, 80][numbers.below(3)];
        world.fabric.trouble(wire, wires[wire][side], Trouble { more, is_silent: numbers.below(3) == 0 });
        world.flow(MILLI * 150);
    }
    for (wire, ends) in wires.iter().enumerate() {
        ends.iter().for_each(|node| world.fabric.trouble(wire, *node, Trouble::default()));
        let is_up = world.fabric.wires().nth(wire).is_some_and(|(_, _, is_up)| is_up);
        if !is_up {
            world.fabric.heal(wire);
        }
    }
    world.flow(SECOND);
    world.fabric.run(SECOND * 20);
    world.fabric.check()?;
    let more: usize = world.most_over_a_link().into_values().map(|times| times - 1).sum();
    let changed = world.sum(|stats| stats.repairs + stats.detours);
    if more as u64 > changed {
        return Err(format!("{more} copies more over a link than {changed} changes of ways"));
    }
    Ok(world.late())
}

#[test]
fn in_the_worst_of_weather_each_event_arrives_once_and_copies_are_few() {
    for seed in 0..100 {
        if let Err(found) = disturbed(seed, |_| {}) {
            panic!("seed {seed}: {found}");
        }
    }
}

/// Whether all nodes are linked without a wire.
fn are_linked_without(nodes: usize, wires: &[[usize; 2]], wire: usize) -> bool {
    let mut reached = vec![0];
    for at in 0..nodes {
        let Some(node) = reached.get(at).copied() else { return false };
        for (_, ends) in wires.iter().enumerate().filter(|(number, ends)| *number != wire && ends.contains(&node)) {
            let other = ends[0] + ends[1] - node;
            if !reached.contains(&other) {
                reached.push(other);
            }
        }
    }
    true
}

/// The number of late events of worlds in which one link falls silent round which there is a way.
pub fn late_behind_a_silent_link(change: fn(&mut Net)) -> usize {
    let late = |seed: u64| {
        let (mut world, wires, mut numbers) = drawn(seed, 2, change);
        world.flow(MILLI * 500);
        let wire = numbers.below(wires.len());
        if !are_linked_without(world.fabric.len(), &wires, wire) {
            return 0;
        }
        wires[wire].iter().for_each(|node| world.fabric.trouble(wire, *node, SILENT));
        // Before it can be known.
        world.flow(MILLI * 50);
        world.fabric.run(MILLI * 150);
        world.late()
    };
    (0..300).map(late).sum()
}
