//! The share of events that reach a broker in addition because its interest is told in a bounded
//! number of entries.
//!
//! `cargo test -p whimbrel-net --test it reduce_traffic -- --nocapture` prints the figures.

use whimbrel_net::interest::reduce::{Even, INTEREST_MAX, Reduction};
use whimbrel_selector::{Datum, MatchIndex, Selector, TopicFilter, TopicName};

const BROKERS: u64 = 10;
const SUBSCRIPTIONS: usize = 1_000;
const EVENTS: u64 = 20_000;
/// Values of the attribute `x`.
const VALUES: u64 = 10_000;

/// A linear congruence.
struct Draw(u64);

impl Draw {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

type Wanted = Vec<(String, Option<Selector>)>;

fn parse(text: &str) -> Option<Selector> {
    Some(Selector::parse(text).expect("a good selector"))
}

/// For each event, whether any subscriber wants it.
fn reached<'w>(
    wanted: impl Iterator<Item = (&'w str, Option<&'w Selector>)>,
    events: &[(String, String, String)],
) -> Vec<bool> {
    let mut index = MatchIndex::new(1);
    for (filter, selector) in wanted {
        index.insert(TopicFilter::new(filter).expect("a good filter"), selector, ());
    }
    let is_wanted = |(topic, x, id): &(String, String, String)| {
        let event = [("x", Datum::written(x)), ("id", Datum::written(id))];
        let mut found = false;
        index.for_each_match(TopicName::new(topic).expect("a good name"), &event, |()| found = true);
        found
    };
    events.iter().map(is_wanted).collect()
}

/// The topic is one of 500 vehicles' or one of 5 others, `x` even, and `id` one of 10,000.
fn events(draw: &mut Draw) -> Vec<(String, String, String)> {
    let topic = |draw: &mut Draw| match draw.below(10) {
        0 => format!("w/{}/state", draw.below(5)),
        _ => format!("v/{}/pos", draw.below(500)),
    };
    (0..EVENTS).map(|_| (topic(draw), draw.below(VALUES).to_string(), format!("k{}", draw.below(10_000)))).collect()
}

/// Shares of all events that reach a broker: those that a subscriber there wants, and those that
/// its entries let in.
fn shares(name: &str, wanted_by: impl Fn(&mut Draw) -> Wanted) -> (f64, f64) {
    let mut draw = Draw(11);
    let events = events(&mut draw);
    let (mut exact, mut told, mut most, mut bytes) = (0, 0, 0, 0);
    for _ in 0..BROKERS {
        let wanted = wanted_by(&mut draw);
        let mut reduction = Reduction::new();
        for (filter, selector) in &wanted {
            reduction.insert(TopicFilter::new(filter).expect("a good filter"), selector.as_ref()).expect("no roots");
        }
        let entries = reduction.reduced(INTEREST_MAX, &Even);
        assert!(entries.len() <= INTEREST_MAX);
        most = most.max(entries.len());
        let text = |selector: &Selector| selector.to_string().len();
        bytes +=
            entries.iter().map(|entry| entry.filter.len() + entry.selector.as_ref().map_or(0, text)).sum::<usize>();
        let wants = reached(wanted.iter().map(|(filter, selector)| (&**filter, selector.as_ref())), &events);
        let lets_in = reached(entries.iter().map(|entry| (&*entry.filter, entry.selector.as_ref())), &events);
        assert!(wants.iter().zip(&lets_in).all(|(wants, lets_in)| *lets_in || !wants), "what is wanted is told");
        exact += wants.iter().filter(|wants| **wants).count();
        told += lets_in.iter().filter(|lets_in| **lets_in).count();
    }
    let share = |count: usize| count as f64 / (BROKERS * EVENTS) as f64;
    let (exact, told) = (share(exact), share(told));
    println!(
        "{name}: exact {:.3} %, told {:.3} %, false {:.3} %, factor {:.3}, at most {most} entries, {} bytes a broker",
        exact * 100.0,
        told * 100.0,
        (told - exact) * 100.0,
        told / exact,
        bytes / BROKERS as usize,
    );
    (exact, told)
}

fn between(filter: impl Into<String>, from: u64, more: u64) -> (String, Option<Selector>) {
    (filter.into(), parse(&format!("x BETWEEN {from} AND {}", from + more)))
}

#[test]
fn ranges_close_together_let_in_what_is_wanted() {
    let (exact, told) = shares("1,000 ranges in a hundredth of the values", |draw| {
        let begin = draw.below(VALUES - 200);
        (0..SUBSCRIPTIONS).map(|_| between("v/+/pos", begin + draw.below(95), draw.below(10))).collect()
    });
    assert!((0.005..0.02).contains(&exact) && told <= exact * 1.5);
}

#[test]
fn a_thousand_scattered_ranges_let_in_what_is_wanted() {
    // Ten times as many values for them, so that 1,000 values are a hundredth.
    let (exact, told) = shares("1,000 scattered single values", |draw| {
        let half = |draw: &mut Draw| draw.below(VALUES * 10) as f64 / 10.0;
        let one = |draw: &mut Draw| ("v/+/pos".to_owned(), parse(&format!("x BETWEEN {0:.1} AND {0:.1}", half(draw))));
        (0..SUBSCRIPTIONS).map(|_| one(draw)).collect()
    });
    assert!((0.005..0.02).contains(&exact) && told <= exact * 1.5);
}

#[test]
fn twenty_thousand_scattered_ranges_let_in_little_more() {
    let (exact, told) = shares("20,000 scattered ranges, more than fit", |draw| {
        let one = |draw: &mut Draw| {
            let from = draw.below(VALUES * 1_000);
            ("v/+/pos".to_owned(), parse(&format!("x BETWEEN {}e-3 AND {}e-3", from, from + 1)))
        };
        (0..20 * SUBSCRIPTIONS).map(|_| one(draw)).collect()
    });
    assert!(told > exact && told < 0.25);
}

#[test]
fn mixed_filters_let_in_what_is_wanted() {
    let (exact, told) = shares("vehicles, all vehicles, states and names mixed", |draw| {
        let one = |draw: &mut Draw| match draw.below(10) {
            0..5 => between("v/+/pos", draw.below(VALUES), 0),
            5..7 => between(format!("v/{}/pos", draw.below(500)), draw.below(VALUES), 20),
            7 => between("w/+/state", draw.below(VALUES), 1),
            8 => (format!("v/{}/pos", draw.below(500)), parse(&format!("id = 'k{}'", draw.below(10_000)))),
            _ => {
                let text = format!("id = 'k{}' AND x > {}", draw.below(10_000), draw.below(VALUES));
                ("v/#".to_owned(), parse(&text))
            }
        };
        (0..SUBSCRIPTIONS / 5).map(|_| one(draw)).collect()
    });
    assert!((0.005..0.02).contains(&exact) && told <= exact * 1.5);
}

#[test]
fn many_filters_with_ranges_let_in_what_is_wanted() {
    let (exact, told) = shares("1,000 of mixed filters, 300 of vehicles", |draw| {
        let one = |draw: &mut Draw| match draw.below(10) {
            0..3 => between(format!("v/{}/pos", draw.below(500)), draw.below(VALUES), 40),
            3..9 => between("v/+/pos", draw.below(VALUES) / 10 * 10, 0),
            _ => between("w/+/state", draw.below(VALUES), 3),
        };
        (0..SUBSCRIPTIONS).map(|_| one(draw)).collect()
    });
    assert!(told <= exact * 1.5);
}

#[test]
fn more_filters_than_entries_let_in_more() {
    let (exact, told) = shares("1,000 ranges of 432 vehicles", |draw| {
        (0..SUBSCRIPTIONS).map(|_| between(format!("v/{}/pos", draw.below(500)), draw.below(VALUES), 40)).collect()
    });
    assert!(told > exact && told < 1.0);
}
