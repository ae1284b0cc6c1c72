//! Sessions move with their clients: between live brokers, from copies, through crashes and
//! partitions.

use core::time::Duration;

use whimbrel_core::{Attach, Durability, Filter, Input, Link, Settlement, SubscriptionSpec};
use whimbrel_event::{EventId, Qos, Reliability};

use super::common::{Got, Told, event, plain};
use super::net::Net;

const SECOND: Duration = Duration::from_secs(1);
pub(super) const MILLI: Duration = Duration::from_millis(1);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// The options of a client's connection.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) clean_start: bool,
    pub(super) expiry: Duration,
    pub(super) without_copy: bool,
}

pub(super) const RETURN: How = How { clean_start: false, expiry: WEEK, without_copy: false };

impl Net {
    pub(super) fn connect_as(&mut self, node: usize, link: u32, client_id: &str, how: How) {
        let How { clean_start, expiry, without_copy } = how;
        let attach = Attach {
            link: Link(link),
            client_id,
            clean_start,
            expiry,
            window: 200,
            will: None,
            without_copy,
            principal: None,
        };
        self.input(node, Input::Attach(attach));
    }

    /// Connects a client; returns whether its session was there; `None`: it was refused.
    pub(super) fn connect(&mut self, node: usize, link: u32, client_id: &str) -> Option<bool> {
        self.connect_as(node, link, client_id, RETURN);
        self.answer(node, link)
    }

    pub(super) fn answer(&mut self, node: usize, link: u32) -> Option<bool> {
        self.await_attached(node, link);
        let told = self.nodes[node].side.edges.told.get_mut(&link).unwrap();
        let at = told.iter().position(|told| matches!(told, Told::Attached { .. } | Told::Refused(_))).unwrap();
        match told.remove(at) {
            Told::Attached { present } => Some(present),
            _ => None,
        }
    }

    pub(super) fn subscribe_durably(&mut self, node: usize, link: u32, filter: &str, qos: Qos) {
        self.subscribe(node, link, plain(filter, qos));
        self.advance(SECOND * 2);
        assert!(self.told(node, link).iter().any(|told| matches!(told, Told::Subscribed(_))), "it is answered");
    }

    pub(super) fn leave(&mut self, node: usize, link: u32) {
        self.input(node, Input::Detach { link: Link(link), publish_will: false, expiry: None });
    }

    /// The payloads that a client gets, and settles, in some time.
    pub(super) fn settled(&mut self, node: usize, link: u32, span: Duration) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..span.as_millis() / 10 {
            for got in self.got(node, link) {
                self.settle(node, link, got.tag, Settlement::Acknowledged);
                all.push(got.payload);
            }
            self.advance(MILLI * 10);
        }
        all
    }

    fn settle(&mut self, node: usize, link: u32, tag: u16, by: Settlement) {
        self.input(node, Input::Settle { link: Link(link), tag, by });
    }

    pub(super) fn is_kicked(&mut self, node: usize, link: u32) -> bool {
        self.told(node, link).iter().any(|told| matches!(told, Told::Kicked(_)))
    }

    pub(super) fn publish_all(&mut self, node: usize, link: u32, payloads: &[&str]) {
        for payload in payloads {
            self.publish(node, link, "t", payload, Qos::AtLeastOnce);
            self.advance(MILLI * 5);
        }
    }

    pub(super) fn sessions_at(&self, node: usize) -> usize {
        self.nodes[node].core.stats().sessions as usize
    }
}

/// Three brokers with logs; a publisher at the first, and a durable subscriber at the second.
pub(super) fn world(qos: Qos) -> Net {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(0, 9, "publisher"), Some(false));
    assert_eq!(net.connect(1, 1, "sub"), Some(false));
    net.subscribe_durably(1, 1, "t", qos);
    net
}

#[test]
fn a_session_goes_where_its_client_goes() {
    let mut net = world(Qos::AtLeastOnce);
    net.publish_all(0, 9, &["1", "2"]);
    assert_eq!(net.settled(1, 1, SECOND), ["1", "2"]);
    net.leave(1, 1);
    net.publish_all(0, 9, &["3", "4"]);
    net.advance(SECOND);
    let before = net.now;
    assert_eq!(net.connect(2, 1, "sub"), Some(true), "the session is there");
    // Two round trips of two milliseconds, and a little for the steps in which time is looked at.
    assert!(net.now.since(before) <= MILLI * 6, "{:?}", net.now.since(before));
    assert_eq!(net.settled(2, 1, SECOND), ["3", "4"]);
    net.publish_all(0, 9, &["5"]);
    assert_eq!(net.settled(2, 1, SECOND), ["5"]);
    net.advance(SECOND * 5);
    assert_eq!([net.sessions_at(1), net.sessions_at(2)], [0, 1], "where it was it is safe to let it go");
}

#[test]
fn whoever_is_still_connected_elsewhere_is_disconnected() {
    let mut net = world(Qos::AtLeastOnce);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    assert!(net.is_kicked(1, 1));
    // Also in sessions that end with their connection.
    let how = How { expiry: Duration::ZERO, ..RETURN };
    net.connect_as(0, 2, "passing", how);
    assert_eq!(net.answer(0, 2), Some(false));
    net.connect_as(1, 2, "passing", how);
    assert_eq!(net.answer(1, 2), Some(false));
    assert!(net.is_kicked(0, 2));
}

#[test]
fn fast_hops_lose_and_repeat_nothing() {
    let mut net = world(Qos::AtLeastOnce);
    let mut expected = Vec::new();
    let mut got = Vec::new();
    // The publisher has another one.
    let (mut link, mut at) = (19, 1);
    assert_eq!(net.connect(at, link, "sub"), Some(true));
    for hop in 0..12 {
        let payload = hop.to_string();
        net.publish(0, 9, "t", &payload, Qos::AtLeastOnce);
        expected.push(payload);
        if hop % 3 == 0 {
            got.extend(net.settled(at, link, MILLI * 50));
        }
        at = (at + 1) % 3;
        link += 1;
        assert_eq!(net.connect(at, link, "sub"), Some(true), "hop {hop}");
    }
    got.extend(net.settled(at, link, SECOND * 3));
    let mut seen = std::collections::BTreeSet::new();
    let repeated: Vec<_> = got.iter().filter(|payload| !seen.insert((*payload).clone())).collect();
    assert_eq!(repeated, Vec::<&String>::new());
    assert_eq!(got, expected);
    net.advance(SECOND * 12);
    let left: Vec<usize> = (0..3).map(|node| net.sessions_at(node)).collect();
    assert_eq!(left.iter().sum::<usize>(), 2, "one of the publisher, one of the subscriber: {left:?}");
}

#[test]
fn a_connection_that_has_not_its_session_yet_takes_the_place_of_an_older_one() {
    let mut net = world(Qos::AtLeastOnce);
    net.connect_as(2, 1, "sub", RETURN);
    net.connect_as(2, 2, "sub", RETURN);
    assert!(matches!(net.told(2, 1)[..], [Told::Refused(_)]));
    assert_eq!(net.answer(2, 2), Some(true));
    // A client that leaves before it is answered leaves no session behind.
    net.connect_as(0, 3, "sub", RETURN);
    net.leave(0, 3);
    net.advance(SECOND);
    assert_eq!(net.told(0, 3), []);
    assert_eq!(net.connect(0, 3, "sub"), Some(true));
}

/// A session is fetched over a slow link. Meanwhile its client begins anew elsewhere, and then
/// comes back to where the search is still under way.
#[test]
fn a_connection_that_takes_over_a_search_is_not_attached_to_what_that_found() {
    let mut net = world(Qos::AtLeastOnce);
    net.leave(1, 1);
    net.advance(SECOND);
    net.delay([1, 2], MILLI * 150);
    net.connect_as(2, 1, "sub", RETURN);
    net.advance(MILLI * 10);
    net.connect_as(0, 2, "sub", How { clean_start: true, ..RETURN });
    net.advance(MILLI * 50);
    assert_eq!(net.answer(0, 2), Some(false), "it begins anew");
    net.subscribe(0, 2, plain("u", Qos::AtLeastOnce));
    net.advance(MILLI * 50);
    net.leave(0, 2);
    net.connect_as(2, 3, "sub", RETURN);
    assert_eq!(net.answer(2, 3), Some(true));
    net.publish(0, 9, "u", "1", Qos::AtLeastOnce);
    assert_eq!(net.settled(2, 3, SECOND), ["1"]);
}

/// The owner of a session is asked for it several times before its first answer arrives. All
/// answers say that its client is there, which it was, and is not any more.
#[test]
fn the_newest_connection_is_not_refused_for_what_was_asked_for_an_older_one() {
    // The directory broker of this client is the first broker.
    let client = "b";
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(1, 1, client), Some(false));
    net.leave(1, 1);
    net.advance(SECOND);
    net.delay([0, 2], MILLI * 10);
    net.delay([1, 2], MILLI * 120);
    // The first question to the directory broker is lost, so no broker knows of this session when
    // the client comes back to where it was.
    net.drops = Box::new(|node, _, _| node == 2);
    net.connect_as(2, 1, client, RETURN);
    net.advance(MILLI);
    net.drops = Box::new(|_, _, _| false);
    net.advance(MILLI * 179);
    assert_eq!(net.connect(1, 2, client), Some(true));
    net.advance(MILLI * 268);
    net.connect_as(2, 3, client, RETURN);
    assert_eq!(net.answer(2, 3), Some(true));
    assert!(net.is_kicked(1, 2));
}

#[test]
fn at_least_once_comes_again_under_its_tag_and_exactly_once_keeps_its_stage() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut net = world(qos);
        let event = |payload| event("t", payload, Qos::ExactlyOnce);
        for payload in ["a", "b", "c"] {
            let publish =
                whimbrel_core::Publish { link: Link(9), tag: 5, retain: false, number: None, event: &event(payload) };
            net.input(0, Input::Publish(publish));
            net.input(0, Input::Release { link: Link(9), tag: 5 });
            net.advance(MILLI * 20);
        }
        let got = net.got(1, 1);
        assert_eq!(got.iter().map(|got| &*got.payload).collect::<Vec<_>>(), ["a", "b", "c"]);
        if qos == Qos::ExactlyOnce {
            net.settle(1, 1, got[0].tag, Settlement::Received);
            net.settle(1, 1, got[1].tag, Settlement::Received);
            net.settle(1, 1, got[1].tag, Settlement::Completed);
        } else {
            net.settle(1, 1, got[1].tag, Settlement::Acknowledged);
        }
        net.advance(MILLI * 20);
        assert_eq!(net.connect(2, 1, "sub"), Some(true));
        net.advance(SECOND);
        let told = net.told(2, 1);
        let released: Vec<u16> = told
            .iter()
            .filter_map(|told| if let Told::Release { tag, known: true } = told { Some(*tag) } else { None })
            .collect();
        let events: Vec<_> = told
            .iter()
            .filter_map(
                |told| if let Told::Event(got) = told { Some((&*got.payload, got.tag, got.repeated)) } else { None },
            )
            .collect();
        if qos == Qos::ExactlyOnce {
            assert_eq!(released, [got[0].tag], "{told:?}");
            assert_eq!(events, [("c", got[2].tag, true)]);
        } else {
            assert_eq!(events, [("a", got[0].tag, true), ("c", got[2].tag, true)]);
        }
    }
}

#[test]
fn a_deputy_goes_on_when_the_keeper_is_dead() {
    let mut net = world(Qos::AtLeastOnce);
    net.publish_all(0, 9, &["1", "2"]);
    assert_eq!(net.settled(1, 1, SECOND), ["1", "2"]);
    net.kill(1);
    net.advance(SECOND);
    net.publish_all(0, 9, &["3"]);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    assert_eq!(net.settled(2, 1, SECOND * 3), ["3"]);
    assert!(net.nodes[2].core.overlay_stats().unwrap().sessions_from_copies > 0);
    // The replica reports the age of its copy: nothing has changed since the owner died.
    let used = net.nodes.iter().flat_map(|node| &node.side.copies_used);
    assert!(used.clone().count() > 0 && used.clone().all(|(who, _)| who == "sub"));
    let ages: Vec<Duration> = used.map(|(_, age)| *age).collect();
    assert!(ages.iter().all(|age| (SECOND..SECOND * 5).contains(age)), "{ages:?}");
    // The old owner comes back, and hears that it is the owner no more.
    net.revive(1, true);
    net.advance(SECOND * 20);
    assert_eq!([net.sessions_at(1), net.sessions_at(2)], [0, 1]);
    net.publish_all(0, 9, &["4"]);
    assert_eq!(net.settled(2, 1, SECOND), ["4"]);
}

#[test]
fn what_was_unsubscribed_stays_so_whoever_goes_on_with_the_session() {
    let mut net = world(Qos::AtLeastOnce);
    net.input(1, Input::Unsubscribe { link: Link(1), tag: 3, filters: &["t"] });
    let is_answered = |told: &Told| matches!(told, Told::Unsubscribed(existed) if existed[..] == [true]);
    let before = net.now;
    while !net.told(1, 1).iter().any(is_answered) {
        net.advance(MILLI);
        assert!(net.now.since(before) < MILLI * 20, "it waits for a deputy that is there");
    }
    // In the same moment the owner dies.
    net.kill(1);
    net.advance(SECOND);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    net.publish_all(0, 9, &["1"]);
    assert_eq!(net.settled(2, 1, SECOND), Vec::<String>::new());
    // A replica that does not answer is waited for a second.
    net.subscribe_durably(2, 1, "t", Qos::AtLeastOnce);
    net.kill(0);
    net.input(2, Input::Unsubscribe { link: Link(1), tag: 4, filters: &["t"] });
    net.advance(SECOND + MILLI * 100);
    assert!(net.told(2, 1).iter().any(is_answered));
}

#[test]
fn a_client_forgets_what_a_keeper_that_is_dead_may_have_given_before_that_is_given_again() {
    let mut net = world(Qos::ExactlyOnce);
    let (mut at, mut asked) = (1, 0);
    for payload in ["1", "2", "3"] {
        // The owner dies before its replica has heard of the delivery: its tag is unknown.
        net.kill(at);
        at = 3 - at;
        net.advance(SECOND);
        net.publish(0, 9, "t", payload, Qos::ExactlyOnce);
        net.input(0, Input::Release { link: Link(9), tag: 77 });
        assert_eq!(net.connect(at, 1, "sub"), Some(true));
        net.advance(SECOND);
        let told = net.told(at, 1);
        let forgets = |told: &Told| if let Told::Release { tag, known: true } = told { Some(*tag) } else { None };
        let tags: Vec<u16> = told.iter().filter_map(forgets).collect();
        assert!(tags.len() > 100, "{told:?}");
        assert!(!told.iter().any(|told| matches!(told, Told::Event(_))), "nothing comes before it has: {told:?}");
        let [others @ .., last] = &tags[..] else { unreachable!("there are some") };
        others.iter().for_each(|tag| net.settle(at, 1, *tag, Settlement::Completed));
        net.advance(SECOND);
        assert_eq!(net.got(at, 1), [], "the order of its answers does not matter, all count");
        net.settle(at, 1, *last, Settlement::Completed);
        net.advance(SECOND);
        let got = net.got(at, 1);
        assert_eq!(got.iter().map(|got| &*got.payload).collect::<Vec<_>>(), [payload]);
        assert!(tags.contains(&got[0].tag));
        net.settle(at, 1, got[0].tag, Settlement::Received);
        net.settle(at, 1, got[0].tag, Settlement::Completed);
        asked += tags.len();
        net.advance(SECOND);
        net.revive(3 - at, true);
        net.advance(SECOND * 20);
    }
    assert!(asked > 300);
    // A client that moves while all brokers are there takes the doubt along.
    assert_eq!(net.connect(0, 1, "sub"), Some(true));
    net.advance(SECOND);
    assert!(net.told(0, 1).iter().any(|told| matches!(told, Told::Release { .. })));
}

#[test]
fn a_deputy_knows_what_a_client_has_that_answers_nothing() {
    let mut net = world(Qos::ExactlyOnce);
    net.publish(0, 9, "t", "1", Qos::ExactlyOnce);
    net.input(0, Input::Release { link: Link(9), tag: 77 });
    net.advance(SECOND);
    let got = net.got(1, 1);
    assert_eq!(got.iter().map(|got| &*got.payload).collect::<Vec<_>>(), ["1"]);
    net.kill(1);
    net.advance(SECOND);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    let (mut forgotten, mut again) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        net.advance(MILLI * 100);
        for told in net.told(2, 1) {
            match told {
                Told::Release { tag, known: true } => {
                    net.settle(2, 1, tag, Settlement::Completed);
                    forgotten.push(tag);
                }
                Told::Event(got) => again.push((got.payload, got.tag)),
                _ => {}
            }
        }
    }
    assert_eq!(again, [("1".to_owned(), got[0].tag)], "the client knows the tag, and takes it for what it has");
    assert!(!forgotten.contains(&got[0].tag));
}

/// The session's new broker ends before it has written the session, and is started again without:
/// it announces no interest of it, and its former broker still does.
#[test]
fn a_session_stays_where_it_was_until_it_is_durable_where_it_went() {
    let mut net = world(Qos::AtLeastOnce);
    assert_eq!(net.connect(2, 2, "other"), Some(false));
    net.subscribe_durably(2, 2, "other", Qos::AtLeastOnce);
    net.nodes[2].stalls_until = net.now.after(SECOND * 20);
    net.connect_as(2, 1, "sub", RETURN);
    net.advance(SECOND * 10);
    assert_eq!(net.sessions_at(2), 2, "it is there");
    assert_eq!(net.sessions_at(1), 1, "and here");
    net.kill(2);
    net.revive(2, true);
    net.advance(SECOND);
    assert_eq!(net.sessions_at(2), 1, "it was never written");
    net.publish_all(0, 9, &["1"]);
    net.advance(SECOND);
    assert_eq!(net.connect(1, 1, "sub"), Some(true));
    assert_eq!(net.settled(1, 1, SECOND * 3), ["1"]);
}

#[test]
fn whoever_comes_back_with_its_disk_keeps_its_sessions() {
    let mut net = world(Qos::AtLeastOnce);
    net.kill(1);
    net.publish_all(0, 9, &["1"]);
    net.revive(1, true);
    net.advance(SECOND * 3);
    assert_eq!(net.connect(1, 1, "sub"), Some(true));
    assert_eq!(net.settled(1, 1, SECOND * 3), ["1"]);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    net.publish_all(0, 9, &["2"]);
    assert_eq!(net.settled(2, 1, SECOND), ["2"]);
}

#[test]
fn a_keeper_that_comes_back_without_its_disk_gives_its_sessions_to_its_deputies() {
    let mut net = world(Qos::AtLeastOnce);
    net.leave(1, 1);
    net.advance(SECOND);
    net.kill(1);
    net.publish_all(0, 9, &["1"]);
    net.revive(1, false);
    net.advance(SECOND * 5);
    let left: Vec<usize> = (0..3).map(|node| net.sessions_at(node)).collect();
    assert_eq!(left.iter().sum::<usize>(), 2, "somebody is its keeper although its client is not there: {left:?}");
    assert_eq!(net.connect(1, 1, "sub"), Some(true));
    assert_eq!(net.settled(1, 1, SECOND * 3), ["1"]);
}

#[test]
fn nobody_begins_anew_while_a_session_is_out_of_reach() {
    let mut net = world(Qos::AtLeastOnce);
    net.leave(1, 1);
    net.advance(SECOND);
    // The replica is dead as well, whichever of the two it is: the other one may be alive.
    net.kill(1);
    net.kill(2);
    net.advance(SECOND);
    let present = net.connect(0, 1, "sub");
    assert!(present.is_none() || present == Some(true), "never a new session: {present:?}");
    if present.is_none() {
        let clean = How { clean_start: true, ..RETURN };
        net.connect_as(0, 2, "sub", clean);
        assert_eq!(net.answer(0, 2), Some(false), "unless it wants one");
    }
    assert_eq!(net.connect(0, 3, "somebody-else"), Some(false));
}

/// All others were linked over a broker that has lost its disk. Only one of them is linked with it
/// again, and tells it of the others.
#[test]
fn who_has_just_begun_begins_no_session_that_may_be_with_somebody_it_was_only_told_of() {
    let mut refused = 0;
    for (number, pause) in (0..24).flat_map(|number| [2, 25].map(|pause| (number, SECOND * pause))) {
        let client = format!("s{number}");
        let mut net = Net::mesh(4);
        for pair in [[1, 2], [1, 3], [2, 3]] {
            net.part(pair);
        }
        net.advance(SECOND);
        assert_eq!(net.connect(2, 1, &client), Some(false));
        net.advance(SECOND);
        net.leave(2, 1);
        net.kill(0);
        net.advance(SECOND);
        net.nodes[0] = Net::node(0, 77, net.now);
        net.join(0, 1, MILLI);
        net.advance(pause);
        // The broker that is there may have the copy.
        let answer = net.connect(0, 1, &client);
        assert_ne!(answer, Some(false), "{client}");
        refused += usize::from(answer.is_none());
        net.join(0, 2, MILLI);
        net.join(0, 3, MILLI);
        net.advance(SECOND);
        assert_eq!(net.connect(0, 2, &client), Some(true), "{client}");
    }
    assert!(refused > 0);
}

#[test]
fn a_clean_start_elsewhere_ends_the_session() {
    let mut net = world(Qos::AtLeastOnce);
    net.connect_as(2, 1, "sub", How { clean_start: true, ..RETURN });
    assert_eq!(net.answer(2, 1), Some(false));
    assert!(net.is_kicked(1, 1));
    assert_eq!(net.sessions_at(1), 0);
    net.publish_all(0, 9, &["1"]);
    assert_eq!(net.settled(2, 1, SECOND), [""; 0]);
    assert_eq!(net.connect(1, 1, "sub"), Some(true));
}

#[test]
fn after_a_partition_the_newer_connection_stays() {
    let mut net = world(Qos::AtLeastOnce);
    net.advance(SECOND);
    net.close_all(1);
    net.advance(SECOND);
    // The client is at the side that has its copy, or is refused.
    let present = net.connect(2, 1, "sub");
    assert_eq!(present, Some(true));
    net.publish_all(0, 9, &["1"]);
    assert_eq!(net.settled(2, 1, SECOND * 2), ["1"]);
    net.told(1, 1);
    net.link_all(1);
    net.advance(SECOND * 10);
    assert!(net.is_kicked(1, 1), "the older one is closed");
    net.publish_all(0, 9, &["2"]);
    assert_eq!(net.settled(2, 1, SECOND), ["2"]);
    net.advance(SECOND * 10);
    assert_eq!([net.sessions_at(1), net.sessions_at(2)], [0, 1]);
}

/// The older side is told that all is safe at the newer one just as the client comes back.
#[test]
fn what_was_acknowledged_at_the_older_side_counts_for_who_comes_back_there() {
    let mut returned = 0;
    for pause in 0..40 {
        let mut net = world(Qos::AtLeastOnce);
        assert_eq!(net.connect(2, 8, "second"), Some(false));
        net.advance(SECOND);
        net.close_all(1);
        net.advance(SECOND);
        assert_eq!(net.connect(2, 1, "sub"), Some(true));
        net.publish_all(2, 8, &["1"]);
        assert_eq!(net.settled(2, 1, SECOND), ["1"]);
        assert_eq!(net.connect(1, 3, "sub"), Some(true));
        net.leave(1, 3);
        net.link_all(1);
        net.delay([1, 2], MILLI * 100);
        net.delay([0, 1], MILLI * 100);
        net.advance(MILLI * 50 * pause);
        let is_there = net.sessions_at(2) == 2;
        assert_eq!(net.connect(2, 4, "sub"), Some(true));
        net.publish_all(2, 8, &["2"]);
        let got = net.settled(2, 4, SECOND * 2);
        if is_there {
            assert_eq!(got, ["2"], "after {pause}");
            returned += 1;
        }
    }
    assert!(returned > 0);
}

#[test]
fn what_was_given_away_is_used_if_the_new_keeper_dies_at_once() {
    let mut net = world(Qos::AtLeastOnce);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    net.kill(2);
    net.advance(SECOND);
    net.publish_all(0, 9, &["1"]);
    assert_eq!(net.connect(0, 1, "sub"), Some(true));
    assert_eq!(net.settled(0, 1, SECOND * 3), ["1"]);
}

#[test]
fn a_broker_that_was_alone_tells_of_its_sessions_when_others_come() {
    let mut net = Net::mesh(1);
    assert_eq!(net.connect(0, 1, "sub"), None, "it has peers, and does not know what these have");
    net.connect_as(0, 1, "sub", How { clean_start: true, ..RETURN });
    net.subscribe(0, 1, plain("t", Qos::AtLeastOnce));
    net.leave(0, 1);
    let other = Net::mesh(1).nodes.pop().unwrap();
    net.nodes.push(other);
    net.revive(1, false);
    net.advance(SECOND * 3);
    assert_eq!(net.connect(1, 1, "sub"), Some(true));
}

/// The steps of a client that moves.
#[derive(Clone, Copy, Debug)]
enum Step {
    Publish,
    /// It acknowledges its deliveries, all but this many.
    Acknowledge(usize),
    Hop(usize),
    Leave,
    /// The broker where it is dies, and comes back with its disk.
    Restart,
    Wait(u64),
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    let step = prop_oneof![
        4 => Just(Step::Publish),
        3 => (0_usize..3).prop_map(Step::Acknowledge),
        3 => (0_usize..3).prop_map(Step::Hop),
        1 => Just(Step::Leave),
        1 => Just(Step::Restart),
        3 => (1_u64..400).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..30)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 24, ..Default::default() })]

    /// For any steps of its client, a session that moves between living brokers gives it every
    /// event.
    #[test]
    fn wherever_a_client_goes_it_gets_everything(steps in steps()) {
        let mut net = Net::mesh(3);
        // The publisher's broker never dies.
        proptest::prop_assert_eq!(net.connect(0, 9, "publisher"), Some(false));
        let (mut at, mut link, mut is_there) = (1, 20, true);
        net.connect(at, link, "sub");
        net.subscribe_durably(at, link, "t", Qos::AtLeastOnce);
        let (mut sent, mut acknowledged) = (Vec::new(), Vec::<String>::new());
        let mut open: Vec<Got> = Vec::new();
        for step in steps.into_iter().chain([Step::Hop(2), Step::Wait(3_000)]) {
            match step {
                Step::Publish => {
                    let payload = sent.len().to_string();
                    net.publish(0, 9, "t", &payload, Qos::AtLeastOnce);
                    sent.push(payload);
                }
                Step::Hop(to) => {
                    (link, is_there) = (link + 1, true);
                    open.clear();
                    proptest::prop_assert_eq!(net.connect(to, link, "sub"), Some(true));
                    at = to;
                }
                Step::Leave if is_there => {
                    net.leave(at, link);
                    is_there = false;
                    open.clear();
                }
                Step::Restart if at != 0 => {
                    net.kill(at);
                    net.advance(MILLI * 300);
                    net.revive(at, true);
                    net.advance(SECOND * 2);
                    is_there = false;
                    open.clear();
                }
                Step::Wait(millis) => net.advance(MILLI * millis as u32),
                Step::Leave | Step::Restart | Step::Acknowledge(_) => {}
            }
            if !is_there {
                continue;
            }
            for got in net.got(at, link) {
                open.push(got);
            }
            if let Step::Acknowledge(but) = step {
                for got in open.drain(..open.len().saturating_sub(but)).collect::<Vec<_>>() {
                    net.settle(at, link, got.tag, Settlement::Acknowledged);
                    acknowledged.push(got.payload);
                }
                // That is durable before anything else happens.
                net.advance(MILLI * 15);
            }
        }
        for got in open {
            net.settle(at, link, got.tag, Settlement::Acknowledged);
            acknowledged.push(got.payload);
        }
        acknowledged.extend(net.settled(at, link, SECOND * 3));
        acknowledged.sort_by_key(|payload| payload.parse::<usize>().unwrap());
        // Events acknowledged while their stream was set aside may come again after the next move.
        acknowledged.dedup();
        proptest::prop_assert_eq!(acknowledged, sent);
    }
}

/// The QoS 2 payloads that a client gets in some time, and settles in both phases; it ignores those
/// that it knows.
pub(super) fn exactly(
    net: &mut Net,
    known: &mut std::collections::BTreeSet<u16>,
    (node, link): (usize, u32),
    span: Duration,
) -> Vec<String> {
    let mut all = Vec::new();
    let step = if span < MILLI * 10 { MILLI } else { MILLI * 10 };
    for _ in 0..span.as_millis() / step.as_millis() {
        for told in net.told(node, link) {
            match told {
                Told::Event(got) => {
                    if got.tag == 0 || known.insert(got.tag) {
                        all.push(got.payload);
                    }
                    net.settle(node, link, got.tag, Settlement::Received);
                }
                Told::Release { tag, .. } => {
                    known.remove(&tag);
                    net.settle(node, link, tag, Settlement::Completed);
                }
                _ => {}
            }
        }
        net.advance(step);
    }
    all
}

/// A client moves several times, quickly, and then goes to a broker that dies after `last`; no
/// event that it has had comes again.
fn wanders(client: &str, (hops, restarts): (&[usize], bool), (last, pause): (Duration, Duration)) {
    let mut net = Net::mesh(3);
    let at_each = 100..103;
    for (node, link) in (0..3).zip(at_each.clone()) {
        assert_eq!(net.connect(node, link, &format!("publisher-{node}")), Some(false));
    }
    assert_eq!(net.connect(2, 1, client), Some(false));
    net.subscribe_durably(2, 1, "t", Qos::ExactlyOnce);
    let (mut known, mut sent, mut had) = (std::collections::BTreeSet::new(), 0, Vec::new());
    let mut publish = |net: &mut Net| {
        for (node, link) in (0..3).zip(at_each.clone()) {
            if !net.nodes[node].is_dead {
                net.publish(node, link, "t", &sent.to_string(), Qos::ExactlyOnce);
                net.input(node, Input::Release { link: Link(link), tag: 77 });
                sent += 1;
            }
        }
        net.advance(MILLI * 10);
    };
    net.advance(SECOND * 3);
    let (mut link, mut at) = (1, 2);
    if restarts {
        net.kill(2);
        net.advance(SECOND);
        net.revive(2, true);
        net.connect(2, 102, "publisher-2");
        net.advance(SECOND);
    }
    for to in hops {
        link += 1;
        assert_eq!(net.connect(*to, link, client), Some(true), "{client} {hops:?} {to}");
        at = *to;
        for _ in 0..3 {
            publish(&mut net);
            had.extend(exactly(&mut net, &mut known, (at, link), MILLI * 100));
        }
    }
    had.extend(exactly(&mut net, &mut known, (at, link), MILLI * 300));
    net.leave(at, link);
    let dies = (at + 1) % 3;
    net.connect_as(dies, 50, client, RETURN);
    net.advance(last);
    net.kill_silently(dies);
    net.advance(pause);
    publish(&mut net);
    let to = (at + 2) % 3;
    for link in 60.. {
        match net.connect(to, link, client) {
            Some(present) => assert!(present),
            None if link < 80 => {
                net.advance(SECOND);
                continue;
            }
            None => panic!("{client} {hops:?} {last:?}: refused"),
        }
        had.extend(exactly(&mut net, &mut known, (to, link), SECOND * 3));
        break;
    }
    let mut numbers: Vec<u32> =
        had.iter().map(|payload| payload.parse().expect("publishers number what they send")).collect();
    numbers.sort_unstable();
    let all: Vec<u32> = (0..numbers.last().map_or(0, |last| last + 1)).collect();
    assert_eq!(numbers, all, "{client} {hops:?} {restarts} {last:?}");
}

#[test]
fn whoever_asks_for_a_session_and_dies_leaves_it_where_it_was() {
    for number in 0..6 {
        for hops in [&[0, 1, 2][..], &[1, 2], &[0, 2], &[1, 0], &[0, 1]] {
            for millis in 0..16 {
                for restarts in [false, true] {
                    wanders(
                        &format!("client-{number}"),
                        (hops, restarts),
                        (MILLI * millis, MILLI * 100 * (millis % 4)),
                    );
                }
            }
        }
    }
}

/// A broker that has just begun reads a client's missing events in the log before the other brokers
/// know that it wants them.
#[test]
fn whoever_comes_to_a_broker_that_has_just_begun_is_told_no_gap() {
    for (pause, after) in (0..16).flat_map(|pause| [(pause, 0), (pause, 100)]) {
        let mut net = Net::mesh(3);
        assert_eq!(net.connect(0, 9, "publisher"), Some(false));
        assert_eq!(net.connect(1, 1, "sub"), Some(false));
        let (plain, durability) = (plain("t", Qos::AtLeastOnce), Durability::Durable);
        let spec = SubscriptionSpec { durability, notices: true, named: true, ..plain.spec };
        net.subscribe(1, 1, Filter { spec, ..plain });
        net.advance(SECOND * 2);
        net.told(1, 1);
        let (mut sent, mut had) = (0, Vec::new());
        let mut publish = |net: &mut Net, count| {
            for _ in 0..count {
                net.publish(0, 9, "t", &sent.to_string(), Qos::AtLeastOnce);
                sent += 1;
                net.advance(MILLI * 2);
            }
        };
        publish(&mut net, 5);
        had.extend(net.settled(1, 1, SECOND));
        // Some are on their way, and not acknowledged.
        publish(&mut net, 5);
        net.leave(1, 1);
        publish(&mut net, 100);
        net.kill(2);
        publish(&mut net, 100);
        net.revive(2, true);
        net.advance(MILLI * 20 * pause);
        assert_eq!(net.connect(2, 5, "sub"), Some(true));
        publish(&mut net, after);
        had.extend(net.settled(2, 5, SECOND * 4));
        // Streams of best effort promise nothing.
        had.retain(|payload| !payload.starts_with("{\"kind\":\"silence\"") && !tells_of_best_effort(payload));
        let all: Vec<String> = (0..sent).map(|number| number.to_string()).collect();
        assert_eq!(had, all, "{pause} {after}");
    }
}

/// Whether a payload is a notice of a gap in such a stream.
fn tells_of_best_effort(payload: &str) -> bool {
    let pubend = payload.strip_prefix(r#"{"kind":"gap","pubend":""#).and_then(|rest| rest.split('"').next());
    let first = pubend.map(|pubend| format!("{pubend}:0").parse::<EventId>().expect("notices name pubends"));
    first.is_some_and(|first| first.pubend.reliability() == Reliability::BestEffort)
}

/// An event that is sent again out of a log, before the other brokers know that this one wants it,
/// and is acknowledged, does not come again after the next move.
#[test]
fn what_a_broker_that_has_just_begun_sends_again_is_not_given_again_by_the_next() {
    for steps in 0..40 {
        let mut net = world(Qos::ExactlyOnce);
        let mut known = std::collections::BTreeSet::new();
        let mut sent = 0;
        let mut publish = |net: &mut Net, count| {
            for _ in 0..count {
                net.publish(0, 9, "t", &sent.to_string(), Qos::ExactlyOnce);
                net.input(0, Input::Release { link: Link(9), tag: 77 });
                sent += 1;
                net.advance(MILLI * 2);
            }
        };
        publish(&mut net, 5);
        let mut had = exactly(&mut net, &mut known, (1, 1), SECOND);
        publish(&mut net, 20);
        net.leave(1, 1);
        net.kill(2);
        publish(&mut net, 20);
        net.revive(2, true);
        net.advance(SECOND * 4);
        assert_eq!(net.connect(2, 5, "sub"), Some(true));
        for _ in 0..steps {
            had.extend(exactly(&mut net, &mut known, (2, 5), MILLI));
        }
        assert_eq!(net.connect(1, 6, "sub"), Some(true));
        had.extend(exactly(&mut net, &mut known, (1, 6), SECOND * 3));
        let all: Vec<String> = (0..sent).map(|number| number.to_string()).collect();
        had.sort_unstable_by_key(|payload| payload.parse::<u32>().expect("publishers number what they send"));
        assert_eq!(had, all, "{steps}");
    }
}

/// A subscriber comes to a broker with another subscription to the same filter, so that its
/// interest is in force at once in the streams of all brokers; it has missed best-effort events.
#[test]
fn what_all_brokers_confirm_at_once_is_read_once() {
    let mut net = world(Qos::AtLeastOnce);
    assert_eq!(net.connect(2, 2, "other"), Some(false));
    net.subscribe_durably(2, 2, "t", Qos::AtLeastOnce);
    assert_eq!(net.connect(1, 9, "another"), Some(false));
    net.leave(1, 1);
    let mut published = Vec::new();
    for node in [0, 1] {
        for number in 0..3 {
            let payload = format!("{number} at {node}");
            net.publish(node, 9, "t", "without a promise", Qos::AtMostOnce);
            net.publish(node, 9, "t", &payload, Qos::AtLeastOnce);
            net.advance(MILLI * 20);
            published.push(payload);
        }
    }
    net.advance(SECOND);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    let mut got = net.settled(2, 1, SECOND * 2);
    got.retain(|payload| payload != "without a promise");
    for node in ["0", "1"] {
        let of = |all: &[String]| all.iter().filter(|payload| payload.ends_with(node)).cloned().collect::<Vec<_>>();
        assert_eq!(of(&got), of(&published));
    }
    assert_eq!(got.len(), published.len());
}

/// Retained messages are read from the beginning at the session's new broker, if they were not read
/// to the end: a reading is known to its broker alone.
#[test]
fn a_session_that_has_not_read_all_that_is_retained_reads_it_where_it_goes() {
    const TOPICS: usize = 400;
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let mut net = Net::mesh(2);
        assert_eq!(net.connect(0, 9, "publisher"), Some(false));
        for n in 0..TOPICS {
            let (topic, payload) = (format!("r/{n:03}"), n.to_string());
            let event = event(&topic, &payload, qos);
            let publish = whimbrel_core::Publish { link: Link(9), tag: 7, retain: true, number: None, event: &event };
            net.input(0, Input::Publish(publish));
        }
        net.advance(SECOND * 10);
        assert_eq!(net.nodes[1].core.stats().retained, TOPICS as u64);
        assert_eq!(net.connect(0, 1, "sub"), Some(false));
        net.nodes[0].side.edges.room.insert(1, 50);
        net.subscribe(0, 1, plain("r/#", qos));
        net.advance(SECOND);
        let before = net.payloads(0, 1);
        assert!((40..=50).contains(&before.len()), "{}", before.len());
        net.leave(0, 1);
        assert_eq!(net.connect(1, 1, "sub"), Some(true));
        let after = net.settled(1, 1, SECOND * 5);
        let expected: Vec<String> = (0..TOPICS).map(|n| n.to_string()).collect();
        assert_eq!(after, expected, "{qos:?}");
        // A reading that reached its end is over.
        net.leave(1, 1);
        assert_eq!(net.connect(0, 1, "sub"), Some(true));
        assert_eq!(net.settled(0, 1, SECOND * 2), Vec::<String>::new());
    }
}
