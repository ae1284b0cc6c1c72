//! Nodes find each other, and lose each other.

use core::time::Duration;

use whimbrel_event::HostId;
use whimbrel_net::link::estimate::LINK_DEAD_AFTER;
use whimbrel_net::topology::{REFRESH_EVERY, STATE_LIFETIME};
use whimbrel_net::{ANNOUNCE_EVERY, HangUp};

use crate::fabric::Fabric;
use crate::fabric::node::{Setup, host_of};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Ten nodes in a ring with three chords.
fn ten() -> Fabric {
    let mut fabric = Fabric::of(10);
    for number in 0..10 {
        fabric.link([number, (number + 1) % 10], MILLI * (1 + number as u32 % 3));
    }
    for chord in [[0, 5], [2, 7], [4, 9]] {
        fabric.link(chord, MILLI * 4);
    }
    fabric
}

#[test]
fn ten_nodes_find_each_other() {
    let mut fabric = ten();
    let took = fabric.run_until(SECOND, Fabric::is_complete).expect("they find each other");
    assert!(took < ANNOUNCE_EVERY + MILLI * 20, "{took:?}");
    fabric.run(SECOND * 3);
    let hosts: Vec<HostId> = (0..10).map(host_of).collect();
    for number in 0..10 {
        let net = &fabric.node(number).net;
        assert_eq!(net.topology().hosts().collect::<Vec<_>>(), hosts);
        assert_eq!(net.neighbours().count(), [3, 2, 3, 2, 3, 3, 2, 3, 2, 3][number]);
        let told = &fabric.node(number).told;
        let mut known: Vec<HostId> = told.known.iter().filter(|(_, before)| !before).map(|(host, _)| *host).collect();
        known.sort_unstable();
        assert_eq!(known, hosts.iter().copied().filter(|host| *host != host_of(number)).collect::<Vec<_>>());
        assert_eq!(net.stats().frames_invalid, 0);
        // The delay is measured: 1 to 4 ms on each link of a path.
        let cost = net.routes().cost_us(host_of((number + 1) % 10)).expect("there is a path");
        assert!((1_000..10_000).contains(&cost), "{cost}");
    }
}

#[test]
fn a_node_is_told_once_that_it_has_joined() {
    let mut fabric = ten();
    fabric.run(SECOND * 10);
    for number in 0..10 {
        assert_eq!(fabric.node(number).told.joined, 1, "node {number}");
    }
    let late = fabric.add(Setup::named("late"));
    fabric.run(MILLI * 100);
    assert!(fabric.node(late).net.is_young(fabric.now) && fabric.node(late).net.lacks_everyone());
    fabric.link([late, 3], MILLI * 2);
    let joined = |fabric: &Fabric| fabric.node(late).told.joined == 1;
    let took = fabric.run_until(SECOND, joined).expect("it joins");
    let reaches = |number| fabric.node(late).net.routes().is_reachable(host_of(number));
    assert!((0..10).all(reaches), "it has joined when it knows all");
    assert!(took < MILLI * 20, "{took:?}");
    assert!(!fabric.node(late).net.is_young(fabric.now) && !fabric.node(late).net.knows_no_others());
    fabric.run(SECOND * 10);
    for number in 0..=late {
        assert_eq!(fabric.node(number).told.joined, 1, "node {number}");
    }
}

#[test]
fn a_node_without_links_is_young_for_the_configured_time() {
    let expecting = Setup { young_for: MILLI * 700, ..Setup::named("expecting") };
    let alone = Setup { expects_peers: false, ..Setup::named("alone") };
    let mut fabric = Fabric::new([expecting, alone]);
    let young = |fabric: &Fabric| [0, 1].map(|number| fabric.node(number).net.is_young(fabric.now));
    assert_eq!(young(&fabric), [true, false]);
    fabric.run(MILLI * 699);
    assert_eq!(young(&fabric), [true, false]);
    fabric.run(MILLI);
    assert_eq!(young(&fabric), [false, false]);
    let lacks = [0, 1].map(|number| fabric.node(number).net.lacks_everyone());
    assert_eq!(lacks, [true, false], "it has never had a link, and expects one");
    assert_eq!([0, 1].map(|number| fabric.node(number).told.joined), [0, 0]);
}

#[test]
fn a_node_waits_for_a_path_to_each_named_broker_while_it_is_young() {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.run(SECOND);
    fabric.close(1);
    fabric.run(SECOND);
    let late = fabric.add(Setup { young_for: SECOND * 4, ..Setup::named("late") });
    fabric.link([late, 1], MILLI);
    fabric.run(SECOND * 3);
    let net = &fabric.node(late).net;
    assert!(net.topology().get(host_of(2)).is_some() && !net.routes().is_reachable(host_of(2)));
    assert_eq!((net.is_young(fabric.now), fabric.node(late).told.joined), (true, 0));
    // When it is no longer young, the next link state of any broker ends the waiting.
    fabric.run(REFRESH_EVERY + SECOND * 5);
    let node = fabric.node(late);
    assert_eq!((node.net.is_young(fabric.now), node.net.knows_no_others(), node.told.joined), (false, false, 1));
}

#[test]
fn a_silent_link_is_hung_up_by_both_ends() {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.run(SECOND);
    fabric.cut(1);
    let before = LINK_DEAD_AFTER - MILLI * 500;
    fabric.run(before);
    assert!((0..3).all(|number| fabric.hung_up(number).is_empty()));
    fabric.run(SECOND * 2);
    let reasons = [0, 1, 2].map(|number| fabric.hung_up(number).iter().map(|(_, why)| *why).collect::<Vec<_>>());
    assert_eq!(reasons, [vec![], vec![HangUp::Silent], vec![HangUp::Silent]]);
    for number in 0..3 {
        let stats = fabric.node(number).net.stats();
        assert_eq!(stats.hang_ups[HangUp::Silent as usize], u64::from(number > 0));
        assert_eq!(stats.links_lost, u64::from(number > 0));
    }
    assert!(!fabric.node(0).net.routes().is_reachable(host_of(2)), "the others have been told");
    fabric.heal(1);
    fabric.run(SECOND);
    assert!(fabric.is_complete());
}

#[test]
fn a_node_that_is_away_too_long_expires_and_is_new_when_it_is_back() {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.run(SECOND);
    fabric.close(1);
    fabric.run(STATE_LIFETIME + SECOND * 31);
    for number in [0, 1] {
        assert_eq!(fabric.node(number).told.expired, [host_of(2)]);
        assert_eq!(fabric.node(number).net.stats().brokers_expired, 1);
        assert!(fabric.node(number).net.topology().get(host_of(2)).is_none());
    }
    fabric.heal(1);
    fabric.run(SECOND);
    assert!(fabric.is_complete());
    let news = |number: usize| fabric.node(number).told.known.iter().filter(|(host, _)| *host == host_of(2));
    assert_eq!(news(0).filter(|(_, was_known)| !was_known).count(), 2);
    assert_eq!(fabric.node(0).told.refreshed, 26, "every five seconds");
}

#[test]
fn links_to_further_nodes_are_asked_for_until_there_are_enough() {
    let eager = Setup { links_wanted: 3, ..Setup::named("eager") };
    let mut fabric = Fabric::new([eager].into_iter().chain((1..5).map(|number| Setup::named(format!("b{number}")))));
    for pair in [[0, 1], [1, 2], [2, 3], [3, 4]] {
        fabric.link(pair, MILLI);
    }
    fabric.run(SECOND * 6);
    let dial = |number| (format!("b{number}"), format!("b{number}:1"));
    assert_eq!(fabric.dials(0), [dial(2), dial(3)], "no link to b1, which there is");
    fabric.link([0, 2], MILLI);
    fabric.link([0, 4], MILLI);
    fabric.run(SECOND * 20);
    assert_eq!(fabric.dials(0).len(), 2);
}
