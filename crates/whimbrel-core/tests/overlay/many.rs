//! Too many brokers for each change of each of them to be looked at by itself.

use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;

use whimbrel_core::{Channel, Input, Link};
use whimbrel_event::{HostId, Qos};
use whimbrel_wire::{BrokerMessage, Frame};

use super::common::{Told, plain};
use super::moving::RETURN;
use super::net::{Net, frame};
use super::{SECOND, is_answered};

const BROKERS: usize = 40;

/// Brokers that begin in the same moment, and are linked in a ring with some links across it.
fn ring(brokers: usize) -> Net {
    let mut net = Net::new(brokers);
    for number in 0..brokers {
        net.join(number, (number + 1) % brokers, Duration::from_millis(1));
        if number % 5 == 0 {
            net.join(number, (number + brokers / 2) % brokers, Duration::from_millis(2));
        }
    }
    net
}

/// All brokers linked with the first.
fn star(brokers: usize) -> Net {
    let mut net = Net::new(brokers);
    (1..brokers).for_each(|number| {
        net.join(0, number, Duration::from_millis(1));
    });
    net.advance(SECOND * 5);
    net
}

fn counted(net: &Net, part: fn(&whimbrel_core::overlay::OverlayStats) -> u64) -> Vec<u64> {
    net.nodes.iter().map(|node| part(&node.core.overlay_stats().expect("it is one of many"))).collect()
}

#[test]
fn many_changes_are_looked_at_together_and_repeated_states_not_at_all() {
    let brokers = 2 * BROKERS;
    let mut net = ring(brokers);
    net.advance(SECOND * 3);
    for node in &net.nodes {
        assert_eq!(node.core.brokers_reached(), brokers);
    }
    let (states, ways) =
        (counted(&net, |stats| stats.net.states_learned), counted(&net, |stats| stats.net.ways_computed));
    for (states, ways) in states.iter().zip(&ways) {
        assert!(*states >= 2 * (brokers as u64 - 1) && 2 * ways < *states, "{ways} times for {states} states");
    }
    net.advance(SECOND * 35);
    let again = counted(&net, |stats| stats.net.states_learned);
    assert!(
        states.iter().zip(&again).all(|(before, after)| before + brokers as u64 - 1 <= *after),
        "they are repeated"
    );
    assert_eq!(counted(&net, |stats| stats.net.ways_computed), ways);
}

/// While not every broker has told every other one its sessions, each search asks all brokers: only
/// one of them may name all of those that it does not know.
#[test]
fn who_comes_to_brokers_that_have_just_begun_is_told_once_who_may_know_more() {
    let mut net = ring(BROKERS);
    let hosts: Vec<HostId> = net.nodes.iter().map(|node| node.core.host()).collect();
    let count = Rc::new(Cell::new([0, 0]));
    let counted = Rc::clone(&count);
    net.drops = Box::new(move |node, _, bytes| {
        if let Some(Frame::MessageFrame(message)) = frame(bytes)
            && message.from == hosts[node]
            && let Ok(BrokerMessage::Found(found)) = BrokerMessage::decode(message.kind, message.body)
        {
            let [answers, names] = counted.get();
            counted.set([answers + 1, names + found.unsynced.len()]);
        }
        false
    });
    (0..BROKERS).for_each(|node| net.begin_attach(node, 1, &format!("c{node}")));
    (0..BROKERS).for_each(|node| net.await_attached(node, 1));
    let [answers, names] = count.get();
    assert!(answers > BROKERS * 10 && names > 0 && names < answers, "{answers} {names}");
}

#[test]
fn a_broker_that_is_gone_is_known_to_be_by_all_at_once() {
    let mut net = ring(BROKERS);
    net.advance(SECOND * 5);
    let gone = net.nodes[7].core.host();
    net.kill(7);
    net.advance(Duration::from_millis(300));
    for (number, node) in net.nodes.iter().enumerate().filter(|(number, _)| *number != 7) {
        assert_eq!((node.core.way_us(gone), node.core.brokers_reached()), (None, BROKERS - 1), "at {number}");
    }
}

#[test]
fn the_one_that_does_not_confirm_is_named_and_not_waited_for_again() {
    let mut net = star(BROKERS);
    net.attach(5, 1, "s");
    net.advance(SECOND);
    net.drops = Box::new(|node, channel, _| node == 17 && channel != Channel::Control && channel != Channel::Datagram);
    net.subscribe(5, 1, plain("a", Qos::AtLeastOnce));
    net.advance(Duration::from_millis(900));
    assert!(!is_answered(&net.told(5, 1)));
    net.advance(Duration::from_millis(200));
    assert!(is_answered(&net.told(5, 1)));
    let pending = net.nodes[5].side.pending.clone();
    assert_eq!(format!("{pending:?}"), "[\"b17\"]");
    // It is late, and is not waited for.
    net.subscribe(5, 1, plain("b", Qos::AtLeastOnce));
    net.advance(Duration::from_millis(200));
    assert!(is_answered(&net.told(5, 1)));
    // When it has reported, it is waited for again.
    net.drops = Box::new(|_, _, _| false);
    net.advance(SECOND * 5);
    net.drops = Box::new(|node, channel, _| node == 17 && channel != Channel::Control && channel != Channel::Datagram);
    net.subscribe(5, 1, plain("c", Qos::AtLeastOnce));
    net.advance(Duration::from_millis(900));
    assert!(!is_answered(&net.told(5, 1)));
}

/// The traffic on all links in ten seconds: frames and bytes; and messages.
fn said_in_ten_seconds(net: &mut Net) -> ((u64, u64), u64) {
    let sent = |net: &Net| {
        let links = net.nodes.iter().flat_map(|node| node.core.links());
        links.fold((0, 0), |(frames, bytes), link| (frames + link.counters.frames_out, bytes + link.counters.bytes_out))
    };
    let letters = |net: &Net| counted(net, |stats| stats.net.messages_out).iter().sum::<u64>();
    let (before, had) = (sent(net), letters(net));
    net.advance(SECOND * 10);
    let after = sent(net);
    ((after.0 - before.0, after.1 - before.1), letters(net) - had)
}

#[test]
fn at_rest_links_carry_probes_and_little_else() {
    let mut net = Net::new(2);
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND * 20);
    let ((frames, bytes), letters) = said_in_ten_seconds(&mut net);
    // Two probes each second from both ends and their echoes, and two link states at most.
    assert!((80..=82).contains(&frames), "{frames} frames");
    assert!(bytes < 80 * 14 + 2 * 100, "{bytes} B");
    assert_eq!(letters, 0);
}

#[test]
fn what_far_brokers_have_answered_is_not_told_again() {
    let mut net = Net::new(3);
    // The round trip takes longer than an answer of a near broker is waited for.
    net.join(0, 1, Duration::from_millis(180));
    net.join(1, 2, Duration::from_millis(180));
    net.advance(SECOND * 10);
    for (node, link) in (0..3).flat_map(|node| (0..4).map(move |link| (node, link))) {
        net.attach(node, link + 1, &format!("client-{node}-{link}"));
    }
    net.advance(SECOND * 10);
    assert_eq!(said_in_ten_seconds(&mut net).1, 0);
    // Ways that have just become long are known to be later than answers are waited for.
    net.delay([0, 1], Duration::from_millis(900));
    net.attach(0, 9, "late");
    net.advance(SECOND * 10);
    assert_eq!(said_in_ten_seconds(&mut net).1, 0);
}

#[test]
fn copies_of_sessions_that_far_brokers_have_taken_are_not_made_again() {
    let mut net = Net::new(3);
    net.join(0, 1, Duration::from_millis(400));
    net.join(1, 2, Duration::from_millis(400));
    net.advance(SECOND * 20);
    for (node, link) in (0..3).flat_map(|node| (0..3).map(move |link| (node, link))) {
        net.connect_as(node, link + 1, &format!("client-{node}-{link}"), RETURN);
        net.await_attached(node, link + 1);
    }
    net.advance(SECOND * 20);
    assert!(net.nodes.iter().all(|node| node.core.is_handed_over()));
    assert_eq!(said_in_ten_seconds(&mut net).1, 0);
}

#[test]
fn who_alone_has_something_new_does_not_wait_for_those_who_have_nothing() {
    let mut net = star(BROKERS);
    net.attach(5, 1, "s");
    net.advance(SECOND);
    for topic in ["a", "b"] {
        net.subscribe(5, 1, plain(topic, Qos::AtLeastOnce));
        net.advance(Duration::from_millis(1));
    }
    net.advance(Duration::from_millis(80));
    let answers = net.told(5, 1).into_iter().filter(|told| matches!(told, Told::Subscribed(_))).count();
    assert_eq!(answers, 2);
    net.input(5, Input::Detach { link: Link(1), publish_will: false, expiry: None });
}
