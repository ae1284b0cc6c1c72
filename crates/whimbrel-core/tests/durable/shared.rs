//! Durable shared subscriptions: an acknowledged event reaches some member at least once, through
//! any crash.

use std::collections::BTreeMap;

use whimbrel_core::{Durability, Granted, Holders, Start, SubscriptionSpec};

use super::*;

const SHARE: &str = "$share/g/t/#";
const ONE: u32 = 11;
const TWO: u32 = 12;

fn name(link: u32) -> String {
    format!("member {link}")
}

/// A broker with a publisher and these members, of sessions that are kept.
fn shared_world(members: &[u32]) -> Logged {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    members.iter().for_each(|link| enter(&mut world, *link, KEPT, plain(SHARE, Qos::AtLeastOnce)));
    world
}

/// A client attaches and becomes a member.
fn enter(world: &mut Logged, link: u32, client: Client, filter: Filter<'_>) {
    world.rig.attach(link, &name(link), client);
    let granted = ask(world, link, filter);
    assert!(granted.is_ok(), "{granted:?}");
}

/// Asks for a subscription and waits for the answer; other output to the client stays.
fn ask(world: &mut Logged, link: u32, filter: Filter<'_>) -> Result<Granted, Refusal> {
    world.rig.input(Input::Subscribe { link: Link(link), tag: 1, filters: &[filter] });
    world.settle();
    let told = world.rig.edges.told.get_mut(&link).expect("it is answered");
    let at = told.iter().position(|told| matches!(told, Told::Subscribed(_))).expect("it is answered");
    let Told::Subscribed(results) = told.remove(at) else { unreachable!() };
    results[0].clone()
}

fn unsubscribe(world: &mut Logged, link: u32) {
    world.rig.input(Input::Unsubscribe { link: Link(link), tag: 1, filters: &[SHARE] });
    world.settle();
}

/// Attaches a member that comes back with its session.
fn back(world: &mut Logged, link: u32) {
    assert_eq!(world.rig.attach(link, &name(link), KEPT), Told::Attached { present: true });
    world.settle();
}

/// The events that these members get and settle until there are no more: the number of each
/// payload.
fn share(world: &mut Logged, links: &[u32]) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    loop {
        world.settle();
        let told: Vec<_> =
            links.iter().flat_map(|link| world.rig.take(*link).into_iter().map(|t| (*link, t))).collect();
        if told.is_empty() {
            return all;
        }
        for (link, told) in told {
            match told {
                Told::Event(got) => {
                    settle_first(world, link, &got);
                    *all.entry(got.payload).or_default() += 1;
                }
                Told::Release { tag, known: true } => world.rig.settle(link, tag, Settlement::Completed),
                _ => {}
            }
        }
    }
}

/// A member settles a delivery.
fn settle_first(world: &mut Logged, link: u32, got: &Got) {
    match got.qos {
        Qos::AtMostOnce => {}
        Qos::AtLeastOnce => world.rig.settle(link, got.tag, Settlement::Acknowledged),
        Qos::ExactlyOnce => world.rig.settle(link, got.tag, Settlement::Received),
    }
}

/// Publishes at exactly once.
fn publish_twice_phased(world: &mut Logged, payload: &str) {
    world.rig.publish(PUB, "t/a", payload, Qos::ExactlyOnce);
    world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
    world.settle();
}

fn publish_all(world: &mut Logged, payloads: impl IntoIterator<Item = impl ToString>) {
    for payload in payloads {
        publish(world, &payload.to_string());
    }
    world.settle();
}

fn once(payloads: impl IntoIterator<Item = impl ToString>) -> BTreeMap<String, usize> {
    payloads.into_iter().map(|payload| (payload.to_string(), 1)).collect()
}

/// Nothing of a shared subscription or of its members' subscriptions is left on the disk, and
/// nothing is held.
fn assert_nothing_is_left(world: &mut Logged, sessions: usize) {
    world.advance(Duration::from_secs(1));
    let keys = [b'd', b'p', b'i', b's'].map(|message| world.disk.keys(message));
    assert_eq!((keys, world.disk.events()), ([0, 0, 0, sessions], 0));
}

#[test]
fn what_a_shared_subscription_wants_is_durable_before_its_publisher_hears_of_it() {
    let mut world = shared_world(&[ONE, TWO]);
    publish(&mut world, "one");
    assert_eq!((accepted(&mut world), world.rig.events(ONE), world.rig.events(TWO)), (0, vec![], vec![]));
    world.settle();
    assert_eq!((accepted(&mut world), world.disk.events()), (1, 1), "logged once");
    assert_eq!(share(&mut world, &[ONE, TWO]), once(["one"]));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "it was acknowledged");
}

#[test]
fn only_members_that_are_kept_make_a_shared_subscription_durable() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    let durability = |world: &mut Logged, link, filter| ask(world, link, filter).map(|granted| granted.durability);
    world.rig.attach(ONE, "fleeting", CLEAN);
    assert_eq!(durability(&mut world, ONE, plain(SHARE, Qos::AtLeastOnce)), Ok(Durability::Queued));
    world.rig.attach(TWO, "best effort", KEPT);
    assert_eq!(durability(&mut world, TWO, plain(SHARE, Qos::AtMostOnce)), Ok(Durability::Queued));
    publish_all(&mut world, ["a"]);
    assert_eq!((world.disk.events(), share(&mut world, &[ONE, TWO])), (0, once(["a"])));
    world.rig.attach(13, "kept", KEPT);
    assert_eq!(durability(&mut world, 13, plain(SHARE, Qos::AtLeastOnce)), Ok(Durability::Durable));
    publish_all(&mut world, ["b"]);
    assert_eq!((world.disk.events(), share(&mut world, &[ONE, TWO, 13])), (1, once(["b"])));
}

#[test]
fn a_place_to_begin_the_cache_and_notices_stay_refused() {
    let mut world = Logged::new();
    world.rig.attach(ONE, "one", KEPT);
    let share = plain(SHARE, Qos::AtLeastOnce);
    let mut refused = |spec, start| {
        let asked = Filter { spec, start, ..share };
        assert_eq!(ask(&mut world, ONE, asked), Err(Refusal::SharedTracked));
    };
    let durable = SubscriptionSpec { durability: Durability::Durable, ..share.spec };
    refused(SubscriptionSpec { durability: Durability::SemiDurable, ..share.spec }, Start::Own);
    refused(SubscriptionSpec { notices: true, ..durable }, Start::Own);
    refused(SubscriptionSpec { by_token: true, ..durable }, Start::Own);
    refused(SubscriptionSpec { durability: Durability::Nondurable, by_token: true, ..share.spec }, Start::Own);
    refused(durable, Start::Earliest);
    assert_nothing_is_left(&mut world, 1);
}

#[test]
fn what_waits_in_memory_is_not_lost_when_the_first_kept_member_comes() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    let slow = Client { window: 1, ..CLEAN };
    enter(&mut world, ONE, slow, plain(SHARE, Qos::AtLeastOnce));
    publish_all(&mut world, ["a", "b", "c"]);
    assert_eq!(world.disk.events(), 0);
    world.rig.attach(TWO, &name(TWO), KEPT);
    world.rig.input(Input::Subscribe { link: Link(TWO), tag: 1, filters: &[plain(SHARE, Qos::AtLeastOnce)] });
    publish(&mut world, "between");
    world.settle();
    publish_all(&mut world, ["after"]);
    assert_eq!(share(&mut world, &[ONE, TWO]), once(["a", "b", "c", "between", "after"]));
}

#[test]
fn an_event_between_the_request_and_its_confirmation_comes_after_a_crash() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(ONE, &name(ONE), KEPT);
    world.settle();
    world.rig.input(Input::Subscribe { link: Link(ONE), tag: 1, filters: &[plain(SHARE, Qos::AtLeastOnce)] });
    publish(&mut world, "between");
    world.settle();
    assert_eq!((accepted(&mut world), world.disk.events()), (1, 1));
    world.crash();
    back(&mut world, ONE);
    assert_eq!(share(&mut world, &[ONE]), once(["between"]));
}

#[test]
fn what_a_leaving_member_has_not_acknowledged_goes_to_another() {
    let mut world = shared_world(&[ONE, TWO]);
    publish_all(&mut world, 0..8);
    let got = world.rig.events(ONE);
    assert_eq!(got.len(), 4);
    world.rig.settle(ONE, got[1].tag, Settlement::Acknowledged);
    world.rig.detach(ONE, false);
    let mut all = share(&mut world, &[TWO]);
    assert_eq!(all.insert(got[1].payload.clone(), 1), None, "it was acknowledged");
    assert_eq!(all, once(0..8));
    back(&mut world, ONE);
    assert_eq!(share(&mut world, &[ONE, TWO]), BTreeMap::new());
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0);
}

#[test]
fn members_that_were_away_get_more_than_the_window_together_and_each_event_once() {
    const MANY: usize = 6_000;
    for crashes in [false, true] {
        let mut world = shared_world(&[ONE, TWO]);
        [ONE, TWO].into_iter().for_each(|link| world.rig.detach(link, false));
        (0..MANY / 100).for_each(|part| publish_all(&mut world, part * 100..part * 100 + 100));
        assert_eq!(accepted(&mut world), MANY);
        if crashes {
            world.crash();
        }
        for link in [ONE, TWO] {
            world.rig.attach(link, &name(link), Client { window: 100, ..KEPT });
        }
        let one = world.rig.events(ONE);
        one.iter().for_each(|got| world.rig.settle(ONE, got.tag, Settlement::Acknowledged));
        let mut all = share(&mut world, &[ONE, TWO]);
        one.into_iter().for_each(|got| *all.entry(got.payload).or_default() += 1);
        assert_eq!(all, once(0..MANY));
        world.advance(Duration::from_secs(1));
        assert_eq!(world.disk.events(), 0);
    }
}

#[test]
fn more_than_the_window_waits_in_the_log_while_members_are_stuck() {
    const MANY: usize = 6_000;
    let mut world = shared_world(&[ONE]);
    (0..MANY / 100).for_each(|part| publish_all(&mut world, part * 100..part * 100 + 100));
    let info = world.rig.core.session(SHARE).expect("it has a session of its own");
    assert_eq!((info.in_flight, info.durable), (4096, 1));
    assert_eq!(share(&mut world, &[ONE]), once(0..MANY));
}

#[test]
fn what_was_acknowledged_does_not_come_again_after_a_restart() {
    let mut world = shared_world(&[ONE, TWO]);
    publish_all(&mut world, 0..8);
    let [one, two] = [ONE, TWO].map(|link| world.rig.events(link));
    assert_eq!((one.len(), two.len()), (4, 4));
    world.rig.settle(ONE, one[2].tag, Settlement::Acknowledged);
    two.iter().for_each(|got| world.rig.settle(TWO, got.tag, Settlement::Acknowledged));
    world.advance(Duration::from_millis(20));
    world.crash();
    back(&mut world, TWO);
    let expected = [0, 1, 3].map(|at| one[at].payload.clone());
    assert_eq!(share(&mut world, &[TWO]), once(expected));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0);
}

/// A lifetime of a shared subscription of which only the first batches become durable; returns how
/// many of its publisher's events were reported accepted, and which ones members have acknowledged.
fn life(world: &mut Logged, mut batches: usize) -> (usize, BTreeMap<String, usize>) {
    let mut told = 0;
    let mut had = BTreeMap::new();
    let mut step = |world: &mut Logged, told: &mut usize| {
        let before = world.committed;
        world.commit_some(batches);
        batches -= world.committed - before;
        *told += accepted(world);
    };
    world.rig.attach(PUB, "publisher", CLEAN);
    for link in [ONE, TWO] {
        world.rig.attach(link, &name(link), KEPT);
        world.rig.input(Input::Subscribe { link: Link(link), tag: 1, filters: &[plain(SHARE, Qos::AtLeastOnce)] });
        publish(world, &format!("asked {link}"));
        step(world, &mut told);
    }
    for payload in ["a", "b", "c", "d"] {
        publish(world, payload);
        step(world, &mut told);
    }
    for got in world.rig.events(ONE) {
        world.rig.settle(ONE, got.tag, Settlement::Acknowledged);
        had.insert(got.payload, 1);
        world.rig.now = world.rig.now.after(Duration::from_millis(20));
        step(world, &mut told);
    }
    world.rig.detach(TWO, false);
    step(world, &mut told);
    for (link, payload) in [(ONE, "late"), (TWO, "last")] {
        if link == TWO {
            world.rig.attach(link, &name(link), KEPT);
        }
        world.rig.input(Input::Unsubscribe { link: Link(link), tag: 1, filters: &[SHARE] });
        publish(world, payload);
        step(world, &mut told);
    }
    (told, had)
}

#[test]
fn nothing_is_lost_wherever_the_broker_dies() {
    let order = ["asked 11", "asked 12", "a", "b", "c", "d", "late", "last"];
    let mut world = Logged::new();
    life(&mut world, usize::MAX);
    let all = world.committed;
    assert!(all > 16, "{all}");
    for batches in 0..=all {
        let mut world = Logged::new();
        let (told, mut had) = life(&mut world, batches);
        world.crash();
        for link in [ONE, TWO] {
            world.rig.attach(link, &name(link), KEPT);
            world.settle();
        }
        share(&mut world, &[ONE, TWO]).into_iter().for_each(|(payload, _)| *had.entry(payload).or_default() += 1);
        // Nothing is promised before the first request is durable, and after the last member's end
        // is.
        let lacking: Vec<_> = order[..told].iter().filter(|payload| !had.contains_key(**payload)).collect();
        let was_there = world.disk.keys(b'd') > 0;
        assert!(lacking.is_empty() || !was_there, "{batches} of {all} batches: {lacking:?} of {told} accepted");
        [ONE, TWO].into_iter().for_each(|link| assert!(ask(&mut world, link, plain(SHARE, Qos::AtLeastOnce)).is_ok()));
        world.rig.attach(PUB, "publisher", CLEAN);
        publish_all(&mut world, ["after"]);
        assert_eq!(share(&mut world, &[ONE, TWO]), once(["after"]), "{batches} of {all} batches");
        [ONE, TWO].into_iter().for_each(|link| unsubscribe(&mut world, link));
        assert_nothing_is_left(&mut world, 2);
    }
}

#[test]
fn a_shared_subscription_ends_with_its_last_member_however_that_ends() {
    let mut world = shared_world(&[ONE, TWO]);
    [ONE, TWO].into_iter().for_each(|link| world.rig.detach(link, false));
    publish_all(&mut world, 0..3);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 3);
    world.rig.attach(ONE, &name(ONE), CLEAN);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 3, "one member is left");
    world.crash();
    world.rig.input(Input::DropSession { client_id: "\0$share/g/t/#" });
    world.rig.input(Input::DropSession { client_id: SHARE });
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 3, "nobody but a member ends it");
    world.rig.input(Input::DropSession { client_id: &name(TWO) });
    assert_nothing_is_left(&mut world, 0);
    assert_eq!(world.rig.core.stats().sessions, 0);
    assert_eq!(world.rig.core.stats().subscriptions, 0);
}

#[test]
fn an_expired_member_holds_nothing_and_the_others_go_on() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    let brief = Client { expiry: Duration::from_secs(5), ..KEPT };
    enter(&mut world, ONE, brief.clone(), plain(SHARE, Qos::ExactlyOnce));
    enter(&mut world, TWO, brief, plain(SHARE, Qos::AtLeastOnce));
    ["a", "b"].into_iter().for_each(|payload| publish_twice_phased(&mut world, payload));
    [ONE, TWO].into_iter().for_each(|link| world.rig.detach(link, false));
    let two = world.rig.events(TWO);
    world.advance(Duration::from_secs(3));
    world.rig.attach(TWO, &name(TWO), KEPT);
    assert_eq!(share(&mut world, &[TWO]), once([&two[0].payload]));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 2, "held from a delivery at exactly once on that has begun");
    world.advance(Duration::from_secs(3));
    assert_eq!(world.rig.core.session(&name(ONE)), None);
    assert_eq!(world.disk.events(), 0, "nobody else may get it");
    publish_all(&mut world, ["c"]);
    assert_eq!(share(&mut world, &[TWO]), once(["c"]));
    world.rig.detach(TWO, false);
    publish_all(&mut world, ["d"]);
    world.advance(Duration::from_secs(2000));
    assert_nothing_is_left(&mut world, 0);
}

#[test]
fn without_a_kept_member_a_shared_subscription_ends_with_the_broker() {
    let mut world = shared_world(&[ONE]);
    enter(&mut world, TWO, CLEAN, plain(SHARE, Qos::AtLeastOnce));
    world.rig.detach(ONE, false);
    publish_all(&mut world, 0..4);
    world.rig.input(Input::DropSession { client_id: &name(ONE) });
    assert_eq!(share(&mut world, &[TWO]), once(0..4), "it goes on for who is left");
    world.advance(Duration::from_secs(1));
    publish_all(&mut world, ["logged"]);
    assert_eq!(world.disk.events(), 1);
    world.crash();
    assert_nothing_is_left(&mut world, 0);
}

#[test]
fn who_unsubscribes_settles_what_it_has_or_leaves_it_to_others() {
    for settles in [true, false] {
        let mut world = shared_world(&[ONE, TWO]);
        publish_all(&mut world, 0..4);
        let [one, two] = [ONE, TWO].map(|link| world.rig.events(link));
        unsubscribe(&mut world, ONE);
        publish_all(&mut world, ["later"]);
        assert_eq!(world.rig.events(ONE), []);
        if settles {
            one.iter().for_each(|got| world.rig.settle(ONE, got.tag, Settlement::Acknowledged));
        }
        two.iter().for_each(|got| world.rig.settle(TWO, got.tag, Settlement::Acknowledged));
        world.rig.detach(ONE, false);
        let left = if settles { vec![] } else { one.into_iter().map(|got| got.payload).collect() };
        assert_eq!(share(&mut world, &[TWO]), once(left.into_iter().chain(["later".to_owned()])));
        unsubscribe(&mut world, TWO);
        assert_nothing_is_left(&mut world, 2);
    }
}

#[test]
fn an_exactly_once_delivery_that_has_begun_stays_with_its_member() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    for link in [ONE, TWO] {
        enter(&mut world, link, KEPT, plain(SHARE, Qos::ExactlyOnce));
    }
    ["a", "b"].into_iter().for_each(|payload| publish_twice_phased(&mut world, payload));
    let one = world.rig.events(ONE);
    assert_eq!(one.len(), 1);
    [ONE, TWO].into_iter().for_each(|link| world.rig.detach(link, false));
    world.rig.take(TWO);
    back(&mut world, TWO);
    let two = share(&mut world, &[TWO]);
    assert_eq!(two.len(), 1, "its own, and not that of the other: {two:?}");
    back(&mut world, ONE);
    assert_eq!(share(&mut world, &[ONE]), once([&one[0].payload]));
    world.advance(Duration::from_secs(1));
    assert_eq!((world.disk.events(), world.disk.keys(b'i')), (0, 0));
    world.crash();
    [ONE, TWO].into_iter().for_each(|link| back(&mut world, link));
    assert_eq!(share(&mut world, &[ONE, TWO]), BTreeMap::new());
}

#[test]
fn members_share_one_selector_also_while_that_waits_to_be_durable() {
    let [low, high] = ["JMSPriority < 6", "JMSPriority > 5"].map(|text| Selector::parse(text).expect("a selector"));
    let with = |selector| Filter { selector: Some(selector), ..plain(SHARE, Qos::AtLeastOnce) };
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    for link in [ONE, TWO] {
        world.rig.attach(link, &name(link), KEPT);
    }
    let request = |world: &mut Logged, link, selector| {
        world.rig.input(Input::Subscribe { link: Link(link), tag: 1, filters: &[with(selector)] });
    };
    let granted = |world: &mut Logged, link| {
        let told = world.rig.take(link);
        let [Told::Subscribed(results)] = &told[..] else { panic!("{told:?}") };
        results[0].as_ref().map(|_| ()).map_err(|refusal| *refusal)
    };
    request(&mut world, ONE, &low);
    request(&mut world, TWO, &high);
    world.settle();
    assert_eq!((granted(&mut world, ONE), granted(&mut world, TWO)), (Ok(()), Err(Refusal::OtherSelector)));
    let important = |world: &mut Logged, importance: u8| {
        let payload = importance.to_string();
        let event = whimbrel_event::EventRef { importance, ..event("t/a", &payload, Qos::AtLeastOnce) };
        world.rig.publish_event(PUB, &event, false);
        world.settle();
    };
    important(&mut world, 1);
    important(&mut world, 8);
    assert_eq!(world.rig.payloads(ONE), ["1"]);
    // A single member may change the selector: earlier events stay under the old one, also after a
    // crash.
    request(&mut world, ONE, &high);
    important(&mut world, 2);
    important(&mut world, 9);
    assert_eq!(granted_among(&mut world, ONE), Ok(()));
    world.crash();
    back(&mut world, ONE);
    assert_eq!(share(&mut world, &[ONE]), once(["1", "9"]));
    world.rig.attach(TWO, &name(TWO), KEPT);
    assert!(matches!(ask(&mut world, TWO, with(&low)), Err(Refusal::OtherSelector)));
    assert!(ask(&mut world, TWO, with(&high)).is_ok());
    assert!(matches!(ask(&mut world, ONE, with(&low)), Err(Refusal::OtherSelector)));
}

fn granted_among(world: &mut Logged, link: u32) -> Result<(), Refusal> {
    let told = world.rig.take(link);
    let results = told.into_iter().find_map(|told| match told {
        Told::Subscribed(results) => Some(results),
        _ => None,
    });
    results.expect("it is answered")[0].clone().map(|_| ())
}

#[test]
fn a_full_log_refuses_events_and_new_shared_subscriptions_but_no_members() {
    let mut world = shared_world(&[ONE]);
    publish_all(&mut world, ["kept"]);
    accepted(&mut world);
    world.full(Disk::Full);
    publish(&mut world, "refused");
    world.settle();
    let told = world.rig.take(PUB);
    assert!(matches!(told[..], [Told::Accepted { result: Accepted::Refused(Refusal::LogFull), .. }]), "{told:?}");
    world.rig.attach(TWO, &name(TWO), KEPT);
    assert_eq!(ask(&mut world, TWO, plain("$share/other/t/#", Qos::AtLeastOnce)), Err(Refusal::LogFull));
    assert!(ask(&mut world, TWO, plain(SHARE, Qos::AtLeastOnce)).is_ok(), "who helps is welcome");
    assert_eq!(share(&mut world, &[ONE, TWO]), once(["kept"]));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "positions and chops go on");
    world.full(Disk::Open);
    publish_all(&mut world, ["again"]);
    assert_eq!(share(&mut world, &[ONE, TWO]), once(["again"]));
}

#[test]
fn a_failed_log_refuses_events_and_leaves_members_what_they_have() {
    let mut world = shared_world(&[ONE]);
    publish_all(&mut world, ["kept"]);
    accepted(&mut world);
    world.full(Disk::Poisoned);
    publish(&mut world, "refused");
    let told = world.rig.take(PUB);
    assert!(matches!(told[..], [Told::Accepted { result: Accepted::Refused(Refusal::LogFailed), .. }]), "{told:?}");
    let granted = ask(&mut world, ONE, plain(SHARE, Qos::AtLeastOnce)).map(|granted| granted.durability);
    assert_eq!(granted, Ok(Durability::Durable), "as it was");
    world.rig.attach(TWO, &name(TWO), CLEAN);
    assert!(ask(&mut world, TWO, plain(SHARE, Qos::AtLeastOnce)).is_ok());
    world.rig.detach(ONE, false);
    assert_eq!(share(&mut world, &[TWO]), once(["kept"]));
    world.crash();
    back(&mut world, ONE);
    assert_eq!(share(&mut world, &[ONE]), once(["kept"]), "that it was acknowledged could not be written");
}

#[test]
fn what_is_kept_too_long_is_given_up_also_for_a_shared_subscription() {
    let mut world = Logged::with(Limits { max_retain: Some(Duration::from_secs(10)), ..Limits::default() });
    world.rig.attach(PUB, "publisher", CLEAN);
    enter(&mut world, ONE, KEPT, plain(SHARE, Qos::AtLeastOnce));
    world.rig.detach(ONE, false);
    publish_all(&mut world, ["old"]);
    world.advance(Duration::from_secs(20));
    publish_all(&mut world, ["new"]);
    world.advance(Duration::from_secs(1));
    world.crash();
    back(&mut world, ONE);
    assert_eq!(share(&mut world, &[ONE]), once(["new"]));
    assert_eq!(world.rig.core.stats().gaps_released, 1);
    assert_eq!(world.rig.core.gappy_clients(), [(SHARE.to_owned(), 1)]);
}

#[test]
fn events_that_expire_and_those_that_are_too_large_hold_nothing() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    enter(&mut world, ONE, Client { window: 1, ..KEPT }, plain(SHARE, Qos::AtLeastOnce));
    publish_all(&mut world, ["first"]);
    let expires = Some(world.rig.now.after(Duration::from_secs(1)));
    let event = whimbrel_event::EventRef { expires, ..event("t/a", "expires", Qos::AtLeastOnce) };
    world.rig.publish_event(PUB, &event, false);
    world.rig.edges.largest.insert(ONE, 8);
    publish_all(&mut world, ["too large for it", "last"]);
    world.advance(Duration::from_secs(2));
    assert_eq!(share(&mut world, &[ONE]), once(["first", "last"]));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0);
    assert_eq!((world.rig.core.stats().dropped_expired, world.rig.core.stats().dropped_untaken), (1, 1));
}

#[test]
fn best_effort_events_and_members_pass_through() {
    let mut world = shared_world(&[ONE]);
    enter(&mut world, TWO, CLEAN, plain(SHARE, Qos::AtMostOnce));
    world.rig.publish(PUB, "t/a", "passes", Qos::AtMostOnce);
    assert_eq!(share(&mut world, &[ONE, TWO]), once(["passes"]));
    publish_all(&mut world, 0..6);
    assert_eq!(share(&mut world, &[ONE, TWO]), once(0..6));
    world.rig.detach(ONE, false);
    publish_all(&mut world, 6..9);
    assert_eq!(share(&mut world, &[TWO]), once(6..9));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "who takes it as best effort has it");
}

#[test]
fn an_operator_sees_a_durable_shared_subscription_as_one_that_holds_the_log() {
    let mut world = shared_world(&[ONE]);
    world.rig.detach(ONE, false);
    publish_all(&mut world, ["one"]);
    world.advance(Duration::from_millis(20));
    let (infos, _) = world.rig.core.sessions(0, 100);
    let mut names: Vec<_> = infos.iter().map(|info| &*info.client_id).collect();
    names.sort_unstable();
    assert_eq!(names, [SHARE, &name(ONE), "publisher"]);
    let subscriptions = world.rig.core.subscriptions(&name(ONE), None, 10);
    assert_eq!(subscriptions[0].spec.durability, Durability::Durable);
    let subscriptions = world.rig.core.subscriptions(SHARE, None, 10);
    assert!(subscriptions[0].behind.is_some() && &*subscriptions[0].filter == SHARE, "{subscriptions:?}");
    let mut holders = Holders::default();
    world.rig.core.holders(0, 10, &mut holders);
    let holder = holders.longest.iter().flatten().next().expect("it holds the log");
    assert_eq!((&*holder.client_id, holder.is_here), (SHARE, false));
    assert_eq!(world.rig.core.stats().sessions, 2, "sessions of clients");
}

#[test]
fn a_restored_copy_has_its_shared_subscriptions() {
    let mut world = shared_world(&[ONE, TWO]);
    [ONE, TWO].into_iter().for_each(|link| world.rig.detach(link, false));
    publish_all(&mut world, ["before"]);
    let copy = world.disk.clone();
    publish_all(&mut world, ["after"]);
    world.go_on_from(&copy);
    world.settle();
    world.crash();
    for link in [ONE, TWO] {
        world.rig.attach(link, &name(link), KEPT);
    }
    assert_eq!(share(&mut world, &[ONE, TWO]), once(["before"]));
    assert_eq!(world.rig.core.stats().gaps_lost, 8, "one in each stream");
}

#[test]
fn a_member_that_begins_anew_leaves_nothing_of_a_delivery_that_was_never_sent() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    for link in [ONE, TWO] {
        enter(&mut world, link, KEPT, plain(SHARE, Qos::ExactlyOnce));
    }
    ["a", "b"].into_iter().for_each(|payload| world.rig.publish(PUB, "t/a", payload, Qos::ExactlyOnce));
    // The events are durable; the records of their delivery to one member each are not yet.
    world.commit_some(usize::MAX);
    world.submit();
    // In one call it is disconnected, its events go to the other member, and its session ends.
    world.rig.attach(ONE + 10, &name(ONE), CLEAN);
    world.settle();
    world.rig.attach(TWO + 10, &name(TWO), CLEAN);
    world.settle();
    assert_nothing_is_left(&mut world, 0);
}

/// Payloads of which the longer ones are too large for some members.
fn long_and_short() -> Vec<String> {
    (0..30)
        .map(|number| if number % 3 == 0 { format!("{number:03} is long") } else { format!("{number:03}") })
        .collect()
}

#[test]
fn what_one_member_cannot_be_sent_another_gets() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        for is_denied in [false, true] {
            let mut world = Logged::new();
            world.rig.attach(PUB, "publisher", CLEAN);
            for link in [ONE, TWO] {
                enter(&mut world, link, Client { window: 100, ..KEPT }, plain(SHARE, qos));
            }
            let sent = long_and_short();
            if is_denied {
                world.rig.edges.denied.insert(ONE, sent.clone().into_iter().filter(|text| text.len() > 3).collect());
            } else {
                world.rig.edges.largest.insert(ONE, 3);
            }
            for payload in &sent {
                world.rig.publish(PUB, "t/a", payload, qos);
                world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
            }
            assert_eq!(share(&mut world, &[ONE, TWO]), once(&sent), "{qos:?}, denied: {is_denied}");
            world.advance(Duration::from_secs(1));
            assert_eq!(world.disk.events(), 0);
            assert_eq!(world.rig.core.stats().dropped_untaken, 0);
        }
    }
}

#[test]
fn what_no_member_can_be_sent_is_passed_over_and_counted() {
    let mut world = shared_world(&[ONE, TWO]);
    for link in [ONE, TWO] {
        world.rig.edges.largest.insert(link, 3);
    }
    let sent = long_and_short();
    publish_all(&mut world, &sent);
    assert_eq!(share(&mut world, &[ONE, TWO]), once(sent.iter().filter(|text| text.len() == 3)));
    world.advance(Duration::from_secs(1));
    assert_eq!((world.disk.events(), world.rig.core.stats().dropped_untaken), (0, 10));
}

#[test]
fn what_only_a_busy_member_can_be_sent_waits_for_it_and_lets_others_pass() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    enter(&mut world, ONE, Client { window: 100, ..KEPT }, plain(SHARE, Qos::AtLeastOnce));
    enter(&mut world, TWO, Client { window: 1, ..KEPT }, plain(SHARE, Qos::AtLeastOnce));
    world.rig.edges.largest.insert(ONE, 3);
    publish_all(&mut world, ["a long one", "a longer one", "s1", "s2", "s3"]);
    let busy = world.rig.events(TWO);
    assert_eq!(payloads(&busy), ["a long one"]);
    assert_eq!(payloads(&world.rig.events(ONE)), ["s1", "s2", "s3"], "not behind what waits for the other one");
    publish_all(&mut world, ["s4"]);
    assert_eq!(payloads(&world.rig.events(ONE)), ["s4"]);
    world.rig.settle(TWO, busy[0].tag, Settlement::Acknowledged);
    world.settle();
    assert_eq!(payloads(&world.rig.events(TWO)), ["a longer one"]);
}

#[test]
fn a_delivery_that_was_prepared_and_cannot_be_sent_goes_to_another_member() {
    let mut world = shared_world(&[ONE]);
    assert!(ask(&mut world, ONE, plain(SHARE, Qos::ExactlyOnce)).is_ok());
    publish_twice_phased_unsettled(&mut world, "a long one");
    // It is being prepared for the only member that there is.
    world.rig.edges.largest.insert(ONE, 3);
    enter_unsettled(&mut world, TWO);
    assert_eq!(share(&mut world, &[ONE, TWO]), once(["a long one"]));
    world.advance(Duration::from_secs(1));
    assert_eq!((world.disk.events(), world.disk.keys(b'i')), (0, 0));
}

/// Publishes at exactly once; the record of the delivery is not durable yet.
fn publish_twice_phased_unsettled(world: &mut Logged, payload: &str) {
    world.rig.publish(PUB, "t/a", payload, Qos::ExactlyOnce);
    world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
    world.submit();
    world.commit_some(1);
}

/// A client whose session is not kept becomes a member at once.
fn enter_unsettled(world: &mut Logged, link: u32) {
    world.rig.attach(link, &name(link), CLEAN);
    world.rig.input(Input::Subscribe { link: Link(link), tag: 1, filters: &[plain(SHARE, Qos::ExactlyOnce)] });
}

#[test]
fn members_get_the_retain_mark_as_they_asked_for_it() {
    for crashes in [false, true] {
        let mut world = Logged::new();
        world.rig.attach(PUB, "publisher", CLEAN);
        let share = plain(SHARE, Qos::AtLeastOnce);
        let filter = Filter { spec: SubscriptionSpec { retain_as_published: true, ..share.spec }, ..share };
        enter(&mut world, ONE, KEPT, filter);
        if crashes {
            world.rig.detach(ONE, false);
        }
        publish_marked(&mut world, Qos::AtLeastOnce);
        if crashes {
            world.crash();
            back(&mut world, ONE);
        }
        assert_eq!(marks(&drain_of(&mut world, ONE)), [("kept", true), ("not", false)], "crashes: {crashes}");
    }
}

/// The deliveries that a member gets and acknowledges.
fn drain_of(world: &mut Logged, link: u32) -> Vec<Got> {
    world.settle();
    world.rig.settled_events(link)
}
