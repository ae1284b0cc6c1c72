//! The judge itself: each fault is found, and what is no fault is not.

use std::time::{Duration, Instant};

use whimbrel_client::{EventId, HostId, Tick};

use crate::book::{Book, History, Kind, Name, Published, Seen};
use crate::judge::{Verdict, judge};

/// A publisher's five events, acknowledged one after the other from the tenth millisecond on, and
/// one subscription that saw `seen` at these milliseconds.
fn verdict(kind: Kind, ended: bool, seen: &[(u64, Seen)]) -> Verdict {
    let begun = Instant::now();
    let at = |millis: u64| begun + Duration::from_millis(millis);
    let mut book = Book::default();
    for number in 1..=5 {
        let (sent, acknowledged) = (at(10 * u64::from(number)), Some(at(10 * u64::from(number) + 1)));
        let topic = "load/7/a".to_owned();
        let (level, last, reliable, life) = (number as u8, false, true, (0, 1));
        let event = Published { topic, level, last, reliable, life, sent, acknowledged };
        book.published.insert(Name { publisher: 7, number }, event);
    }
    book.began.extend([((1, 1), begun - Duration::from_millis(2)), ((1, 2), begun - Duration::from_millis(1))]);
    // Of the first life of the subscriber's broker before it was granted, of the second after the
    // third event had been sent.
    book.whole.extend([begun - Duration::from_micros(1500), at(35)]);
    if ended {
        book.ended.insert((0, 1));
    }
    let seen = seen.iter().map(|(millis, seen)| (at(*millis), seen.clone())).collect();
    let (subscription, filter, least) = ("s".to_owned(), "load/#", Some(2));
    book.histories.push(History { subscription, kind, filter, least, seen });
    judge(&book).remove(0)
}

fn granted() -> (u64, Seen) {
    (0, Seen::Granted { life: (1, 1), pending: Vec::new() })
}

fn came(number: u32) -> (u64, Seen) {
    let id = EventId { pubend: HostId::new(0xa0).pubend(0), tick: Tick(u64::from(number) * 100) };
    (60 + u64::from(number), Seen::Delivered { name: Name { publisher: 7, number }, id: Some(id) })
}

fn gap(from: u64, to: u64) -> (u64, Seen) {
    let pubend = HostId::new(0xa0).pubend(0);
    (64, Seen::Gap { pubend, from: Tick(from), to: Tick(to), reason: "lost".into() })
}

fn counts(verdict: &Verdict) -> [usize; 7] {
    let Verdict { due, told, died, lost, twice, disordered, unwanted, .. } = verdict;
    [*due, *told, *died, lost.len(), twice.len(), disordered.len(), unwanted.len()]
}

#[test]
fn each_fault_is_found() {
    let all = [granted(), came(2), came(3), came(4), came(5)];
    assert_eq!(counts(&verdict(Kind::Notices, false, &all)), [4, 0, 0, 0, 0, 0, 0]);
    let one_lost = [granted(), came(2), came(4), came(5)];
    assert_eq!(counts(&verdict(Kind::Plain, false, &one_lost)), [4, 0, 0, 1, 0, 0, 0]);
    let twice = [granted(), came(2), came(3), came(3), came(4), came(5)];
    assert_eq!(counts(&verdict(Kind::Roamer, false, &twice)), [4, 0, 0, 0, 1, 0, 0]);
    // By its number and by its tick.
    let swapped = [granted(), came(3), came(2), came(4), came(5)];
    assert_eq!(counts(&verdict(Kind::Notices, false, &swapped)), [4, 0, 0, 0, 0, 2, 0]);
    let unwanted = [granted(), came(1), came(2), came(3), came(4), came(5)];
    assert_eq!(counts(&verdict(Kind::Notices, false, &unwanted)), [4, 0, 0, 0, 0, 0, 1]);
    let stray = [granted(), came(2), came(3), came(4), came(5), (70, Seen::Stray("x".into()))];
    assert_eq!(counts(&verdict(Kind::Notices, false, &stray)), [4, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn what_a_gap_tells_is_told_and_no_more() {
    let told = [granted(), came(2), gap(200, 499), came(5)];
    assert_eq!(counts(&verdict(Kind::Notices, false, &told)), [4, 2, 0, 0, 0, 0, 0]);
    // It ends before the first that is missing could have been, or begins after it.
    let elsewhere = [granted(), came(2), gap(100, 200), came(4), came(5)];
    assert_eq!(counts(&verdict(Kind::Notices, false, &elsewhere)), [4, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn the_end_of_a_broker_and_of_a_connection_excuse_what_is_last() {
    let cut_short = [granted(), came(2), came(3)];
    assert_eq!(counts(&verdict(Kind::Plain, true, &cut_short)), [4, 0, 2, 0, 0, 0, 0]);
    assert_eq!(counts(&verdict(Kind::Plain, false, &cut_short)), [4, 0, 0, 2, 0, 0, 0]);
    let hole = [granted(), came(2), came(5)];
    assert_eq!(counts(&verdict(Kind::Plain, true, &hole)), [4, 0, 0, 2, 0, 0, 0]);
    // A nondurable subscription ends with its connection, a roamer's does not.
    let left = [granted(), came(2), came(3), (70, Seen::Away)];
    assert_eq!(counts(&verdict(Kind::Notices, false, &left)), [1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(counts(&verdict(Kind::Roamer, false, &left)), [4, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn a_broker_that_had_not_confirmed_owes_what_comes_after_its_first() {
    let pending = (0, Seen::Granted { life: (1, 1), pending: vec!["b0".into()] });
    let late = [pending.clone(), came(3), came(5)];
    assert_eq!(counts(&verdict(Kind::Notices, false, &late)), [2, 0, 0, 1, 0, 0, 0]);
    let elsewhere = (0, Seen::Granted { life: (1, 1), pending: vec!["b1".into()] });
    assert_eq!(counts(&verdict(Kind::Notices, false, &[elsewhere, came(3), came(4), came(5)])), [4, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_broker_that_has_just_begun_owes_what_is_sent_when_all_know_of_it() {
    let young = (0, Seen::Granted { life: (1, 2), pending: Vec::new() });
    assert_eq!(counts(&verdict(Kind::Notices, false, &[young.clone(), came(4), came(5)])), [2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(counts(&verdict(Kind::Notices, false, &[young.clone(), came(5)])), [2, 0, 0, 1, 0, 0, 0]);
    assert_eq!(counts(&verdict(Kind::Notices, false, &[young, came(2), came(4), came(5)])), [3, 0, 0, 1, 0, 0, 0]);
}
