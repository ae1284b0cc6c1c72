//! Work without any timing, for tools that count instructions: `--once N` does N rounds of it after
//! the set-up, so that the difference between two runs is that of the rounds alone.

use core::fmt::Write;
use core::hint::black_box;

use whimbrel_selector::{Compiled, Datum, MatchIndex, Selector, Subject};

use super::options::Options;
use super::{Indexed, filter, scan};
use crate::mixes::Workload;

pub fn run(rounds: usize, options: &Options) -> Result<(), String> {
    match &*options.with {
        "index" | "scan" => many(rounds, options),
        "add" => replace(rounds, options),
        other => attack(rounds, options, other)?,
    }
    Ok(())
}

/// Each round is one event for all selectors.
fn many(rounds: usize, options: &Options) {
    let workload = workload(options);
    let events = workload.events.iter().cycle().take(rounds);
    if options.with == "index" {
        let mut indexed = Indexed::new(&workload);
        events.for_each(|event| {
            black_box(indexed.run(core::slice::from_ref(event)));
        });
    } else {
        let mut scan = scan(&workload);
        events.for_each(|event| {
            scan.for_each_true(event, |key| {
                black_box(key);
            });
        });
    }
}

fn workload(options: &Options) -> Workload {
    let plan = options.plans()[0];
    match options.share {
        Some(share) => Workload::with_share(plan, share),
        None => Workload::calibrated(plan),
    }
}

/// Each round removes a selector and adds another.
fn replace(rounds: usize, options: &Options) {
    let workload = workload(options);
    let Indexed { mut index, places } = Indexed::new(&workload);
    for (number, place) in places.into_iter().enumerate().take(rounds) {
        index.remove(filter(), place, number as u32);
        let fresh = workload.plan.count + number;
        index.insert(filter(), Some(&workload.selector(fresh)), fresh as u32);
    }
}

/// An event with one long attribute and a long payload.
struct Long {
    text: String,
    payload: String,
}

impl Subject for Long {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        visit("a", Datum::Text(&self.text));
        visit("n", Datum::Integer(-1));
    }

    fn payload(&self) -> &[u8] {
        self.payload.as_bytes()
    }
}

/// Each round evaluates one selector of about `--size` bytes on an event of about `--length` bytes,
/// or adds it.
fn attack(rounds: usize, options: &Options, kind: &str) -> Result<(), String> {
    let text = hostile(kind.trim_start_matches("add-"), options.size).ok_or_else(|| format!("--with {kind}"))?;
    let selector = Selector::parse(&text).map_err(|error| error.to_string())?;
    let mut payload = String::from("{");
    while payload.len() < options.length {
        write!(payload, "\"m{}\":[{{\"x\":1}}],", payload.len()).expect("memory suffices");
    }
    payload.push_str("\"last\":0}");
    let event = Long { text: "a".repeat(options.length), payload };
    if kind.starts_with("add-") {
        let mut index = MatchIndex::new(options.seed);
        for key in 0..rounds as u32 {
            let place = index.insert(filter(), Some(&selector), key).0;
            index.remove(filter(), place, key);
        }
    } else {
        let mut compiled = Compiled::new(&selector);
        (0..rounds).for_each(|_| {
            black_box(compiled.value(&event));
        });
    }
    Ok(())
}

/// Selectors that cost as much as may be for their length.
fn hostile(kind: &str, size: usize) -> Option<String> {
    let repeat = |text: &str| text.repeat(size / text.len());
    let numbered = |text: &dyn Fn(usize) -> String, between: &str| {
        let mut all = text(0);
        let mut number = 1;
        while all.len() < size {
            all.push_str(between);
            all.push_str(&text(number));
            number += 1;
        }
        all
    };
    Some(match kind {
        // A segment that almost occurs everywhere.
        "like-segment" => format!("a LIKE '%{}b%'", "a".repeat(size)),
        // Many segments, and in the end one that does not occur.
        "like-segments" => format!("a LIKE '{}%b'", repeat("%a")),
        "like-blanks" => format!("a LIKE '{}%b'", repeat("%_a")),
        "chain" => numbered(&|number| format!("n = {number}"), " OR "),
        "sum" => numbered(&|number| format!("n{} > {number}", " + n".repeat(200)), " OR "),
        "nested" => {
            numbered(&|number| format!("{0}n = {number}{1}", "NOT (n = 1 OR ".repeat(30), ")".repeat(30)), " OR ")
        }
        "json" => numbered(&|number| format!("json('$.m{number}[-1].x') = 2"), " OR "),
        "in" => format!("a IN ({})", numbered(&|number| format!("'t{number}'"), ", ")),
        // Multiplied out it would have exponentially many alternatives.
        "products" => numbered(&|number| format!("(n = {number} OR a = 't{number}')"), " AND "),
        "ranges" => numbered(&|number| format!("(n BETWEEN {number} AND 5 AND m > {number})"), " OR "),
        _ => return None,
    })
}
