//! `[[partition]]` and `[buffer]`: the division of the cache for semi-durable subscriptions, and
//! the interest that the broker has on the cache's behalf.

use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use miette::NamedSource;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use whimbrel_core::CacheInterest;
use whimbrel_core::cache::{
    Capacity, DEFAULT_BYTES, PARTITIONS_MAX, PROTECTED_LIFETIME, PROTECTED_PER_MILLE, PartitionPlan, Plan, Policy,
};
use whimbrel_selector::{Fences, Selector};

use super::problem::{Place, Problem};
use super::settings::Settings;
use super::source::{Faults, Source};
use super::value::{Kind, Value};

/// Filters of `[buffer]`, at most: each is sent to other brokers.
const INTERESTS_MAX: usize = 1024;

/// Bytes of all partitions together, unless `[buffer]` sets them.
const CEILING: u64 = 4 << 30;

/// The most events that a partition may be set to hold.
const EVENTS_MAX: u64 = 1_000_000_000;

/// The longest time that a partition may be set to hold, and an event may be protected: a day, in
/// milliseconds.
const TIME_MAX: u64 = 24 * 3600 * 1000;

const SIZE: Kind = Kind::Size(1 << 10, 1 << 40);
const TIME: Kind = Kind::Duration(1, TIME_MAX);
const POLICY: Kind = Kind::Choice(&["lrp", "random", "priority", "value"]);

const PARTITION: &str = "write [[partition]] with `filter`, `capacity` and, if need be, `selector`, `policy`, and `ceiling` (with a time), \
                         `lifetime` and `protected` (with the policy \"priority\")";
const BUFFER: &str = "write [buffer] with `subscribe`, a list of filters such as [\"fleet/#\", { filter = \"alarm/#\", selector = \
                      \"level > 3\" }], and `ceiling`, a size";
const CAPACITY: &str = "write \"3000 events\", a size such as \"64 MB\", or a time such as \"30 s\"";

/// Settings of the cache.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Division {
    /// The division of the cache.
    pub plan: Plan,
    /// The broker's own interest, for the cache.
    pub buffer: Vec<CacheInterest>,
}

/// The tables of `whimbrel.toml`, before their selectors are read.
#[derive(Debug, Default)]
pub(super) struct Asked {
    partitions: Vec<Entry>,
    buffer: Vec<Wanted>,
    ceiling: Option<u64>,
    ceiling_at: Option<Place>,
}

#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    capacity: Capacity,
    policy: Policy,
    place: Place,
}

/// One entry of `[buffer]`: a filter and a selector.
#[derive(Debug)]
struct Wanted {
    filter: Box<str>,
    selector: Option<(String, Place)>,
}

impl Wanted {
    fn selector(&self, fences: &Fences, problems: &mut Vec<Problem>) -> Option<Selector> {
        let (text, place) = self.selector.as_ref()?;
        match Selector::parse_with(text, fences) {
            Ok(selector) => Some(selector).filter(|selector| !selector.is_everything()),
            Err(error) => {
                let help = "docs/selectors.md describes the language";
                problems.push(Problem::new(error.to_string()).at(Some(place), "this one").help(help));
                None
            }
        }
    }
}

/// Reads the selectors, and checks the tables as a whole. Problems are added to the settings.
pub(super) fn load(settings: &mut Settings, fences: &Fences) -> Division {
    let asked = std::mem::take(&mut settings.division);
    let problems = &mut settings.problems;
    if let Some(entry) = asked.partitions.get(PARTITIONS_MAX - 1) {
        let message = format!("there are more than {} partitions", PARTITIONS_MAX - 1);
        problems.push(Problem::new(message).at(Some(&entry.place), "one too many").help("leave some out"));
    }
    if let Some(wanted) = asked.buffer.get(INTERESTS_MAX) {
        let message = format!("`subscribe` has more than {INTERESTS_MAX} filters, such as \"{}\"", wanted.filter);
        problems.push(Problem::new(message).help("write fewer, with wildcards"));
    }
    let ceiling = asked.ceiling.unwrap_or(CEILING);
    let fixed = asked.partitions.iter().map(|entry| match entry.capacity {
        Capacity::Bytes(bytes) => bytes,
        Capacity::Events(_) | Capacity::Time { .. } => 0,
    });
    let sum = fixed.sum::<u64>() + DEFAULT_BYTES;
    if sum > ceiling {
        let (sum, ceiling) = (ByteSize(sum), ByteSize(ceiling));
        let message = format!(
            "the partitions, with {} for the default one, ask for {sum}: more than {ceiling}",
            ByteSize(DEFAULT_BYTES)
        );
        let at = asked.ceiling_at.as_ref().or(asked.partitions.first().map(|entry| &entry.place));
        problems.push(
            Problem::new(message).at(at, "here").help("raise `ceiling` in [buffer], or write smaller capacities"),
        );
    }
    let partition = |entry: Entry| PartitionPlan {
        selector: entry.wanted.selector(fences, problems),
        filter: entry.wanted.filter,
        capacity: entry.capacity,
        policy: entry.policy,
    };
    let partitions = asked.partitions.into_iter().map(partition).collect();
    let interest =
        |wanted: Wanted| CacheInterest { selector: wanted.selector(fences, problems), filter: wanted.filter };
    let buffer = asked.buffer.into_iter().map(interest).collect();
    Division { plan: Plan { partitions, ceiling, ..Plan::default() }, buffer }
}

impl Settings {
    /// Reads the value of `partition`.
    pub(super) fn read_partitions(&mut self, file: &Arc<NamedSource<String>>, value: &Spanned<DeValue<'_>>) {
        let source = Source { file, table: "[[partition]]", help: PARTITION };
        let DeValue::Array(entries) = value.get_ref() else {
            return self.problems.push(source.wrong("`partition` is no list", value.span()));
        };
        for entry in entries.iter() {
            match read_partition(&source, entry) {
                Ok(entry) => self.division.partitions.push(entry),
                Err(problems) => self.problems.extend(problems),
            }
        }
    }

    /// Reads the value of `buffer`.
    pub(super) fn read_buffer(&mut self, file: &Arc<NamedSource<String>>, value: &Spanned<DeValue<'_>>) {
        let source = Source { file, table: "[buffer]", help: BUFFER };
        let DeValue::Table(table) = value.get_ref() else {
            return self.problems.push(source.wrong("`buffer` is no table", value.span()));
        };
        for (key, value) in table.iter() {
            match (&**key.get_ref(), value.get_ref()) {
                ("ceiling", _) => match source.read("ceiling", SIZE, value) {
                    Ok(read) => {
                        self.division.ceiling = number(&read);
                        self.division.ceiling_at = Some(source.place(value.span()));
                    }
                    Err(problem) => self.problems.push(problem),
                },
                ("subscribe", DeValue::Array(filters)) => {
                    for filter in filters.iter() {
                        match read_interest(&source, filter) {
                            Ok(wanted) => self.division.buffer.push(wanted),
                            Err(problems) => self.problems.extend(problems),
                        }
                    }
                }
                ("subscribe", _) => self.problems.push(source.wrong("`subscribe` is no list", value.span())),
                _ => self.problems.push(source.unknown(key)),
            }
        }
    }
}

fn read_interest(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Wanted, Vec<Problem>> {
    let mut faults = Faults::default();
    let table = match value.get_ref() {
        DeValue::String(_) => {
            let filter = faults.take(source.filter(value));
            return faults.or(filter.map(|filter| Wanted { filter, selector: None }));
        }
        DeValue::Table(table) => table,
        other => {
            let message = format!("a filter of `subscribe` has the wrong type: {}", other.type_str());
            return Err(vec![source.wrong(message, value.span())]);
        }
    };
    let (mut filter, mut selector) = (None, None);
    for (key, value) in table.iter() {
        match &**key.get_ref() {
            "filter" => filter = faults.take(source.filter(value)),
            "selector" => selector = faults.take(source.selector(value)),
            _ => faults.add(source.unknown(key)),
        }
    }
    if !table.contains_key("filter") {
        faults.add(source.wrong("an entry of `subscribe` has no `filter`", value.span()));
    }
    faults.or(filter.map(|filter| Wanted { filter, selector }))
}

fn read_partition(source: &Source<'_>, entry: &Spanned<DeValue<'_>>) -> Result<Entry, Vec<Problem>> {
    let DeValue::Table(table) = entry.get_ref() else {
        return Err(vec![source.wrong("an entry of `partition` is no table", entry.span())]);
    };
    let mut faults = Faults::default();
    for (key, _) in table.iter().filter(|(key, _)| !is_known(key.get_ref())) {
        faults.add(source.unknown(key));
    }
    let required =
        |name: &str| table.get(name).ok_or_else(|| source.wrong(format!("a partition has no `{name}`"), entry.span()));
    let filter = faults.take(required("filter").and_then(|value| source.filter(value)));
    let selector = faults.take(table.get("selector").map(|value| source.selector(value)).transpose()).flatten();
    let ceiling = faults.take(table.get("ceiling").map(|value| source.read("ceiling", SIZE, value)).transpose());
    let ceiling = ceiling.flatten().as_ref().and_then(number);
    let capacity = faults.take(required("capacity").and_then(|value| read_capacity(source, table, (value, ceiling))));
    let policy = read_policy(source, table, &mut faults);
    let place = source.place(entry.span());
    let whole = filter.zip(capacity).zip(policy);
    faults.or(whole.map(|((filter, capacity), policy)| Entry {
        wanted: Wanted { filter, selector },
        capacity,
        policy,
        place,
    }))
}

fn is_known(key: &str) -> bool {
    matches!(key, "filter" | "selector" | "capacity" | "ceiling" | "policy" | "lifetime" | "protected")
}

fn read_capacity(
    source: &Source<'_>,
    table: &DeTable<'_>,
    (value, ceiling): (&Spanned<DeValue<'_>>, Option<u64>),
) -> Result<Capacity, Problem> {
    let here = |what: &str| Problem::new(format!("`capacity` {what}")).at(Some(&source.place(value.span())), "here");
    let DeValue::String(text) = value.get_ref() else {
        return Err(here("has no unit").help(CAPACITY));
    };
    let text = text.trim();
    let capacity = if let Some(count) = text.strip_suffix("events").or_else(|| text.strip_suffix("event")) {
        let count = count.trim().parse().ok().filter(|count| (1..=EVENTS_MAX).contains(count));
        Capacity::Events(count.ok_or_else(|| here("is not a number of events").help(CAPACITY))?)
    } else if text.ends_with(['B', 'b']) {
        Capacity::Bytes(number(&source.read("capacity", SIZE, value)?).unwrap_or_default())
    } else if text.ends_with(|last: char| last.is_ascii_digit()) {
        return Err(here("has no unit").help(CAPACITY));
    } else {
        let keep = source.read("capacity", TIME, value).map_err(|problem| problem.help(CAPACITY))?;
        return Ok(Capacity::Time { keep: duration(&keep), ceiling: ceiling.unwrap_or(DEFAULT_BYTES) });
    };
    match table.get_key_value("ceiling") {
        Some((key, _)) => Err(source.wrong("`ceiling` is for a capacity that is a time", key.span())),
        None => Ok(capacity),
    }
}

fn read_policy(source: &Source<'_>, table: &DeTable<'_>, faults: &mut Faults) -> Option<Policy> {
    let lifetime = faults.take(table.get("lifetime").map(|value| source.read("lifetime", TIME, value)).transpose());
    let protected = faults.take(table.get("protected").map(|value| per_mille(source, value)).transpose());
    let name = match table.get("policy") {
        Some(value) => faults.take(source.read("policy", POLICY, value))?,
        None => Value::Text("lrp".to_owned()),
    };
    let policy = match name {
        Value::Text(name) if name == "priority" => {
            return Some(Policy::Priority {
                protected: protected?.unwrap_or(PROTECTED_PER_MILLE),
                lifetime: lifetime?.as_ref().map_or(PROTECTED_LIFETIME, duration),
            });
        }
        Value::Text(name) if name == "random" => Policy::Random,
        Value::Text(name) if name == "value" => Policy::Value,
        _ => Policy::Lrp,
    };
    for name in ["lifetime", "protected"] {
        if let Some((key, _)) = table.get_key_value(name) {
            faults.add(source.wrong(format!("`{name}` is for the policy \"priority\""), key.span()));
        }
    }
    Some(policy)
}

/// A share such as `"20 %"` in thousandths.
fn per_mille(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<u16, Problem> {
    let text = source.text("protected", value)?;
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share =
        percent.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| (percent * 10.0).round() as u16);
    share.ok_or_else(|| {
        let problem = Problem::new("`protected` is not a share").at(Some(&source.place(value.span())), "here");
        problem.help("write a share of the capacity such as \"20 %\", from 0 % to 100 %")
    })
}

fn number(value: &Value) -> Option<u64> {
    if let Value::Number(number) = value { Some(*number) } else { None }
}

fn duration(value: &Value) -> Duration {
    if let Value::Duration(duration) = value { *duration } else { Duration::ZERO }
}
