//! Sequences of operations on an index, beside a list that does the same one by one.

use whimbrel_selector::{MatchIndex, Place, Selector, TopicFilter, TopicName};

use super::evaluate::World;
use super::event::Event;
use super::fences::Rectangles;
use super::generate::{self, Choices};
use super::parse::{Node, parse};

const FILTERS: [&str; 10] = ["t", "t/+", "t/#", "#", "+/1", "+", "t/1", "t//2", "$sys/#", "+/+/+"];
const TOPICS: [&str; 8] = ["t", "t/1", "t/2", "s/1", "t//2", "t/1/x", "$sys/t", "nothing/at/all/here"];

/// Section 4.7 of MQTT 5.
fn is_under(topic: &str, filter: &str) -> bool {
    let (topic_levels, filter_levels): (Vec<_>, Vec<_>) = (topic.split('/').collect(), filter.split('/').collect());
    if topic.starts_with('$') && matches!(filter_levels[0], "+" | "#") {
        return false;
    }
    for (place, level) in filter_levels.iter().enumerate() {
        match *level {
            "#" => return true,
            "+" if place < topic_levels.len() => {}
            exact if topic_levels.get(place) == Some(&exact) => {}
            _ => return false,
        }
    }
    topic_levels.len() == filter_levels.len()
}

/// A subscription in the index.
struct Standing {
    filter: &'static str,
    text: Option<String>,
    naive: Option<Node>,
    canonical: String,
    key: u32,
    place: Place,
}

/// An index and a list of what is in it.
pub struct Twins {
    pub index: MatchIndex<u32>,
    standing: Vec<Standing>,
    fences: Rectangles,
    next_key: u32,
    /// What was found, in the order in which it was.
    pub found: Vec<u32>,
}

fn filter(text: &str) -> TopicFilter<'_> {
    TopicFilter::new(text).expect("a filter of the tests")
}

impl Twins {
    pub fn new(seed: u64) -> Twins {
        Twins {
            index: MatchIndex::new(seed),
            standing: Vec::new(),
            fences: Rectangles::default(),
            next_key: 0,
            found: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.standing.len()
    }

    fn has_selector_under(&self, filter: &str) -> bool {
        self.standing.iter().any(|one| one.filter == filter && one.naive.is_some())
    }

    /// Adds a subscription, unless the selector is too long or too deep.
    pub fn insert(&mut self, under: &'static str, text: Option<String>, key: u32) {
        let selector = match &text {
            None => None,
            Some(text) => match Selector::parse(text) {
                Ok(selector) => Some(selector),
                Err(_) => return,
            },
        };
        let naive = text.as_deref().map(|text| parse(text).unwrap_or_else(|cause| panic!("{text}: {cause}")));
        let first = naive.is_some() && !self.has_selector_under(under);
        let canonical = selector.as_ref().map(Selector::to_string).unwrap_or_default();
        let (place, told_first) = self.index.insert(filter(under), selector.as_ref(), key);
        assert_eq!(told_first, first, "first under {under}: {text:?}");
        self.standing.push(Standing { filter: under, text, naive, canonical, key, place });
    }

    fn fresh_key(&mut self) -> u32 {
        self.next_key += 1;
        self.next_key
    }

    /// Removes the subscription at `number`, counted by age.
    pub fn remove(&mut self, number: usize) {
        let Standing { filter: under, naive, key, place, text, .. } = self.standing.remove(number);
        let last = naive.is_some() && !self.has_selector_under(under);
        assert_eq!(self.index.remove(filter(under), place, key), (true, last), "{under} {text:?}");
    }

    pub fn remove_all(&mut self, c: &mut Choices<'_>) {
        while !self.standing.is_empty() {
            let number = c.below(self.standing.len());
            self.remove(number);
        }
        self.check_empty();
    }

    /// Nothing is left in the index, also of what its interface does not show.
    fn check_empty(&self) {
        assert_eq!(self.index.selectors(), 0);
        assert!(self.index.expensive().is_empty());
        let debug = format!("{:?}", self.index);
        for part in PARTS {
            assert!(!debug.contains(part), "{part} is left");
        }
    }

    /// How many clauses the selectors have become.
    pub fn clauses(&self) -> usize {
        format!("{:?}", self.index).matches("Placed {").count()
    }

    /// All of its parts are there.
    fn check_parts(&self) {
        let debug = format!("{:?}", self.index);
        for part in PARTS {
            assert!(debug.contains(part), "there is no {part}, which an empty index should not have");
        }
    }

    fn check_size(&self) {
        let with_selector = self.standing.iter().filter(|one| one.naive.is_some());
        let mut distinct: Vec<_> = with_selector.map(|one| (one.filter, &one.canonical)).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(self.index.selectors(), distinct.len());
    }

    pub fn set_fences(&mut self, fences: Rectangles) {
        self.index.set_fences(fences.build());
        self.fences = fences;
    }

    /// Both find the same for an event under a topic. Returns how many they found.
    pub fn agree(&mut self, topic: &str, event: &Event) -> usize {
        let fences = |name: &str, lat: f64, lon: f64| self.fences.contains(name, lat, lon);
        let world = World::new(event, &fences);
        let is_true = |one: &&Standing| one.naive.as_ref().is_none_or(|naive| world.truth(naive) == Some(true));
        let wanted = self.standing.iter().filter(|one| is_under(topic, one.filter)).filter(is_true);
        let mut expected: Vec<u32> = wanted.map(|one| one.key).collect();
        expected.sort_unstable();

        self.found.clear();
        self.index.for_each_match(TopicName::new(topic).expect("a topic"), event, |key| self.found.push(key));
        let mut found = self.found.clone();
        found.sort_unstable();
        if found != expected {
            let differ = |one: &&Standing| found.contains(&one.key) != expected.contains(&one.key);
            let texts: Vec<_> =
                self.standing.iter().filter(differ).map(|one| (one.key, one.filter, &one.text)).collect();
            let payload = String::from_utf8_lossy(&event.payload);
            panic!("found {found:?}, expected {expected:?}: {texts:?}\n{topic} {event:?}\n{payload}");
        }
        found.len()
    }

    /// One subscription at a time is judged alike.
    fn agree_on_one(&mut self, number: usize, event: &Event) {
        let fences = |name: &str, lat: f64, lon: f64| self.fences.contains(name, lat, lon);
        let one = &self.standing[number];
        let expected = one.naive.as_ref().is_none_or(|naive| World::new(event, &fences).truth(naive) == Some(true));
        assert_eq!(self.index.is_selected(one.place, event), expected, "{:?} {event:?}", one.text);
    }

    /// What the index does not have is not removed.
    fn miss(&mut self, number: usize) {
        let one = &self.standing[number];
        if one.naive.is_some() {
            assert_eq!(self.index.remove(filter(one.filter), one.place, u32::MAX), (false, false));
        }
    }
}

/// What only an index with selectors has, as its parts are named in its `Debug` form.
const PARTS: [&str; 4] = ["Use {", "Block {", "Placed {", "Program {"];

/// How a sequence is made up.
#[derive(Clone, Copy)]
pub struct Mix {
    pub operations: usize,
    /// As many subscriptions as there may be at a time.
    pub most: usize,
    pub filters: usize,
    /// Of 16 selectors so many have one of the shapes that many subscribers use.
    pub common: usize,
}

/// A sequence of operations. Returns all that was found, in order.
pub fn operations(c: &mut Choices<'_>, seed: u64, mix: Mix) -> Vec<u32> {
    let mut twins = Twins::new(seed);
    let mut all = Vec::new();
    for _ in 0..mix.operations {
        if c.is_empty() {
            break;
        }
        match c.below(32) {
            0..20 if twins.len() < mix.most => insert(&mut twins, c, mix),
            0..26 if twins.len() > 0 => {
                let number = c.below(twins.len());
                match c.below(8) {
                    0 => twins.miss(number),
                    1 => {
                        let event = generate::event(c);
                        twins.agree_on_one(number, &event);
                    }
                    _ => twins.remove(number),
                }
            }
            31 if c.rarely(4) => twins.set_fences(Rectangles::some(c)),
            _ => {
                let event = if c.below(16) < mix.common { generate::common_event(c) } else { generate::event(c) };
                twins.agree(c.one_of(&TOPICS[..mix.filters.min(TOPICS.len())]), &event);
                all.extend_from_slice(&twins.found);
            }
        }
    }
    twins.check_size();
    twins.remove_all(c);
    for topic in TOPICS {
        assert_eq!(twins.agree(topic, &generate::common_event(c)), 0);
    }
    all
}

fn insert(twins: &mut Twins, c: &mut Choices<'_>, mix: Mix) {
    let under = c.one_of(&FILTERS[..mix.filters]);
    if c.rarely(24) {
        let key = twins.fresh_key();
        return twins.insert(under, None, key);
    }
    // The same selector again, under another key or the same.
    if c.rarely(12) && twins.len() > 0 {
        let number = c.below(twins.len());
        let (text, key) = (twins.standing[number].text.clone(), twins.standing[number].key);
        let under = if c.flag() { twins.standing[number].filter } else { under };
        let key = if c.rarely(3) { key } else { twins.fresh_key() };
        return twins.insert(under, text, key);
    }
    let text = if c.below(16) < mix.common { generate::common_selector(c) } else { generate::selector(c) };
    let key = twins.fresh_key();
    twins.insert(under, Some(text), key);
}

/// Boxes of so many ranges, of which a window slides over all: many enter and leave trees.
pub fn sliding_window(c: &mut Choices<'_>, seed: u64, ranges: usize, window: usize, total: usize) -> usize {
    let mut twins = Twins::new(seed);
    let mut found = 0;
    for number in 0..total {
        let text = window_selector(c, ranges);
        twins.insert("t", Some(text), number as u32);
        if twins.len() > window {
            // Mostly the oldest, sometimes any.
            let oldest = if c.rarely(4) { c.below(twins.len()) } else { 0 };
            twins.remove(oldest);
        }
        if number.is_multiple_of(64) || (number < 64 && number.is_multiple_of(8)) {
            found += twins.agree("t", &generate::common_event(c));
        }
    }
    twins.check_parts();
    while twins.len() > 0 {
        let number = c.below(twins.len());
        twins.remove(number);
        if twins.len().is_multiple_of(128) {
            found += twins.agree("t", &generate::common_event(c));
        }
    }
    twins.check_empty();
    found
}

fn window_selector(c: &mut Choices<'_>, ranges: usize) -> String {
    let mut parts = Vec::new();
    for field in &["x", "y", "z"][..ranges] {
        let low = c.below(1000);
        let high = low + c.one_of(&[0, 1, 10, 100, 300, 800]);
        parts.push(match c.below(8) {
            0 => format!("{field} > {low}"),
            1 => format!("{field} < {high}.25"),
            2 => format!("{field} * 4 - 10 BETWEEN {} AND {}", low as i64 * 4 - 10 * c.below(2) as i64, high * 4),
            _ => format!("{field} BETWEEN {low} AND {high}"),
        });
    }
    if c.rarely(8) {
        parts.push("color = 'red'".to_owned());
    }
    if c.rarely(16) {
        parts.push("NOT z > 900".to_owned());
    }
    parts.join(" AND ")
}
