//! A client resumes without the copies of its session, which are out of reach: the logs still have
//! its missing events.

use core::time::Duration;

use whimbrel_core::{Durability, Filter, Input, Link, NOTICE_TOPIC, Start, SubscriptionSpec};
use whimbrel_event::{CheckpointToken, EventId, PubendId, Qos, Reliability, Tick};

use super::SECOND;
use super::common::{Got, Told, plain};
use super::lives::part;
use super::moving::{How, RETURN};
use super::net::Net;

const MINUTE: Duration = Duration::from_secs(60);

impl Net {
    /// Subscribes from `start`; returns where the subscription begins, and its deliveries.
    fn subscribe_from(&mut self, node: usize, start: Start<'_>) -> (CheckpointToken, Vec<Got>) {
        let (plain, durability) = (plain("t", Qos::AtLeastOnce), Durability::Durable);
        let spec = SubscriptionSpec { durability, by_token: true, notices: true, named: true, ..plain.spec };
        let filters = [Filter { spec, start, wants_token: true, ..plain }];
        self.input(node, Input::Subscribe { link: Link(1), tag: 1, filters: &filters });
        self.advance(SECOND * 3);
        let (mut begins, mut got) = (None, Vec::new());
        for told in self.told(node, 1) {
            match told {
                Told::Subscribed(results) => begins = results[0].clone().expect("granted").begins,
                Told::Event(event) => got.push(event),
                _ => {}
            }
        }
        (begins.expect("it is told where it begins"), got)
    }
}

fn payloads(got: &[Got]) -> Vec<&str> {
    got.iter().filter(|got| got.topic != NOTICE_TOPIC).map(|got| &*got.payload).collect()
}

/// The gaps that were told.
fn gaps(got: &[Got]) -> impl Iterator<Item = (PubendId, Tick, Tick)> {
    let tick = |got: &Got, name: &str| Some(Tick(part(&got.payload, name)?.parse().ok()?));
    let of = move |got: &Got| {
        part(&got.payload, "kind").filter(|kind| *kind == "gap")?;
        let pubend = PubendId(u64::from_str_radix(part(&got.payload, "pubend")?, 16).ok()?);
        Some((pubend, tick(got, "from")?, tick(got, "to")?))
    };
    got.iter().filter(|got| got.topic == NOTICE_TOPIC).filter_map(of)
}

/// Whether a gap was told in a stream in which nothing may be lost.
fn has_gap(got: &[Got]) -> bool {
    gaps(got).any(|(pubend, ..)| pubend.reliability() == Reliability::Reliable)
}

/// Four brokers. A subscriber that keeps its position was at the second, and got events of the
/// first and the fourth; then it left, and more were published. The second and the third are gone,
/// and no other broker has its session.
fn left_alone(expiry: Duration) -> (Net, String, CheckpointToken, Vec<EventId>) {
    let how = How { expiry, ..RETURN };
    for name in ["sub-a", "sub-b", "sub-c", "sub-d", "sub-e", "sub-f", "sub-g", "sub-h"] {
        let mut net = Net::mesh(4);
        for node in [0, 3] {
            assert_eq!(net.connect(node, 9, &format!("publisher-{node}")), Some(false));
        }
        net.connect_as(1, 1, name, how);
        assert_eq!(net.answer(1, 1), Some(false));
        let (begins, _) = net.subscribe_from(1, Start::Own);
        for node in [0, 3] {
            net.publish_all(node, 9, &["had"]);
        }
        net.advance(SECOND);
        let got = net.told(1, 1).into_iter().filter_map(|told| match told {
            Told::Event(event) if event.topic != NOTICE_TOPIC => Some(event.id),
            _ => None,
        });
        let got: Vec<EventId> = got.collect();
        assert_eq!(got.len(), 2);
        net.leave(1, 1);
        net.advance(SECOND);
        for (node, payload) in [(0, "far"), (3, "own")] {
            net.publish_all(node, 9, &[payload]);
        }
        net.advance(SECOND);
        net.kill(1);
        net.kill(2);
        net.advance(SECOND);
        net.connect_as(3, 1, name, how);
        if net.answer(3, 1).is_none() {
            return (net, name.to_owned(), begins, got);
        }
    }
    panic!("some of them have their copy at the third broker");
}

#[test]
fn who_goes_on_without_copies_gets_from_the_logs_what_its_token_lacks() {
    let (mut net, name, begins, had) = left_alone(MINUTE * 60);
    net.connect_as(3, 1, &name, How { without_copy: true, expiry: MINUTE * 60, ..RETURN });
    assert_eq!(net.answer(3, 1), Some(false));
    let (_, got) = net.subscribe_from(3, Start::Token(&begins, &had));
    let mut all = payloads(&got);
    all.sort_unstable();
    assert_eq!((all, has_gap(&got)), (vec!["far", "own"], false), "{got:?}");
    net.publish_all(0, 9, &["live"]);
    assert_eq!(net.payloads(3, 1), ["live"]);
}

/// How a client connects that goes on without copies.
const WITHOUT: How = How { without_copy: true, expiry: Duration::from_secs(3600), ..RETURN };

/// The subscriber has connected to the fourth broker without copies, and has not got the answer.
fn unanswered() -> (Net, String, CheckpointToken, Vec<EventId>) {
    let (mut net, name, begins, had) = left_alone(WITHOUT.expiry);
    net.connect_as(3, 1, &name, WITHOUT);
    assert_eq!(net.answer(3, 1), Some(false));
    net.leave(3, 1);
    net.advance(SECOND);
    (net, name, begins, had)
}

/// The answer to its CONNECT is lost, its broker may be started again, and the broker that has its
/// former session comes back before the client does: until it subscribes, events are logged for it
/// there.
#[test]
fn who_has_not_heard_that_its_session_was_begun_anew_is_told_so_again() {
    for is_restarted in [false, true] {
        let (mut net, name, begins, had) = unanswered();
        if is_restarted {
            net.kill(3);
            net.revive(3, true);
        }
        net.revive(1, true);
        net.advance(SECOND * 10);
        assert_eq!(net.sessions_at(1), 1, "it is kept where it was");
        net.publish_all(0, 9, &["later"]);
        net.advance(SECOND);
        net.connect_as(3, 1, &name, WITHOUT);
        assert_eq!(net.answer(3, 1), Some(false), "{is_restarted}");
        let (_, got) = net.subscribe_from(3, Start::Token(&begins, &had));
        let mut all = payloads(&got);
        all.sort_unstable();
        assert_eq!(all, ["far", "later", "own"], "{is_restarted}");
        // At the broker that gave the token its streams had not begun to pass.
        let given_at = net.nodes[1].core.host();
        let mut gaps = gaps(&got).filter(|(pubend, ..)| pubend.reliability() == Reliability::Reliable);
        assert!(gaps.all(|(pubend, ..)| pubend.host() == given_at), "{is_restarted}: {got:?}");
        net.advance(SECOND * 10);
        assert_eq!(net.sessions_at(1), 1, "one broker has not told the interest to be in force");
        net.revive(2, true);
        net.advance(SECOND * 10);
        assert_eq!(net.sessions_at(1), 0, "it is safe to let it go");
        net.leave(3, 1);
        net.connect_as(3, 1, &name, WITHOUT);
        assert_eq!(net.answer(3, 1), Some(true), "it has heard of it");
    }
}

/// The answer to its CONNECT is lost, and it tries another broker, while the one that has its
/// former session is away still, or is back.
#[test]
fn a_session_that_was_begun_anew_does_not_go_elsewhere_in_place_of_the_former_one() {
    for is_back in [false, true] {
        let (mut net, name, begins, had) = unanswered();
        if is_back {
            net.revive(1, true);
            net.advance(SECOND * 10);
        }
        net.connect_as(0, 1, &name, WITHOUT);
        assert_eq!(net.answer(0, 1), Some(is_back));
        let (_, got) = net.subscribe_from(0, Start::Token(&begins, &had));
        let mut all = payloads(&got);
        all.sort_unstable();
        assert_eq!((all, has_gap(&got)), (vec!["far", "own"], false), "{is_back}: {got:?}");
    }
}

#[test]
fn a_token_that_is_older_than_a_session_can_be_counts_from_now_on() {
    let (mut net, name, begins, had) = left_alone(MINUTE);
    net.advance(MINUTE * 2);
    net.connect_as(3, 1, &name, How { without_copy: true, expiry: MINUTE, ..RETURN });
    assert_eq!(net.answer(3, 1), Some(false));
    let (_, got) = net.subscribe_from(3, Start::Token(&begins, &had));
    assert!(has_gap(&got), "what it wants may not have been logged since its session ended: {got:?}");
}

#[test]
fn a_session_that_begins_anew_counts_from_now_on() {
    let (mut net, name, begins, had) = left_alone(MINUTE * 60);
    net.connect_as(3, 1, &name, How { clean_start: true, without_copy: true, expiry: MINUTE * 60 });
    assert_eq!(net.answer(3, 1), Some(false));
    let (_, got) = net.subscribe_from(3, Start::Token(&begins, &had));
    assert!(has_gap(&got), "{got:?}");
}

/// Its host began after the token, and could not be told of a session: its first events were not
/// logged for any.
#[test]
fn a_stream_that_is_younger_than_the_token_may_lack_what_came_first() {
    let (mut net, name, begins, had) = left_alone(MINUTE * 60);
    net.kill(0);
    net.kill(3);
    net.revive(3, false);
    net.connect_as(3, 9, "publisher-3", How { clean_start: true, ..RETURN });
    assert_eq!(net.answer(3, 9), Some(false));
    net.publish_all(3, 9, &["young"]);
    net.advance(SECOND * 2);
    net.connect_as(3, 1, &name, How { without_copy: true, expiry: MINUTE * 60, ..RETURN });
    assert_eq!(net.answer(3, 1), Some(false));
    let (_, got) = net.subscribe_from(3, Start::Token(&begins, &had));
    assert!(has_gap(&got), "{got:?}");
    net.publish_all(3, 9, &["live"]);
    assert_eq!(net.payloads(3, 1), ["live"]);
}

/// As the test above, at another broker that begins after the token, and is out of reach while the
/// client names its position: events published there meanwhile do not arrive here either, and the
/// client has to know.
#[test]
fn a_stream_that_is_younger_than_the_token_and_out_of_reach_is_a_gap_up_to_when_its_broker_knows() {
    let (mut net, name, begins, had) = left_alone(MINUTE * 60);
    net.kill(0);
    net.revive(0, false);
    net.advance(SECOND * 2);
    net.connect_as(0, 9, "publisher-0", How { clean_start: true, ..RETURN });
    assert_eq!(net.answer(0, 9), Some(false));
    net.subscribe(0, 9, plain("t", Qos::AtLeastOnce));
    net.part([0, 3]);
    net.advance(SECOND);
    net.publish_all(0, 9, &["young"]);
    net.advance(SECOND);
    let young = net.got(0, 9).into_iter().find(|got| &*got.payload == "young").expect("it is subscribed to").id;
    net.connect_as(3, 1, &name, How { without_copy: true, expiry: MINUTE * 60, ..RETURN });
    assert_eq!(net.answer(3, 1), Some(false));
    let (_, mut got) = net.subscribe_from(3, Start::Token(&begins, &had));
    net.link_all(0);
    net.advance(SECOND * 8);
    got.extend(net.got(3, 1));
    assert!(
        gaps(&got).any(|(pubend, from, to)| pubend == young.pubend && from < young.tick && young.tick <= to),
        "{got:?}"
    );
    net.publish_all(0, 9, &["live"]);
    assert_eq!(net.payloads(3, 1), ["live"]);
}
