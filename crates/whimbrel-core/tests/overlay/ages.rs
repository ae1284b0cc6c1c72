//! The age of another broker's event is known until a client has the event, whatever it waits for,
//! and without a comparison of clocks.

use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;

use whimbrel_core::{Durability, Filter, Input, Link, Publish, Settlement, SubscriptionSpec};
use whimbrel_event::{EventRef, Qos, Time};

use super::SECOND;
use super::common::{Got, event, plain};
use super::net::Net;

/// How far the clock of each broker is ahead of that of the one before.
const AHEAD: Duration = Duration::from_secs(3600);

/// How long a frame takes over a link.
const DELAY: Duration = Duration::from_millis(10);

/// The error of an age that came over one or two links with the same delay both ways: by each the
/// delay is known as half of a round trip.
const ERROR: Duration = Duration::from_millis(1);

/// A line of brokers with logs, each an hour ahead of the one before.
fn line(count: usize) -> Net {
    let mut net = Net::new(count);
    for node in 0..count {
        net.replace(node, AHEAD * node as u32);
        if node > 0 {
            net.join(node - 1, node, DELAY);
        }
    }
    net.advance(SECOND * 10);
    net
}

/// As [`line()`], with a publisher at the first broker, and a subscriber at the last whose
/// subscription is answered.
fn line_with_clients(count: usize) -> Net {
    let mut net = line(count);
    net.attach(count - 1, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(count - 1, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(count - 1, 1);
    net
}

/// How far two moments are apart.
fn distance(one: Time, other: Time) -> Duration {
    one.since(other).max(other.since(one))
}

impl Net {
    /// Checks that a client has got one event, and that the moment of its acceptance is `at` of the
    /// world's clock, by the clock of the client's broker.
    fn check_accepted(&mut self, node: usize, link: u32, at: Time) -> Got {
        let mut got = self.got(node, link);
        assert_eq!(got.len(), 1, "{got:?}");
        let at = at.after(self.nodes[node].ahead);
        let error = distance(at, got[0].accepted);
        assert!(error <= ERROR, "accepted at {at:?}, which is {error:?} from {:?}", got[0].accepted);
        got.remove(0)
    }
}

#[test]
fn an_event_that_waits_for_an_earlier_one_has_the_age_with_which_it_came() {
    let mut net = line_with_clients(2);
    let is_lossy = Rc::new(Cell::new(true));
    let loses = Rc::clone(&is_lossy);
    net.drops =
        Box::new(move |node, channel, _| node == 0 && channel == whimbrel_core::Channel::Reliable && loses.get());
    let first = net.now;
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    is_lossy.set(false);
    net.advance(SECOND / 5);
    let second = net.now;
    net.publish(0, 1, "a", "two", Qos::AtLeastOnce);
    net.advance(SECOND * 2);
    let all = net.got(1, 1);
    let accepted: Vec<Time> = all.iter().map(|got| got.accepted).collect();
    for (accepted, at) in accepted.iter().zip([first, second].map(|at| at.after(AHEAD))) {
        assert!(distance(at, *accepted) <= ERROR, "{accepted:?}, {at:?}");
    }
    assert_eq!(all.len(), 2);
}

#[test]
fn an_event_that_waits_for_its_client_grows_older() {
    let mut net = line_with_clients(3);
    net.nodes[2].side.edges.room.insert(1, 1);
    net.publish(0, 1, "a", "fills the connection", Qos::AtMostOnce);
    net.advance(SECOND);
    net.told(2, 1);
    let at = net.now;
    net.publish(0, 1, "a", "waits", Qos::AtLeastOnce);
    net.advance(SECOND * 5);
    assert_eq!(net.got(2, 1).len(), 0);
    net.nodes[2].side.edges.room.remove(&1);
    net.input(2, Input::Writable { link: Link(1) });
    net.check_accepted(2, 1, at);
}

#[test]
fn an_event_that_waits_for_a_client_who_is_away_grows_older() {
    for durability in [Durability::Queued, Durability::SemiDurable, Durability::Durable] {
        let mut net = line(2);
        assert_eq!(net.connect(1, 1, "s"), Some(false));
        net.attach(0, 1, "p");
        let plain = plain("a", Qos::AtLeastOnce);
        net.subscribe(1, 1, Filter { spec: SubscriptionSpec { durability, ..plain.spec }, ..plain });
        net.advance(SECOND * 3);
        net.leave(1, 1);
        net.told(1, 1);
        net.advance(SECOND);
        let at = net.now;
        net.publish(0, 1, "a", "x", Qos::AtLeastOnce);
        net.advance(SECOND * 30);
        assert_eq!(net.connect(1, 1, "s"), Some(true));
        net.advance(SECOND);
        net.check_accepted(1, 1, at);
    }
}

#[test]
fn the_member_of_a_shared_subscription_elsewhere_knows_the_age() {
    let mut net = line(3);
    net.attach(0, 1, "p");
    // The home is the broker of the first member.
    net.attach(1, 2, "at home");
    net.subscribe(1, 2, plain("$share/g/a", Qos::AtLeastOnce));
    net.advance(SECOND * 3);
    net.attach(2, 3, "elsewhere");
    net.subscribe(2, 3, plain("$share/g/a", Qos::AtLeastOnce));
    net.advance(SECOND * 5);
    net.told(1, 2);
    net.told(2, 3);
    let mut elsewhere = 0;
    for _ in 0..8 {
        let at = net.now;
        net.publish(0, 1, "a", "x", Qos::AtLeastOnce);
        net.advance(SECOND);
        let is_at_home = net.nodes[1].side.edges.told.contains_key(&2);
        let (node, link) = if is_at_home { (1, 2) } else { (2, 3) };
        elsewhere += u32::from(!is_at_home);
        let got = net.check_accepted(node, link, at);
        net.input(node, Input::Settle { link: Link(link), tag: got.tag, by: Settlement::Acknowledged });
        net.advance(SECOND);
    }
    assert!(elsewhere > 0);
}

#[test]
fn a_retained_message_expires_at_the_same_moment_at_all_brokers() {
    let mut net = line(3);
    net.attach(0, 1, "p");
    let life = SECOND * 60;
    let event = EventRef { expires: Some(net.now.after(life)), ..event("a", "x", Qos::AtLeastOnce) };
    net.input(0, Input::Publish(Publish { link: Link(1), tag: 7, retain: true, number: None, event: &event }));
    for (pause, is_there) in [(59, true), (2, false)] {
        net.advance(SECOND * pause);
        for node in 0..3 {
            let link = 10 + pause;
            net.attach(node, link, &format!("s{pause}"));
            net.subscribe(node, link, plain("a", Qos::AtLeastOnce));
            net.advance(SECOND / 10);
            assert_eq!(net.got(node, link).len(), usize::from(is_there), "broker {node}, after {pause} s more");
        }
    }
}

#[test]
fn an_event_whose_tick_is_ahead_of_its_clock_has_its_age_all_the_same() {
    let mut net = Net::new(2);
    net.replace(0, Duration::ZERO);
    net.replace(1, SECOND / 2);
    net.join(0, 1, DELAY);
    net.advance(SECOND * 10);
    for node in 0..2 {
        net.attach(node, 1, &format!("p{node}"));
        net.attach(node, 2, &format!("s{node}"));
        net.subscribe(node, 2, plain("a", Qos::AtLeastOnce));
    }
    net.advance(SECOND);
    // The second one is newer to all brokers, so its tick follows that of the first.
    for node in [1, 0] {
        net.told(0, 2);
        net.told(1, 2);
        let at = net.now;
        let event = event("a", "x", Qos::AtLeastOnce);
        net.input(node, Input::Publish(Publish { link: Link(1), tag: 7, retain: true, number: None, event: &event }));
        net.advance(DELAY * 2);
        let got = [net.check_accepted(0, 2, at), net.check_accepted(1, 2, at)];
        let ahead = got[0].id.tick.0.saturating_sub(at.as_nanos());
        assert!(ahead > 400_000_000, "its tick is {ahead} ns ahead of the first broker's clock");
    }
}
