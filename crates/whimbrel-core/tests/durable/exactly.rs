//! Exactly-once deliveries, through crashes at every step.

use super::*;

fn received(world: &mut Logged) -> Vec<Got> {
    world.settle();
    world.rig.events(SUB)
}

#[test]
fn a_delivery_is_not_sent_before_it_is_durable_that_it_is_on_its_way() {
    let mut world = world("t/#", Qos::ExactlyOnce);
    world.rig.publish(PUB, "t/a", "one", Qos::ExactlyOnce);
    world.submit();
    world.commit_some(1);
    assert_eq!(world.rig.events(SUB), vec![], "it is passed, and being prepared");
    let got = received(&mut world);
    assert_eq!(payloads(&got), ["one"]);
    world.crash();
    come_back(&mut world);
    let again = received(&mut world);
    assert_eq!((again[0].tag, again[0].id, again[0].repeated), (got[0].tag, got[0].id, true));
}

#[test]
fn what_was_received_never_comes_again() {
    for step in 0..4 {
        let mut world = world("t/#", Qos::ExactlyOnce);
        for payload in ["a", "b"] {
            world.rig.publish(PUB, "t/a", payload, Qos::ExactlyOnce);
            world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
        }
        let got = received(&mut world);
        world.rig.settle(SUB, got[0].tag, Settlement::Received);
        world.settle();
        assert_eq!(world.rig.take(SUB), [Told::Release { tag: got[0].tag, known: true }]);
        if step > 0 {
            world.rig.settle(SUB, got[0].tag, Settlement::Completed);
        }
        if step > 1 {
            world.settle();
        }
        if step > 2 {
            world.advance(Duration::from_millis(20));
        }
        world.crash();
        come_back(&mut world);
        world.settle();
        let told = world.rig.take(SUB);
        let events: Vec<_> =
            told.iter().filter_map(|told| if let Told::Event(got) = told { Some(got) } else { None }).collect();
        assert_eq!(events.iter().map(|got| &*got.payload).collect::<Vec<_>>(), ["b"], "step {step}");
        assert_eq!(events[0].tag, got[1].tag);
    }
}

#[test]
fn an_answer_that_was_not_durable_was_not_given() {
    let mut world = world("t/#", Qos::ExactlyOnce);
    world.rig.publish(PUB, "t/a", "a", Qos::ExactlyOnce);
    let got = received(&mut world);
    world.rig.settle(SUB, got[0].tag, Settlement::Received);
    world.submit();
    assert_eq!(world.rig.take(SUB), []);
    world.crash();
    come_back(&mut world);
    let again = received(&mut world);
    assert_eq!(again[0].tag, got[0].tag, "the client knows it by its tag");
    world.rig.settle(SUB, again[0].tag, Settlement::Received);
    world.settle();
    world.rig.settle(SUB, again[0].tag, Settlement::Completed);
    world.advance(Duration::from_secs(1));
    assert_eq!((world.disk.events(), world.disk.keys(b'i')), (0, 0));
}

#[test]
fn a_publish_that_was_accepted_is_a_repeat_after_a_crash_until_it_is_released() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    world.rig.attach(3, "twice", KEPT);
    world.rig.publish(3, "t/a", "one", Qos::ExactlyOnce);
    world.settle();
    world.crash();
    come_back(&mut world);
    world.rig.attach(3, "twice", KEPT);
    world.rig.publish(3, "t/a", "one", Qos::ExactlyOnce);
    world.settle();
    assert!(matches!(world.rig.take(3)[..], [Told::Accepted { result: Accepted::Repeat, .. }]));
    world.rig.input(Input::Release { link: Link(3), tag: 77 });
    assert_eq!(world.rig.take(3), [], "the tag is free when that is durable");
    world.settle();
    assert_eq!(world.rig.take(3), [Told::Completed { tag: 77, known: true }]);
    world.crash();
    come_back(&mut world);
    world.rig.attach(3, "twice", KEPT);
    world.rig.publish(3, "t/a", "two", Qos::ExactlyOnce);
    assert_eq!(payloads(&drain(&mut world)), ["one", "two"]);
}

#[test]
fn deliveries_of_all_kinds_keep_their_order_while_some_are_being_prepared() {
    let mut world = world("t/#", Qos::ExactlyOnce);
    for (number, qos) in
        [Qos::ExactlyOnce, Qos::AtLeastOnce, Qos::ExactlyOnce, Qos::AtLeastOnce].into_iter().enumerate()
    {
        world.rig.publish(PUB, "t/a", &number.to_string(), qos);
        world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
    }
    assert_eq!(payloads(&drain(&mut world)), ["0", "1", "2", "3"]);
}

#[test]
fn a_window_takes_what_it_has_room_for() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", Client { window: 2, ..KEPT });
    subscribe(&mut world, plain("t/#", Qos::ExactlyOnce));
    for number in 0..5 {
        world.rig.publish(PUB, "t/a", &number.to_string(), Qos::ExactlyOnce);
        world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
    }
    let got = received(&mut world);
    assert_eq!(payloads(&got), ["0", "1"]);
    world.rig.settle(SUB, got[0].tag, Settlement::Received);
    world.settle();
    world.rig.settle(SUB, got[0].tag, Settlement::Completed);
    assert_eq!(payloads(&received(&mut world)), ["2"]);
}

/// Events of all kinds, delivered and not answered when the broker ends: `a` and `c` at least once,
/// `b` and `d` exactly once.
fn unanswered() -> (Logged, Vec<Got>) {
    let mut world = world("t/#", Qos::ExactlyOnce);
    for (payload, qos) in
        [("a", Qos::AtLeastOnce), ("b", Qos::ExactlyOnce), ("c", Qos::AtLeastOnce), ("d", Qos::ExactlyOnce)]
    {
        world.rig.publish(PUB, "t/a", payload, qos);
        world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
    }
    let got = received(&mut world);
    assert_eq!(payloads(&got), ["a", "b", "c", "d"]);
    world.crash();
    come_back(&mut world);
    (world, got)
}

#[test]
fn what_was_on_its_way_comes_again_in_its_place_among_the_rest() {
    let (mut world, got) = unanswered();
    let again = received(&mut world);
    assert_eq!(payloads(&again), ["a", "b", "c", "d"]);
    assert_eq!((again[1].tag, again[3].tag), (got[1].tag, got[3].tag), "under the tags that the client knows");
    world.rig.detach(SUB, false);
    come_back(&mut world);
    assert_eq!(payloads(&received(&mut world)), ["a", "b", "c", "d"], "as it was sent, not by tag");
}

#[test]
fn who_says_at_once_what_it_has_does_not_get_it_again() {
    let (mut world, got) = unanswered();
    // Before its cursor has got there in the log.
    world.rig.settle(SUB, got[1].tag, Settlement::Received);
    world.rig.settle(SUB, got[3].tag, Settlement::Received);
    assert_eq!(payloads(&received(&mut world)), ["a", "c"]);
    world.rig.settle(SUB, got[1].tag, Settlement::Completed);
    world.crash();
    come_back(&mut world);
    assert_eq!(payloads(&received(&mut world)), ["a", "c"]);
}

#[test]
fn a_window_of_one_takes_them_in_their_order() {
    let (mut world, _) = unanswered();
    world.rig.detach(SUB, false);
    world.rig.attach(SUB, "subscriber", Client { window: 1, ..KEPT });
    let mut order = Vec::new();
    for _ in 0..8 {
        for got in received(&mut world) {
            order.push(got.payload.clone());
            match got.qos {
                Qos::ExactlyOnce => {
                    world.rig.settle(SUB, got.tag, Settlement::Received);
                    world.settle();
                    world.rig.settle(SUB, got.tag, Settlement::Completed);
                }
                _ => world.rig.settle(SUB, got.tag, Settlement::Acknowledged),
            }
        }
    }
    assert_eq!(order, ["a", "b", "c", "d"]);
}

#[test]
fn the_tag_of_an_event_whose_subscription_has_ended_is_given_back() {
    let (mut world, got) = unanswered();
    world.rig.detach(SUB, false);
    world.crash();
    world.rig.attach(SUB, "subscriber", KEPT);
    world.rig.input(Input::Unsubscribe { link: Link(SUB), tag: 2, filters: &["t/#"] });
    world.settle();
    let told = world.rig.take(SUB);
    for tag in [got[1].tag, got[3].tag] {
        assert!(told.contains(&Told::Release { tag, known: true }), "{told:?}");
    }
}

#[test]
fn tags_go_on_behind_those_that_were_given_before_a_crash() {
    let mut world = world("t/#", Qos::ExactlyOnce);
    for tag in 1..4 {
        world.rig.publish(PUB, "t/a", "a", Qos::ExactlyOnce);
        let got = drain(&mut world);
        assert_eq!(got.iter().map(|got| got.tag).collect::<Vec<_>>(), [tag], "its client may still mean those before");
        world.rig.detach(SUB, false);
        world.settle();
        world.crash();
        come_back(&mut world);
        world.rig.attach(PUB, "publisher", CLEAN);
    }
}

#[test]
fn what_a_client_cannot_be_sent_does_not_stop_what_comes_after_it() {
    for (qos, crashes, is_denied) in [Qos::AtLeastOnce, Qos::ExactlyOnce]
        .into_iter()
        .flat_map(|qos| [(qos, false), (qos, true)])
        .flat_map(|(qos, crashes)| [(qos, crashes, false), (qos, crashes, true)])
    {
        let mut world = Logged::new();
        world.rig.attach(PUB, "publisher", CLEAN);
        let narrow = Client { window: 1, ..KEPT };
        world.rig.attach(SUB, "subscriber", narrow.clone());
        subscribe(&mut world, plain("t/#", qos));
        world.rig.detach(SUB, false);
        for payload in ["a", "never this", "b", "never this", "never this", "c"] {
            world.rig.publish(PUB, "t/a", payload, qos);
            world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
        }
        world.settle();
        if crashes {
            world.crash();
        }
        if is_denied {
            world.rig.edges.denied.insert(SUB, vec!["never this".to_owned()]);
        } else {
            world.rig.edges.largest.insert(SUB, 2);
        }
        assert_eq!(world.rig.attach(SUB, "subscriber", narrow), Told::Attached { present: true });
        let got = received_all(&mut world);
        assert_eq!(payloads(&got), ["a", "b", "c"], "{qos:?}, crashes: {crashes}, denied: {is_denied}");
        world.advance(Duration::from_secs(1));
        assert_eq!((world.disk.events(), world.disk.keys(b'i')), (0, 0), "it is dropped as if it had been delivered");
        let dropped = if is_denied { 0 } else { 3 };
        assert_eq!(world.rig.core.stats().dropped_too_large, dropped);
    }
}

/// The payloads that the subscriber gets, each answered before the next one comes.
pub(super) fn received_all(world: &mut Logged) -> Vec<Got> {
    let mut all = Vec::new();
    loop {
        let got = received(world);
        if got.is_empty() {
            return all;
        }
        for got in &got {
            match got.qos {
                Qos::AtMostOnce => {}
                Qos::AtLeastOnce => world.rig.settle(SUB, got.tag, Settlement::Acknowledged),
                Qos::ExactlyOnce => {
                    world.rig.settle(SUB, got.tag, Settlement::Received);
                    world.settle();
                    world.rig.settle(SUB, got.tag, Settlement::Completed);
                }
            }
        }
        all.extend(got);
    }
}
