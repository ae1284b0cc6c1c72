//! Frames that wait in front of a link's driver, where its mark is low.

use whimbrel_event::Reliability;
use whimbrel_net::Channel;
use whimbrel_net::link::peers::{BEST_EFFORT_HIGH, RELIABLE_HIGH, UNSENT_LITTLE};
use whimbrel_net::link::queue::{FrameClass, Occupancy};

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
fn for_the_last(fabric: &Fabric) -> ([usize; 4], [Occupancy; FrameClass::ALL.len()]) {
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
