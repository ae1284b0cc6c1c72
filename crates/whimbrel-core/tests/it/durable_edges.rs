//! Durable subscriptions where things meet: requests that wait for one another, clients that leave
//! at the wrong moment, a log that is full or fails.

use crate::common::*;
use core::time::Duration;
use whimbrel_core::store::*;
use whimbrel_core::*;
use whimbrel_event::*;

/// A core with a log that takes everything, and records the writes.
struct Disked {
    rig: Rig,
    writes: Vec<String>,
    taken: BatchNo,
}
fn name(k: &[u8]) -> String {
    format!("{}", k.escape_ascii())
}
impl Disked {
    fn new() -> Self {
        let rig = Rig {
            core: Restoring::default().finish(Limits::default(), 7, START, &LogState::default()).unwrap(),
            now: START,
            edges: Edges::default(),
        };
        let mut d = Disked { rig, writes: vec![], taken: BatchNo(0) };
        d.commit();
        d
    }
    fn take(&mut self) {
        self.rig.core.flush(self.rig.now);
        while let Some(batch) = self.rig.core.batch() {
            for w in batch.writes() {
                self.writes.push(match w {
                    Write::Event { tick, .. } => format!("event {}", tick.0),
                    Write::Put { key, .. } => format!("put {}", name(key)),
                    Write::Forget { key } => format!("forget {}", name(key)),
                    Write::Chop { stream, upto } => format!("chop {stream:?} {}", upto.0),
                    Write::Reserve { upto } => format!("reserve {}", upto.0),
                    Write::Record { .. } => "record".into(),
                });
            }
            self.taken = self.rig.core.submitted();
        }
    }
    fn commit(&mut self) {
        for _ in 0..5 {
            self.take();
            let upto = self.taken;
            self.rig.input(Input::Committed { upto });
        }
    }
    fn sub(&mut self, link: u32, filter: &str, qos: Qos) {
        self.rig.input(Input::Subscribe { link: Link(link), tag: 1, filters: &[plain(filter, qos)] });
    }
    /// The publisher's fifth event.
    fn order(&mut self) {
        let event = event("t", "order", Qos::AtLeastOnce);
        self.rig.input(Input::Publish(Publish {
            link: Link(1),
            tag: 9,
            retain: false,
            number: Some(5),
            event: &event,
        }));
    }
}

#[test]
fn subscribes_that_wait_for_one_another_are_all_answered() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.sub(1, "a", Qos::AtLeastOnce);
    d.sub(1, "b", Qos::AtLeastOnce);
    d.sub(1, "c", Qos::AtLeastOnce);
    d.commit();
    for _ in 0..1000 {
        d.rig.input(Input::Deadline);
        d.commit();
    }
    let told = d.rig.take(1);
    let n = told.iter().filter(|t| matches!(t, Told::Subscribed(_))).count();
    assert_eq!(n, 3, "subacks; deadline: {:?}", d.rig.core.next_deadline());
}

#[test]
fn who_leaves_before_its_subscription_is_confirmed_can_come_back() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.commit();
    d.sub(1, "a", Qos::AtLeastOnce);
    d.rig.detach(1, false);
    d.commit();
    d.rig.attach(2, "c", KEPT);
}

#[test]
fn a_remembered_session_that_will_end_with_its_connection_gets_events_exactly_once() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.commit();
    d.sub(1, "a", Qos::ExactlyOnce);
    d.commit();
    d.rig.detach(1, false);
    d.rig.attach(2, "c", Client { expiry: Duration::ZERO, ..KEPT });
    d.rig.attach(3, "p", CLEAN);
    d.commit();
    d.rig.publish(3, "a", "x", Qos::ExactlyOnce);
    d.commit();
}

#[test]
fn nothing_is_given_up_before_it_is_known_who_holds_it() {
    let mut lost = 0;
    for at in 0..120_u32 {
        let mut d = Disked::new();
        d.rig.core.set_profiles(vec![Profile {
            filter: "b".into(),
            persistence: Persistence::Persistent,
            ..Profile::default()
        }]);
        d.rig.attach(1, "c", KEPT);
        d.sub(1, "a", Qos::AtLeastOnce);
        d.commit();
        d.rig.detach(1, false);
        d.rig.attach(3, "p", CLEAN);
        d.commit();
        d.writes.clear();
        let mut tick = 0;
        for n in 0..300_u32 {
            d.rig.now = d.rig.now.after(Duration::from_micros(u64::from(n * 7919 % 13) * 100));
            d.rig.now = d.rig.now.after(Duration::from_millis(3));
            if n % 2 == 0 {
                d.rig.attach(10 + n, &format!("x{n}"), KEPT);
                d.sub(10 + n, &format!("o{n}"), Qos::AtLeastOnce);
            }
            d.rig.publish(3, "b", "y", Qos::AtLeastOnce);
            if n == 100 + at {
                tick = d.rig.now.as_nanos();
                d.rig.publish(3, "a", "x", Qos::AtLeastOnce);
            }
            d.commit();
        }
        let chopped = d
            .writes
            .iter()
            .filter_map(|w| w.strip_prefix("chop "))
            .filter_map(|w| w.rsplit(' ').next()?.parse::<u64>().ok())
            .max();
        if chopped > Some(tick) {
            lost += 1;
        }
    }
    assert_eq!(lost, 0);
}

#[test]
fn a_will_that_is_not_logged_leaves_nothing_half_written() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.commit();
    d.rig.attach(2, "w", Client { will: Some(will("nobody", "x", Duration::ZERO)), ..KEPT });
    d.commit();
    d.rig.detach(2, true);
    let _ = d.rig.core.batch();
}

#[test]
fn a_subscription_that_outlives_its_session_is_forgotten() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.commit();
    d.writes.clear();
    d.sub(1, "a", Qos::AtLeastOnce);
    d.rig.input(Input::Detach { link: Link(1), publish_will: false, expiry: Some(Duration::ZERO) });
    d.commit();
    assert!(d.writes.iter().any(|w| w.starts_with("forget d")), "{:#?}", d.writes);
}

#[test]
fn a_repeat_of_what_is_refused_is_refused() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.sub(1, "a", Qos::AtLeastOnce);
    d.commit();
    d.rig.attach(2, "p", KEPT);
    d.commit();
    d.rig.publish(2, "a", "x", Qos::ExactlyOnce);
    d.rig.detach(2, false);
    d.rig.attach(2, "p", KEPT);
    d.rig.publish(2, "a", "x", Qos::ExactlyOnce);
    d.rig.input(Input::Disk(Disk::Full));
    d.commit();
    let told = d.rig.take(2);
    assert!(!told.iter().any(|t| matches!(t, Told::Accepted { result: Accepted::Repeat, .. })), "{told:#?}");
}

#[test]
fn a_subscribe_behind_a_refused_event_is_answered() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.sub(1, "a", Qos::AtLeastOnce);
    d.rig.attach(2, "p", CLEAN);
    d.commit();
    d.rig.publish(2, "a", "x", Qos::AtLeastOnce);
    d.rig.input(Input::Disk(Disk::Full));
    d.commit();
    d.rig.take(1);
    d.sub(1, "b", Qos::AtLeastOnce);
    d.commit();
    let told = d.rig.take(1);
    assert!(told.iter().any(|t| matches!(t, Told::Subscribed(_))), "{told:#?} {:?}", d.rig.core.next_deadline());
}

#[test]
fn many_sessions_that_subscribe_twice_in_one_commit_need_no_stack() {
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(|| {
            let mut d = Disked::new();
            for link in 0..4000 {
                d.rig.attach(link, &format!("c{link}"), KEPT);
            }
            d.commit();
            for link in 0..4000 {
                d.sub(link, "a", Qos::AtLeastOnce);
                d.sub(link, "b", Qos::AtLeastOnce);
            }
            d.commit();
            for _ in 0..1000 {
                d.rig.input(Input::Deadline);
                d.commit();
            }
            for link in 0..4000 {
                let told = d.rig.take(link);
                let answers = told.iter().filter(|told| matches!(told, Told::Subscribed(_))).count();
                assert_eq!(answers, 2, "client {link}: {told:?}");
            }
        })
        .expect("a thread starts")
        .join()
        .expect("its stack is large enough, and all are answered");
}

#[test]
fn a_failed_log_leaves_nothing_half_written() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.commit();
    d.sub(1, "a", Qos::ExactlyOnce);
    d.commit();
    d.rig.attach(3, "p", CLEAN);
    d.rig.publish(3, "a", "x", Qos::ExactlyOnce);
    d.commit();
    let got = d.rig.events(1);
    d.rig.settle(1, got[0].tag, Settlement::Received);
    d.commit();
    d.rig.settle(1, got[0].tag, Settlement::Completed);
    d.rig.input(Input::Disk(Disk::Poisoned));
    d.rig.input(Input::Unsubscribe { link: Link(1), tag: 3, filters: &["a"] });
    let _ = d.rig.core.batch();
}

#[test]
fn a_repeat_of_what_nobody_knows_ends_the_connection() {
    let mut d = Disked::new();
    d.rig.attach(1, "c", KEPT);
    d.sub(1, "a", Qos::AtLeastOnce);
    d.commit();
    d.rig.attach(2, "p", KEPT);
    d.commit();
    d.rig.publish(2, "a", "x", Qos::ExactlyOnce);
    d.rig.input(Input::Disk(Disk::Poisoned));
    d.rig.attach(2, "p", KEPT);
    d.rig.take(2);
    d.rig.publish(2, "a", "x", Qos::ExactlyOnce);
    d.rig.input(Input::Deadline);
    let told = d.rig.take(2);
    assert!(!told.is_empty(), "no answer, in line: {}", d.rig.core.is_in_commit_queue(Link(2)));
}

#[test]
fn a_number_that_was_taken_back_is_no_repeat_also_if_its_publisher_has_left_before() {
    let mut d = Disked::new();
    d.rig.attach(2, "subscriber", KEPT);
    d.sub(2, "t", Qos::AtLeastOnce);
    d.commit();
    d.rig.take(2);
    d.rig.attach(1, "publisher", CLEAN);
    d.order();
    d.rig.detach(1, false);
    d.rig.input(Input::Disk(Disk::Full));
    d.rig.input(Input::Disk(Disk::Open));
    d.rig.attach(1, "publisher", CLEAN);
    d.order();
    d.commit();
    assert_eq!(d.rig.take(1), [Told::Accepted { tag: 9, result: Accepted::Routed { matched: true } }]);
    assert_eq!(d.rig.payloads(2), ["order"]);
}

#[test]
fn a_repetition_that_waits_for_a_number_that_is_taken_back_is_refused() {
    let mut d = Disked::new();
    d.rig.attach(2, "subscriber", KEPT);
    d.sub(2, "t", Qos::AtLeastOnce);
    d.commit();
    d.rig.attach(1, "publisher", CLEAN);
    d.order();
    d.rig.detach(1, false);
    d.rig.attach(1, "publisher", CLEAN);
    d.order();
    d.rig.input(Input::Disk(Disk::Full));
    d.commit();
    assert_eq!(d.rig.take(1), [Told::Accepted { tag: 9, result: Accepted::Refused(Refusal::LogFull) }]);
}

/// Requests that wait for others of their session until its client is not read any more.
const WAITING: usize = 1024;

/// The answers to SUBSCRIBE since the last look.
fn granted(d: &mut Disked) -> usize {
    let told = d.rig.take(1);
    assert!(told.iter().all(|told| matches!(told, Told::Subscribed(results) if results[0].is_ok())), "{told:?}");
    told.len()
}

#[test]
fn who_asks_faster_than_the_log_commits_is_not_read_for_a_while_and_gets_every_answer() {
    const ASKED: usize = 4000;
    let mut d = Disked::new();
    d.rig.attach(1, "gateway", KEPT);
    d.commit();
    let (mut asked, mut answered, mut most) = (0, 0, 0);
    while answered < ASKED {
        while asked < ASKED && !d.rig.edges.paused.contains(&1) {
            d.sub(1, &format!("t/{}", asked % 50), Qos::AtLeastOnce);
            asked += 1;
        }
        most = most.max(asked - answered);
        d.commit();
        d.rig.advance(Duration::ZERO);
        let more = granted(&mut d);
        assert!(more > 0, "{answered} of {asked} are answered, and no more");
        answered += more;
    }
    assert_eq!(most, WAITING + 2, "one is at work, and the last is the one too many");
    assert!(d.rig.edges.paused.is_empty(), "it is read again");
    assert!(d.rig.core.stats().subscribers_held >= 2);
}

#[test]
fn what_had_been_read_already_is_still_taken_and_the_next_connection_is_read() {
    let mut d = Disked::new();
    d.rig.attach(1, "gateway", KEPT);
    d.commit();
    for _ in 0..2 * WAITING {
        d.sub(1, "t", Qos::AtLeastOnce);
    }
    assert!(d.rig.edges.paused.contains(&1));
    d.rig.detach(1, false);
    d.rig.edges.paused.clear();
    d.rig.attach(1, "gateway", KEPT);
    d.sub(1, "t", Qos::AtLeastOnce);
    for _ in 0..WAITING {
        d.commit();
        d.rig.advance(Duration::ZERO);
    }
    assert_eq!(granted(&mut d), 1, "what the old connection waited for is not asked for any more");
    assert!(d.rig.edges.paused.is_empty());
}

#[test]
fn a_driver_that_reads_on_is_given_an_end() {
    let mut d = Disked::new();
    d.rig.attach(1, "gateway", KEPT);
    d.commit();
    d.rig.take(1);
    let mut asked = 0;
    while d.rig.edges.told.get(&1).is_none_or(Vec::is_empty) {
        d.sub(1, "t", Qos::AtLeastOnce);
        asked += 1;
    }
    assert_eq!((d.rig.take(1), asked), (vec![Told::Kicked(Kick::AsksTooMuch)], usize::from(u16::MAX) + 2));
}
