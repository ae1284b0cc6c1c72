//! The judge on invented histories: what is right passes, and every kind of wrong is found.

use whimbrel_client::{EventId, HostId, PubendId, Tick};

use crate::book::{Book, Condition, Fate, Filter, History, Keeper, Moment, Name, Published, Seen};
use crate::judge::{Fault, Verdict, judge};

const KEEPERS: [Keeper; 3] = [Keeper::Client, Keeper::ExactlyOnce, Keeper::AtLeastOnce];

fn name(number: u32) -> Name {
    Name { publisher: 1, number }
}

fn pubend() -> PubendId {
    HostId::new(0x10).pubend(1)
}

/// The id of the event with that number.
fn id(number: u32) -> Option<EventId> {
    Some(EventId { pubend: pubend(), tick: Tick(u64::from(number) * 10) })
}

/// Event `number` is sent at moment 100 * number and acknowledged 50 later; its level is its
/// number.
fn event(number: u32) -> Published {
    let first = Moment::from(number) * 100;
    Published {
        name: name(number),
        topic: "storm/1/a".into(),
        level: number as u8,
        last: false,
        exact: true,
        qos2: true,
        first,
        sends: 1,
        fate: Fate::Accepted(first + 50),
    }
}

/// Five events and one subscription, granted before all of them.
struct Story {
    book: Book,
    at: Moment,
}

impl Story {
    fn new(keeper: Keeper, condition: Condition) -> Story {
        let published = (1..=5).map(event).collect();
        let filter = Filter("storm/+/a");
        let history = History { subscription: "s".into(), keeper, filter, seen: Vec::new() };
        let mut story = Story { book: Book { published, histories: vec![history] }, at: 0 };
        story.see(Seen::Connected { present: false });
        story.see(Seen::Asked(condition));
        story.see(Seen::Granted);
        story
    }

    fn see(&mut self, seen: Seen) -> &mut Story {
        self.at += 1;
        self.book.histories[0].seen.push((self.at, seen));
        self
    }

    /// These events arrive after everything has been published.
    fn come(&mut self, numbers: &[u32]) -> &mut Story {
        self.at = self.at.max(1000);
        for number in numbers {
            self.see(Seen::Delivered { name: name(*number), id: id(*number) });
        }
        self
    }

    fn again(&mut self) -> &mut Story {
        self.see(Seen::Connected { present: true })
    }

    fn event(&mut self, number: u32) -> &mut Published {
        &mut self.book.published[number as usize - 1]
    }

    fn verdict(&self) -> Verdict {
        judge(&self.book).remove(0)
    }

    fn faults(&self) -> Vec<Fault> {
        self.verdict().faults
    }
}

#[test]
fn what_comes_once_and_in_order_is_right_for_everyone() {
    for keeper in KEEPERS {
        let mut story = Story::new(keeper, Condition::Any);
        let verdict = story.come(&[1, 2]).again().come(&[3, 4, 5]).verdict();
        assert_eq!((verdict.due, verdict.delivered, verdict.repeated, verdict.faults), (5, 5, 0, vec![]));
    }
}

#[test]
fn what_is_missing_is_lost_whoever_keeps_the_position() {
    for keeper in KEEPERS {
        assert_eq!(Story::new(keeper, Condition::Any).come(&[1, 2, 4, 5]).faults(), [Fault::Lost(name(3))]);
        assert_eq!(Story::new(keeper, Condition::Any).come(&[1, 2, 3, 4]).faults(), [Fault::Lost(name(5))]);
        assert_eq!(Story::new(keeper, Condition::Any).verdict().silent(), 5);
    }
}

#[test]
fn nothing_comes_twice_but_at_least_once_after_a_reconnection() {
    for keeper in KEEPERS {
        let within = Story::new(keeper, Condition::Any).come(&[1, 2, 3, 3, 4, 5]).faults();
        assert_eq!(within, [Fault::Twice(name(3))], "{keeper:?}: in one connection");
        let verdict = Story::new(keeper, Condition::Any).come(&[1, 2, 3]).again().come(&[2, 3, 4, 5]).verdict();
        if keeper == Keeper::AtLeastOnce {
            assert_eq!((verdict.repeated, verdict.faults), (2, vec![]));
        } else {
            assert_eq!(verdict.faults, [Fault::Twice(name(2)), Fault::Twice(name(3))]);
        }
    }
}

#[test]
fn what_was_published_with_qos_1_is_delivered_at_least_once_to_qos_2() {
    let repeated = |keeper| {
        let mut story = Story::new(keeper, Condition::Any);
        story.event(3).qos2 = false;
        story.come(&[1, 2, 3]).again().come(&[3, 4, 5]).faults()
    };
    assert_eq!(repeated(Keeper::ExactlyOnce), []);
    assert_eq!(repeated(Keeper::Client), [Fault::Twice(name(3))]);
}

#[test]
fn what_was_accepted_once_has_one_id() {
    let twice = |exact: bool, sends: u32| {
        let mut story = Story::new(Keeper::AtLeastOnce, Condition::Any);
        (story.event(2).exact, story.event(2).sends) = (exact, sends);
        story.come(&[1, 2, 3]);
        let other = EventId { pubend: pubend(), tick: Tick(35) };
        story.see(Seen::Delivered { name: name(2), id: Some(other) });
        story.come(&[4, 5]).faults()
    };
    assert_eq!(twice(true, 2), [Fault::Twice(name(2))], "numbered, it is accepted once however often it is sent");
    assert_eq!(twice(false, 1), [Fault::Twice(name(2))], "sent once, it is accepted once");
    assert_eq!(twice(false, 2), [], "what a publisher without numbers sends twice may be two events");
}

#[test]
fn swapped_events_are_out_of_order() {
    for keeper in KEEPERS {
        let faults = Story::new(keeper, Condition::Any).come(&[1, 3, 2, 4, 5]).faults();
        let swapped = Fault::Disordered { event: name(2), after: name(3) };
        assert!(!faults.is_empty() && faults.iter().all(|fault| *fault == swapped), "{faults:?}");
        let across = Story::new(keeper, Condition::Any).come(&[1, 3]).again().come(&[2, 4, 5]).faults();
        assert!(across.contains(&swapped), "{keeper:?}: across connections too: {across:?}");
    }
}

#[test]
fn the_order_of_a_publisher_counts_even_if_the_ticks_agree() {
    let mut story = Story::new(Keeper::Client, Condition::Any);
    story.come(&[1, 2]);
    story.see(Seen::Delivered { name: name(4), id: id(3) }).see(Seen::Delivered { name: name(3), id: id(4) });
    assert_eq!(story.come(&[5]).faults(), [Fault::Disordered { event: name(3), after: name(4) }]);
}

#[test]
fn a_mixture_of_qos_1_and_2_keeps_its_order() {
    for keeper in [Keeper::ExactlyOnce, Keeper::AtLeastOnce] {
        let mut story = Story::new(keeper, Condition::Any);
        story.book.published[1].qos2 = false;
        let faults = story.come(&[1, 3, 2, 4, 5]).faults();
        assert!(faults.contains(&Fault::Disordered { event: name(2), after: name(3) }), "{faults:?}");
    }
}

#[test]
fn a_repetition_keeps_the_order_of_its_connection() {
    let mut story = Story::new(Keeper::AtLeastOnce, Condition::Any);
    let faults = story.come(&[1, 2, 3]).again().come(&[4, 3, 5]).faults();
    assert_eq!(faults, [Fault::Disordered { event: name(3), after: name(4) }]);
}

#[test]
fn a_gap_tells_what_is_missing_and_is_a_fault_itself() {
    let told = |from, to| {
        let mut story = Story::new(Keeper::Client, Condition::Any);
        story.come(&[1, 2]);
        let (from, to) = (Tick(from), Tick(to));
        story.see(Seen::Gap { pubend: pubend(), from, to, reason: "lost".into() });
        let faults = story.come(&[4, 5]).faults();
        assert!(matches!(faults[0], Fault::Gap(_)));
        faults[1..].to_vec()
    };
    assert_eq!(told(20, 39), [Fault::Reported(name(3))]);
    assert_eq!(told(0, 20), [Fault::Lost(name(3))], "it ends before");
    assert_eq!(told(40, 60), [Fault::Lost(name(3))], "it begins behind");
}

#[test]
fn a_gap_in_what_is_not_reliable_is_no_fault() {
    let mut story = Story::new(Keeper::Client, Condition::Any);
    let gap = |pubend| Seen::Gap { pubend, from: Tick(20), to: Tick(39), reason: "lost".into() };
    story.come(&[1, 2]).see(gap(HostId::new(0x10).pubend(4)));
    assert_eq!(story.come(&[3, 4, 5]).faults(), []);
}

#[test]
fn a_gap_must_cover_the_tick_that_somebody_else_saw() {
    let mut story = Story::new(Keeper::Client, Condition::Any);
    story.come(&[1, 2]);
    story.see(Seen::Gap { pubend: pubend(), from: Tick(30), to: Tick(39), reason: "lost".into() });
    story.come(&[4, 5]);
    let mut other = Story::new(Keeper::Client, Condition::Any);
    other.come(&[1, 2, 3, 4, 5]);
    story.book.histories.append(&mut other.book.histories);
    assert!(story.faults().contains(&Fault::Lost(name(3))), "the gap begins behind tick 30, which it had");
}

#[test]
fn a_selector_that_is_ignored_or_misjudged_is_found() {
    let condition = Condition::AtLeast(3);
    assert_eq!(Story::new(Keeper::ExactlyOnce, condition).come(&[3, 4, 5]).faults(), []);
    assert_eq!(Story::new(Keeper::ExactlyOnce, condition).come(&[2, 3, 4, 5]).faults(), [Fault::Unwanted(name(2))]);
    assert_eq!(Story::new(Keeper::ExactlyOnce, condition).come(&[4, 5]).faults(), [Fault::Lost(name(3))]);
}

#[test]
fn a_new_selector_counts_from_its_request_to_its_grant_as_either() {
    // Asked for while event 2 is on its way, granted while event 4 is.
    let changed = |numbers: &[u32]| {
        let mut story = Story::new(Keeper::AtLeastOnce, Condition::AtLeast(3));
        story.at = 219;
        story.see(Seen::Asked(Condition::Below(3)));
        story.at = 419;
        story.see(Seen::Granted).come(numbers).faults()
    };
    // 1 came before, 5 after, 2 to 4 in between.
    assert_eq!(changed(&[]), []);
    assert_eq!(changed(&[2, 3, 4]), []);
    assert_eq!(changed(&[1]), [Fault::Unwanted(name(1))]);
    assert_eq!(changed(&[5]), [Fault::Unwanted(name(5))]);
}

#[test]
fn a_new_selector_that_is_refused_never_counts() {
    let mut story = Story::new(Keeper::AtLeastOnce, Condition::AtLeast(3));
    story.at = 219;
    story.see(Seen::Asked(Condition::Below(3)));
    story.at = 419;
    story.see(Seen::Refused);
    assert_eq!(story.come(&[3, 4, 5]).faults(), []);
    assert_eq!(story.come(&[2]).faults()[0], Fault::Unwanted(name(2)));
}

#[test]
fn nothing_is_due_before_the_grant_or_wanted_before_the_request() {
    let asked = |numbers: &[u32]| {
        let mut story = Story::new(Keeper::Client, Condition::Any);
        story.book.histories[0].seen.clear();
        story.at = 219;
        story.see(Seen::Asked(Condition::Any));
        story.at = 319;
        story.see(Seen::Granted).come(numbers).faults()
    };
    assert_eq!(asked(&[4, 5]), []);
    assert_eq!(asked(&[2, 3, 4, 5]), []);
    assert_eq!(asked(&[1, 4, 5]), [Fault::Unwanted(name(1))]);
    assert_eq!(asked(&[3, 5]), [Fault::Lost(name(4))]);
}

#[test]
fn whoever_unsubscribes_gives_up_what_is_still_to_come_but_no_hole_before_it() {
    let left = |before: &[u32], after: &[u32]| {
        let mut story = Story::new(Keeper::ExactlyOnce, Condition::Any);
        story.at = 355;
        for number in before {
            story.see(Seen::Delivered { name: name(*number), id: id(*number) });
        }
        story.see(Seen::Leaving).see(Seen::Left);
        story.at = 460;
        story.see(Seen::Asked(Condition::Any)).see(Seen::Granted).come(after).faults()
    };
    assert_eq!(left(&[1, 2, 3], &[5]), []);
    assert_eq!(left(&[1], &[5]), [], "it did not wait for 2 and 3");
    assert_eq!(left(&[1, 3], &[5]), [Fault::Lost(name(2))]);
    assert_eq!(left(&[1, 2, 3], &[4, 5]), [Fault::Unwanted(name(4))], "it was not there");
    assert_eq!(left(&[1, 2, 3], &[]), [Fault::Lost(name(5))]);
}

#[test]
fn what_was_refused_does_not_come_and_what_is_unknown_may() {
    let fate = |fate, numbers: &[u32]| {
        let mut story = Story::new(Keeper::Client, Condition::Any);
        story.event(3).fate = fate;
        story.come(numbers).faults()
    };
    assert_eq!(fate(Fate::Unknown, &[1, 2, 3, 4, 5]), []);
    assert_eq!(fate(Fate::Unknown, &[1, 2, 4, 5]), []);
    assert_eq!(fate(Fate::Refused(350), &[1, 2, 4, 5]), []);
    assert_eq!(fate(Fate::Refused(350), &[1, 2, 3, 4, 5]), [Fault::Twice(name(3))], "it was refused");
}

#[test]
fn inventions_and_forgotten_sessions_are_found() {
    let mut story = Story::new(Keeper::AtLeastOnce, Condition::Any);
    story.come(&[1, 2, 3, 4, 5]);
    story.see(Seen::Delivered { name: name(77), id: None }).see(Seen::Stray("what".into()));
    story.see(Seen::Connected { present: false });
    let at = story.at;
    assert_eq!(story.faults(), [Fault::Unwanted(name(77)), Fault::Stray("what".into()), Fault::Forgotten(at)]);
}

#[test]
fn a_topic_that_the_filter_does_not_match_is_not_wanted() {
    let mut story = Story::new(Keeper::Client, Condition::Any);
    story.event(3).topic = "storm/1/b".into();
    assert_eq!(story.come(&[1, 2, 4, 5]).faults(), []);
    assert_eq!(story.come(&[3]).faults()[0], Fault::Unwanted(name(3)));
    for (filter, topic, matches) in [
        ("storm/#", "storm/1/a", true),
        ("storm/#", "storm", true),
        ("storm/+/a", "storm/1/a", true),
        ("storm/+/a", "storm/1/b", false),
        ("storm/+", "storm/1/a", false),
        ("storm/1/a", "storm/1", false),
    ] {
        assert_eq!(Filter(filter).matches(topic), matches, "{filter} {topic}");
    }
}
