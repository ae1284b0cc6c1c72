//! A broker resumes from a copy of its log: events after the copy are lost, and are not taken for
//! silence.

use whimbrel_core::{NOTICE_TOPIC, SubscriptionSpec};

use super::*;

/// Subscribes with notices.
fn follow(world: &mut Logged, qos: Qos) {
    let spec = SubscriptionSpec { notices: true, ..SubscriptionSpec::new(qos) };
    subscribe(world, Filter { spec, ..plain("t/#", qos) });
}

/// The payloads delivered until there are no more, and for each gap "lost".
fn told(world: &mut Logged) -> Vec<String> {
    let got = drain(world);
    let is_gap = |got: &Got| got.topic == NOTICE_TOPIC && got.payload.contains("\"gap\"");
    let silent = |got: &Got| got.topic == NOTICE_TOPIC && !is_gap(got);
    let word = |got: &Got| {
        if is_gap(got) {
            assert!(got.payload.contains("\"lost\""), "{}", got.payload);
            return "lost".to_owned();
        }
        got.payload.clone()
    };
    got.iter().filter(|got| !silent(got)).map(word).collect()
}

#[test]
fn what_came_after_a_copy_is_a_gap_also_if_the_client_comes_back_later() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    follow(&mut world, Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    publish(&mut world, "before");
    world.settle();
    let copy = world.disk.clone();
    publish(&mut world, "after");
    world.settle();
    world.go_on_from(&copy);
    world.settle();
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    publish(&mut world, "new");
    world.settle();
    assert_eq!(world.rig.attach(SUB, "subscriber", KEPT), Told::Attached { present: false });
    let all = told(&mut world);
    assert_eq!(all[..3], ["before", "lost", "new"], "{all:?}");
    assert_eq!(all[3..], ["lost"; 7], "of the other streams");
    world.advance(Duration::from_millis(20));
    world.crash();
    come_back(&mut world);
    assert_eq!(told(&mut world), [""; 0], "it was told");
}

#[test]
fn what_was_lost_is_told_also_to_who_held_nothing_when_others_went_on() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    follow(&mut world, Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    world.rig.attach(3, "other", KEPT);
    world.rig.input(Input::Subscribe { link: Link(3), tag: 1, filters: &[plain("o/#", Qos::AtLeastOnce)] });
    world.settle();
    world.go_on_from(&world.disk.clone());
    for _ in 0..2 {
        world.rig.attach(PUB, "publisher", CLEAN);
        world.rig.attach(3, "other", KEPT);
        world.rig.publish(PUB, "o/1", "for the other", Qos::AtLeastOnce);
        world.settle();
        assert_eq!(world.rig.settled_events(3).len(), 1);
        world.advance(Duration::from_secs(1));
        assert_eq!(world.disk.events(), 0);
        world.crash();
    }
    world.rig.attach(SUB, "subscriber", KEPT);
    assert_eq!(told(&mut world), ["lost"; 8], "of each stream");
}

#[test]
fn no_event_after_a_copy_has_the_name_of_one_that_was_lost() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    let copy = world.disk.clone();
    publish(&mut world, "lost");
    world.settle();
    let lost = world.rig.events(SUB);
    world.go_on_from(&copy);
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    publish(&mut world, "new");
    let new = drain(&mut world);
    assert_eq!(payloads(&new), ["new"]);
    assert!(new[0].id.pubend == lost[0].id.pubend && new[0].id.tick > lost[0].id.tick, "{new:?} {lost:?}");
}

#[test]
fn tags_of_a_copy_are_forgotten() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", KEPT);
    join(&mut world, "t/#", Qos::ExactlyOnce);
    world.rig.publish(PUB, "t/a", "one", Qos::ExactlyOnce);
    world.settle();
    let got = world.rig.events(SUB);
    let copy = world.disk.clone();
    assert!(copy.keys(b'i') == 1 && copy.keys(b'u') == 1, "one on its way in, one out");

    world.go_on_from(&copy);
    world.settle();
    assert!(world.disk.keys(b'i') == 0 && world.disk.keys(b'u') == 0);
    assert_eq!(world.rig.attach(PUB, "publisher", KEPT), Told::Attached { present: false });
    assert_eq!(world.rig.attach(SUB, "subscriber", KEPT), Told::Attached { present: false });
    // The publisher has released the tag since, and has used it again: the publish is no repeat.
    world.rig.publish(PUB, "t/a", "two", Qos::ExactlyOnce);
    let again = drain(&mut world);
    assert_eq!(payloads(&again), ["one", "two"]);
    assert!(!again[0].repeated && again[0].id == got[0].id, "a delivery of its own, under its old name");
    world.rig.detach(SUB, false);
    come_back(&mut world);
}

#[test]
fn what_was_received_at_the_time_of_the_copy_does_not_come_again() {
    let mut world = world("t/#", Qos::ExactlyOnce);
    for payload in ["one", "two"] {
        world.rig.publish(PUB, "t/a", payload, Qos::ExactlyOnce);
        world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
    }
    world.settle();
    let got = world.rig.events(SUB);
    assert_eq!(got.len(), 2, "{got:?}");
    world.rig.settle(SUB, got[1].tag, Settlement::Received);
    world.advance(Duration::from_millis(20));
    let copy = world.disk.clone();
    world.go_on_from(&copy);
    world.rig.attach(SUB, "subscriber", KEPT);
    assert_eq!(payloads(&drain(&mut world)), [&*got[0].payload]);
}
