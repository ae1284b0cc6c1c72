//! Topics with a deadline, with a disk: what waits for it and what does not, and what is there
//! after a restart.

use core::num::NonZeroU32;

use whimbrel_core::{RankedProfile, TopicRate};
use whimbrel_event::StreamClass;

use super::*;

fn make(world: &mut Logged, filter: &str, profile: Profile) {
    let profile = Profile { filter: filter.into(), ..profile };
    let made = RankedProfile { rank: 0, profile };
    world.rig.input(Input::ChangeProfile { filter, made: Some(&made) });
}

fn alarm() -> Profile {
    Profile { deadline: Some(Duration::from_millis(50)), ..Profile::default() }
}

/// A world in which ticks are reserved, with a subscriber of `t/#`.
fn ready() -> Logged {
    let mut world = world("t/#", Qos::AtLeastOnce);
    make(&mut world, "t/volatile", Profile { persistence: Persistence::Volatile, ..alarm() });
    make(&mut world, "t/alarm", alarm());
    world.rig.publish(PUB, "t/volatile", "0", Qos::AtLeastOnce);
    assert_eq!(payloads(&drain(&mut world)), ["0"]);
    world
}

#[test]
fn a_volatile_event_with_a_deadline_waits_for_no_disk() {
    let mut world = ready();
    world.rig.publish(PUB, "t/alarm", "logged", Qos::AtLeastOnce);
    world.rig.publish(PUB, "t/a", "ordinary", Qos::AtLeastOnce);
    world.rig.publish(PUB, "t/volatile", "at once", Qos::AtLeastOnce);
    assert_eq!(payloads(&world.rig.settled_events(SUB)), ["at once"]);
    assert_eq!(payloads(&drain(&mut world)), ["logged", "ordinary"]);
}

#[test]
fn events_of_the_deadline_class_are_recovered_after_a_crash() {
    let mut world = ready();
    world.rig.detach(SUB, false);
    for payload in ["one", "two"] {
        world.rig.publish(PUB, "t/alarm", payload, Qos::AtLeastOnce);
    }
    world.settle();
    world.crash();
    come_back(&mut world);
    let got = drain(&mut world);
    assert_eq!(payloads(&got), ["one", "two"]);
    assert!(got.iter().all(|got| got.id.pubend.class() == StreamClass::Deadline));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "what is acknowledged is given up");
}

#[test]
fn a_profile_that_was_made_or_removed_is_so_after_a_crash() {
    let mut world = ready();
    world.rig.input(Input::ChangeProfile { filter: "t/volatile", made: None });
    world.settle();
    world.crash();
    let made = |world: &Logged, filter: &str| world.rig.core.topic_profiles().made(filter);
    assert_eq!(made(&world, "t/volatile"), None);
    assert_eq!(made(&world, "t/alarm").map(|made| made.profile.deadline), Some(Some(Duration::from_millis(50))));
    world.rig.attach(PUB, "publisher", CLEAN);
    come_back(&mut world);
    world.rig.publish(PUB, "t/alarm", "again", Qos::AtLeastOnce);
    assert_eq!(drain(&mut world)[0].id.pubend.class(), StreamClass::Deadline);
    world.advance(Duration::from_secs(25 * 3_600));
    assert_eq!(world.disk.keys(b't'), 2, "a broker that is alone has no turn to forget what was removed");
}

#[test]
fn an_event_waits_for_those_before_it_in_streams_of_the_former_profile() {
    let mut world = ready();
    world.rig.publish(PUB, "t/a", "logged", Qos::AtLeastOnce);
    make(&mut world, "t/a", Profile { persistence: Persistence::Volatile, ..alarm() });
    world.rig.publish(PUB, "t/a", "volatile", Qos::AtLeastOnce);
    assert_eq!(world.rig.events(SUB), []);
    assert_eq!(payloads(&drain(&mut world)), ["logged", "volatile"]);
}

#[test]
fn a_publisher_is_kept_to_the_rate_of_a_topic() {
    let mut world = ready();
    let rate = NonZeroU32::new(100).map(TopicRate::Events);
    make(&mut world, "t/rate", Profile { rate, persistence: Persistence::Volatile, ..Profile::default() });
    for _ in 0..12 {
        world.rig.publish(PUB, "t/rate", "best effort", Qos::AtMostOnce);
    }
    world.settle();
    assert_eq!(world.rig.settled_events(SUB).len(), 10, "a tenth of a second's");
    let stats = world.rig.core.stats();
    assert_eq!((stats.events_over_rate, stats.publishers_over_rate), (2, 0));
    world.rig.publish(PUB, "t/rate", "reliable", Qos::AtLeastOnce);
    assert_eq!(payloads(&drain(&mut world)), ["reliable"], "it is not lost");
    let stats = world.rig.core.stats();
    assert_eq!((stats.events_over_rate, stats.publishers_over_rate), (2, 1));
}
