//! An event that went as a datagram goes once more behind the next one of its link.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{EventId, HostId, Reliability, Tick};
use whimbrel_net::link::watch::{LinkCondition, REPEATED_MAX};
use whimbrel_net::route::TopicPaths;
use whimbrel_net::traces::TraceStep;
use whimbrel_net::{Channel, Hop, Net, NetStats};
use whimbrel_wire::{Dest, EventFrame, Frame, LinkStamp, Repairers, Repeat, StampedEvent, TreeWriter};

use crate::fabric::node::{Setup, host_of};
use crate::fabric::{Content, Fabric, Trouble};
use crate::scenarios::{MILLI, SECOND};
use crate::watching::slower;

const DEADLINE_MS: u32 = 100;

/// The interval of most events.
const EVERY: Duration = Duration::from_millis(10);

/// Thousandths of the datagrams that are lost on a bad link.
const LOSS: u16 = 200;

/// A fabric in which node 0 publishes events that go as datagrams, and the last node wants them.
pub struct Repeated {
    pub fabric: Fabric,
    next: u32,
    body: usize,
}

impl Repeated {
    /// Nodes with wires of 10 ms, each of which may be set up by its number. All clocks differ.
    fn of(nodes: usize, wires: &[[usize; 2]], paths: TopicPaths, set_up: impl Fn(usize, Setup) -> Setup) -> Repeated {
        let setup = |number: usize| {
            let clock_ppm = [100, -100, 0, 50, -50][number];
            set_up(number, Setup { paths, clock_ppm, ..Setup::named(format!("b{number}")) })
        };
        let mut fabric = Fabric::new((0..nodes).map(setup));
        for ends in wires {
            fabric.link(*ends, MILLI * 10);
        }
        fabric.run(SECOND * 2);
        fabric.subscribe(nodes - 1, "a");
        fabric.run(SECOND);
        Repeated { fabric, next: 0, body: 4 }
    }

    /// Nodes in a line.
    pub fn line(nodes: usize, change: fn(&mut Net)) -> Repeated {
        let wires: Vec<[usize; 2]> = (1..nodes).map(|node| [node - 1, node]).collect();
        Repeated::of(nodes, &wires, TopicPaths::One, |_, setup| Setup { change, ..setup })
    }

    /// The direction that the events take is bad on each of these wires from now on.
    pub fn lose(&mut self, ends: &[[usize; 2]]) {
        ends.iter().enumerate().for_each(|(wire, [from, _])| self.fabric.lose(wire, *from, LOSS));
    }

    /// Publishes an event.
    fn publish(&mut self) -> EventId {
        self.next += 1;
        let mut payload = self.next.to_be_bytes().to_vec();
        payload.resize(self.body, 0);
        let (reliability, deadline_ms) = (Reliability::BestEffort, Some(DEADLINE_MS));
        self.fabric.publish(0, Content { topic: "a", payload: &payload, reliability, deadline_ms })
    }

    /// Publishes events for some time.
    pub fn flow(&mut self, span: Duration, every: Duration) {
        for _ in 0..span.as_millis() / every.as_millis() {
            self.publish();
            self.fabric.run(every);
        }
    }

    /// The share of all events that were at the last node by their deadline.
    pub fn share_in_time(&self) -> f64 {
        let last = self.fabric.len() - 1;
        let published = &self.fabric.ledger.published;
        let delivered = &self.fabric.node(last).told.delivered;
        let in_time = delivered.iter().filter(|event| {
            let arrived = self.fabric.global(last, event.arrived);
            arrived.since(published[&event.id].at) <= MILLI * DEADLINE_MS
        });
        in_time.count() as f64 / published.len() as f64
    }

    /// By how much ages at the last node are off the truth at most, microseconds.
    fn age_off_us(&self) -> u64 {
        let last = self.fabric.len() - 1;
        let off = |event: &crate::fabric::reception::Delivered| {
            let at = self.fabric.ledger.published[&event.id].at;
            let truth = self.fabric.global(last, event.arrived).since(at).as_micros() as u64;
            truth.abs_diff(event.age_us)
        };
        self.fabric.node(last).told.delivered.iter().map(off).max().unwrap_or(0)
    }

    /// By event, sending node and neighbour: how often it was sent; its repeats not counted.
    fn sent(&self) -> BTreeMap<(EventId, usize, HostId), usize> {
        let mut sent = BTreeMap::new();
        for note in &self.fabric.ledger.hops {
            if let Hop::Sent { to, .. } = note.hop {
                *sent.entry((note.id, note.node, to)).or_default() += 1;
            }
        }
        sent
    }

    /// How often an event was sent over one link, in one direction, at most.
    pub fn most_over_a_link(&self) -> usize {
        self.sent().into_values().max().unwrap_or(0)
    }

    pub fn condition(&self) -> LinkCondition {
        let mut links = self.fabric.node(0).net.neighbours();
        links.next().expect("it has a link").condition()
    }

    fn stats(&self, node: usize) -> &NetStats {
        self.fabric.node(node).net.stats()
    }

    fn check(&self) {
        self.fabric.check().expect("each event has arrived once, in order");
    }
}

#[test]
fn of_a_fifth_that_is_lost_on_a_link_a_fifth_is_lost_twice() {
    let mut world = Repeated::line(2, |_| {});
    world.flow(SECOND * 2, EVERY);
    assert_eq!(world.condition(), LinkCondition::Good);
    assert_eq!((world.stats(1).repeats_used, world.share_in_time()), (0, 1.0));
    world.lose(&[[0, 1]]);
    world.flow(SECOND * 60, EVERY);
    world.fabric.run(SECOND);
    let share = world.share_in_time();
    assert!((0.95..0.97).contains(&share), "{share}");
    let (sent, taken) = (world.stats(0), world.stats(1));
    assert!(sent.repeats_sent > 6_100 && (900..1_100).contains(&taken.repeats_used), "{sent:?} {taken:?}");
    assert!(sent.repeat_bytes < 45 * sent.repeats_sent, "{} bytes", sent.repeat_bytes);
    // The loss is seen all the same.
    assert!(matches!(world.condition(), LinkCondition::Lossy(200..)), "{:?}", world.condition());
    assert!(world.age_off_us() <= 3_000, "{} µs off the truth", world.age_off_us());
    assert_eq!(world.most_over_a_link(), 1);
    world.check();
}

#[test]
fn an_event_is_repeated_on_each_link_and_passed_on_once() {
    let wires = [[0, 1], [1, 2], [2, 3]];
    let mut world = Repeated::line(4, |_| {});
    world.flow(SECOND, EVERY);
    world.lose(&wires);
    world.flow(SECOND * 30, EVERY);
    world.fabric.run(SECOND);
    let share = world.share_in_time();
    assert!((0.87..0.91).contains(&share), "{share}, where 0.96³ is 0.885");
    assert!(world.stats(2).repeats_sent > 2_500 && world.stats(3).repeats_used > 400);
    assert!(world.age_off_us() <= 5_000, "{} µs off the truth", world.age_off_us());
    assert_eq!(world.most_over_a_link(), 1);
    world.check();
}

/// The share in time over two paths of two links each, all of which lose a fifth.
pub fn share_of_two_paths(change: fn(&mut Net)) -> f64 {
    let wires = [[0, 1], [0, 2], [1, 3], [2, 3]];
    let mut world = Repeated::of(4, &wires, TopicPaths::Two, |_, setup| Setup { change, ..setup });
    world.flow(SECOND, EVERY);
    world.lose(&wires);
    world.flow(SECOND * 60, EVERY);
    world.fabric.run(SECOND);
    // The links are found to be lossy: some ways are changed, and lead over a link twice.
    let changed: u64 = (0..4).map(|node| world.stats(node).repairs + world.stats(node).detours).sum();
    let mut most: BTreeMap<EventId, usize> = BTreeMap::new();
    for ((id, ..), times) in world.sent() {
        let known = most.entry(id).or_default();
        *known = times.max(*known);
    }
    let more: usize = most.into_values().map(|times| times - 1).sum();
    assert!(more as u64 <= changed, "{more} more over a link than {changed} changes of ways");
    world.fabric.check_order().expect("each event has arrived once, in order");
    world.share_in_time()
}

/// The first event takes longer than the second, which has its repeat. Returns the world, in which
/// they have arrived at node 2 by way of node 1.
pub fn overtaken(change: fn(&mut Net)) -> Repeated {
    let mut world = Repeated::line(3, change);
    world.flow(SECOND, EVERY);
    world.fabric.trouble(0, 0, slower(15));
    world.publish();
    world.fabric.trouble(0, 0, Trouble::default());
    world.fabric.run(EVERY);
    world.flow(EVERY * 3, EVERY);
    world.fabric.run(SECOND);
    world
}

#[test]
fn an_event_that_its_repeat_has_overtaken_is_dropped() {
    let world = overtaken(|_| {});
    assert_eq!((world.share_in_time(), world.most_over_a_link()), (1.0, 1));
    assert_eq!((world.stats(1).repeats_used, world.stats(2).repeats_used), (1, 0));
    assert_eq!(world.stats(1).events_relayed, u64::from(world.next));
    let from_0 = world.fabric.node(1).net.neighbours().next().expect("it has links");
    assert_eq!(from_0.counters.events_in, u64::from(world.next), "each once");
    // One repeat was used, and instead of it the event itself was dropped.
    assert_eq!(world.stats(0).repeats_sent, world.stats(1).repeats_known);
    world.check();
}

/// The number of repeats of 50 events of that many bytes, at an interval, over a good link.
fn repeats(every: Duration, body: usize, set_up: fn(usize, Setup) -> Setup) -> u64 {
    let mut world = Repeated::of(2, &[[0, 1]], TopicPaths::One, set_up);
    world.body = body;
    world.flow(every * 50, every);
    world.fabric.run(SECOND);
    assert_eq!(world.share_in_time(), 1.0);
    world.stats(0).repeats_sent
}

#[test]
fn events_are_repeated_unless_they_are_reported_or_late_or_large_or_unknown() {
    let as_it_is = |_: usize, setup: Setup| setup;
    assert_eq!(repeats(EVERY, 4, as_it_is), 49);
    // Reports come 25 ms after the event, and 10 ms later.
    assert_eq!(repeats(MILLI * 60, 4, as_it_is), 0);
    // The event's own bytes and its tree are within the bound.
    assert_eq!(repeats(EVERY, REPEATED_MAX - 30, as_it_is), 49);
    assert_eq!(repeats(EVERY, REPEATED_MAX, as_it_is), 0);
    assert_eq!(repeats(EVERY, 4, |number, setup| Setup { minor: (number == 1).then_some(3), ..setup }), 0);
}

#[test]
fn an_event_is_not_repeated_past_its_deadline_but_if_it_is_known_to_be_lost() {
    let mut world = Repeated::line(2, |_| {});
    world.flow(SECOND, EVERY);
    world.fabric.run(SECOND);
    let before = world.stats(0).repeats_sent;
    // It is lost, and the next event is behind its deadline.
    world.fabric.lose(0, 0, 1_000);
    let lost = world.publish();
    world.fabric.lose(0, 0, 0);
    world.fabric.run(MILLI * (DEADLINE_MS + 1));
    world.publish();
    world.fabric.run(SECOND);
    assert_eq!(world.stats(0).repeats_sent, before);
    assert!(!world.fabric.has_within(1, lost, SECOND * 10));
    // The next event is before it, and the report of the one on the stream says that it is lost.
    world.fabric.lose(0, 0, 1_000);
    let lost = world.publish();
    world.fabric.lose(0, 0, 0);
    let (reliability, deadline_ms) = (Reliability::Reliable, Some(DEADLINE_MS));
    world.fabric.publish(0, Content { topic: "a", payload: b"", reliability, deadline_ms });
    world.fabric.run(MILLI * 80);
    world.publish();
    world.fabric.run(SECOND);
    assert_eq!(world.stats(0).repeats_sent, before + 1);
    assert!(world.fabric.has_within(1, lost, MILLI * DEADLINE_MS));
    let steps: Vec<TraceStep> = world.fabric.node(0).net.trace_of(lost).map(|note| note.what).collect();
    assert_eq!(steps, [TraceStep::Sent(host_of(1)), TraceStep::Repeated(host_of(1))]);
}

/// An event of node 0 for node 1, with that sequence, as a frame of a datagram.
fn frame(world: &Repeated, sequence: u16) -> Vec<u8> {
    let tick = Tick(world.fabric.now.as_nanos() + u64::from(sequence));
    let mut tree = Vec::new();
    let mut writer = TreeWriter::new(&mut tree, tick, tick);
    writer.root(Some(Dest { tag: 0, previous: tick }), 0);
    writer.finish();
    let (pubend, answer, retain, repairers) = (host_of(0).pubend(4), false, false, Repairers::NONE);
    let (default_previous, event) = (tick, &b"no event"[..]);
    let frame = EventFrame { pubend, tick, age_us: 0, answer, retain, repairers, tree: &tree, default_previous, event };
    let mut bytes = Vec::new();
    let stamp = LinkStamp { sequence, departed_us: 0, deadline_ms: DEADLINE_MS };
    Frame::DeadlineEvent(StampedEvent { stamp, frame }).encode(&mut bytes);
    bytes
}

#[test]
fn what_is_no_repeat_is_counted_and_ends_nothing() {
    let mut world = Repeated::line(2, |_| {});
    let link = world.fabric.node(1).net.neighbours().next().expect("it has a link").link;
    let [event, other] = [frame(&world, 1), frame(&world, 0)];
    let repeat = |frame: &[u8], front: &[u8]| {
        let (mut runs, mut bytes) = (Vec::new(), Vec::new());
        Frame::Repeat(Repeat::of(0, frame, front, &mut runs)).encode(&mut bytes);
        bytes
    };
    let good = repeat(&other[1..], &event[1..]);
    let datagrams = [
        // A repeat alone, in front, and twice; two events.
        good.clone(),
        [&good[..], &event].concat(),
        [&event[..], &good, &good].concat(),
        [&event[..], &other].concat(),
        // One that copies more than there is, and part of one.
        [&event[..], &repeat(&[7; 200], &[7; 200])].concat(),
        [&event[..], &good[..good.len() - 1]].concat(),
    ];
    for (number, datagram) in datagrams.iter().enumerate() {
        world.fabric.bytes(1, link, Channel::Datagram, datagram);
        assert_eq!(world.stats(1).frames_invalid, number as u64 + 1);
    }
    // What is repeated is no event. The one in front is: what it carries has no label that can be
    // read, so no broker may carry it.
    let refused = |world: &Repeated| world.stats(1).domain_refusals.iter().sum::<u64>();
    let (invalid, outside) = (world.stats(1).frames_invalid, refused(&world));
    world.fabric.bytes(1, link, Channel::Datagram, &[&event[..], &repeat(&[1; 9], &event[1..])].concat());
    assert_eq!((world.stats(1).frames_invalid, refused(&world)), (invalid + 1, outside + 1));
    let counted = |world: &Repeated| {
        let links = world.fabric.node(1).net.neighbours();
        links.map(|peer| peer.counters.events_in).sum::<u64>()
    };
    assert_eq!(counted(&world), 1);
    // On a stream it ends the link.
    assert!(world.fabric.hung_up(1).is_empty());
    world.fabric.bytes(1, link, Channel::BestEffort, &good);
    assert_eq!(world.fabric.hung_up(1).len(), 1);
}
