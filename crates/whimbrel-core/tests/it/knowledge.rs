//! The laws of knowledge, and that it agrees with a list of ticks.

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_core::stream::{
    Consolidated, KNOWLEDGE_BYTES_MAX, KNOWLEDGE_ENTRIES_MAX, Knowledge as Of, Passed, TickState,
};
use whimbrel_event::{
    Attributes, Event, EventId, EventRef, Headers, IMPORTANCE_DEFAULT, PubendId, Qos, Reliability, Tick, Time,
};

type Knowledge = Of<Consolidated>;

const PUBEND: PubendId = PubendId(0x50);
/// The last tick of the models.
const LAST: u64 = 40;

fn event(tick: u64, payload: usize) -> Event {
    let event = EventRef {
        topic: "t",
        attributes: Attributes::EMPTY,
        payload: &vec![0; payload],
        headers: Headers::EMPTY,
        qos: Qos::AtLeastOnce,
        reliability: Reliability::Reliable,
        importance: IMPORTANCE_DEFAULT,
        expires: None,
        deadline_ms: None,
        publisher: whimbrel_event::Publisher::UNKNOWN,
    };
    Event::keep(EventId { pubend: PUBEND, tick: Tick(tick) }, Time::from_nanos(tick), &event)
}

/// One thing that is learned.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Silence(u64, u64),
    Lost(u64, u64),
    Data(u64),
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (0..LAST, 0..=LAST).prop_map(|(after, upto)| Fact::Silence(after, upto)),
        (0..LAST, 0..=LAST).prop_map(|(after, upto)| Fact::Lost(after, upto)),
        (1..=LAST).prop_map(Fact::Data),
    ]
}

fn facts() -> impl Strategy<Value = Vec<Fact>> {
    vec(fact(), 0..12)
}

fn tell(knowledge: &mut Knowledge, fact: Fact) {
    match fact {
        Fact::Silence(after, upto) => knowledge.silence(Tick(after), Tick(upto)),
        Fact::Lost(after, upto) => knowledge.lost(Tick(after), Tick(upto)),
        Fact::Data(tick) => knowledge.data(event(tick, 0)),
    }
}

fn told(facts: &[Fact]) -> Knowledge {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    facts.iter().for_each(|&fact| tell(&mut knowledge, fact));
    knowledge
}

fn merged(one: &Knowledge, other: &Knowledge) -> Knowledge {
    let mut merged = one.clone();
    merged.merge(other);
    merged
}

/// Everything observable of it.
fn seen(knowledge: &Knowledge) -> (Vec<TickState>, Tick, usize, usize) {
    let states = (0..=LAST + 1).map(|tick| knowledge.at(Tick(tick))).collect();
    (states, knowledge.base(), knowledge.entries(), knowledge.bytes())
}

/// Knowledge as a list of ticks.
#[derive(Clone)]
struct Model {
    states: Vec<TickState>,
    base: u64,
}

impl Model {
    fn new() -> Self {
        Model { states: vec![TickState::Unknown; LAST as usize + 2], base: 0 }
    }

    fn raise(&mut self, after: u64, upto: u64, state: TickState) {
        for tick in after + 1..=upto {
            if tick > self.base {
                let known = &mut self.states[tick as usize];
                *known = state.max(*known);
            }
        }
    }

    fn tell(&mut self, fact: Fact) {
        match fact {
            Fact::Silence(after, upto) => self.raise(after, upto, TickState::Silence),
            Fact::Lost(after, upto) => self.raise(after, upto, TickState::Lost),
            Fact::Data(tick) => self.raise(tick - 1, tick, TickState::Data),
        }
    }

    fn horizon(&self) -> u64 {
        (self.base..).find(|tick| self.states[*tick as usize + 1] == TickState::Unknown).unwrap()
    }

    fn holes(&self) -> Vec<u64> {
        let highest = self.states.iter().rposition(|&state| state != TickState::Unknown).unwrap_or(0) as u64;
        (self.base + 1..=highest).filter(|&tick| self.states[tick as usize] == TickState::Unknown).collect()
    }

    fn advance(&mut self) -> Vec<(u64, TickState)> {
        let horizon = self.horizon();
        let passed = (self.base + 1..=horizon)
            .map(|tick| (tick, std::mem::replace(&mut self.states[tick as usize], TickState::Unknown)))
            .collect();
        self.base = horizon;
        passed
    }
}

/// The passed parts, tick by tick; asserts that no two neighbouring ranges could be one.
fn advance(knowledge: &mut Knowledge) -> Vec<(u64, TickState)> {
    let mut passed: Vec<(u64, TickState)> = Vec::new();
    knowledge.advance(|part| {
        let (after, upto, state) = match part {
            Passed::Data(event) => (event.id().tick.0 - 1, event.id().tick.0, TickState::Data),
            Passed::Lost { after, upto } => (after.0, upto.0, TickState::Lost),
            Passed::Silence { after, upto } => (after.0, upto.0, TickState::Silence),
        };
        assert!(after < upto, "an empty range is passed");
        let continues = passed.last().is_some_and(|last| last.1 == state);
        assert!(!continues || state == TickState::Data, "a range is passed in two parts");
        passed.extend((after + 1..=upto).map(|tick| (tick, state)));
    });
    passed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merging_is_commutative(a in facts(), b in facts()) {
        let (a, b) = (told(&a), told(&b));
        prop_assert_eq!(seen(&merged(&a, &b)), seen(&merged(&b, &a)));
    }

    #[test]
    fn merging_is_associative(a in facts(), b in facts(), c in facts()) {
        let (a, b, c) = (told(&a), told(&b), told(&c));
        prop_assert_eq!(seen(&merged(&merged(&a, &b), &c)), seen(&merged(&a, &merged(&b, &c))));
    }

    #[test]
    fn merging_is_idempotent(a in facts(), b in facts()) {
        let (a, b) = (told(&a), told(&b));
        prop_assert_eq!(seen(&merged(&a, &a)), seen(&a));
        let both = merged(&a, &b);
        prop_assert_eq!(seen(&merged(&both, &b)), seen(&both));
    }

    #[test]
    fn merging_only_adds(a in facts(), b in facts()) {
        let (a, b) = (told(&a), told(&b));
        let both = merged(&a, &b);
        for tick in (0..=LAST + 1).map(Tick) {
            prop_assert_eq!(both.at(tick), a.at(tick).max(b.at(tick)));
        }
        prop_assert!(both.doubt_horizon() >= a.doubt_horizon().max(b.doubt_horizon()));
    }

    #[test]
    fn merging_is_being_told_in_any_order(a in facts(), b in facts(), order in any::<u64>()) {
        let mut all = [a.clone(), b.clone()].concat();
        all.sort_by_key(|fact| format!("{fact:?}").bytes().fold(order, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x1_0000_01b3)));
        prop_assert_eq!(seen(&merged(&told(&a), &told(&b))), seen(&told(&all)));
    }

    #[test]
    fn knowledge_agrees_with_a_list_of_ticks(steps in vec((fact(), 0..6u8, facts()), 1..30)) {
        let mut knowledge = Knowledge::new(PUBEND, Tick(0));
        let mut model = Model::new();
        for (fact, kind, others) in steps {
            match kind {
                0 => prop_assert_eq!(advance(&mut knowledge), model.advance()),
                1 => {
                    knowledge.merge(&told(&others));
                    others.iter().for_each(|&fact| model.tell(fact));
                }
                2 => {
                    let mut other = told(&others);
                    let mut other_model = Model::new();
                    others.iter().for_each(|&fact| other_model.tell(fact));
                    other.advance(drop);
                    other_model.advance();
                    knowledge.merge(&other);
                    for (tick, state) in (1..).zip(other_model.states.into_iter().skip(1)) {
                        model.raise(tick - 1, tick, state);
                    }
                }
                _ => {
                    tell(&mut knowledge, fact);
                    model.tell(fact);
                }
            }
            let states: Vec<_> = (0..=LAST + 1).map(|tick| knowledge.at(Tick(tick))).collect();
            prop_assert_eq!(&states, &model.states);
            prop_assert_eq!((knowledge.base(), knowledge.doubt_horizon()), (Tick(model.base), Tick(model.horizon())));
            let holes: Vec<u64> = knowledge.holes().flat_map(|(after, upto)| after.0 + 1..=upto.0).collect();
            prop_assert_eq!(holes, model.holes());
        }
    }
}

#[test]
fn events_are_passed_in_order_once_there_is_no_doubt_before_them() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(10));
    knowledge.data(event(30, 0));
    knowledge.silence(Tick(20), Tick(29));
    knowledge.data(event(20, 0));
    assert_eq!(advance(&mut knowledge), []);
    assert_eq!(knowledge.holes().collect::<Vec<_>>(), [(Tick(10), Tick(19))]);
    knowledge.lost(Tick(10), Tick(19));
    let mut passed = Vec::new();
    knowledge.advance(|part| {
        passed.push(match part {
            Passed::Data(event) => format!("D {}", event.id().tick),
            Passed::Lost { after, upto } => format!("L {after} {upto}"),
            Passed::Silence { after, upto } => format!("S {after} {upto}"),
        });
    });
    assert_eq!(passed, ["L 10 19", "D 20", "S 20 29", "D 30"]);
    assert_eq!((knowledge.base(), knowledge.entries(), knowledge.bytes()), (Tick(30), 0, 0));
}

#[test]
fn a_stream_without_holes_is_one_run() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    for tick in 1..=100 {
        knowledge.silence(Tick(10 * tick - 10), Tick(10 * tick - 1));
        knowledge.data(event(10 * tick, 0));
    }
    assert_eq!(knowledge.entries(), 101);
    assert_eq!(knowledge.doubt_horizon(), Tick(1_000));
}

#[test]
fn the_last_tick_of_all_can_be_known() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(u64::MAX - 2));
    knowledge.data(event(u64::MAX, 0));
    knowledge.silence(Tick(0), Tick(u64::MAX));
    assert_eq!(advance(&mut knowledge), [(u64::MAX - 1, TickState::Silence), (u64::MAX, TickState::Data)]);
    knowledge.lost(Tick(0), Tick(u64::MAX));
    assert_eq!((knowledge.base(), knowledge.doubt_horizon(), knowledge.entries()), (Tick(u64::MAX), Tick(u64::MAX), 0));
}

#[test]
fn too_many_entries_make_the_farthest_unknown_again() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    let runs = KNOWLEDGE_ENTRIES_MAX as u64;
    for number in 1..=runs {
        knowledge.silence(Tick(10 * number), Tick(10 * number + 5));
    }
    assert_eq!((knowledge.entries(), knowledge.forgotten()), (KNOWLEDGE_ENTRIES_MAX, 0));
    knowledge.silence(Tick(10 * runs + 10), Tick(10 * runs + 15));
    assert_eq!(knowledge.at(Tick(10 * runs + 11)), TickState::Unknown, "the farthest is what came last");
    knowledge.lost(Tick(2), Tick(3));
    assert_eq!(knowledge.at(Tick(3)), TickState::Lost);
    assert_eq!(knowledge.at(Tick(10 * runs + 1)), TickState::Unknown);
    assert_eq!((knowledge.entries(), knowledge.forgotten()), (KNOWLEDGE_ENTRIES_MAX, 2));
}

#[test]
fn too_many_bytes_make_the_farthest_events_unknown_again() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    let quarter = KNOWLEDGE_BYTES_MAX / 4;
    for tick in [50, 30, 20] {
        knowledge.data(event(tick, quarter));
    }
    knowledge.silence(Tick(20), Tick(60));
    assert_eq!(knowledge.forgotten(), 0);
    knowledge.data(event(10, quarter));
    assert!(knowledge.bytes() <= KNOWLEDGE_BYTES_MAX);
    let states = [10, 20, 30, 49, 50, 51].map(|tick| knowledge.at(Tick(tick)));
    use TickState::{Data, Silence, Unknown};
    assert_eq!(states, [Data, Data, Data, Silence, Unknown, Unknown]);
    assert_eq!(knowledge.forgotten(), 1);
}

#[test]
fn what_weighs_as_much_as_is_allowed_is_kept() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    // Memory is allocated in steps, and so an event weighs a whole number of them.
    for tick in [1, 2] {
        knowledge.data(event(tick, KNOWLEDGE_BYTES_MAX / 2 - 1000));
    }
    assert_eq!((knowledge.bytes(), knowledge.forgotten()), (KNOWLEDGE_BYTES_MAX, 0));
    knowledge.data(event(3, 0));
    assert_eq!((knowledge.bytes(), knowledge.forgotten()), (KNOWLEDGE_BYTES_MAX, 1));
}

#[test]
fn what_is_forgotten_is_the_farthest_entry_and_not_the_event_before_it() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    let runs = KNOWLEDGE_ENTRIES_MAX as u64 - 2;
    for number in 1..=runs {
        knowledge.silence(Tick(10 * number), Tick(10 * number + 5));
    }
    let last = 10 * runs + 100;
    knowledge.data(event(last, 0));
    knowledge.lost(Tick(last), Tick(last + 5));
    let states = [last, last + 1].map(|tick| knowledge.at(Tick(tick)));
    assert_eq!((states, knowledge.forgotten()), ([TickState::Data, TickState::Unknown], 1));
    // An event that is a run of its own goes with it, at once.
    knowledge.silence(Tick(2), Tick(3));
    assert_eq!(knowledge.at(Tick(last)), TickState::Unknown);
    assert_eq!((knowledge.entries(), knowledge.forgotten()), (KNOWLEDGE_ENTRIES_MAX - 1, 2));
}

#[test]
fn there_is_no_hole_where_one_run_follows_another() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(10));
    knowledge.lost(Tick(10), Tick(20));
    knowledge.silence(Tick(20), Tick(30));
    assert_eq!(knowledge.holes().collect::<Vec<_>>(), []);
    knowledge.data(event(40, 0));
    assert_eq!(knowledge.holes().collect::<Vec<_>>(), [(Tick(30), Tick(39))]);
}

#[test]
fn the_nearest_event_is_kept_whatever_it_weighs() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    knowledge.data(event(20, 0));
    knowledge.data(event(10, KNOWLEDGE_BYTES_MAX + 1));
    assert_eq!([10, 20].map(|tick| knowledge.at(Tick(tick))), [TickState::Data, TickState::Unknown]);
    knowledge.silence(Tick(0), Tick(9));
    assert_eq!(advance(&mut knowledge).last(), Some(&(10, TickState::Data)));
    assert_eq!(knowledge.bytes(), 0);
}

#[test]
fn of_the_same_event_twice_the_first_is_kept() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    knowledge.data(event(1, 10));
    let bytes = knowledge.bytes();
    knowledge.data(event(1, 99));
    assert_eq!((knowledge.bytes(), knowledge.entries()), (bytes, 2));
    knowledge.advance(drop);
    assert_eq!((knowledge.bytes(), knowledge.entries()), (0, 0));
}

#[test]
#[should_panic(expected = "another stream")]
fn an_event_of_another_stream_is_a_bug() {
    Of::<Consolidated>::new(PubendId(0x51), Tick(0)).data(event(1, 0));
}

#[test]
fn what_was_silence_is_unknown_under_another_interest_and_the_rest_stays() {
    let mut knowledge = Knowledge::new(PUBEND, Tick(0));
    knowledge.silence(Tick(0), Tick(3));
    knowledge.data(event(5, 0));
    knowledge.data(event(6, 0));
    knowledge.silence(Tick(4), Tick(9));
    knowledge.lost(Tick(9), Tick(12));
    knowledge.unlearn_silence();
    let states: Vec<TickState> = (1..=12).map(|tick| knowledge.at(Tick(tick))).collect();
    let unknown = TickState::Unknown;
    let (data, lost) = (TickState::Data, TickState::Lost);
    assert_eq!(states, [unknown, unknown, unknown, unknown, data, data, unknown, unknown, unknown, lost, lost, lost]);
    assert_eq!(knowledge.holes().collect::<Vec<_>>(), [(Tick(0), Tick(4)), (Tick(6), Tick(9))]);
}
