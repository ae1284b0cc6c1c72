//! Records hold when clients do not do what they did before: refused numbers, sessions left in a
//! crash, positions of subscriptions that want nothing.

use super::*;
use whimbrel_core::overlay::ENDED_LIFETIME;

const LIVE: u32 = 3;

/// Publishes an event with a number of the publisher; returns the result.
fn numbered(world: &mut Logged, number: u64, payload: &str, retain: bool) -> Accepted {
    let event = event("t/a", payload, Qos::AtLeastOnce);
    let publish = Publish { link: Link(PUB), tag: 9, retain, number: Some(number), event: &event };
    world.rig.input(Input::Publish(publish));
    world.settle();
    match world.rig.take(PUB)[..] {
        [Told::Accepted { result, .. }] => result,
        ref told => panic!("{told:?}"),
    }
}

#[test]
fn a_number_that_was_refused_is_never_taken_for_a_repeat() {
    let small = Limits { logged_event_bytes: 300, ..Limits::default() };
    let large = "x".repeat(500);
    for retain in [true, false] {
        let mut world = Logged::with(small.clone());
        world.rig.attach(PUB, "publisher", CLEAN);
        join(&mut world, "t/#", Qos::AtLeastOnce);
        assert_eq!(numbered(&mut world, 3, &large, retain), Accepted::Refused(Refusal::TooLargeForLog));
        assert_eq!(numbered(&mut world, 4, "four", false), Accepted::Refused(Refusal::NumberAfterRefused));
        assert_eq!(numbered(&mut world, 3, "three", false), Accepted::Routed { matched: true });
        assert_eq!(numbered(&mut world, 4, "four", false), Accepted::Routed { matched: true });
        assert_eq!(payloads(&drain(&mut world)), ["three", "four"]);
    }
}

#[test]
fn a_number_without_an_answer_holds_up_no_other() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    let event = event("t/+", "refused", Qos::AtMostOnce);
    world.rig.input(Input::Publish(Publish { link: Link(PUB), tag: 0, retain: true, number: Some(3), event: &event }));
    assert_eq!(numbered(&mut world, 4, "four", false), Accepted::Routed { matched: false });
}

#[test]
fn a_session_that_was_left_in_a_crash_expires_however_often_the_broker_restarts() {
    let mut world = Logged::new();
    let expiry = Duration::from_secs(5);
    world.rig.attach(SUB, "subscriber", Client { expiry, ..KEPT });
    subscribe(&mut world, plain("t/#", Qos::AtLeastOnce));
    for lives in [1, 1, 0] {
        world.crash();
        world.advance(Duration::from_secs(2));
        assert_eq!(world.disk.keys(b's'), lives);
    }
    assert_eq!(world.rig.attach(SUB, "subscriber", KEPT), Told::Attached { present: false });
}

#[test]
fn a_will_is_published_in_time_however_often_the_broker_restarts() {
    for is_there_in_the_crash in [true, false] {
        let mut world = world("will", Qos::AtLeastOnce);
        let will = Some(will("will", "gone", Duration::from_secs(5)));
        world.rig.attach(3, "mortal", Client { will, ..KEPT });
        world.settle();
        if !is_there_in_the_crash {
            world.rig.detach(3, true);
            world.settle();
        }
        let mut got = Vec::new();
        for _ in 0..3 {
            world.crash();
            come_back(&mut world);
            world.advance(Duration::from_secs(2));
            got.extend(drain(&mut world).into_iter().map(|got| got.payload));
        }
        assert_eq!(got, ["gone"]);
        assert_eq!(world.disk.keys(b'w'), 0);
    }
}

/// A subscriber that is away.
const AWAY: u32 = 3;

/// A broker with a subscriber that has left behind a subscription to `filter`, and one that wants
/// `t/#`.
fn left_behind(filter: &str) -> Logged {
    let mut world = world("t/#", Qos::AtLeastOnce);
    leave_behind(&mut world, filter);
    world
}

fn leave_behind(world: &mut Logged, filter: &str) {
    world.rig.attach(AWAY, "away", KEPT);
    world.rig.input(Input::Subscribe { link: Link(AWAY), tag: 1, filters: &[plain(filter, Qos::AtLeastOnce)] });
    world.settle();
    world.rig.detach(AWAY, false);
    world.settle();
}

/// The broker restarts, publisher and subscriber come back.
fn restart(world: &mut Logged) {
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    come_back(world);
}

#[test]
fn an_absent_subscription_that_wants_nothing_holds_nothing_after_a_restart() {
    for filter in ["o/#", "$share/desk/o/#"] {
        let mut world = left_behind(filter);
        for life in 0..3 {
            for _ in 0..10 {
                publish(&mut world, "for the other");
                assert_eq!(drain(&mut world).len(), 1);
            }
            world.advance(Duration::from_secs(1));
            assert_eq!(world.disk.events(), 0, "life {life}, {filter}");
            restart(&mut world);
        }
    }
}

#[test]
fn what_was_logged_before_a_restart_is_held_only_by_those_who_want_it() {
    for own in [0, 1, 9] {
        let mut world = left_behind("o/#");
        world.rig.detach(SUB, false);
        for number in 0..20 {
            publish(&mut world, "for the other");
            if number < own {
                world.rig.publish(PUB, "o/1", &number.to_string(), Qos::AtLeastOnce);
            }
            world.settle();
        }
        restart(&mut world);
        assert_eq!(drain(&mut world).len(), 20);
        world.advance(Duration::from_secs(1));
        assert_eq!(world.disk.events() == 0, own == 0, "{} events", world.disk.events());
        world.rig.publish(PUB, "o/1", "last", Qos::AtLeastOnce);
        world.settle();
        world.rig.attach(AWAY, "away", KEPT);
        let mut got = Vec::new();
        loop {
            world.settle();
            let more = world.rig.settled_events(AWAY);
            if more.is_empty() {
                break;
            }
            got.extend(more.into_iter().map(|got| got.payload));
        }
        let wanted: Vec<_> = (0..own).map(|number| number.to_string()).chain(["last".to_owned()]).collect();
        assert_eq!((got, world.rig.core.stats().gaps_released), (wanted, 0));
        world.advance(Duration::from_secs(1));
        assert_eq!(world.disk.events(), 0);
    }
}

#[test]
fn what_cannot_be_looked_through_is_held() {
    let mut world = left_behind("o/#");
    world.rig.detach(SUB, false);
    for payload in ["for", "the", "other"] {
        publish(&mut world, payload);
    }
    world.settle();
    world.damaged = true;
    restart(&mut world);
    assert_eq!(drain(&mut world).len(), 3);
    world.advance(Duration::from_secs(1));
    assert_ne!(world.disk.events(), 0, "nobody knows whether it wants it");
}

#[test]
fn who_was_there_and_wanted_nothing_of_what_was_given_up_early_is_told_no_gap() {
    let mut world = Logged::with(Limits { max_retain: Some(Duration::from_secs(2)), ..Limits::default() });
    world.rig.attach(PUB, "publisher", CLEAN);
    join(&mut world, "a/#", Qos::AtLeastOnce);
    leave_behind(&mut world, "b/#");
    world.rig.publish(PUB, "a/1", "one", Qos::AtLeastOnce);
    assert_eq!(payloads(&drain(&mut world)), ["one"]);
    for _ in 0..10 {
        world.rig.publish(PUB, "b/1", "b", Qos::AtLeastOnce);
        world.advance(Duration::from_millis(600));
    }
    let kept = world.disk.events();
    assert!((1..=5).contains(&kept), "what is older than two seconds is given up: {kept} are left");
    restart(&mut world);
    assert_eq!(drain(&mut world), vec![]);
    assert_eq!(world.rig.core.stats().gaps_released, 0);
    world.rig.attach(AWAY, "away", KEPT);
    world.settle();
    assert!(!world.rig.settled_events(AWAY).is_empty());
    assert_eq!(world.rig.core.stats().gaps_released, 1);
}

#[test]
fn who_held_nothing_is_told_of_what_was_not_logged() {
    let mut world = Logged::new();
    world.profiles =
        vec![Profile { filter: "t/volatile".into(), persistence: Persistence::Volatile, ..Profile::default() }];
    world.rig.core.set_profiles(world.profiles.clone());
    world.rig.attach(PUB, "publisher", CLEAN);
    join(&mut world, "t/a", Qos::AtLeastOnce);
    world.rig.attach(AWAY, "away", KEPT);
    let spec =
        SubscriptionSpec { durability: Durability::Durable, notices: true, ..plain("t/+", Qos::AtLeastOnce).spec };
    let high = Selector::parse("JMSPriority > 5").expect("a selector");
    let filter = Filter { spec, selector: Some(&high), ..plain("t/+", Qos::AtLeastOnce) };
    world.rig.input(Input::Subscribe { link: Link(AWAY), tag: 1, filters: &[filter] });
    world.settle();
    world.rig.detach(AWAY, false);
    let volatile = whimbrel_event::EventRef { importance: 9, ..event("t/volatile", "v", Qos::AtLeastOnce) };
    let published = world.rig.now;
    world.rig.input(Input::Publish(Publish { link: Link(PUB), tag: 9, retain: false, number: None, event: &volatile }));
    world.settle();
    restart(&mut world);
    // Later events are logged for the other subscriber, which acknowledges them.
    publish(&mut world, "for the other");
    let [other] = &drain(&mut world)[..] else { panic!("it is one event") };
    let after = other.id;
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "nobody holds it");
    restart(&mut world);
    world.rig.attach(AWAY, "away", KEPT);
    world.settle();
    let told = world.rig.settled_events(AWAY);
    let notice = told.iter().find(|got| got.payload.contains(&format!("\"pubend\":\"{:016x}\"", after.pubend.0)));
    let (_, rest) = notice.and_then(|got| got.payload.split_once("\"from\":\"")).expect("a gap in its stream");
    let from: u64 = rest.split('"').next().and_then(|tick| tick.parse().ok()).expect("a tick");
    assert!(from < published.as_nanos() && published.as_nanos() < after.tick.0, "{told:?}");
}

/// The payloads of these events of the publisher that a new subscriber gets, and whether each is
/// marked as a possible repeat.
fn marked(world: &mut Logged, events: &[(Option<u64>, &str)]) -> Vec<(String, bool)> {
    let mut got = marked_unwritten(world, events);
    // Their ticks may have to be reserved first.
    world.settle();
    got.extend(marked_of(world));
    got
}

/// As `marked`, if no pending write becomes durable.
fn marked_unwritten(world: &mut Logged, events: &[(Option<u64>, &str)]) -> Vec<(String, bool)> {
    world.rig.attach(LIVE, "live", CLEAN);
    world.rig.input(Input::Subscribe { link: Link(LIVE), tag: 1, filters: &[plain("t/a", Qos::AtMostOnce)] });
    for (number, payload) in events {
        let event = event("t/a", payload, Qos::AtLeastOnce);
        world.rig.input(Input::Publish(Publish {
            link: Link(PUB),
            tag: 9,
            retain: false,
            number: *number,
            event: &event,
        }));
    }
    marked_of(world)
}

fn marked_of(world: &mut Logged) -> Vec<(String, bool)> {
    let told = world.rig.take(LIVE).into_iter();
    told.filter_map(|told| if let Told::Event(got) = told { Some((got.payload, got.maybe_repeat)) } else { None })
        .collect()
}

#[test]
fn a_number_that_is_given_to_a_broker_alone_soon_after_its_restart_may_be_a_repeat() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.settle();
    let marks =
        |all: &[(&str, bool)]| all.iter().map(|(payload, mark)| ((*payload).to_owned(), *mark)).collect::<Vec<_>>();
    assert_eq!(marked_unwritten(&mut world, &[(Some(5), "five")]), marks(&[("five", false)]));
    // Its number was not durable: nothing of it is logged.
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    let again = marked(&mut world, &[(Some(5), "five again"), (None, "without a number"), (Some(5), "known")]);
    assert_eq!(again, marks(&[("five again", true), ("without a number", false)]));
    // As long as that publisher stays, and for publishers that come within some time.
    world.advance(ENDED_LIFETIME);
    world.rig.detach(LIVE, false);
    assert_eq!(marked(&mut world, &[(Some(6), "six")]), marks(&[("six", true)]));
    world.rig.detach(PUB, false);
    world.rig.detach(LIVE, false);
    world.rig.attach(PUB, "publisher", CLEAN);
    assert_eq!(marked(&mut world, &[(Some(7), "seven")]), marks(&[("seven", false)]));
}

#[test]
fn what_is_logged_is_no_repeat_after_a_restart() {
    let mut world = world("t/a", Qos::AtLeastOnce);
    world.settle();
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    world.settle();
    assert_eq!(numbered(&mut world, 5, "five", false), Accepted::Routed { matched: true });
    let got = drain(&mut world);
    assert_eq!(got.iter().map(|got| (&*got.payload, got.maybe_repeat)).collect::<Vec<_>>(), [("five", false)]);
}
