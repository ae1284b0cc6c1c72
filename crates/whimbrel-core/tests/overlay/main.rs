//! Several brokers: links, interest, and events from one to the others.

mod ages;
mod coming;
#[path = "../common/mod.rs"]
mod common;
mod copied;
mod copies;
mod deadlines;
#[path = "../durable/disk.rs"]
mod disk;
mod domains;
mod doubt;
mod early;
mod expected;
mod holes;
mod interest;
mod leaving;
mod lives;
mod look;
mod many;
mod moving;
mod net;
mod options;
mod owners;
mod predecessors;
mod proof;
mod restarts;
mod resume;
mod shares;
mod still;

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use common::{CLEAN, Client, Told, event, plain};
use net::Net;
use whimbrel_core::{Attach, Filter, Input, Link, Publish};
use whimbrel_event::Qos;
use whimbrel_selector::Selector;
use whimbrel_wire::Frame;

const SECOND: Duration = Duration::from_secs(1);

impl Net {
    fn attach(&mut self, node: usize, link: u32, client_id: &str) {
        self.begin_attach(node, link, client_id);
        self.await_attached(node, link);
    }

    fn begin_attach(&mut self, node: usize, link: u32, client_id: &str) {
        let Client { clean: clean_start, expiry, window, .. } = CLEAN;
        let attach = Attach {
            link: Link(link),
            client_id,
            clean_start,
            expiry,
            window: window.max(200),
            will: None,
            without_copy: false,
            principal: None,
        };
        self.input(node, Input::Attach(attach));
    }

    /// Lets time pass until a connection has its session, which may be at another broker.
    fn await_attached(&mut self, node: usize, link: u32) {
        let is_answered = |net: &Net| {
            let told = net.nodes[node].side.edges.told.get(&link);
            told.is_some_and(|told| told.iter().any(|told| matches!(told, Told::Attached { .. } | Told::Refused(_))))
        };
        for _ in 0..5_000 {
            if is_answered(self) {
                return;
            }
            self.advance(Duration::from_millis(1));
        }
        panic!("a connection is answered");
    }

    fn subscribe(&mut self, node: usize, link: u32, filter: Filter<'_>) {
        self.input(node, Input::Subscribe { link: Link(link), tag: 1, filters: &[filter] });
    }

    fn publish(&mut self, node: usize, link: u32, topic: &str, payload: &str, qos: Qos) {
        let tag = if qos == Qos::AtMostOnce { 0 } else { 77 };
        let event = event(topic, payload, qos);
        self.input(node, Input::Publish(Publish { link: Link(link), tag, retain: false, number: None, event: &event }));
    }

    fn told(&mut self, node: usize, link: u32) -> Vec<Told> {
        self.nodes[node].side.edges.told.remove(&link).unwrap_or_default()
    }

    fn payloads(&mut self, node: usize, link: u32) -> Vec<String> {
        let told = self.told(node, link);
        told.into_iter().filter_map(|told| if let Told::Event(got) = told { Some(got.payload) } else { None }).collect()
    }
}

fn is_answered(told: &[Told]) -> bool {
    told.iter().any(|told| matches!(told, Told::Subscribed(_)))
}

#[test]
fn an_event_goes_to_another_broker_that_wants_it_and_to_no_other() {
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let mut net = Net::line(3);
        net.attach(2, 1, "s");
        net.attach(0, 1, "p");
        net.subscribe(2, 1, plain("a/+", qos));
        assert!(!is_answered(&net.told(2, 1)), "others have to know first");
        net.advance(Duration::from_millis(10));
        let told = net.told(2, 1);
        assert!(is_answered(&told), "{told:?}");
        assert!(net.nodes[2].side.pending.is_empty(), "{:?}", net.nodes[2].side.pending);
        net.publish(0, 1, "a/b", "one", qos);
        net.publish(0, 1, "b", "other", qos);
        net.publish(0, 1, "a/c", "two", qos);
        net.advance(Duration::from_millis(3));
        assert_eq!(net.payloads(2, 1), ["one", "two"], "{qos:?}");
        net.advance(SECOND);
        assert_eq!(net.payloads(2, 1), [""; 0]);
        let received = [1, 2].map(|node| net.nodes[node].core.overlay_stats().unwrap().events_received);
        assert_eq!(received, [0, 2]);
    }
}

#[test]
fn selectors_are_told_to_other_brokers() {
    let mut net = Net::line(2);
    net.attach(1, 1, "s");
    net.attach(0, 1, "p");
    let selector = Selector::parse("JMSPriority > 7").unwrap();
    net.subscribe(1, 1, Filter { selector: Some(&selector), ..plain("a", Qos::AtLeastOnce) });
    net.advance(SECOND);
    for importance in [5, 9, 3, 8] {
        let event = whimbrel_event::EventRef { importance, ..event("a", "x", Qos::AtLeastOnce) };
        net.input(0, Input::Publish(Publish { link: Link(1), tag: 7, retain: false, number: None, event: &event }));
    }
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 1).len(), 2);
    assert_eq!(net.nodes[1].core.overlay_stats().unwrap().events_received, 2);
}

#[test]
fn what_is_lost_on_a_link_is_asked_for_and_comes_in_order() {
    let mut net = Net::line(3);
    net.attach(2, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(2, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(2, 1);
    let mut count = 0;
    net.drops = Box::new(move |node, channel, _| {
        count += 1;
        node == 0 && channel == whimbrel_core::Channel::Reliable && count % 3 != 0
    });
    let wanted: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    for payload in &wanted {
        net.publish(0, 1, "a", payload, Qos::AtLeastOnce);
        net.advance(Duration::from_millis(2));
    }
    net.drops = Box::new(|_, _, _| false);
    net.advance(SECOND * 3);
    assert_eq!(net.payloads(2, 1), wanted);
    assert!(net.nodes[2].core.overlay_stats().unwrap().nacks_out > 0);
}

#[test]
fn a_link_that_is_down_is_gone_round() {
    let mut net = Net::new(3);
    let direct = net.join(0, 2, Duration::from_millis(1));
    net.join(0, 1, Duration::from_millis(5));
    net.join(1, 2, Duration::from_millis(5));
    net.advance(SECOND * 2);
    net.attach(2, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(2, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(2, 1);
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.close(direct);
    net.publish(0, 1, "a", "two", Qos::AtLeastOnce);
    net.advance(SECOND);
    net.publish(0, 1, "a", "three", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(2, 1), ["one", "two", "three"]);
}

#[test]
fn after_a_partition_everything_comes() {
    let mut net = Net::line(2);
    net.attach(1, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(1, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(1, 1);
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    net.close(0);
    for pause in [30, 200] {
        net.publish(0, 1, "a", "two", Qos::AtLeastOnce);
        net.advance(SECOND * pause);
        net.publish(0, 1, "a", "three", Qos::AtLeastOnce);
        assert!(net.payloads(1, 1).iter().all(|payload| payload == "one"));
        let wire = net.join(0, 1, Duration::from_millis(1));
        net.advance(SECOND * 2);
        assert_eq!(net.payloads(1, 1), ["two", "three"], "after {pause} s");
        net.close(wire);
    }
}

#[test]
fn a_broker_that_restarts_loses_nothing_that_comes_later() {
    let mut net = Net::line(3);
    net.attach(2, 1, "s");
    net.subscribe(2, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(2, 1);
    net.restart(0, 99);
    net.advance(SECOND * 3);
    net.join(0, 1, Duration::from_millis(1));
    net.attach(0, 1, "p");
    net.advance(Duration::from_millis(1));
    // Before its interest can have been told.
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    net.publish(0, 1, "a", "two", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(2, 1), ["one", "two"]);
}

#[test]
fn who_subscribes_first_gets_nothing_from_before() {
    let mut net = Net::line(2);
    net.attach(0, 1, "p");
    net.publish(0, 1, "a", "before", Qos::AtLeastOnce);
    net.advance(SECOND * 40);
    net.publish(0, 1, "a", "just before", Qos::AtLeastOnce);
    net.attach(1, 1, "s");
    net.subscribe(1, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.publish(0, 1, "a", "after", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 1), ["after"]);
    net.input(1, Input::Unsubscribe { link: Link(1), tag: 2, filters: &["a"] });
    net.advance(SECOND * 40);
    net.publish(0, 1, "a", "between", Qos::AtLeastOnce);
    net.advance(SECOND);
    net.subscribe(1, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.publish(0, 1, "a", "again", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 1), ["again"]);
}

#[test]
fn neighbours_tell_each_other_their_versions() {
    let mut net = Net::line(3);
    net.advance(SECOND);
    let versions = |node: usize| {
        let mut told: Vec<_> = net.nodes[node].core.links().into_iter().map(|link| (link.name, link.version)).collect();
        told.sort();
        told.into_iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>()
    };
    assert_eq!(versions(1), ["b0 of b0", "b2 of b2"]);
    assert_eq!(versions(0), ["b1 of b1"]);
}

/// The link state of a broker of a later version, behind its length.
fn later_state() -> Vec<u8> {
    let protocol = whimbrel_wire::Protocol { minor: 7, features: 0b101 };
    let mut bytes = Vec::new();
    Frame::LinkState(whimbrel_wire::LinkStateFrame {
        host: whimbrel_event::HostId::new(0xabc0),
        incarnation: 1,
        sequence: 1,
        name: "later",
        reliable: 1,
        further: 1,
        birth: whimbrel_event::Tick(1),
        age_ms: 0,
        addresses: Vec::new(),
        neighbours: Vec::new(),
        previous: Vec::new(),
        domains: Default::default(),
        protocol,
        later: b"what it adds",
    })
    .encode(&mut bytes);
    bytes
}

#[test]
fn a_link_state_is_passed_on_with_what_is_not_known_of_it() {
    let mut net = Net::line(3);
    let passed = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&passed);
    net.drops = Box::new(move |from, _, bytes| {
        if let Some(Frame::LinkState(state)) = net::frame(bytes).filter(|_| from == 1) {
            seen.borrow_mut().push((state.name.to_owned(), state.protocol, state.later.to_vec()));
        }
        false
    });
    let (_, link) = net.ends(0)[1];
    let (channel, bytes) = (whimbrel_core::Channel::Control, later_state());
    net.input(1, Input::Peer(whimbrel_core::PeerInput::Bytes { link, channel, bytes: &bytes }));
    let protocol = whimbrel_wire::Protocol { minor: 7, features: 0b101 };
    assert_eq!(*passed.borrow(), [("later".to_owned(), protocol, b"what it adds".to_vec())]);
    // What this version tells of itself says what it speaks.
    net.advance(SECOND * 40);
    let own = passed.borrow().iter().find(|(name, ..)| name == "b1").cloned();
    assert_eq!(own, Some(("b1".to_owned(), whimbrel_wire::Protocol::OWN, Vec::new())));
}

#[test]
fn a_name_is_taken_once_and_a_broker_does_not_link_with_itself() {
    let mut net = Net::new(3);
    net.nodes[2].core = whimbrel_core::Broker::new(whimbrel_core::Limits::default(), 99, net.now);
    net.nodes[2].core.open_overlay(net.now, net::config("b1"));
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND);
    net.join(0, 2, Duration::from_millis(1));
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND);
    let links: Vec<_> = net.nodes[0].core.links().into_iter().map(|link| link.name.into_string()).collect();
    assert_eq!(links, ["b1"]);
    assert_eq!(net.nodes[0].core.topology(net.now).len(), 2);
    assert_eq!(net.nodes[1].core.links().len(), 1, "one of two links between the same brokers stays");
}

#[test]
fn retained_messages_are_the_same_everywhere() {
    let mut net = Net::line(3);
    net.attach(0, 1, "p");
    let retain = |net: &mut Net, node: usize, payload: &str| {
        let event = event("state/x", payload, Qos::AtLeastOnce);
        net.input(node, Input::Publish(Publish { link: Link(1), tag: 7, retain: true, number: None, event: &event }));
    };
    retain(&mut net, 0, "one");
    net.advance(SECOND);
    net.attach(2, 2, "s");
    net.subscribe(2, 2, plain("state/#", Qos::AtLeastOnce));
    net.advance(SECOND);
    assert_eq!(net.payloads(2, 2), ["one"]);
    net.attach(2, 1, "q");
    retain(&mut net, 2, "two");
    net.advance(SECOND);
    assert_eq!(net.payloads(2, 2), ["two"]);
    net.attach(0, 3, "t");
    net.subscribe(0, 3, plain("state/#", Qos::AtLeastOnce));
    net.advance(SECOND);
    assert_eq!(net.payloads(0, 3), ["two"]);
    // Away while it is deleted.
    net.close(1);
    retain(&mut net, 0, "");
    net.advance(SECOND * 5);
    net.join(1, 2, Duration::from_millis(1));
    net.advance(SECOND * 3);
    net.attach(2, 4, "u");
    net.subscribe(2, 4, plain("state/#", Qos::AtLeastOnce));
    net.advance(SECOND);
    assert_eq!(net.payloads(2, 4), [""; 0]);
}

#[test]
fn what_a_full_link_does_not_take_is_asked_for() {
    let mut net = Net::line(2);
    net.attach(1, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(1, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(1, 1);
    let link = net.ends(0)[0].1;
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    let reliable = whimbrel_core::Channel::Reliable;
    net.room(0, link, reliable, 8 << 20);
    net.publish(0, 1, "a", "two", Qos::AtLeastOnce);
    net.room(0, link, reliable, 0);
    net.publish(0, 1, "a", "three", Qos::AtLeastOnce);
    net.advance(Duration::from_millis(2));
    assert_eq!(net.payloads(1, 1), ["one"], "a hole is waited for");
    assert_eq!(net.nodes[0].core.links()[0].counters.events_held_back, 1);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 1), ["two", "three"]);
}

#[test]
fn a_last_event_that_is_lost_is_noticed() {
    let mut net = Net::line(2);
    net.attach(1, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(1, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(1, 1);
    net.drops = Box::new(|node, channel, _| node == 0 && channel == whimbrel_core::Channel::Reliable);
    net.publish(0, 1, "a", "last", Qos::AtLeastOnce);
    net.drops = Box::new(|_, _, _| false);
    net.advance(Duration::from_millis(200));
    assert_eq!(net.payloads(1, 1), ["last"]);
}

#[test]
fn who_does_not_know_of_a_subscription_in_time_is_named() {
    let mut net = Net::line(2);
    net.attach(0, 1, "s");
    net.drops = Box::new(|node, _, _| node == 0);
    net.subscribe(0, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND - Duration::from_millis(1));
    assert!(!is_answered(&net.told(0, 1)));
    net.advance(Duration::from_millis(2));
    assert!(is_answered(&net.told(0, 1)));
    assert_eq!(net.nodes[0].side.pending, ["b1".into()]);
    // It is not waited for again before it has reported that it knows.
    net.subscribe(0, 1, plain("b", Qos::AtLeastOnce));
    net.advance(Duration::from_millis(100));
    assert!(is_answered(&net.told(0, 1)));
    assert_eq!(net.nodes[0].side.pending, ["b1".into()]);
}

#[test]
fn clocks_that_are_years_apart_do_no_harm() {
    let mut net = Net::new(2);
    net.nodes[1].ahead = SECOND * 3600 * 24 * 365 * 5;
    let now = net.now.after(net.nodes[1].ahead);
    net.nodes[1].core = whimbrel_core::Broker::new(whimbrel_core::Limits::default(), 9, now);
    net.nodes[1].core.open_overlay(now, net::config("b1"));
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND);
    for (from, to) in [(0, 1), (1, 0)] {
        net.attach(to, 1, "s");
        net.attach(from, 2, "p");
        net.subscribe(to, 1, plain("a", Qos::AtLeastOnce));
        net.advance(SECOND);
        assert!(is_answered(&net.told(to, 1)));
        let life = SECOND * 10;
        let expires = Some(net.now.after(net.nodes[from].ahead).after(life));
        let event = whimbrel_event::EventRef { expires, ..event("a", "x", Qos::AtLeastOnce) };
        net.input(from, Input::Publish(Publish { link: Link(2), tag: 7, retain: false, number: None, event: &event }));
        net.advance(SECOND);
        assert_eq!(net.payloads(to, 1), ["x"]);
        assert_eq!(net.nodes[from].core.overlay_stats().unwrap().net.clocks_apart, 1);
    }
}

#[test]
fn garbage_from_another_broker_ends_its_link_and_nothing_else() {
    let mut net = Net::line(3);
    let (_, link) = net.ends(0)[1];
    let bytes = [5, 200, 1, 2, 3, 4];
    net.input(
        1,
        Input::Peer(whimbrel_core::PeerInput::Bytes { link, channel: whimbrel_core::Channel::Control, bytes: &bytes }),
    );
    net.advance(SECOND);
    let names: Vec<_> = net.nodes[1].core.links().into_iter().map(|link| link.name.into_string()).collect();
    assert_eq!(names, ["b2"]);
    let stats = net.nodes[1].core.overlay_stats().unwrap();
    assert_eq!((stats.net.frames_invalid, stats.net.hang_ups[whimbrel_core::HangUp::Garbage as usize]), (1, 1));
}

#[test]
fn a_log_that_fails_makes_another_host_that_is_followed_again() {
    let mut net = Net::line(2);
    net.input(0, Input::Disk(whimbrel_core::store::Disk::Open));
    net.attach(1, 1, "s");
    net.subscribe(1, 1, plain("a", Qos::AtLeastOnce));
    net.attach(0, 1, "p");
    net.advance(SECOND);
    net.told(1, 1);
    net.input(0, Input::Disk(whimbrel_core::store::Disk::Poisoned));
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND * 3);
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND * 3);
    net.attach(0, 2, "q");
    net.publish(0, 2, "a", "after", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 1), ["after"]);
}
