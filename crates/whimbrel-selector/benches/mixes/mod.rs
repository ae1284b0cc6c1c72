//! Selectors and events to measure with, all from one seed.
//!
//! Numbers are integers from 0 to [`DOMAIN`]. A range covers a share of the *values that events
//! have* around a value drawn as events draw theirs, so that uniform and Zipf values give equally
//! selective selectors. How selective they are is found by bisection ([`Workload::calibrated`]),
//! because shares of several conditions on few fields do not simply multiply.

mod parts;
mod zones;

use std::sync::Arc;

use fastrand::Rng;
use whimbrel_selector::{Datum, Fences, Scan, Selector, Subject};

pub use parts::Part;

/// Numbers are below this.
const DOMAIN: usize = 100_000;

/// Selectors looked at to find how selective they are.
const SAMPLE: usize = 10_000;

/// Text attributes, the most popular first. In events of 10 attributes only the first 4 exist.
const TEXTS: [&str; 20] = [
    "line", "depot", "vehicle", "driver", "status", "zone", "stop", "tariff", "weather", "operator", "engine", "tyre",
    "firmware", "camera", "display", "radio", "route", "alarm", "crew", "shift",
];

/// Number attributes, the most popular first. In events of 10 attributes only the first 6 exist.
const NUMBERS: [&str; 30] = [
    "speed",
    "delay",
    "passengers",
    "fuel",
    "temperature",
    "altitude",
    "heading",
    "odometer",
    "pressure",
    "voltage",
    "current",
    "rpm",
    "torque",
    "load",
    "brake",
    "humidity",
    "noise",
    "light",
    "doors",
    "signal",
    "satellites",
    "retries",
    "queue",
    "latency",
    "battery",
    "charge",
    "range",
    "wear",
    "age",
    "trips",
];

/// What ids begin with. Ids of [`Mix::PrefixLong`] begin with the last.
const SCHEMES: [&str; 5] = [
    "veh:",
    "urn:dev:mac:",
    "https://id.city/b/",
    "spBv1.0/depots/north/edge-",
    "https://devices.transit.example.com/v2/fleets/",
];

/// What selectors are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// A text is equal, two numbers are in ranges.
    Equality,
    /// Three numbers are in ranges.
    Ranges,
    /// An id begins with.
    Prefix,
    /// The same where all ids have their first 46 bytes in common.
    PrefixLong,
    /// An id begins with, a number is in a range.
    PrefixRange,
    /// `Equality` or `Ranges`, with `OR`, `NOT` or arithmetic in every fifth.
    Logic,
    /// The same without arithmetic.
    LogicPlain,
    /// Within a fence; of five selectors, four also have a number in a range.
    Fence,
}

impl Mix {
    pub const ALL: [(&'static str, Mix); 8] = [
        ("equality", Mix::Equality),
        ("ranges", Mix::Ranges),
        ("prefix", Mix::Prefix),
        ("prefix-long", Mix::PrefixLong),
        ("prefix-range", Mix::PrefixRange),
        ("logic", Mix::Logic),
        ("fence", Mix::Fence),
        ("logic-plain", Mix::LogicPlain),
    ];

    pub fn name(self) -> &'static str {
        Mix::ALL.iter().find(|(_, mix)| *mix == self).expect("all are listed").0
    }

    fn has_ids(self) -> bool {
        matches!(self, Mix::Prefix | Mix::PrefixLong | Mix::PrefixRange)
    }
}

/// One cell of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub mix: Mix,
    /// How many attributes an event has: 10 or 50.
    pub attributes: usize,
    /// Values and constants by Zipf's law with exponent 1 instead of uniform.
    pub zipf: bool,
    /// Selectors use all attributes alike instead of few popular ones.
    pub any_field: bool,
    /// How many selectors.
    pub count: usize,
    /// Share of the selectors that match an event, on average.
    pub matching: f64,
    /// How many distinct events.
    pub events: usize,
    pub seed: u64,
}

/// An event: attributes as written by MQTT publishers.
#[derive(Clone, Debug)]
pub struct Event {
    pub attributes: Vec<(&'static str, String)>,
}

impl Subject for Event {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        self.attributes.iter().for_each(|(name, text)| visit(name, Datum::written(text)));
    }
}

/// Draws ranks.
#[derive(Clone, Debug)]
enum Law {
    Uniform(usize),
    /// Cumulated shares of the ranks.
    Zipf(Vec<f64>),
}

impl Law {
    fn new(zipf: bool, ranks: usize) -> Law {
        if !zipf {
            return Law::Uniform(ranks);
        }
        let whole: f64 = (1..=ranks).map(|rank| 1.0 / rank as f64).sum();
        let mut sum = 0.0;
        let share = |rank: usize| {
            sum += 1.0 / (rank as f64 * whole);
            sum
        };
        Law::Zipf((1..=ranks).map(share).collect())
    }

    /// The rank below which there is the share `quantile`.
    fn rank(&self, quantile: f64) -> usize {
        match self {
            Law::Uniform(ranks) => ((quantile * *ranks as f64) as usize).min(ranks - 1),
            Law::Zipf(sums) => sums.partition_point(|sum| *sum < quantile).min(sums.len() - 1),
        }
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        self.rank(rng.f64())
    }
}

/// Selectors and events for one plan.
#[derive(Debug)]
pub struct Workload {
    pub plan: Plan,
    pub events: Vec<Event>,
    pub fences: Arc<Fences>,
    texts: &'static [&'static str],
    numbers: &'static [&'static str],
    /// How many values a text attribute has.
    texts_each: usize,
    number_law: Law,
    text_law: Law,
    digit_law: Law,
    zone_law: Law,
    /// How selective selectors are meant to be, before correlations.
    pub share: f64,
}

impl Workload {
    /// Finds out how selective selectors must be made for the share of matches that is asked for.
    pub fn calibrated(plan: Plan) -> Workload {
        let mut workload = Workload::new(plan);
        let (mut low, mut high) = ((plan.matching * 1e-4).ln(), 0.0_f64);
        for _ in 0..16 {
            let middle = (low + high) / 2.0;
            workload.share = middle.exp();
            let found = workload.sampled_share();
            if found < plan.matching {
                low = middle;
            } else {
                high = middle;
            }
            if (found / plan.matching - 1.0).abs() < 0.02 {
                break;
            }
        }
        workload
    }

    /// With the share that [`Workload::calibrated`] found at another time.
    pub fn with_share(plan: Plan, share: f64) -> Workload {
        Workload { share, ..Workload::new(plan) }
    }

    fn new(plan: Plan) -> Workload {
        let texts = if plan.attributes == 10 { 4 } else { 20 };
        // Latitude and longitude.
        let place = if plan.mix == Mix::Fence { 2 } else { 0 };
        let texts_each = plan.matching.powf(-0.5).round() as usize;
        let mut workload = Workload {
            plan,
            events: Vec::new(),
            fences: Arc::default(),
            texts: &TEXTS[..texts],
            numbers: &NUMBERS[..plan.attributes - texts - place],
            texts_each,
            number_law: Law::new(plan.zipf, DOMAIN),
            text_law: Law::new(plan.zipf, texts_each),
            digit_law: Law::new(plan.zipf, 16),
            zone_law: Law::new(plan.zipf, zones::ZONES),
            share: plan.matching,
        };
        let mut rng = Rng::with_seed(plan.seed);
        if plan.mix == Mix::Fence {
            workload.fences = zones::zones(workload.zone_share(), &mut rng);
        }
        workload.events = (0..plan.events).map(|_| workload.event(&mut rng)).collect();
        workload
    }

    /// How much of the city a fence covers.
    fn zone_share(&self) -> f64 {
        self.plan.matching * 2.0
    }

    /// Mean share of the first selectors that match an event.
    fn sampled_share(&self) -> f64 {
        let sample = SAMPLE.min(self.plan.count.max(1_000));
        let mut scan = Scan::new(Arc::clone(&self.fences));
        (0..sample).for_each(|index| scan.push(&self.selector(index), ()));
        let mut matches = 0_usize;
        self.events.iter().for_each(|event| scan.for_each_true(event, |()| matches += 1));
        matches as f64 / (sample * self.events.len()) as f64
    }

    fn event(&self, rng: &mut Rng) -> Event {
        let mut texts: Vec<_> = self.texts.iter().map(|&name| (name, self.text(name, rng))).collect();
        let numbers = self.numbers.iter().map(|&name| (name, self.number_law.draw(rng).to_string()));
        texts.extend(numbers);
        if self.plan.mix == Mix::Fence {
            let [lat, lon] = zones::point(rng);
            texts.extend([("lat", format!("{lat:.6}")), ("lon", format!("{lon:.6}"))]);
        }
        // Publishers write attributes in the order of their schema, which says nothing about who
        // looks at what.
        Rng::with_seed(self.plan.seed ^ 1).shuffle(&mut texts);
        Event { attributes: texts }
    }

    fn text(&self, name: &str, rng: &mut Rng) -> String {
        if self.plan.mix.has_ids() {
            let digits = rng.usize(8..=16);
            return self.id(name, digits, rng);
        }
        format!("{name}-{:03}", self.text_law.draw(rng))
    }

    fn id(&self, name: &str, digits: usize, rng: &mut Rng) -> String {
        let place = TEXTS.iter().position(|text| *text == name).expect("all are listed");
        let mut id = match self.plan.mix {
            Mix::PrefixLong => SCHEMES[4].to_owned(),
            _ => SCHEMES[place % 4].to_owned(),
        };
        let digit = |_| char::from_digit(self.digit_law.draw(rng) as u32, 16).expect("below 16");
        id.extend((0..digits).map(digit));
        id
    }

    /// The selector of a number; the same each time.
    pub fn selector(&self, index: usize) -> Selector {
        let text = self.part(index).selector();
        Selector::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// What the selector of a number says.
    pub fn part(&self, index: usize) -> Part {
        let mut rng = Rng::with_seed((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.plan.seed);
        let rng = &mut rng;
        let share = self.share;
        match self.plan.mix {
            Mix::Equality => self.equality(3, share, rng),
            Mix::Ranges => Part::All(self.ranges(5, 3, share, rng)),
            Mix::Prefix | Mix::PrefixLong => self.prefix(share, rng),
            Mix::PrefixRange => {
                let mut parts = vec![self.prefix(share.sqrt(), rng)];
                parts.extend(self.ranges(5, 1, share.sqrt(), rng));
                Part::All(parts)
            }
            Mix::Fence => {
                let mut parts = vec![Part::Within(zones::name(self.zone_law.draw(rng)))];
                if rng.u32(..5) > 0 {
                    parts.extend(self.ranges(3, 1, share / self.zone_share(), rng));
                }
                Part::All(parts)
            }
            Mix::Logic | Mix::LogicPlain => match rng.u32(..10) {
                0 | 1 => self.logic(rng),
                2..=5 => self.equality(5, share, rng),
                _ => Part::All(self.ranges(5, 3, share, rng)),
            },
        }
    }

    /// Different fields, of `popular` ones by Zipf's law or of all alike.
    fn fields(&self, from: &[&'static str], popular: usize, count: usize, rng: &mut Rng) -> Vec<&'static str> {
        if self.plan.any_field {
            return rng.choose_multiple(from.iter().copied(), count);
        }
        let mut left: Vec<_> =
            from[..popular].iter().enumerate().map(|(rank, name)| (1.0 / (rank + 1) as f64, *name)).collect();
        let mut chosen = Vec::new();
        while chosen.len() < count {
            let mut point = rng.f64() * left.iter().map(|(weight, _)| weight).sum::<f64>();
            let hit = left.iter().position(|(weight, _)| {
                point -= weight;
                point < 0.0
            });
            chosen.push(left.remove(hit.unwrap_or(0)).1);
        }
        chosen
    }

    /// `count` ranges on different fields which together let `share` of the events through.
    fn ranges(&self, popular: usize, count: usize, share: f64, rng: &mut Rng) -> Vec<Part> {
        let fields = self.fields(self.numbers, popular, count, rng);
        let mut range = |field| {
            let (low, high) = self.range(share.min(1.0).powf(1.0 / count as f64), rng);
            Part::Between(field, low, high)
        };
        fields.into_iter().map(&mut range).collect()
    }

    /// Bounds that let about `share` of the values through.
    fn range(&self, share: f64, rng: &mut Rng) -> (i64, i64) {
        let width = (share * (0.5 + rng.f64())).min(1.0);
        let from = rng.f64() * (1.0 - width);
        (self.number_law.rank(from) as i64, self.number_law.rank(from + width) as i64)
    }

    fn equal(&self, rng: &mut Rng) -> (&'static str, String) {
        let field = self.fields(self.texts, 2, 1, rng)[0];
        (field, self.text(field, rng))
    }

    fn equality(&self, popular: usize, share: f64, rng: &mut Rng) -> Part {
        let (field, text) = self.equal(rng);
        let mut parts = vec![Part::Equal(field, text)];
        parts.extend(self.ranges(popular, 2, share * self.texts_each as f64, rng));
        Part::All(parts)
    }

    /// Various lengths: of those digits that tell ids apart, one more or less than the share asks
    /// for.
    fn prefix(&self, share: f64, rng: &mut Rng) -> Part {
        let digits = -share.log2() / 4.0 + rng.f64() * 2.0 - 0.5;
        let field = self.fields(self.texts, 4, 1, rng)[0];
        Part::Prefix(field, self.id(field, (digits as usize).clamp(1, 8), rng))
    }

    fn logic(&self, rng: &mut Rng) -> Part {
        let each = self.texts_each as f64;
        let (field, text) = self.equal(rng);
        let kinds = if self.plan.mix == Mix::Logic { 7 } else { 5 };
        match rng.u32(..kinds) {
            0 => {
                let other = self.text(field, rng);
                let either = Part::Any(vec![Part::Equal(field, text), Part::Equal(field, other)]);
                let mut parts = vec![either];
                parts.extend(self.ranges(5, 2, self.share * each / 2.0, rng));
                Part::All(parts)
            }
            1 => {
                let mut first = vec![Part::Equal(field, text)];
                first.extend(self.ranges(5, 1, self.share * each / 2.0, rng));
                Part::Any(vec![Part::All(first), Part::All(self.ranges(5, 3, self.share / 2.0, rng))])
            }
            2 => {
                let mut parts = self.ranges(5, 2, self.share * each, rng);
                if let Some(Part::Between(number, low, high)) = parts.pop() {
                    parts.push(Part::Not(Box::new(Part::Outside(number, low, high))));
                }
                parts.push(Part::Equal(field, text));
                Part::All(parts)
            }
            3 => {
                let mut parts = vec![Part::Unequal(field, text)];
                parts.extend(self.ranges(5, 3, self.share, rng));
                Part::All(parts)
            }
            4 => {
                let mut parts = vec![Part::Not(Box::new(Part::Equal(field, text)))];
                parts.extend(self.ranges(5, 3, self.share, rng));
                Part::All(parts)
            }
            5 => {
                let mut parts = self.ranges(5, 2, self.share * each, rng);
                if let Some(Part::Between(number, low, high)) = parts.pop() {
                    parts.push(Part::Scaled(number, low, high));
                }
                parts.push(Part::Equal(field, text));
                Part::All(parts)
            }
            _ => {
                let pair = self.fields(self.numbers, 5, 2, rng);
                let middle = (self.number_law.draw(rng) + self.number_law.draw(rng)) as i64;
                let width = ((self.share * each).min(1.0).sqrt() * DOMAIN as f64) as i64;
                let mut parts = vec![Part::Equal(field, text)];
                parts.push(Part::Sum([pair[0], pair[1]], middle - width / 2, middle + width / 2));
                parts.extend(self.ranges(5, 1, (self.share * each).sqrt(), rng));
                Part::All(parts)
            }
        }
    }
}
