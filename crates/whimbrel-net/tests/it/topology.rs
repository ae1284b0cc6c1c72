//! Learning of other brokers, in any order.

use core::time::Duration;

use proptest::prelude::*;
use whimbrel_event::HostId;
use whimbrel_net::topology::{
    ADDRESSES_MAX, BROKERS_MAX, Learned, LinkState, LinkStateError, NEIGHBOURS_MAX, STATE_LIFETIME, TEXT_MAX, Topology,
};

use crate::world::{at, end, host, routes, state, topology};

const NEW: Duration = Duration::ZERO;

fn named(name: &str, state: LinkState) -> LinkState {
    LinkState { name: name.into(), ..state }
}

#[test]
fn the_greatest_incarnation_and_sequence_wins() {
    let mut known = Topology::new(host(0));
    let mut learn = |incarnation, sequence| known.learn(at(0), state(1, incarnation, sequence, vec![]), NEW);
    assert_eq!(learn(5, 5), Learned::New);
    assert_eq!(learn(5, 5), Learned::Same);
    assert_eq!(learn(5, 4), Learned::Old);
    assert_eq!(learn(4, 9), Learned::Old);
    assert_eq!(learn(5, 6), Learned::New);
    assert_eq!(learn(6, 1), Learned::New);
    assert_eq!(learn(5, 7), Learned::Old);
    assert_eq!(known.digest().collect::<Vec<_>>(), [(host(1), 6, 1)]);
}

#[test]
fn an_own_state_that_is_greater_has_to_be_outbid() {
    let mut known = Topology::new(host(0));
    let outbid = |incarnation, sequence| Learned::Outbid { incarnation, sequence };
    assert_eq!(known.learn(at(0), state(0, 3, 1, vec![]), NEW), outbid(3, 1), "before the first announcement");
    assert!(known.is_empty());
    known.announce(at(0), state(0, 2, 2, vec![])).expect("a good state");
    assert_eq!(known.learn(at(0), state(0, 1, 9, vec![]), NEW), Learned::Old);
    assert_eq!(known.learn(at(0), state(0, 2, 2, vec![]), NEW), Learned::Same);
    assert_eq!(known.learn(at(0), state(0, 2, 3, vec![]), NEW), outbid(2, 3));
    assert_eq!(known.get(host(0)).map(|own| own.sequence), Some(2));
}

#[test]
#[should_panic(expected = "greater than the last")]
fn an_announcement_that_is_no_news_is_a_defect() {
    let mut known = topology([state(0, 1, 1, vec![])]);
    let _ = known.announce(at(0), state(0, 1, 1, vec![]));
}

#[test]
fn a_name_belongs_to_the_host_known_first_while_it_is_there() {
    let mut known = Topology::new(host(0));
    let mut learn = |seconds, number, incarnation, name| {
        known.expire(at(seconds));
        known.learn(at(seconds), named(name, state(number, incarnation, 1, vec![])), NEW)
    };
    let taken = |by| Learned::Refused(LinkStateError::NameTaken(host(by)));
    assert_eq!(learn(0, 1, 1, "x"), Learned::New);
    assert_eq!(learn(0, 2, 1, "x"), taken(1));
    assert_eq!(learn(50, 1, 2, "x"), Learned::New, "the same host again");
    assert_eq!(learn(149, 2, 1, "x"), taken(1));
    assert_eq!(learn(150, 2, 1, "x"), Learned::New, "the first is gone");
    assert_eq!(learn(150, 1, 3, "x"), taken(2));
    assert_eq!(learn(150, 2, 2, "y"), Learned::New, "renamed");
    assert_eq!(learn(150, 1, 3, "x"), Learned::New);
    assert_eq!((known.by_name("x"), known.by_name("y"), known.by_name("z")), (Some(host(1)), Some(host(2)), None));
}

#[test]
fn an_own_name_that_another_had_first_is_refused() {
    let mut known = topology([named("x", state(1, 1, 1, vec![]))]);
    let own = named("x", state(0, 1, 1, vec![]));
    assert_eq!(known.announce(at(0), own), Err(LinkStateError::NameTaken(host(1))));
}

#[test]
fn a_state_that_is_not_repeated_is_dropped_and_its_age_counts() {
    let mut known = topology([state(0, 1, 1, vec![]), state(1, 1, 1, vec![])]);
    let aged = Duration::from_secs(40);
    assert_eq!(known.learn(at(10), state(2, 1, 1, vec![]), aged), Learned::New);
    assert_eq!(known.age(at(15), host(2)), Some(Duration::from_secs(45)));
    assert_eq!(known.next_expiry(), Some(at(70)));
    assert_eq!(known.expire(at(69)), []);
    // A known broker does not last longer by being told again.
    assert_eq!(known.learn(at(69), state(2, 1, 1, vec![]), NEW), Learned::Same);
    assert_eq!(known.expire(at(70)), [host(2)]);
    assert_eq!(known.learn(at(70), state(1, 1, 2, vec![]), NEW), Learned::New);
    assert_eq!(known.expire(at(169)), []);
    assert_eq!(known.expire(at(170)), [host(1)]);
    assert_eq!(known.next_expiry(), None);
    assert_eq!(known.hosts().collect::<Vec<_>>(), [host(0)], "the own one does not expire");
    let expired = known.learn(at(170), state(1, 2, 1, vec![]), STATE_LIFETIME);
    assert_eq!(expired, Learned::Refused(LinkStateError::Expired));
}

#[test]
fn several_expire_in_the_order_of_their_times() {
    let mut known = Topology::new(host(0));
    for (number, age) in [(1, 10), (2, 30), (3, 20), (4, 0)] {
        known.learn(at(0), state(number, 1, 1, vec![]), Duration::from_secs(age));
    }
    assert_eq!(known.expire(at(90)), [host(2), host(3), host(1)]);
    assert_eq!((known.len(), known.by_name("b3"), known.by_name("b4")), (1, None, Some(host(4))));
}

#[test]
fn there_are_at_most_so_many_brokers() {
    let mut known = topology((0..BROKERS_MAX as u64).map(|number| state(number, 1, 1, vec![])));
    let more = BROKERS_MAX as u64;
    assert_eq!(known.learn(at(0), state(more, 1, 1, vec![]), NEW), Learned::Refused(LinkStateError::Full));
    assert_eq!(known.learn(at(0), state(7, 1, 2, vec![]), NEW), Learned::New, "a known one may change");
    known.learn(at(50), state(8, 1, 2, vec![]), NEW);
    assert_eq!(known.expire(at(100)).len(), BROKERS_MAX - 2, "all but the own one and the one that was repeated");
    assert_eq!(known.learn(at(100), state(more, 1, 1, vec![]), NEW), Learned::New);
}

#[test]
fn states_beyond_the_bounds_are_refused() {
    let mut known = Topology::new(host(0));
    let mut learn = |state| known.learn(at(0), state, NEW);
    let plain = || state(1, 1, 1, vec![]);
    let (text, neighbours) =
        (Learned::Refused(LinkStateError::BadText), Learned::Refused(LinkStateError::BadNeighbours));
    let long = "n".repeat(TEXT_MAX + 1);
    let addresses = |count| vec![Box::from("a:1"); count];
    assert_eq!(learn(named("", plain())), text);
    assert_eq!(learn(named(&long, plain())), text);
    assert_eq!(learn(LinkState { addresses: vec![long.as_str().into()], ..plain() }), text);
    assert_eq!(learn(LinkState { addresses: addresses(ADDRESSES_MAX + 1), ..plain() }), text);
    let many = |count: u64| (2..2 + count).map(|to| end(1, to, 1, 0)).collect();
    assert_eq!(learn(state(1, 1, 1, many(NEIGHBOURS_MAX as u64 + 1))), neighbours);
    assert_eq!(learn(state(1, 1, 1, vec![end(1, 1, 1, 0)])), neighbours, "its own neighbour");
    assert_eq!(learn(state(1, 1, 1, vec![end(1, 2, 1, 0), end(1, 2, 2, 0)])), neighbours, "a host twice");
    let mut twice = [end(1, 2, 1, 0), end(1, 3, 1, 0)];
    twice[1].port = twice[0].port;
    assert_eq!(learn(state(1, 1, 1, twice.into())), neighbours, "a port twice");
    let full = LinkState { addresses: addresses(ADDRESSES_MAX), ..state(1, 1, 1, many(NEIGHBOURS_MAX as u64)) };
    assert_eq!(learn(named(&long[1..], full)), Learned::New);
}

#[test]
fn a_link_counts_if_both_ends_name_it() {
    let mut known = topology([state(0, 1, 1, vec![end(0, 1, 5, 0)]), state(1, 1, 1, vec![])]);
    assert_eq!(known.link(host(0), host(1)), None);
    known.learn(at(0), state(1, 1, 2, vec![end(1, 0, 7, 0)]), NEW);
    assert_eq!(known.link(host(0), host(1)), Some(end(0, 1, 5, 0)));
    assert_eq!(known.link(host(1), host(0)), Some(end(1, 0, 7, 0)));
    assert_eq!(known.link(host(1), host(2)), None);
}

#[test]
fn the_version_grows_when_the_graph_changes_and_only_then() {
    let mut known = topology([state(0, 1, 1, vec![])]);
    let mut last = known.version();
    let mut has_changed = |known: &Topology| core::mem::replace(&mut last, known.version()) < known.version();
    let mut sequence = 0;
    let mut learn = |known: &mut Topology, neighbours| {
        sequence += 1;
        assert_eq!(known.learn(at(0), state(1, 1, sequence, neighbours), NEW), Learned::New);
    };
    let one = end(1, 0, 5, 0);
    let (other, slow, lossy, renumbered) = (end(1, 2, 5, 0), end(1, 0, 6, 0), end(1, 0, 5, 9), 77);
    learn(&mut known, vec![]);
    assert!(has_changed(&known), "a new broker");
    for changed in [vec![one], vec![one, other], vec![slow, other], vec![lossy, other], vec![one]] {
        learn(&mut known, changed.clone());
        assert!(has_changed(&known), "{changed:?}");
        learn(&mut known, changed.iter().rev().copied().collect());
        assert!(!has_changed(&known), "repeated: {changed:?}");
    }
    let mut other_port = one;
    other_port.port = renumbered;
    learn(&mut known, vec![other_port]);
    assert!(has_changed(&known), "another port");
    known.learn(at(0), state(1, 1, 1, vec![]), NEW);
    known.expire(at(99));
    assert!(!has_changed(&known), "nothing new, nothing gone");
    known.expire(at(100));
    assert!(has_changed(&known), "a broker is gone");
}

const BROKERS: u64 = 5;

/// States of a few brokers with several incarnations and sequence numbers; those with equal numbers
/// are equal.
fn messages() -> impl Strategy<Value = Vec<LinkState>> {
    let message = (0..BROKERS, 1..4_u64, 1..4_u64).prop_map(|(number, incarnation, sequence)| {
        let is_linked = |to: &u64| *to != number && !(number * 7 + to * 5 + incarnation + sequence).is_multiple_of(3);
        let neighbours = (0..BROKERS).filter(is_linked).chain((number < 2).then_some(BROKERS));
        let delay = |to: u64| (((number ^ to) + sequence) % 4) as u32 * 300;
        state(number, incarnation, sequence, neighbours.map(|to| end(number, to, delay(to), 0)).collect())
    });
    proptest::collection::vec(message, 0..30)
}

/// The broker that learns them is linked with the first two.
fn learner() -> LinkState {
    state(BROKERS, 1, 1, (0..2).map(|to| end(BROKERS, to, 300, 0)).collect())
}

/// The path to a host, and over whom it goes.
type Way = (Vec<HostId>, Option<(HostId, u16)>);

/// The link states known at the end, and the ways that follow from them.
fn outcome(messages: &[LinkState]) -> (Vec<LinkState>, Vec<Way>) {
    let mut known = Topology::new(host(BROKERS));
    known.announce(at(0), learner()).expect("a good state");
    for message in messages {
        known.learn(at(0), message.clone(), NEW);
    }
    let routes = routes(&known);
    let ways = known.hosts().map(|host| (routes.path(host), routes.next_hop(host))).collect();
    (known.states().cloned().collect(), ways)
}

proptest! {
    #[test]
    fn the_order_of_learning_does_not_matter(
        (messages, shuffled) in messages().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle()))
    ) {
        let (states, ways) = outcome(&messages);
        for known in &states {
            let of_it = messages.iter().filter(|message| message.host == known.host);
            let greatest = of_it.map(LinkState::age_order).max();
            prop_assert!(greatest.is_none_or(|greatest| greatest == known.age_order()));
        }
        prop_assert_eq!((states, ways), outcome(&shuffled));
    }
}
