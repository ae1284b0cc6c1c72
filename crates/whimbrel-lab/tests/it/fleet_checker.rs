//! The checker has to pass a faultless broker and to catch every kind of fault, one at a time,
//! wherever it happens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use whimbrel_client::{EventId, Gap, GapReason, PubendId, Tick};
use whimbrel_lab::fleet::checker::{
    Checker, How, Interest, MAX_BEHIND, Message, Promise, SubscriberId, Tally, Verdict,
};
use whimbrel_lab::fleet::fence::{Fence, Shape};
use whimbrel_lab::fleet::geo::Place;
use whimbrel_lab::fleet::regions::{Disturbances, Sites};
use whimbrel_lab::fleet::selection::{Condition, Content, Selection, Want};

const VEHICLES: u32 = 5;
const LINES: u32 = 3;
const SEEDS: u64 = 200;
const MIDDLE: Place = Place { lat: 52.2, lon: 21.0 };
const RADIUS: f64 = 300.0;

/// What goes wrong on the way to one subscriber.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    None,
    Loss,
    Duplicate,
    Reorder,
    Alteration,
    Stranger,
    WrongLine,
    /// A message that the subscriber's condition does not want, sent to it all the same.
    Unwanted,
}

/// A circle, fast vehicles, and both with a line.
fn selection() -> Selection {
    let shape = Shape::Circles { middles: vec![MIDDLE], radius: RADIUS };
    let inside = Condition { fence: Some(0), ..Condition::default() };
    let fast = Condition { above: Some(5), ..Condition::default() };
    let all = Condition { line: Some(1), above: Some(2), ..inside };
    Selection { fences: vec![Fence { name: "depot", shape }], conditions: vec![inside, fast, all] }
}

/// Whether a subscriber is to get a message, for these messages, which keep away from borders.
fn wants(interest: Interest, message: &Message) -> bool {
    let Content { line, place, speed } = message.content;
    match interest {
        Interest::All => true,
        Interest::Line(mine) => mine == line,
        Interest::Selected(index) => {
            let inside = MIDDLE.distance(place) < RADIUS;
            [inside, speed > 5.0, inside && line == 1 && speed > 2.0][index]
        }
    }
}

fn message(vehicle: u32, seq: u64) -> Message {
    // A vehicle changes its line now and then.
    let line = (vehicle + (seq / 7) as u32) % LINES;
    let place = MIDDLE.moved(50.0 + 100.0 * (seq % 6) as f64, 0.0);
    let content = Content { line, place, speed: (seq * 5 % 11) as f64 };
    Message { vehicle, content, seq, digest: seq.wrapping_mul(0x9e37_79b9) }
}

/// Applies one fault at a random place of what a subscriber would get; false if there is no place
/// for it.
fn inject(fault: Fault, arrivals: &mut Vec<Message>, interest: Interest, unwanted: &[Message], rng: &mut Rng) -> bool {
    if arrivals.is_empty() {
        return fault == Fault::None;
    }
    let index = rng.usize(..arrivals.len());
    match fault {
        Fault::None => {}
        Fault::Loss => drop(arrivals.remove(index)),
        Fault::Duplicate => {
            let again = rng.usize(index..=arrivals.len());
            arrivals.insert(again, arrivals[index]);
        }
        Fault::Reorder => {
            let later = (index + 1..arrivals.len()).find(|&other| arrivals[other].vehicle == arrivals[index].vehicle);
            let Some(later) = later else { return false };
            arrivals.swap(index, later);
        }
        Fault::Alteration => arrivals[index].digest ^= 1,
        Fault::Stranger => arrivals.insert(index, Message { seq: 1_000_000, ..arrivals[index] }),
        Fault::WrongLine => {
            let Interest::Line(line) = interest else { return false };
            let content = Content { line: (line + 1) % LINES, ..arrivals[index].content };
            arrivals.insert(index, Message { content, ..arrivals[index] });
        }
        Fault::Unwanted => {
            let Some(message) = rng.choice(unwanted) else { return false };
            arrivals.insert(index, *message);
        }
    }
    true
}

/// A random run in which one random subscriber suffers one fault: its tally and the others', or
/// none if there was no place for the fault.
fn run(fault: Fault, seed: u64) -> Option<(Tally, Tally)> {
    let mut rng = Rng::with_seed(seed);
    let mut checker = Checker::new(VEHICLES as usize, Arc::new(selection()));
    let selected = [0, 1, 2].map(Interest::Selected);
    let interests = [Interest::All, Interest::Line(0), Interest::Line(1), selected[0], selected[1], selected[2]];
    let ids = interests.map(|interest| checker.subscribed(interest, Promise::Reliable));
    let (mut arrivals, mut unwanted) = (interests.map(|_| Vec::new()), interests.map(|_| Vec::new()));
    let mut seqs = [0; VEHICLES as usize];
    for step in 0..200 {
        let vehicle = rng.u32(..VEHICLES);
        seqs[vehicle as usize] += 1;
        let message = message(vehicle, seqs[vehicle as usize]);
        checker.published(message, Duration::from_millis(step));
        for (index, interest) in interests.iter().enumerate() {
            let heap = if wants(*interest, &message) { &mut arrivals[index] } else { &mut unwanted[index] };
            heap.push(message);
        }
    }
    let victim = rng.usize(..interests.len());
    inject(fault, &mut arrivals[victim], interests[victim], &unwanted[victim], &mut rng).then_some(())?;
    let mut queues: Vec<(SubscriberId, VecDeque<Message>)> =
        ids.into_iter().zip(arrivals.map(VecDeque::from)).collect();
    while queues.iter().any(|(_, queue)| !queue.is_empty()) {
        let (subscriber, queue) = &mut queues[rng.usize(..interests.len())];
        if let Some(message) = queue.pop_front() {
            checker.arrived(*subscriber, message, false, Duration::from_millis(500));
        }
    }
    checker.close();
    let mut others = Tally::default();
    ids.iter().filter(|id| **id != ids[victim]).for_each(|id| others.add(&checker.tally_of(*id)));
    Some((checker.tally_of(ids[victim]), others))
}

fn check(fault: Fault, symptom: impl Fn(&Tally) -> u64) {
    let mut injected = 0;
    for seed in 0..SEEDS {
        let Some((victim, others)) = run(fault, seed) else { continue };
        injected += 1;
        assert_eq!(symptom(&victim), 1, "seed {seed}: {fault:?} is not seen as it should: {victim:?}");
        assert_eq!(
            victim.faults(Promise::Reliable),
            1,
            "seed {seed}: {fault:?} is seen as something else too: {victim:?}"
        );
        assert_eq!(others.faults(Promise::Reliable), 0, "seed {seed}: {fault:?} is blamed on others: {others:?}");
    }
    assert!(injected > SEEDS / 5, "the fault was injected in {injected} of {SEEDS} runs only");
}

#[test]
fn a_faultless_broker_is_not_blamed() {
    for seed in 0..SEEDS {
        let (victim, others) = run(Fault::None, seed).expect("nothing is always possible");
        for tally in [victim, others] {
            assert_eq!(tally.faults(Promise::Reliable), 0, "seed {seed}: {tally:?}");
            assert_eq!(tally.delivered, tally.expected, "seed {seed}: {tally:?}");
        }
        assert!(others.delivered > 0, "seed {seed}: nothing was checked");
    }
}

#[test]
fn a_loss_is_caught() {
    check(Fault::Loss, |tally| tally.lost);
}

#[test]
fn a_duplicate_is_caught() {
    check(Fault::Duplicate, |tally| tally.duplicated);
}

#[test]
fn an_alteration_is_caught() {
    check(Fault::Alteration, |tally| tally.altered);
}

#[test]
fn a_message_nobody_sent_is_caught() {
    check(Fault::Stranger, |tally| tally.foreign);
}

#[test]
fn a_message_of_another_line_is_caught() {
    check(Fault::WrongLine, |tally| tally.foreign);
}

#[test]
fn a_message_outside_of_the_subscription_is_caught() {
    check(Fault::Unwanted, |tally| tally.foreign);
}

/// A checker that takes the fence for a little larger, or a threshold for a little lower, than the
/// broker does, and one subscriber with that condition gets what the true condition wants: what the
/// checker says of it.
fn misjudged(condition: usize, change: impl Fn(&mut Selection)) -> Tally {
    let mut changed = selection();
    change(&mut changed);
    let mut checker = Checker::new(1, Arc::new(changed));
    let subscriber = checker.subscribed(Interest::Selected(condition), Promise::Reliable);
    for seq in 1..=66 {
        checker.published(message(0, seq), Duration::ZERO);
        if wants(Interest::Selected(condition), &message(0, seq)) {
            checker.arrived(subscriber, message(0, seq), false, Duration::ZERO);
        }
    }
    checker.close();
    checker.tally_of(subscriber)
}

#[test]
fn an_expectation_that_differs_from_the_selector_is_noticed() {
    let circle = |radius| {
        move |changed: &mut Selection| changed.fences[0].shape = Shape::Circles { middles: vec![MIDDLE], radius }
    };
    let above = |above| move |changed: &mut Selection| changed.conditions[1].above = Some(above);
    for condition in 0..3 {
        let tally = misjudged(condition, |_| {});
        assert_eq!((tally.faults(Promise::Reliable), tally.bordering), (0, 0), "{condition}: {tally:?}");
        assert!(tally.delivered > 0, "{condition}: {tally:?}");
    }
    let (larger, smaller) = (misjudged(0, circle(400.0)), misjudged(0, circle(200.0)));
    assert!(larger.lost > 0 && larger.foreign == 0, "{larger:?}");
    assert!(smaller.foreign > 0 && smaller.lost == 0, "{smaller:?}");
    let (lower, higher) = (misjudged(1, above(4)), misjudged(1, above(6)));
    assert!(lower.lost > 0 && lower.foreign == 0, "{lower:?}");
    assert!(higher.foreign > 0 && higher.lost == 0, "{higher:?}");
}

#[test]
fn what_is_too_close_to_a_border_to_tell_may_arrive_or_not_but_not_twice() {
    let selection = Arc::new(selection());
    let content = Content { place: MIDDLE.moved(0.0, RADIUS), ..message(0, 1).content };
    let near = |seq| Message { content, ..message(0, seq) };
    assert_eq!(selection.want(selection.conditions[0], content), Want::Either);
    let mut checker = Checker::new(1, selection);
    let subscriber = checker.subscribed(Interest::Selected(0), Promise::Reliable);
    (1..=3).for_each(|seq| checker.published(near(seq), Duration::ZERO));
    assert_eq!(checker.in_flight(Promise::Reliable), 0, "nobody waits for them");
    let mut arrive = |seq| checker.arrived(subscriber, near(seq), false, Duration::ZERO);
    assert_eq!((arrive(2), arrive(2)), (Verdict::InOrder(Duration::ZERO), Verdict::Duplicate));
    assert_eq!(checker.missing(Promise::Reliable), 0);
    checker.close();
    let tally = checker.tally_of(subscriber);
    assert_eq!((tally.expected, tally.delivered, tally.bordering, tally.lost, tally.duplicated), (0, 0, 3, 0, 1));
}

#[test]
fn a_reordering_is_caught() {
    for seed in 0..SEEDS {
        let Some((victim, others)) = run(Fault::Reorder, seed) else { continue };
        assert_eq!(victim.reordered, 1, "seed {seed}: {victim:?}");
        assert_eq!(victim.faults(Promise::Reliable), 1, "seed {seed}: {victim:?}");
        assert_eq!(victim.delivered, victim.expected, "seed {seed}: {victim:?}");
        assert_eq!(others.faults(Promise::Reliable), 0, "seed {seed}: {others:?}");
    }
}

#[test]
fn an_overtaken_message_is_missing_until_it_comes() {
    let mut checker = Checker::new(1, Arc::default());
    let subscriber = checker.subscribed(Interest::All, Promise::Reliable);
    (1..=3).for_each(|seq| checker.published(message(0, seq), Duration::from_millis(seq)));
    let at = Duration::from_millis(10);
    assert_eq!(checker.arrived(subscriber, message(0, 3), false, at), Verdict::InOrder(Duration::from_millis(7)));
    assert_eq!((checker.missing(Promise::Reliable), checker.in_flight(Promise::Reliable)), (2, 2));
    assert_eq!(checker.arrived(subscriber, message(0, 1), false, at), Verdict::OutOfOrder(Duration::from_millis(9)));
    assert_eq!((checker.missing(Promise::Reliable), checker.in_flight(Promise::Reliable)), (1, 1));
    checker.close();
    let tally = checker.tally(Promise::Reliable);
    assert_eq!((tally.lost, tally.reordered, tally.delivered), (1, 1, 2));
    assert_eq!(checker.missing(Promise::Reliable), 0);
}

#[test]
fn a_marked_repetition_is_no_fault_and_an_unmarked_one_is() {
    let mut checker = Checker::new(1, Arc::default());
    let subscriber = checker.subscribed(Interest::All, Promise::Reliable);
    checker.published(message(0, 1), Duration::ZERO);
    let mut arrive = |may_repeat| checker.arrived(subscriber, message(0, 1), may_repeat, Duration::ZERO);
    assert_eq!(arrive(true), Verdict::InOrder(Duration::ZERO), "a first delivery may be marked, too");
    assert_eq!((arrive(true), arrive(false)), (Verdict::Repeated, Verdict::Duplicate));
    let tally = checker.tally_of(subscriber);
    assert_eq!((tally.redelivered, tally.duplicated, tally.faults(Promise::Reliable)), (1, 1, 1));
}

#[test]
fn losses_of_best_effort_subscribers_are_counted_apart_and_no_fault() {
    let mut checker = Checker::new(1, Arc::default());
    let viewer = checker.subscribed(Interest::All, Promise::BestEffort);
    checker.subscribed(Interest::Line(2), Promise::Reliable);
    checker.published(message(0, 1), Duration::ZERO);
    checker.published(message(0, 2), Duration::ZERO);
    checker.arrived(viewer, message(0, 2), false, Duration::ZERO);
    checker.close();
    let tally = checker.tally(Promise::BestEffort);
    assert_eq!((tally.lost, tally.faults(Promise::BestEffort)), (1, 0));
    assert_eq!(checker.tally(Promise::Reliable), Tally::default());
}

#[test]
fn only_what_is_published_after_subscribing_is_expected() {
    let mut checker = Checker::new(1, Arc::default());
    checker.published(message(0, 1), Duration::ZERO);
    let late = checker.subscribed(Interest::All, Promise::Reliable);
    checker.published(message(0, 2), Duration::ZERO);
    assert_eq!(checker.arrived(late, message(0, 1), false, Duration::ZERO), Verdict::Early);
    checker.close();
    let tally = checker.tally_of(late);
    assert_eq!((tally.expected, tally.lost, tally.foreign), (1, 1, 0));
}

#[test]
fn an_unconfirmed_message_may_arrive_or_not() {
    for arrives in [false, true] {
        let mut checker = Checker::new(1, Arc::default());
        let subscriber = checker.subscribed(Interest::All, Promise::Reliable);
        checker.published(message(0, 1), Duration::ZERO);
        checker.excuse(0, 1);
        if arrives {
            checker.arrived(subscriber, message(0, 1), false, Duration::ZERO);
        }
        checker.close();
        let tally = checker.tally_of(subscriber);
        assert_eq!((tally.delivered, tally.excused), if arrives { (1, 0) } else { (0, 1) });
        assert_eq!(tally.faults(Promise::Reliable), 0);
    }
}

#[test]
fn a_subscriber_that_gets_nothing_costs_bounded_memory_and_loses_everything() {
    let mut checker = Checker::new(1, Arc::default());
    let subscriber = checker.subscribed(Interest::All, Promise::Reliable);
    let count = MAX_BEHIND as u64 + 100;
    (1..=count).for_each(|seq| checker.published(message(0, seq), Duration::ZERO));
    assert_eq!(checker.in_flight(Promise::Reliable), MAX_BEHIND as u64);
    assert_eq!(checker.tally_of(subscriber).lost, 100);
    checker.close();
    assert_eq!(checker.tally_of(subscriber).lost, count);
}

/// A console that roams, in a run of one vehicle.
struct Roaming {
    checker: Checker,
    console: SubscriberId,
}

impl Roaming {
    fn new(promise: Promise) -> Roaming {
        let mut checker = Checker::new(1, Arc::default());
        let console = checker.subscribed(Interest::All, promise);
        Roaming { checker, console }
    }

    fn publish(&mut self, seqs: std::ops::RangeInclusive<u64>) {
        seqs.for_each(|seq| self.checker.published(message(0, seq), Duration::ZERO));
    }

    fn arrive(&mut self, seq: u64) -> Verdict {
        self.checker.arrived(self.console, message(0, seq), false, Duration::from_millis(9))
    }

    fn closed(mut self) -> Tally {
        self.checker.close();
        self.checker.tally_of(self.console)
    }
}

/// A message that comes with its name.
fn how(id: EventId) -> How {
    How { id: Some(id), ..How::default() }
}

fn event(pubend: u64, tick: u64) -> EventId {
    EventId { pubend: PubendId(pubend), tick: Tick(tick) }
}

fn gap(pubend: u64, from: u64, to: u64) -> Gap {
    Gap { pubend: PubendId(pubend), from: Tick(from), to: Tick(to), reason: GapReason::Overwritten }
}

#[test]
fn what_comes_after_an_outage_is_recovered_and_what_never_comes_is_lost_silently() {
    let mut run = Roaming::new(Promise::SemiDurable);
    run.publish(1..=2);
    run.arrive(1);
    run.checker.away(run.console);
    run.publish(3..=5);
    run.checker.back(run.console);
    assert_eq!(run.checker.owed(run.console), 4);
    run.publish(6..=6);
    let late = Verdict::Recovered(Duration::from_millis(9));
    // 2 was on its way when the signal went; 4 never comes.
    assert_eq!([2, 3, 5].map(|seq| run.arrive(seq)), [late; 3]);
    assert_eq!(run.arrive(6), Verdict::InOrder(Duration::from_millis(9)));
    assert_eq!((run.checker.owed(run.console), run.checker.missing(Promise::SemiDurable)), (1, 1));
    let tally = run.closed();
    assert_eq!((tally.expected, tally.delivered, tally.recovered, tally.lost), (6, 5, 3, 1));
    assert_eq!(tally.faults(Promise::SemiDurable), 1);
}

#[test]
fn what_is_recovered_twice_or_out_of_order_is_caught() {
    let mut run = Roaming::new(Promise::SemiDurable);
    run.checker.away(run.console);
    run.publish(1..=3);
    run.checker.back(run.console);
    run.arrive(1);
    assert_eq!(run.arrive(1), Verdict::Duplicate);
    run.arrive(3);
    assert!(matches!(run.arrive(2), Verdict::OutOfOrder(_)));
    let tally = run.closed();
    assert_eq!((tally.duplicated, tally.reordered, tally.lost), (1, 1, 0));
}

#[test]
fn only_what_lies_in_a_gap_is_reported() {
    let mut run = Roaming::new(Promise::SemiDurable);
    run.checker.away(run.console);
    run.publish(1..=5);
    run.checker.back(run.console);
    // Ticks 10 to 50; the name of 3 is not known yet.
    for seq in [1, 2, 4, 5] {
        run.checker.named(0, seq, event(7, 10 * seq));
    }
    // The range of another stream says nothing of this one, and the lower end of a range is not in
    // it.
    run.checker.gap(run.console, gap(8, 0, 100));
    run.checker.gap(run.console, gap(7, 10, 30));
    assert_eq!(run.checker.tally_of(run.console).reported, 2, "3 lies where the gap is, as far as anybody knows");
    run.arrive(4);
    run.checker.named(0, 3, event(7, 30));
    run.checker.settle();
    let tally = run.checker.tally_of(run.console);
    assert_eq!((tally.reported, run.checker.in_flight(Promise::SemiDurable)), (2, 2));
    assert_eq!(run.arrive(3), Verdict::Duplicate, "what is in a gap is not delivered");
    let tally = run.closed();
    assert_eq!((tally.expected, tally.delivered, tally.reported, tally.lost), (5, 1, 2, 2));
}

#[test]
fn what_only_seemed_to_lie_in_a_gap_may_still_come() {
    let mut run = Roaming::new(Promise::SemiDurable);
    run.publish(1..=1);
    run.arrive(1);
    run.checker.away(run.console);
    run.publish(2..=4);
    run.checker.back(run.console);
    // Another client has got 1 and 4, and none has got 2 and 3.
    run.checker.named(0, 1, event(7, 10));
    run.checker.named(0, 4, event(7, 40));
    run.checker.gap(run.console, gap(7, 10, 25));
    let counts = |run: &Roaming| (run.checker.tally_of(run.console).reported, run.checker.owed(run.console));
    assert_eq!(counts(&run), (2, 1));
    run.checker.named(0, 2, event(7, 30));
    assert_eq!(run.arrive(2), Verdict::Recovered(Duration::from_millis(9)));
    assert_eq!(counts(&run), (1, 1));
    // A name that lies behind the gap makes it expected again.
    run.checker.named(0, 3, event(7, 35));
    run.checker.settle();
    assert_eq!(counts(&run), (0, 2));
    run.arrive(4);
    let tally = run.closed();
    assert_eq!((tally.expected, tally.delivered, tally.reported, tally.lost), (4, 3, 0, 1));
}

#[test]
fn nondurable_consoles_miss_what_comes_while_they_are_away_and_nothing_else() {
    let mut run = Roaming::new(Promise::Nondurable);
    run.publish(1..=2);
    run.arrive(1);
    run.checker.away(run.console);
    run.publish(3..=5);
    run.checker.back(run.console);
    assert_eq!((run.checker.in_flight(Promise::Nondurable), run.checker.waived(Promise::Nondurable)), (0, 4));
    // 5 was published in the moment of coming back.
    assert_eq!(run.arrive(5), Verdict::InOrder(Duration::from_millis(9)));
    assert_eq!(run.checker.missing(Promise::Nondurable), 0);
    run.publish(6..=7);
    run.arrive(7);
    let tally = run.closed();
    assert_eq!((tally.expected, tally.delivered, tally.missed, tally.lost), (4, 3, 3, 1));
    assert_eq!(tally.faults(Promise::Nondurable), 1);
}

#[test]
fn what_a_broker_took_with_it_lies_in_a_gap_of_its_own_stream() {
    // Hosts 16 and 32; the vehicle publishes 1 and 2 at the first, and goes to the second when that
    // dies.
    let mut run = Roaming::new(Promise::Reliable);
    run.publish(1..=4);
    let at = Duration::ZERO;
    for (seq, region) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
        run.checker.handed(0, seq, region, at);
    }
    for (seq, id) in [(1, event(16, 100)), (3, event(32, 300)), (4, event(32, 400))] {
        run.checker.arrived(run.console, message(0, seq), how(id), at);
        run.checker.named(0, seq, id);
    }
    assert_eq!(run.checker.missing(Promise::Reliable), 1);
    // The checker was not told the name of 2. A gap of the other broker, and one before 1, say
    // nothing of it.
    run.checker.gap(run.console, gap(32, 100, 300));
    run.checker.gap(run.console, gap(16, 0, 100));
    assert_eq!(run.checker.tally_of(run.console).reported, 0);
    run.checker.gap(run.console, gap(16, 100, 5_000));
    assert_eq!(run.checker.tally_of(run.console).reported, 1);
    let tally = run.closed();
    assert_eq!((tally.delivered, tally.reported, tally.lost), (3, 1, 0));
}

#[test]
fn an_order_is_broken_only_where_a_broker_was_out_of_reach() {
    for (disturbed, expected) in [(false, 1), (true, 0)] {
        let mut run = Roaming::new(Promise::Reliable);
        let disturbances = Arc::<Disturbances>::default();
        run.checker = run.checker.during(disturbances.clone());
        run.publish(1..=3);
        let at = Duration::from_millis;
        for (seq, region) in [(1, 0), (2, 1), (3, 1)] {
            run.checker.handed(0, seq, region, at(0));
        }
        if disturbed {
            disturbances.begin(at(0), Sites::one(0));
            disturbances.end(at(50));
        }
        let mut arrive = |seq, id| run.checker.arrived(run.console, message(0, seq), how(id), at(100));
        arrive(3, event(32, 300));
        assert!(matches!(arrive(2, event(32, 200)), Verdict::OutOfOrder(_)), "one stream keeps its order");
        let verdict = arrive(1, event(16, 100));
        assert_eq!(matches!(verdict, Verdict::InOrder(_)), disturbed, "{verdict:?}");
        let tally = run.closed();
        assert_eq!((tally.reordered, tally.overtaken), (1 + expected, 1 - expected));
    }
}

#[test]
fn of_what_was_handed_to_two_brokers_nobody_knows_the_stream_without_its_name() {
    for (sites, expected) in [(vec![1], 1), (vec![0, 1], 0)] {
        let (mut run, disturbances) = (Roaming::new(Promise::BestEffort), Arc::<Disturbances>::default());
        run.checker = run.checker.during(disturbances.clone());
        run.publish(1..=2);
        sites.iter().for_each(|region| run.checker.handed(0, 1, *region, Duration::ZERO));
        run.checker.handed(0, 2, 1, Duration::ZERO);
        // Others were told of the later one of two events.
        run.checker.named(0, 1, event(32, 100));
        run.checker.named(0, 2, event(32, 200));
        disturbances.begin(Duration::ZERO, Sites::one(0));
        let mut arrive = |seq| run.checker.arrived(run.console, message(0, seq), How::default(), Duration::ZERO);
        arrive(2);
        arrive(1);
        assert_eq!(run.closed().reordered, expected, "handed to {sites:?}");
    }
}

#[test]
fn what_comes_again_as_another_event_is_excused_by_a_broker_that_says_why() {
    let (mut run, disturbances) = (Roaming::new(Promise::Reliable), Arc::<Disturbances>::default());
    run.checker = run.checker.during(disturbances.clone());
    run.publish(1..=1);
    run.checker.handed(0, 1, 1, Duration::ZERO);
    let mut arrive = |how| run.checker.arrived(run.console, message(0, 1), how, Duration::ZERO);
    arrive(how(event(16, 100)));
    let doubtful = How { is_doubtful: true, ..how(event(32, 105)) };
    assert_eq!(arrive(doubtful), Verdict::Duplicate, "everybody could be asked");
    disturbances.begin(Duration::ZERO, Sites::one(1));
    arrive(how(event(16, 100)));
    assert_eq!(arrive(how(event(16, 100))), Verdict::Duplicate, "the same event");
    assert_eq!(arrive(how(event(32, 110))), Verdict::Duplicate, "another event, and nobody says why");
    let doubtful = How { is_doubtful: true, ..how(event(48, 120)) };
    assert_eq!(arrive(doubtful), Verdict::Repeated, "its publisher had no answer, and sent it elsewhere");
    assert_eq!(arrive(doubtful), Verdict::Duplicate, "that event again");
    assert_eq!(arrive(how(event(32, 110))), Verdict::Repeated, "the first of the two comes last");
}

#[test]
fn of_what_was_accepted_twice_one_event_may_lie_in_a_gap_and_the_other_come() {
    let mut run = Roaming::new(Promise::SemiDurable);
    run.publish(1..=2);
    // Both are accepted by two brokers, as others were told.
    for (seq, id) in [(1, event(16, 100)), (1, event(32, 105)), (2, event(16, 110)), (2, event(32, 115))] {
        run.checker.named(0, seq, id);
    }
    run.checker.gap(run.console, gap(32, 100, 120));
    assert_eq!(run.checker.tally_of(run.console).reported, 2);
    let mut arrive = |seq, id| run.checker.arrived(run.console, message(0, seq), how(id), Duration::ZERO);
    assert_eq!(arrive(1, event(16, 100)), Verdict::Repeated);
    assert_eq!(arrive(2, event(32, 115)), Verdict::Duplicate, "it was told that this very event is missing");
}

#[test]
fn a_mark_excuses_a_repeat_without_a_name_only_where_a_broker_was_out_of_reach() {
    let (mut run, disturbances) = (Roaming::new(Promise::BestEffort), Arc::<Disturbances>::default());
    run.checker = run.checker.during(disturbances.clone());
    run.publish(1..=1);
    run.checker.handed(0, 1, 1, Duration::ZERO);
    let mut arrive = |how| run.checker.arrived(run.console, message(0, 1), how, Duration::ZERO);
    let marked = How { is_doubtful: true, ..How::default() };
    arrive(How::default());
    assert_eq!(arrive(marked), Verdict::Duplicate);
    disturbances.begin(Duration::ZERO, Sites::one(1));
    assert_eq!(arrive(marked), Verdict::Repeated);
    arrive(How::default());
    assert_eq!(arrive(How::default()), Verdict::Duplicate);
}

#[test]
fn only_a_console_without_a_position_that_went_elsewhere_may_get_something_again() {
    let elsewhere = |promise| match promise {
        Promise::Nondurable | Promise::BestEffort => Verdict::Repeated,
        Promise::SemiDurable | Promise::Reliable => Verdict::Duplicate,
    };
    for promise in [Promise::Nondurable, Promise::BestEffort, Promise::SemiDurable, Promise::Reliable] {
        let mut run = Roaming::new(promise);
        run.publish(1..=1);
        let mut arrive = |region| {
            let how = How { region, ..how(event(16, 100)) };
            run.checker.arrived(run.console, message(0, 1), how, Duration::ZERO)
        };
        arrive(0);
        assert_eq!(arrive(0), Verdict::Duplicate, "{promise:?}");
        assert_eq!(arrive(1), elsewhere(promise), "{promise:?}");
        assert_eq!(arrive(1), Verdict::Duplicate, "{promise:?}");
    }
}

#[test]
fn a_nondurable_console_gets_things_in_order_where_it_is() {
    for (promise, is_anew) in [(Promise::Nondurable, true), (Promise::SemiDurable, false)] {
        let mut run = Roaming::new(promise);
        run.publish(1..=3);
        let mut arrive = |seq, region| {
            let how = How { region, ..how(event(16, seq)) };
            run.checker.arrived(run.console, message(0, seq), how, Duration::ZERO)
        };
        arrive(3, 0);
        assert_eq!(matches!(arrive(2, 1), Verdict::InOrder(_)), is_anew, "{promise:?}");
        assert!(matches!(arrive(1, 1), Verdict::OutOfOrder(_)), "{promise:?}");
    }
}

#[test]
fn what_comes_again_elsewhere_is_ahead_of_others_there_only_from_then_on() {
    let at = Duration::from_millis;
    for (gone_at, is_excused) in [(1_500, true), (6_000, false)] {
        let (mut run, disturbances) = (Roaming::new(Promise::BestEffort), Arc::<Disturbances>::default());
        run.checker = run.checker.during(disturbances.clone());
        run.publish(1..=2);
        run.checker.handed(0, 1, 2, at(0));
        run.checker.handed(0, 2, 1, at(0));
        let mut arrive = |seq, region, now| {
            let how = How { region, ..How::default() };
            run.checker.arrived(run.console, message(0, seq), how, at(now))
        };
        assert!(matches!(arrive(2, 1, 100), Verdict::InOrder(_)));
        disturbances.begin(at(gone_at), Sites::one(2));
        // In another region it comes at a time at which no broker can wait for what was before it,
        // or can.
        assert_eq!(arrive(2, 0, 2_000), Verdict::Repeated);
        let verdict = arrive(1, 0, 2_100);
        assert_eq!(matches!(verdict, Verdict::InOrder(_)), is_excused, "{verdict:?}");
    }
}

#[test]
fn a_console_without_a_position_may_miss_what_is_published_where_it_is_not_known_yet() {
    let mut run = Roaming::new(Promise::Nondurable);
    let disturbances = Arc::<Disturbances>::default();
    run.checker = run.checker.during(disturbances.clone());
    disturbances.begin(Duration::ZERO, Sites::one(1));
    run.checker.pending(run.console, Sites::one(1), Duration::ZERO);
    for (seq, region, at) in [(1, 0, 1), (2, 1, 5), (3, 1, 60)] {
        if at == 60 {
            disturbances.end(Duration::from_secs(10));
        }
        run.publish(seq..=seq);
        run.checker.handed(0, seq, region, Duration::from_secs(at));
    }
    let tally = run.closed();
    assert_eq!((tally.expected, tally.lost, tally.missed), (2, 2, 1));
}
