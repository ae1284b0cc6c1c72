//! A session's principal moves with it: another principal does not get it, at any broker, and after
//! any fate of its owner.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_core::{Attach, Input, Link, Refusal, SessionPrincipal};

use super::common::Told;
use super::moving::RETURN;
use super::net::Net;

const SECOND: Duration = Duration::from_secs(1);

impl Net {
    /// Connects a client with a principal; returns whether the session was there, or why it was
    /// refused.
    fn connect_of(
        &mut self,
        node: usize,
        link: u32,
        client_id: &str,
        owner: SessionPrincipal,
    ) -> Result<bool, Refusal> {
        self.begin_of(node, link, client_id, owner, false);
        self.outcome(node, link)
    }

    fn begin_of(&mut self, node: usize, link: u32, client_id: &str, owner: SessionPrincipal, clean_start: bool) {
        let (link, expiry) = (Link(link), RETURN.expiry);
        let owner = Some(owner);
        let attach = Attach {
            link,
            client_id,
            clean_start,
            expiry,
            window: 200,
            will: None,
            without_copy: false,
            principal: owner,
        };
        self.input(node, Input::Attach(attach));
    }

    /// Another principal neither gets the session nor ends it.
    fn refuses_bob(&mut self, node: usize) {
        for clean in [false, true] {
            self.begin_of(node, 7, "bus", of("bob"), clean);
            assert_eq!(self.outcome(node, 7), Err(Refusal::ForeignSession), "at {node}, clean: {clean}");
        }
    }

    fn outcome(&mut self, node: usize, link: u32) -> Result<bool, Refusal> {
        self.await_attached(node, link);
        let told = self.told(node, link);
        let outcome = told.into_iter().find_map(|told| match told {
            Told::Attached { present } => Some(Ok(present)),
            Told::Refused(why) => Some(Err(why)),
            _ => None,
        });
        outcome.expect("one or the other")
    }
}

fn of(name: &str) -> SessionPrincipal {
    SessionPrincipal { name: Arc::from(name), may_adopt: false }
}

/// Three brokers; the session "bus" of ann at the first, with a copy at another one.
fn world() -> Net {
    let mut net = Net::mesh(3);
    net.advance(SECOND * 3);
    assert_eq!(net.connect_of(0, 1, "bus", of("ann")), Ok(false));
    net.advance(SECOND * 2);
    net
}

#[test]
fn a_session_is_given_to_nobody_else_where_its_keeper_lives() {
    let mut net = world();
    for node in 0..3 {
        net.refuses_bob(node);
        assert!(!net.is_kicked(0, 1), "its owner stays connected");
    }
    assert_eq!(net.connect_of(2, 3, "bus", of("ann")), Ok(true), "its owner finds it elsewhere");
    assert!(net.is_kicked(0, 1));
    net.advance(SECOND * 2);
    // The session has moved, and belongs to ann there too.
    for node in 0..3 {
        assert_eq!(net.connect_of(node, 8, "bus", of("bob")), Err(Refusal::ForeignSession), "at {node}");
    }
}

#[test]
fn whoever_may_take_over_gets_it_and_it_is_theirs_from_then_on() {
    let mut net = world();
    assert_eq!(net.connect_of(1, 2, "bus", SessionPrincipal { may_adopt: true, ..of("bob") }), Ok(true));
    net.advance(SECOND * 2);
    assert_eq!(net.connect_of(0, 3, "bus", of("ann")), Err(Refusal::ForeignSession));
    assert_eq!(net.connect_of(0, 4, "bus", of("bob")), Ok(true));
}

#[test]
fn a_copy_knows_whose_it_is() {
    let mut net = world();
    net.kill(0);
    net.advance(SECOND * 8);
    for node in 1..3 {
        net.refuses_bob(node);
    }
    assert_eq!(net.connect_of(1, 1, "bus", of("ann")), Ok(true));
    net.advance(SECOND * 2);
    assert_eq!(net.connect_of(2, 8, "bus", of("bob")), Err(Refusal::ForeignSession));
}

#[test]
fn a_broker_that_is_started_again_knows_whose_it_is() {
    let mut net = world();
    for number in 0..3 {
        net.kill(number);
    }
    net.revive(0, true);
    net.advance(SECOND * 8);
    assert_eq!(net.connect_of(0, 7, "bus", of("bob")), Err(Refusal::ForeignSession));
    assert_eq!(net.connect_of(0, 1, "bus", of("ann")), Ok(true));
}

#[test]
fn what_has_ended_is_nobodys() {
    let mut net = world();
    net.input(0, Input::Detach { link: Link(1), publish_will: false, expiry: Some(Duration::ZERO) });
    net.advance(SECOND);
    assert_eq!(net.connect_of(1, 2, "bus", of("bob")), Ok(false));
    net.advance(SECOND * 2);
    assert_eq!(net.connect_of(0, 3, "bus", of("ann")), Err(Refusal::ForeignSession));
}

/// The replica is partitioned from the owner: a client that is refused there leaves the session
/// where it is.
#[test]
fn who_is_refused_where_the_copy_is_moves_nothing() {
    for cut in [1, 2] {
        let mut net = world();
        let other = 3 - cut;
        net.part([0, cut]);
        net.part([other, cut]);
        net.advance(SECOND * 8);
        net.begin_of(cut, 7, "bus", of("bob"), false);
        assert!(net.outcome(cut, 7).is_err(), "at {cut}");
        assert_eq!(net.sessions_at(cut), 0, "what is at {cut} stays a copy");
        net.join(0, cut, Duration::from_millis(1));
        net.join(other, cut, Duration::from_millis(1));
        net.advance(SECOND * 5);
        assert!(!net.is_kicked(0, 1), "its owner stays connected");
    }
}

#[test]
fn whoever_waits_for_a_session_is_not_displaced_by_somebody_else() {
    let mut net = world();
    net.begin_of(2, 3, "bus", of("ann"), false);
    net.begin_of(2, 4, "bus", of("bob"), false);
    assert_eq!(net.outcome(2, 4), Err(Refusal::ConnectedAgain));
    assert_eq!(net.outcome(2, 3), Ok(true));
}
