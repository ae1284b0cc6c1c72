//! A subscription in catch-up finds its events by filter records, and gets the same ones without
//! them.

use whimbrel_core::cache::{Capacity, DefaultPlan, Plan, Policy};
use whimbrel_core::store::StreamName;

use super::*;

/// A subscriber that wants everything, and is never attached.
const ALL: u32 = 3;

/// A broker with hardly a cache, and with a subscription for which everything is logged.
fn archive() -> Logged {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(ALL, "archive", KEPT);
    world.rig.input(Input::Subscribe { link: Link(ALL), tag: 1, filters: &[plain("#", Qos::AtLeastOnce)] });
    world.settle();
    world.rig.detach(ALL, false);
    forget_soon(&mut world);
    world
}

fn forget_soon(world: &mut Logged) {
    let default = DefaultPlan { capacity: Capacity::Events(1), policy: Policy::Random };
    world.rig.core.set_cache(world.rig.now, Plan { default, ..Plan::default() });
}

fn order(world: &mut Logged, topic: &str, payload: &str) {
    world.rig.publish(PUB, topic, payload, Qos::AtLeastOnce);
    world.settle();
}

/// Publishes `events` events; those with a number that is a multiple of `each` are for the
/// subscriber.
fn many(world: &mut Logged, events: usize, each: usize) -> Vec<String> {
    let mut wanted = Vec::new();
    for number in 0..events {
        let topic = if number % each == 0 { "orders/17" } else { "orders/other" };
        order(world, topic, &number.to_string());
        wanted.extend((number % each == 0).then(|| number.to_string()));
    }
    wanted
}

/// The subscriber is back: the payloads that it gets, and the numbers of events and filter records
/// that had to be read for it.
fn back(world: &mut Logged) -> (Vec<String>, (usize, usize)) {
    world.read = (0, 0);
    come_back(world);
    let got = drain(world).into_iter().map(|got| got.payload).collect();
    (got, world.read)
}

#[test]
fn few_events_of_many_are_found_by_their_chain() {
    let mut world = archive();
    join(&mut world, "orders/17", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    let wanted = many(&mut world, 300, 60);
    assert_eq!(world.disk.filters(), 300, "one record per event");
    let (got, (events, filters)) = back(&mut world);
    assert_eq!(got, wanted);
    assert!(events <= 4 * wanted.len() && filters <= wanted.len() + 1, "read {events} events, {filters} records");
    world.rig.detach(SUB, false);
    order(&mut world, "orders/17", "once more");
    assert_eq!(back(&mut world).0, ["once more"]);
}

#[test]
fn after_a_restart_the_records_are_read_and_not_the_events() {
    let mut world = archive();
    join(&mut world, "orders/17", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    let mut wanted = many(&mut world, 300, 60);
    world.crash();
    forget_soon(&mut world);
    world.rig.attach(PUB, "publisher", CLEAN);
    wanted.extend(many(&mut world, 30, 10));
    let (got, (events, filters)) = back(&mut world);
    assert_eq!(got, wanted);
    assert!(events <= 5 * wanted.len() && filters <= 340, "read {events} events, {filters} records");
}

#[test]
fn a_long_chain_is_not_followed() {
    let mut world = archive();
    join(&mut world, "orders/17", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    let wanted = many(&mut world, 400, 2);
    assert_eq!(back(&mut world).0, wanted);
}

#[test]
fn who_wants_nothing_reads_nothing() {
    let mut world = archive();
    join(&mut world, "orders/18", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    many(&mut world, 50, 10);
    assert_eq!(back(&mut world), (vec![], (0, 0)));
}

#[test]
fn what_came_before_the_confirmation_is_in_the_chain() {
    let mut world = archive();
    let wanted = come_early(&mut world);
    assert_eq!(back(&mut world).0, [vec!["early".to_owned()], wanted].concat());
}

#[cfg(feature = "mutants")]
#[test]
fn without_a_name_it_would_be_missed() {
    let mut world = archive();
    world.rig.core.build_in(whimbrel_core::Mutant::WishUnnamed);
    let wanted = come_early(&mut world);
    assert_eq!(back(&mut world).0, wanted);
}

/// An event comes between the request and the confirmation of a subscription, and others after its
/// client has left.
fn come_early(world: &mut Logged) -> Vec<String> {
    world.rig.attach(SUB, "subscriber", KEPT);
    world.settle();
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[plain("orders/17", Qos::AtLeastOnce)] });
    world.rig.publish(PUB, "orders/17", "early", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    world.settle();
    many(world, 30, 10)
}

#[test]
fn one_that_changes_is_named_for_what_it_wanted_and_for_what_it_will() {
    let mut world = archive();
    let [low, high] = by_priority();
    let filter = |selector| Filter { selector: Some(selector), ..plain("orders/#", Qos::AtLeastOnce) };
    join(&mut world, "unused", Qos::AtLeastOnce);
    subscribe(&mut world, filter(&low));
    let publish = |world: &mut Logged, payload: &str, importance| {
        let event = whimbrel_event::EventRef { importance, ..event("orders/17", payload, Qos::AtLeastOnce) };
        world.rig.publish_event(PUB, &event, false);
    };
    publish(&mut world, "low 1", 1);
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[filter(&high)] });
    publish(&mut world, "low 2", 1);
    publish(&mut world, "high 2", 9);
    world.rig.detach(SUB, false);
    world.settle();
    publish(&mut world, "low 3", 1);
    publish(&mut world, "high 3", 9);
    world.settle();
    many(&mut world, 5, 10);
    let (got, _) = back(&mut world);
    assert_eq!(got.iter().filter(|payload| payload.contains(' ')).collect::<Vec<_>>(), ["low 1", "high 2", "high 3"]);
}

#[test]
fn more_names_than_a_record_takes_mean_everybody() {
    let mut world = archive();
    // Records of one event have room for about 14,500 names.
    let filters: Vec<String> = (0..8).map(|levels| format!("{}#", "+/".repeat(levels))).collect();
    for session in 0..1900 {
        let client_id = format!("listener {session}");
        world.rig.attach(9, &client_id, KEPT);
        let filters: Vec<_> = filters.iter().map(|filter| plain(filter, Qos::AtLeastOnce)).collect();
        world.rig.input(Input::Subscribe { link: Link(9), tag: 1, filters: &filters });
        world.rig.detach(9, false);
    }
    world.settle();
    order(&mut world, "a/b/c/d/e/f/g/h", "all");
    order(&mut world, "a", "some");
    world.crash();
    for _ in 0..2 {
        assert_eq!(world.rig.attach(9, "listener 7", KEPT), Told::Attached { present: true });
        let mut got = Vec::new();
        loop {
            world.settle();
            let more = world.rig.settled_events(9);
            if more.is_empty() {
                break;
            }
            got.extend(more.into_iter().map(|got| got.payload));
        }
        assert_eq!(got.iter().filter(|payload| *payload == "all").count(), 8);
        assert_eq!(got.iter().filter(|payload| *payload == "some").count(), 2, "`#` and `+/#`");
        // The other subscriptions have it, too, after any restart.
        world.crash();
    }
}

#[test]
fn a_record_that_is_not_durable_yet_is_not_looked_for() {
    let mut world = archive();
    join(&mut world, "orders/17", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    for payload in ["one", "two"] {
        order(&mut world, "orders/17", payload);
    }
    // In another stream, so that the cache lacks all of this one.
    world.rig.publish(PUB, "other", "", Qos::AtMostOnce);
    world.rig.publish(PUB, "orders/17", "three", Qos::AtLeastOnce);
    world.rig.attach(SUB, "subscriber", Client { window: 1, ..KEPT });
    while world.serve() {}
    world.settle();
    world.rig.publish(PUB, "other", "", Qos::AtMostOnce);
    assert_eq!(payloads(&drain(&mut world)), ["one", "two", "three"]);
}

#[test]
fn records_that_cannot_be_read_are_done_without() {
    let mut world = archive();
    join(&mut world, "orders/17", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    let wanted = many(&mut world, 60, 20);
    world.damaged = true;
    assert_eq!(back(&mut world).0, wanted);
}

#[test]
fn a_log_from_before_there_were_records_is_read_as_it_is() {
    let mut world = archive();
    join(&mut world, "orders/17", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    let mut wanted = many(&mut world, 60, 20);
    world.disk.streams.retain(|name, _| !matches!(name, StreamName::Filter { .. }));
    world.disk.last.retain(|name, _| !matches!(name, StreamName::Filter { .. }));
    assert!(world.disk.map.remove(&b"f"[..]).is_some());
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    wanted.extend(many(&mut world, 30, 10));
    assert_eq!(back(&mut world).0, wanted);
}
