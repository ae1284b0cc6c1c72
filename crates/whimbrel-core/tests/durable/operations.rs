//! The operator's view of sessions, and ending them.

use std::collections::BTreeSet;

use whimbrel_core::{Durability, Holders, Kick, Presence, SubscriptionSpec};

use super::*;
use crate::common::each_option;

fn drop_session(world: &mut Logged, client_id: &str) {
    world.rig.input(Input::DropSession { client_id });
    world.settle();
}

#[test]
fn sessions_are_given_once_in_parts_while_others_come_and_go() {
    let mut world = Logged::new();
    for link in 0..20 {
        world.rig.attach(100 + link, &format!("client {link}"), KEPT);
    }
    let (mut seen, mut next, mut parts) = (Vec::new(), Some(0), 0);
    while let Some(from) = next {
        let infos;
        (infos, next) = world.rig.core.sessions(from, 3);
        assert!(infos.len() <= 3);
        seen.extend(infos.into_iter().map(|info| info.client_id));
        parts += 1;
        if parts < 4 {
            world.rig.input(Input::DropSession { client_id: &format!("client {parts}") });
            world.rig.attach(200 + parts, &format!("new {parts}"), KEPT);
        }
    }
    let set: BTreeSet<_> = seen.iter().collect();
    assert_eq!(set.len(), seen.len(), "none twice");
    assert!((4..20).all(|link| seen.iter().any(|id| **id == *format!("client {link}"))), "{seen:?}");
}

#[test]
fn a_session_tells_where_it_is_and_how_far_behind() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    world.advance(Duration::from_millis(20));
    let info = world.rig.core.session("subscriber").expect("it is there");
    assert_eq!((info.presence, info.durable, info.behind), (Presence::Here, 1, None));
    world.rig.detach(SUB, false);
    let left = world.rig.now;
    publish(&mut world, "one");
    world.advance(Duration::from_secs(5));
    let info = world.rig.core.session("subscriber").expect("it is there");
    assert_eq!(info.presence, Presence::Away { since: left, until: left.after(Duration::from_secs(1000)) });
    let behind = info.behind.expect("it lacks something");
    assert!(behind.0 < world.rig.now.as_nanos() && info.is_kept);

    let subscriptions = world.rig.core.subscriptions("subscriber", None, 10);
    let [subscription] = &subscriptions[..] else { panic!("{subscriptions:?}") };
    assert_eq!((subscription.spec.durability, subscription.behind), (Durability::Durable, Some(behind)));
    assert_eq!(world.rig.core.subscriptions("subscriber", Some("t/#"), 10), []);
    let mut holders = Holders::default();
    assert_eq!(world.rig.core.holders(0, 10, &mut holders), None);
    let holder = holders.longest.iter().flatten().next().expect("it holds the log");
    assert_eq!((&*holder.client_id, &*holder.filter, holder.upto), ("subscriber", "t/#", behind));
    assert_eq!(holders.count.iter().sum::<usize>(), 1, "one stream is held by one");
}

#[test]
fn every_option_of_a_subscription_is_there_after_a_restart_and_one_more() {
    let mut world = Logged::new();
    world.rig.attach(SUB, "subscriber", KEPT);
    let text = |at: usize| format!("t/{at}");
    for (at, spec) in each_option().into_iter().enumerate() {
        subscribe(&mut world, Filter { spec, ..plain(&text(at), spec.qos) });
    }
    let told = |world: &Logged| -> Vec<SubscriptionSpec> {
        let all = world.rig.core.subscriptions("subscriber", None, 100);
        let of = |at| all.iter().find(|info| *info.filter == *text(at)).expect("it is there").spec;
        (0..all.len()).map(of).collect()
    };
    let asked = told(&world);
    for (asked, told) in each_option().iter().zip(&asked) {
        assert_eq!(told, asked);
    }
    assert_eq!(asked.len(), each_option().len());
    for _ in 0..2 {
        world.crash();
        assert_eq!(told(&world), asked);
    }
}

#[test]
fn a_session_that_is_ended_is_forgotten_with_what_was_kept_for_it() {
    for is_here in [true, false] {
        let mut world = world("t/#", Qos::ExactlyOnce);
        publish(&mut world, "one");
        world.settle();
        if !is_here {
            world.rig.detach(SUB, false);
        }
        world.rig.take(SUB);
        drop_session(&mut world, "nobody");
        drop_session(&mut world, "subscriber");
        let told = world.rig.take(SUB);
        assert_eq!(told, if is_here { vec![Told::Kicked(Kick::Dropped)] } else { vec![] });
        assert_eq!(world.rig.core.session("subscriber"), None);
        assert!([b's', b'd', b'p', b'i'].iter().all(|message| world.disk.keys(*message) == 0));
        world.advance(Duration::from_secs(1));
        assert_eq!(world.disk.events(), 0, "nobody holds it");
        world.crash();
        assert_eq!(world.rig.attach(SUB, "subscriber", KEPT), Told::Attached { present: false });
    }
}

#[test]
fn a_session_that_is_ended_publishes_its_will_once() {
    let mut world = Logged::new();
    world.rig.attach(SUB, "subscriber", CLEAN);
    subscribe(&mut world, plain("gone", Qos::AtLeastOnce));
    let client = Client { will: Some(will("gone", "bye", Duration::from_secs(60))), ..KEPT };
    world.rig.attach(PUB, "publisher", client);
    drop_session(&mut world, "publisher");
    assert_eq!(drain(&mut world).len(), 1);
    world.advance(Duration::from_secs(100));
    assert_eq!(drain(&mut world).len(), 0);
}
