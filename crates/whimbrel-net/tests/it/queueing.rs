//! Frames that wait in front of a link's driver, where its mark is low.

use core::time::Duration;

use whimbrel_event::{EventId, Reliability, Time, split_mix};
use whimbrel_net::link::peers::{BEST_EFFORT_HIGH, RELIABLE_HIGH, UNSENT_LITTLE};
use whimbrel_net::link::queue::{FrameClass, Occupancy};
use whimbrel_net::{Channel, Net};

use crate::fabric::node::{Setup, host_of};
use crate::fabric::{Content, Fabric};
use crate::scenarios::{MILLI, SECOND};

/// Three nodes in a row, of which the one in the middle has this mark.
fn line(release_mark: usize) -> Fabric {
    let setup = |number| {
        let mark = if number == 1 { release_mark } else { usize::MAX };
        Setup { release_mark: mark, ..Setup::named(format!("b{number}")) }
    };
    let mut fabric = Fabric::new((0..3).map(setup));
    for pair in [[0, 1], [1, 2]] {
        fabric.link(pair, MILLI);
    }
    fabric.run(SECOND);
    fabric.subscribe(2, "a");
    fabric.run(SECOND);
    fabric
}

/// What the node in the middle has for the last one: unsent at the driver, and waiting.
fn for_the_last(fabric: &Fabric) -> ([usize; Channel::ALL.len()], [Occupancy; FrameClass::ALL.len()]) {
    let peer = fabric.node(1).net.neighbours().find(|peer| peer.host() == Some(host_of(2))).expect("it is up");
    (peer.unsent, peer.queued())
}

/// Publishes as much of both kinds as one link admits at most, over a slow link.
fn flood(fabric: &mut Fabric, bytes: usize) {
    fabric.limit(1, Some(20_000));
    let payload = vec![7; 16 << 10];
    for number in 0..bytes / payload.len() {
        for reliability in [Reliability::Reliable, Reliability::BestEffort] {
            fabric.publish(0, Content { topic: "a", payload: &payload, reliability, deadline_ms: None });
        }
        if number % 16 == 0 {
            fabric.run(MILLI);
        }
    }
    fabric.run(MILLI * 5);
}

#[test]
fn frames_wait_by_class_and_leave_in_order() {
    let mark = UNSENT_LITTLE + 1;
    let mut fabric = line(mark);
    flood(&mut fabric, 2 * RELIABLE_HIGH);
    let (unsent, queued) = for_the_last(&fabric);
    let frame = (16 << 10) + 200;
    for (class, high) in [(FrameClass::Reliable, RELIABLE_HIGH), (FrameClass::BestEffort, BEST_EFFORT_HIGH)] {
        let (unsent, queued) = (unsent[class.channel() as usize], queued[class as usize]);
        assert!((mark - frame..mark + frame).contains(&unsent), "{class:?}: {unsent}");
        assert!(queued.frames > 1 && queued.bytes > high / 2, "{class:?}: {queued:?}");
        assert!(unsent + queued.bytes < high + frame, "admission counts both: {unsent} {queued:?}");
    }
    assert_eq!(queued[FrameClass::Urgent as usize], Occupancy::default());
    fabric.run(SECOND * 5);
    assert_eq!(fabric.check_exact(), Ok(()));
    assert_eq!(fabric.check(), Ok(()), "reliable ones have all arrived, each stream in its order");
    let (_, queued) = for_the_last(&fabric);
    assert!(queued.iter().all(|class| *class == Occupancy::default()), "{queued:?}");
}

/// Where nothing waits, a low mark changes nothing on the wire.
#[test]
fn a_mark_that_is_not_reached_changes_no_byte() {
    let digest = |mark| {
        let mut fabric = line(mark);
        for _ in 0..20 {
            fabric.publish_topic(0, "a");
            fabric.run(MILLI * 3);
        }
        fabric.run(SECOND);
        assert_eq!(fabric.check(), Ok(()));
        fabric.digest()
    };
    assert_eq!(digest(usize::MAX), digest(UNSENT_LITTLE + 1));
}

#[test]
fn an_event_ages_while_it_waits() {
    let mut fabric = line(UNSENT_LITTLE + 1);
    flood(&mut fabric, RELIABLE_HIGH / 4);
    let (unsent, queued) = for_the_last(&fabric);
    assert!(queued[FrameClass::Reliable as usize].frames > 1 && unsent[Channel::Reliable as usize] > 0);
    fabric.run(SECOND * 5);
    assert_eq!(fabric.check(), Ok(()));
    let ages: Vec<u64> = fabric.node(2).told.delivered.iter().map(|event| event.age_us).collect();
    // 1 MiB at 20 kB per millisecond: the last ones have waited for some fifty of them.
    let (first, last) = (ages[0], *ages.iter().max().expect("there are some"));
    assert!(first < 5_000 && last > 20_000, "{first} {last}");
}

/// The deadlines of the events of three nodes, milliseconds.
const DEADLINES_MS: [u32; 3] = [30, 60, 120];

/// Bytes of a payload, and about those of its frame.
const PAYLOAD: usize = 1_000;
const FRAME: usize = PAYLOAD + 60;

/// How long it takes the link to send one.
const SLOT: Duration = Duration::from_millis(1);

/// The load, as a part of what the link can send: events of each of the three nodes come after a
/// random time, which is this on average.
const LOAD_PERCENT: u64 = 120;

/// What came of the events of the three nodes.
#[derive(Debug)]
pub struct Punctual {
    /// Those that were published.
    pub published: [usize; 3],
    /// Those that arrived in time.
    pub in_time: [usize; 3],
}

/// Three nodes whose events go to the fifth over a narrow link from the fourth.
struct Narrow {
    fabric: Fabric,
    /// The events: node, id, and when they are to be there.
    events: Vec<(usize, EventId, Time)>,
}

impl Narrow {
    fn new(change: fn(&mut Net)) -> Narrow {
        let mut fabric = Fabric::new((0..5).map(|number| Setup { change, ..Setup::named(format!("b{number}")) }));
        for pair in [[0, 3], [1, 3], [2, 3], [3, 4]] {
            fabric.link(pair, MILLI);
        }
        fabric.run(SECOND);
        fabric.subscribe(4, "a");
        fabric.run(SECOND);
        fabric.limit(3, Some(FRAME as u64 * 1_000_000 / SLOT.as_nanos() as u64));
        Narrow { fabric, events: Vec::new() }
    }

    fn publish(&mut self, node: usize) {
        let (reliability, deadline_ms) = (Reliability::Reliable, Some(DEADLINES_MS[node]));
        let id = self.fabric.publish(node, Content { topic: "a", payload: &[7; PAYLOAD], reliability, deadline_ms });
        self.events.push((node, id, self.fabric.now + MILLI * DEADLINES_MS[node]));
    }

    fn count(mut self) -> Punctual {
        self.fabric.run(SECOND * 2);
        assert_eq!(self.fabric.check(), Ok(()), "all arrive at last");
        let mut found = Punctual { published: [0; 3], in_time: [0; 3] };
        for (node, id, due) in self.events {
            found.published[node] += 1;
            let came = self.fabric.ledger.way(id, 4).last().map(|(_, at)| *at);
            found.in_time[node] += usize::from(came.is_some_and(|at| at <= due));
        }
        found
    }
}

/// Events that node 3 has not queued, as too much was waiting.
fn held_back(world: &Narrow) -> u64 {
    world.fabric.node(3).net.neighbours().map(|peer| peer.counters.events_held_back).sum()
}

#[test]
fn a_stream_that_is_far_behind_holds_back_itself_alone() {
    const URGENT: u64 = 50;
    let mut world = Narrow::new(|_| {});
    let mut published = 0;
    while held_back(&world) == 0 && published < 20_000 {
        world.publish(2);
        world.fabric.run(MILLI / 10);
        published += 1;
    }
    assert!(held_back(&world) > 0, "{published} events");
    for _ in 0..URGENT {
        world.publish(0);
        (0..12).for_each(|_| world.publish(2));
        world.fabric.run(MILLI * 10);
    }
    // Those of the other stream, and answers to nacks.
    assert!(held_back(&world) > URGENT, "of the stream that has filled the link events are held back");
    world.fabric.run(SECOND * 60);
    let found = world.count();
    assert_eq!(found.in_time[0], found.published[0], "of the other stream none is");
}

/// The three nodes publish more than the link can send.
fn overload() -> Punctual {
    let mut world = Narrow::new(|_| {});
    let mut seed = 5;
    let mut next = [world.fabric.now; 3];
    let end = world.fabric.now + SECOND * 4;
    while let Some((node, at)) = next.into_iter().enumerate().min_by_key(|(_, at)| *at).filter(|(_, at)| *at < end) {
        world.fabric.run(at.since(world.fabric.now));
        world.publish(node);
        // From 0 to twice the average.
        next[node] = at + Duration::from_nanos(split_mix(&mut seed) % (2 * 3 * 1_000_000 * 100 / LOAD_PERCENT));
    }
    world.count()
}

/// Events with a long deadline that are published at once, and then a few with a short one, so that
/// all can be in time. Each round is 100 ms.
pub fn bursts(change: fn(&mut Net)) -> Punctual {
    let mut world = Narrow::new(change);
    for _ in 0..10 {
        for node in [2; 50].into_iter().chain([0; 5]) {
            world.publish(node);
        }
        world.fabric.run(MILLI * 100);
    }
    world.count()
}

/// The events of a stream are received in their order, so if there are too many some stream is late
/// as a whole. The others are not.
#[test]
fn of_too_many_urgent_events_those_of_some_streams_are_in_time() {
    let found = overload();
    let is_good = |node: &usize| found.in_time[*node] * 100 >= found.published[*node] * 95;
    assert_eq!((0..3).filter(is_good).count(), 2, "as many as the link can send: {found:?}");
}

#[test]
fn the_urgent_event_with_the_least_slack_leaves_first() {
    let found = bursts(|_| {});
    assert_eq!(found.in_time, found.published);
}
