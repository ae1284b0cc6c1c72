//! A subscriber that moves is told gaps only in streams that may have had an event: their brokers
//! tell since when there was none at all.

use core::time::Duration;

use whimbrel_core::{Durability, Filter, GapClass, Start, SubscriptionSpec};
use whimbrel_event::Qos;

use super::SECOND;
use super::common::plain;
use super::lives::{part, roaming};
use super::net::Net;

/// Three brokers with logs, a publisher at the first, and a durable subscriber with notices at the
/// second.
fn durable() -> Net {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(0, 9, "publisher"), Some(false));
    assert_eq!(net.connect(1, 1, "sub"), Some(false));
    let spec =
        SubscriptionSpec { durability: Durability::Durable, notices: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
    net.subscribe(1, 1, Filter { spec, ..plain("t", Qos::AtLeastOnce) });
    net.advance(SECOND * 2);
    net.told(1, 1);
    net
}

/// The deliveries that a client gets in two seconds, and answers: events, and gaps by their reason
/// and stream.
fn story(net: &mut Net, node: usize) -> Vec<String> {
    let told = net.settled(node, 1, SECOND * 2);
    let line = |payload: String| match part(&payload, "reason") {
        Some(reason) => format!("{reason} in {}", part(&payload, "pubend").expect("it names its stream")),
        None => payload,
    };
    told.into_iter().filter(|payload| !payload.contains("silence")).map(line).collect()
}

fn moves(net: &mut Net, from: usize, to: usize) {
    net.leave(from, 1);
    assert_eq!(net.connect(to, 1, "sub"), Some(true));
}

/// Gaps counted by all brokers: possible losses, best-effort ones, and those of clients.
fn counted(net: &Net, class: GapClass) -> (u64, u64, usize) {
    let cores = || net.nodes.iter().map(|node| &node.core);
    let counts = cores().map(|core| core.gap_counts());
    let (lost, best_effort) = counts.fold((0, 0), |sum, one| (sum.0 + one.lost(class), sum.1 + one.best_effort()));
    (lost, best_effort, cores().map(|core| core.gappy_clients().len()).sum())
}

#[test]
fn who_moves_among_silent_streams_of_best_effort_is_told_nothing() {
    let mut net = durable();
    let mut at = 1;
    for (number, to) in [2, 0, 1, 2, 1].into_iter().enumerate() {
        let payload = number.to_string();
        net.publish(0, 9, "t", &payload, Qos::AtLeastOnce);
        moves(&mut net, at, to);
        at = to;
        assert_eq!(story(&mut net, at), [payload]);
    }
    assert_eq!(counted(&net, GapClass::Durable), (0, 0, 0));
}

#[test]
fn where_there_was_something_of_best_effort_it_is_told_once_as_that_and_never_as_lost() {
    let mut net = durable();
    net.leave(1, 1);
    net.publish(0, 9, "t", "with no promise", Qos::AtMostOnce);
    net.publish(0, 9, "t", "safe", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    let mut told = story(&mut net, 2);
    told.sort();
    let [gap, event] = &told[..] else { panic!("{told:?}") };
    assert!(gap.starts_with("best-effort in ") && event == "safe", "{told:?}");
    moves(&mut net, 2, 1);
    assert_eq!(story(&mut net, 1), Vec::<String>::new(), "it has been told, and there was nothing since");
    assert_eq!(counted(&net, GapClass::Durable), (0, 1, 0));
}

/// Events that the new broker had no interest in are a gap of a semi-durable subscription, if there
/// were any.
#[test]
fn a_reliable_stream_is_told_only_if_there_was_something_in_it() {
    for published in [0_usize, 1] {
        let mut net = Net::mesh(3);
        assert_eq!(net.connect(0, 9, "publisher"), Some(false));
        net.attach(1, 1, "s");
        let start = net.begins(1, 1, roaming(Start::Own));
        net.input(1, whimbrel_core::Input::Detach { link: whimbrel_core::Link(1), publish_will: false, expiry: None });
        for _ in 0..published {
            net.publish(0, 9, "a", "missed", Qos::AtLeastOnce);
        }
        net.advance(SECOND);
        net.attach(2, 1, "s");
        net.subscribe(2, 1, roaming(Start::Token(&start, &[])));
        let told = story(&mut net, 2);
        assert_eq!(told.len(), published, "{told:?}");
        assert!(told.iter().all(|told| told.starts_with("not-buffered in ")), "{told:?}");
        assert_eq!(counted(&net, GapClass::SemiDurable), (published as u64, 0, published));
    }
}

/// A restarted broker does not know its earlier best-effort events: they were not written.
#[test]
fn what_a_restarted_broker_cannot_know_is_told_of_best_effort_and_not_lost() {
    let mut net = durable();
    net.leave(1, 1);
    net.kill(0);
    net.advance(Duration::from_millis(500));
    net.revive(0, true);
    net.advance(SECOND * 3);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    let told = story(&mut net, 2);
    assert!(told.iter().all(|told| told.starts_with("best-effort in ")), "{told:?}");
    assert_eq!(counted(&net, GapClass::Durable), (0, told.len() as u64, 0));
    moves(&mut net, 2, 1);
    assert_eq!(story(&mut net, 1), Vec::<String>::new());
}
