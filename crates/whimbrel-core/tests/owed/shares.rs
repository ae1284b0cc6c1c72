//! Durable shared subscriptions with members at several brokers: nothing is lost when any broker is
//! the home, dies or takes over.

use std::collections::BTreeSet;

use super::common::{CLEAN, Client, plain};
use super::net::Net;
use super::{PUB, SECOND, WIDE};
use whimbrel_core::{Attach, Input, Link};
use whimbrel_event::Qos;

const MEMBER: u32 = 5;

/// Three brokers, each linked with each, with a publisher at the first.
fn mesh() -> Net {
    let mut net = Net::moving(3);
    net.join(0, 2);
    net.advance(SECOND * 3);
    net.attach(0, PUB, "publisher", CLEAN);
    net
}

fn enter(net: &mut Net, node: usize, text: &str) {
    net.attach(node, MEMBER, &format!("member-{node}"), WIDE);
    net.subscribe(node, MEMBER, plain(text, Qos::AtLeastOnce));
    // Only those that are out of reach.
    let is_down = |name: &str| (0..3).any(|node| net.nodes[node].is_down && *name == *format!("b{node}"));
    assert!(net.nodes[node].side.pending.iter().all(|name| is_down(name)), "{:?}", net.nodes[node].side.pending);
}

/// A shared subscription with its home at this broker.
fn text_of(net: &mut Net, home: usize) -> String {
    net.attach(0, 9, "scout", CLEAN);
    for number in 0..100 {
        let text = format!("$share/g{number}/t/#");
        net.subscribe(0, 9, plain(&text, Qos::AtLeastOnce));
        if net.nodes[home].core.shared_home(&text) {
            net.detach(0, 9);
            net.advance(SECOND);
            return text;
        }
    }
    panic!("no hash leads to b{home}");
}

fn publish(net: &mut Net, numbers: std::ops::Range<u32>) -> BTreeSet<String> {
    let payloads: Vec<String> = numbers.map(|number| format!("{number:03}")).collect();
    for payload in &payloads {
        net.publish(0, PUB, "t/a", payload);
        net.advance(SECOND / 100);
    }
    payloads.into_iter().collect()
}

/// The payloads that members get and acknowledge in a number of seconds.
fn work(net: &mut Net, nodes: &[usize], seconds: u32) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..seconds * 10 {
        net.advance(SECOND / 10);
        for node in nodes {
            all.extend(net.payloads(*node, MEMBER));
        }
    }
    all
}

fn homes(net: &Net, text: &str) -> Vec<usize> {
    (0..3).filter(|node| !net.nodes[*node].is_down && net.nodes[*node].core.shared_home(text)).collect()
}

#[test]
fn durable_members_at_several_brokers_get_each_event_once() {
    let mut net = mesh();
    let text = text_of(&mut net, 1);
    for node in 0..3 {
        enter(&mut net, node, &text);
    }
    let wanted = publish(&mut net, 0..30);
    let got = work(&mut net, &[0, 1, 2], 3);
    assert_eq!(got.len(), 30, "{got:?}");
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), wanted);
    net.advance(SECOND * 3);
    assert_eq!(net.nodes[0].disk.events(), 0, "what is settled everywhere is given up");
}

#[test]
fn what_nobody_has_acknowledged_outlives_the_home() {
    let mut net = mesh();
    let text = text_of(&mut net, 2);
    for node in 0..2 {
        enter(&mut net, node, &text);
    }
    net.advance(SECOND);
    assert_eq!(homes(&net, &text), [2]);
    let mut wanted = publish(&mut net, 0..10);
    net.advance(SECOND);
    net.kill(2);
    net.advance(SECOND * 5);
    wanted.extend(publish(&mut net, 10..20));
    let got = work(&mut net, &[0, 1], 20);
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(homes(&net, &text).len(), 1);
}

#[test]
fn a_position_goes_to_a_new_home_while_nobody_is_there() {
    let mut net = mesh();
    let text = text_of(&mut net, 2);
    net.kill(2);
    net.advance(SECOND * 3);
    for node in 0..2 {
        enter(&mut net, node, &text);
    }
    for node in 0..2 {
        net.detach(node, MEMBER);
    }
    let wanted = publish(&mut net, 0..10);
    net.revive(2);
    net.join(1, 2);
    net.join(0, 2);
    net.advance(SECOND * 20);
    assert_eq!(homes(&net, &text), [2]);
    // Events that arrive at once count as well.
    let Client { expiry, window, .. } = WIDE;
    let (link, client_id) = (Link(MEMBER), "member-0");
    let attach = Attach {
        link,
        client_id,
        clean_start: false,
        expiry,
        window,
        will: None,
        without_copy: false,
        principal: None,
    };
    net.input(0, Input::Attach(attach));
    let got = work(&mut net, &[0], 5);
    assert_eq!(got.iter().cloned().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(got.len(), 10, "the old home gave all of it away: {got:?}");
}
