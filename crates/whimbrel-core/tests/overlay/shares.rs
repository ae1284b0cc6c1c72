//! Shared subscriptions with members at several brokers.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Filter, Input, Link, Refusal, Settlement};
use whimbrel_event::Qos::{self, AtLeastOnce, AtMostOnce};
use whimbrel_selector::Selector;

use super::SECOND;
use super::common::{Told, plain};
use super::net::Net;

const SHARE: &str = "$share/g/t/#";
/// The links of members, and of the publisher.
const MEMBER: u32 = 3;
const PUBLISHER: u32 = 1;

/// Brokers in a full mesh, with a publisher at each.
fn mesh(count: usize) -> Net {
    let mut net = Net::new(count);
    for one in 0..count {
        for other in one + 1..count {
            net.join(one, other, Duration::from_millis(1));
        }
    }
    net.advance(SECOND * 3);
    for node in 0..count {
        net.attach(node, PUBLISHER, &format!("publisher-{node}"));
    }
    net
}

impl Net {
    fn enter(&mut self, node: usize, link: u32, filter: Filter<'_>) {
        self.attach(node, link, &format!("member-{node}-{link}"));
        self.subscribe(node, link, filter);
    }

    /// The answer to a SUBSCRIBE, and other output to the client so far.
    fn granted(&mut self, node: usize, link: u32) -> Option<Result<Qos, Refusal>> {
        let told = self.told(node, link);
        told.into_iter().find_map(|told| match told {
            Told::Subscribed(results) => Some(results[0].clone().map(|granted| granted.qos)),
            _ => None,
        })
    }

    /// The payloads that a member has got, and acknowledges.
    fn work(&mut self, node: usize, link: u32) -> Vec<String> {
        let mut all = Vec::new();
        for told in self.told(node, link) {
            let Told::Event(got) = told else { continue };
            if got.qos == AtLeastOnce {
                self.input(node, Input::Settle { link: Link(link), tag: got.tag, by: Settlement::Acknowledged });
            }
            all.push(got.payload);
        }
        all
    }

    /// The payloads that all these members get and acknowledge within a time.
    fn work_all(&mut self, members: &[(usize, u32)], span: Duration) -> BTreeMap<(usize, u32), Vec<String>> {
        let mut all: BTreeMap<(usize, u32), Vec<String>> = BTreeMap::new();
        for _ in 0..20 {
            self.advance(span / 20);
            for (node, link) in members {
                let got = self.work(*node, *link);
                all.entry((*node, *link)).or_default().extend(got);
            }
        }
        all
    }
}

fn sorted(all: &BTreeMap<(usize, u32), Vec<String>>) -> Vec<String> {
    let mut payloads: Vec<String> = all.values().flatten().cloned().collect();
    payloads.sort();
    payloads
}

fn numbered(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("{number:03}")).collect()
}

/// The broker whose interest has the shared subscription.
fn home(net: &Net) -> usize {
    let is_home = |node: &usize| net.nodes[*node].core.shared_home(SHARE);
    let all: Vec<usize> = (0..net.nodes.len()).filter(is_home).collect();
    assert_eq!(all.len(), 1, "one broker is the home: {all:?}");
    all[0]
}

#[test]
fn members_at_three_brokers_get_each_event_once_in_all() {
    for qos in [AtMostOnce, AtLeastOnce] {
        let mut net = mesh(3);
        let members = [(0, MEMBER), (1, MEMBER), (2, MEMBER)];
        for (node, link) in members {
            net.enter(node, link, plain(SHARE, qos));
        }
        net.advance(SECOND);
        for (node, link) in members {
            assert_eq!(net.granted(node, link), Some(Ok(qos)));
            assert!(net.nodes[node].side.pending.is_empty(), "{:?}", net.nodes[node].side.pending);
        }
        for payload in numbered(0..60) {
            let at = payload.parse::<usize>().expect("a number") % 3;
            net.publish(at, PUBLISHER, "t/a", &payload, qos);
        }
        let got = net.work_all(&members, SECOND * 2);
        assert_eq!(sorted(&got), numbered(0..60), "{qos:?}");
        home(&net);
    }
}

#[test]
fn one_broker_alone_wants_the_events_of_a_shared_subscription() {
    let mut net = mesh(3);
    for node in 0..3 {
        net.enter(node, MEMBER, plain(SHARE, AtLeastOnce));
    }
    net.advance(SECOND);
    let home = home(&net);
    let publisher = (home + 1) % 3;
    net.publish(publisher, PUBLISHER, "t/a", "x", AtLeastOnce);
    net.advance(SECOND);
    let received = |node: usize| net.nodes[node].core.overlay_stats().expect("one of several").events_received;
    assert_eq!((0..3).map(received).sum::<u64>(), 1);
    assert_eq!(received(home), 1);
}

/// Whether a frame is a message about the shared subscription.
fn is_of_share(bytes: &[u8]) -> bool {
    bytes.windows(SHARE.len()).any(|part| part == SHARE.as_bytes())
}

/// Brokers of which the home has no member, and the two others have one each.
fn two_branches() -> (Net, usize, [usize; 2]) {
    let mut net = mesh(3);
    net.enter(0, MEMBER, plain(SHARE, AtLeastOnce));
    net.advance(SECOND);
    let home = home(&net);
    if home == 0 {
        net.input(0, Input::Detach { link: Link(MEMBER), publish_will: false, expiry: None });
        net.advance(SECOND);
    }
    let branches: Vec<usize> = (0..3).filter(|node| *node != home).collect();
    for node in branches.iter().filter(|node| **node != 0) {
        net.enter(*node, MEMBER, plain(SHARE, AtLeastOnce));
    }
    net.advance(SECOND);
    for node in &branches {
        assert_eq!(net.granted(*node, MEMBER), Some(Ok(AtLeastOnce)));
    }
    (net, home, [branches[0], branches[1]])
}

#[test]
fn the_branch_with_least_load_comes_first() {
    let (mut net, home, [idle, busy]) = two_branches();
    let mut got = Vec::new();
    for payload in numbered(0..20) {
        net.publish(home, PUBLISHER, "t/a", &payload, AtLeastOnce);
        net.advance(Duration::from_millis(10));
        got.extend(net.work(idle, MEMBER));
        // The home has to hear of that.
        net.advance(Duration::from_millis(10));
    }
    let waits = net.payloads(busy, MEMBER);
    assert_eq!(waits.len(), 1, "the one that does not acknowledge gets one: {waits:?}");
    assert_eq!(got.len(), 19);
}

/// The payloads of each member, by node and link.
type Shared = BTreeMap<(usize, u32), Vec<String>>;

/// Publishes at `from`, every third payload a long one, which the members `small` cannot be sent.
/// Returns the payloads that these and `other` get within two seconds.
fn long_and_short(net: &mut Net, from: usize, small: &[(usize, u32)], other: &[(usize, u32)]) -> (Vec<String>, Shared) {
    for (node, link) in small {
        net.nodes[*node].side.edges.largest.insert(*link, 3);
    }
    let text = |number: u32| {
        if number.is_multiple_of(3) { format!("{number:03} is long") } else { format!("{number:03}") }
    };
    let sent: Vec<String> = (0..60).map(text).collect();
    for payload in &sent {
        net.publish(from, PUBLISHER, "t/a", payload, AtLeastOnce);
    }
    let members: Vec<(usize, u32)> = small.iter().chain(other).copied().collect();
    let got = net.work_all(&members, SECOND * 2);
    (sent, got)
}

fn untaken(net: &Net) -> u64 {
    net.nodes.iter().map(|node| node.core.stats().dropped_untaken).sum()
}

#[test]
fn what_the_members_of_one_broker_cannot_be_sent_goes_to_another_broker() {
    let (mut net, home, [small, large]) = two_branches();
    let (sent, got) = long_and_short(&mut net, home, &[(small, MEMBER)], &[(large, MEMBER)]);
    assert_eq!(sorted(&got), sent, "each once, within two seconds");
    assert!(got[&(small, MEMBER)].len() > 10, "the others share: {got:?}");
    assert_eq!(untaken(&net), 0);
    // From a branch to a member at the home.
    let (mut net, home, [small, gone]) = two_branches();
    net.input(gone, Input::Detach { link: Link(MEMBER), publish_will: false, expiry: None });
    net.enter(home, MEMBER, plain(SHARE, AtLeastOnce));
    net.advance(SECOND);
    net.told(home, MEMBER);
    let (sent, got) = long_and_short(&mut net, small, &[(small, MEMBER)], &[(home, MEMBER)]);
    assert_eq!(sorted(&got), sent);
    assert_eq!(untaken(&net), 0);
}

#[test]
fn what_no_member_at_any_broker_can_be_sent_is_over_and_holds_up_nobody() {
    let (mut net, home, [one, other]) = two_branches();
    let members = [(one, MEMBER), (other, MEMBER)];
    let (sent, got) = long_and_short(&mut net, home, &members, &[]);
    let short: Vec<String> = sent.into_iter().filter(|text| text.len() == 3).collect();
    assert_eq!(sorted(&got), short);
    assert_eq!(untaken(&net), 20, "each is counted once");
    net.publish(home, PUBLISHER, "t/a", "end", AtLeastOnce);
    assert_eq!(sorted(&net.work_all(&members, SECOND)), ["end"]);
}

#[test]
fn an_own_member_comes_before_those_of_other_brokers() {
    let (mut net, home, branches) = two_branches();
    net.enter(home, MEMBER, plain(SHARE, AtLeastOnce));
    net.advance(SECOND);
    net.told(home, MEMBER);
    for payload in numbered(0..10) {
        net.publish(home, PUBLISHER, "t/a", &payload, AtLeastOnce);
    }
    net.advance(SECOND);
    assert_eq!(net.payloads(home, MEMBER).len(), 10);
    assert!(branches.iter().all(|node| net.told(*node, MEMBER).is_empty()));
}

#[test]
fn what_a_leaving_member_has_not_acknowledged_goes_to_another() {
    let (mut net, home, [one, other]) = two_branches();
    for payload in numbered(0..10) {
        net.publish(home, PUBLISHER, "t/a", &payload, AtLeastOnce);
    }
    net.advance(SECOND);
    let had = net.payloads(one, MEMBER);
    assert_eq!(had.len(), 5);
    net.input(one, Input::Detach { link: Link(MEMBER), publish_will: false, expiry: None });
    let got = net.work_all(&[(other, MEMBER)], SECOND * 2);
    assert_eq!(sorted(&got), numbered(0..10));
    // Nor does it get anything any more.
    net.publish(home, PUBLISHER, "t/a", "later", AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.work(other, MEMBER), ["later"]);
}

#[test]
fn what_was_not_acknowledged_stays_at_its_broker_if_that_has_another_member() {
    let (mut net, home, [one, other]) = two_branches();
    net.enter(one, MEMBER + 1, plain(SHARE, AtLeastOnce));
    net.advance(SECOND);
    net.told(one, MEMBER + 1);
    for payload in numbered(0..9) {
        net.publish(home, PUBLISHER, "t/a", &payload, AtLeastOnce);
    }
    net.advance(SECOND);
    let left = net.payloads(one, MEMBER);
    assert!(!left.is_empty());
    net.input(one, Input::Detach { link: Link(MEMBER), publish_will: false, expiry: None });
    // Without a word to the home.
    let got = net.payloads(one, MEMBER + 1);
    assert!(left.iter().all(|payload| got.contains(payload)), "{left:?} in {got:?}");
    net.advance(SECOND);
    assert_eq!(net.payloads(other, MEMBER).len() + got.len(), 9);
}

#[test]
fn what_a_branch_that_dies_has_not_acknowledged_goes_to_others() {
    let (mut net, home, [dies, other]) = two_branches();
    for payload in numbered(0..10) {
        net.publish(home, PUBLISHER, "t/a", &payload, AtLeastOnce);
    }
    net.advance(SECOND);
    assert_eq!(net.payloads(dies, MEMBER).len(), 5);
    net.restart(dies, 99);
    let got = net.work_all(&[(other, MEMBER)], SECOND * 10);
    assert_eq!(sorted(&got), numbered(0..10));
}

#[test]
fn another_broker_becomes_home_when_the_home_dies() {
    let (mut net, home, branches) = two_branches();
    net.restart(home, 99);
    let members = branches.map(|node| (node, MEMBER));
    net.work_all(&members, SECOND * 5);
    let present = self::home(&net);
    assert_ne!(present, home, "it is not linked with anybody");
    for payload in numbered(0..20) {
        net.publish(branches[0], PUBLISHER, "t/a", &payload, AtLeastOnce);
    }
    let got = net.work_all(&members, SECOND * 2);
    assert_eq!(sorted(&got), numbered(0..20));
}

#[test]
fn a_home_that_comes_back_is_home_again_and_nothing_comes_twice_after_that() {
    let (mut net, home, branches) = two_branches();
    net.restart(home, 99);
    net.advance(SECOND * 5);
    assert_ne!(self::home(&net), home);
    for node in branches {
        net.join(home, node, Duration::from_millis(1));
    }
    net.advance(SECOND * 10);
    assert_eq!(self::home(&net), home);
    net.attach(home, PUBLISHER, "publisher");
    let members = branches.map(|node| (node, MEMBER));
    for node in 0..3 {
        net.publish(node, PUBLISHER, "t/a", &format!("{node:03}"), AtLeastOnce);
    }
    let got = net.work_all(&members, SECOND * 2);
    assert_eq!(sorted(&got), numbered(0..3));
}

#[test]
fn another_selector_is_refused_across_brokers() {
    let (mut net, home, [one, _]) = two_branches();
    let selector = Selector::parse("JMSPriority > 7").expect("a selector");
    for node in 0..3 {
        net.enter(node, MEMBER + 5, Filter { selector: Some(&selector), ..plain(SHARE, AtLeastOnce) });
        net.advance(SECOND);
        assert_eq!(net.granted(node, MEMBER + 5), Some(Err(Refusal::OtherSelector)), "{node} home {home}");
    }
    // Also where no other session is a member, so that only the home can know.
    net.input(one, Input::Detach { link: Link(MEMBER), publish_will: false, expiry: None });
    net.advance(SECOND);
    net.subscribe(one, MEMBER + 5, Filter { selector: Some(&selector), ..plain(SHARE, AtLeastOnce) });
    assert_eq!(net.granted(one, MEMBER + 5), None, "it waits for the home");
    net.advance(SECOND);
    assert_eq!(net.granted(one, MEMBER + 5), Some(Err(Refusal::OtherSelector)));
    assert_eq!(net.nodes[one].core.stats().subscriptions, 0);
}

#[test]
fn a_home_that_does_not_answer_is_named() {
    let (mut net, home, [one, _]) = two_branches();
    net.input(one, Input::Detach { link: Link(MEMBER), publish_will: false, expiry: None });
    net.advance(SECOND);
    net.drops = Box::new(move |from, _, bytes| from == one && is_of_share(bytes));
    net.enter(one, MEMBER + 1, plain(SHARE, AtLeastOnce));
    net.advance(SECOND / 2);
    assert_eq!(net.granted(one, MEMBER + 1), None);
    net.advance(SECOND);
    assert_eq!(net.granted(one, MEMBER + 1), Some(Ok(AtLeastOnce)));
    assert_eq!(net.nodes[one].side.pending, [format!("b{home}").into()]);
}

#[test]
fn letters_that_are_lost_are_written_again_and_what_comes_twice_is_delivered_once() {
    let (mut net, home, branches) = two_branches();
    let mut random = 1_u64;
    net.drops = Box::new(move |_, _, bytes| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        is_of_share(bytes) && (random >> 33).is_multiple_of(3)
    });
    let members = branches.map(|node| (node, MEMBER));
    for payload in numbered(0..100) {
        net.publish(home, PUBLISHER, "t/a", &payload, AtLeastOnce);
    }
    let got = net.work_all(&members, SECOND * 60);
    assert_eq!(sorted(&got), numbered(0..100));
    // And the home hears of each in the end.
    net.drops = Box::new(|_, _, _| false);
    net.advance(SECOND * 20);
    assert_eq!(net.nodes[home].core.stats().queued_events, 0);
    assert_eq!(net.nodes[home].core.shared_given(SHARE), 0);
}

#[test]
fn no_branch_has_more_than_its_room() {
    let (mut net, home, branches) = two_branches();
    for payload in 0..1000 {
        net.publish(home, PUBLISHER, "t/a", &payload.to_string(), AtLeastOnce);
    }
    net.advance(SECOND);
    // The window of each member is 200.
    assert_eq!(net.nodes[home].core.shared_given(SHARE), 400);
    assert_eq!(net.nodes[home].core.stats().queued_events, 600);
    let got = net.work_all(&branches.map(|node| (node, MEMBER)), SECOND * 5);
    let all: BTreeSet<String> = got.values().flatten().cloned().collect();
    assert_eq!((all.len(), sorted(&got).len()), (1000, 1000));
    assert_eq!(net.nodes[home].core.stats().queued_events, 0);
}
