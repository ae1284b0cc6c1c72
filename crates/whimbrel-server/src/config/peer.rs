//! `[[overlay.peer]]`: what a link to another broker costs, and how much it may carry.

use std::sync::Arc;
use std::time::Duration;

use miette::NamedSource;
use toml::Spanned;
use toml::de::DeValue;
use whimbrel_core::SURCHARGES_MAX;

use super::problem::Problem;
use super::source::{Faults, Source};
use super::value::{Kind, Value};
use crate::identity::is_name;

/// The key of the list in `[overlay]`.
pub(super) const PEER: &str = "peer";

/// The greatest cost, ms: less than that of a link that is dark.
const COST_MAX_MS: u64 = 9_000;

/// The least cap, bytes per second: a packet takes less than a second.
const CAP_MIN: u64 = 4 << 10;

/// The greatest cap, bytes per second.
const CAP_MAX: u64 = 1 << 30;

const HELP: &str = "write [[overlay.peer]] with `name`, the name of another broker, and `cost` (\"100 ms\": a way that takes \
                    so much longer is taken instead), `cap` (\"64 KiB\": bytes a second that are sent to it) or both";

/// The terms of the links to one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTerms {
    /// The other broker's name.
    pub name: String,
    /// What the link costs beside its delay and loss: a path that is longer by less is taken
    /// instead.
    pub cost: Option<Duration>,
    /// Bytes of events that are sent over it per second, at most.
    pub cap: Option<u64>,
}

/// Reads the value of `overlay.peer`. Returns the terms that could be read, and what is wrong.
pub(super) fn read(file: &Arc<NamedSource<String>>, value: &Spanned<DeValue<'_>>) -> (Vec<PeerTerms>, Vec<Problem>) {
    let source = Source { file, table: "[[overlay.peer]]", help: HELP };
    let (mut all, mut problems) = (Vec::<PeerTerms>::new(), Vec::new());
    let DeValue::Array(entries) = value.get_ref() else {
        return (all, vec![source.wrong("`peer` is no list", value.span())]);
    };
    for entry in entries.iter() {
        match read_terms(&source, entry) {
            Ok(terms) if all.iter().any(|known| known.name == terms.name) => {
                let message = format!("there are two [[overlay.peer]] for \"{}\"", terms.name);
                problems.push(source.wrong(message, entry.span()));
            }
            Ok(terms) => all.push(terms),
            Err(more) => problems.extend(more),
        }
    }
    if all.len() > SURCHARGES_MAX {
        problems.push(source.wrong(format!("there are more than {SURCHARGES_MAX} [[overlay.peer]]"), value.span()));
    }
    (all, problems)
}

fn read_terms(source: &Source<'_>, entry: &Spanned<DeValue<'_>>) -> Result<PeerTerms, Vec<Problem>> {
    let DeValue::Table(table) = entry.get_ref() else {
        return Err(vec![source.wrong("an entry of `peer` is no table", entry.span())]);
    };
    let (mut name, mut cost, mut cap, mut faults) = (None, None, None, Faults::default());
    for (key, value) in table.iter() {
        match &**key.get_ref() {
            "name" => {
                let wrong = || source.wrong("`name` is no name of a broker", value.span());
                let read = source
                    .text("name", value)
                    .and_then(|text| Some(text).filter(|text| is_name(text)).ok_or_else(wrong));
                name = faults.take(read).map(str::to_owned);
            }
            "cost" => cost = faults.take(source.read("cost", Kind::Duration(1, COST_MAX_MS), value)),
            "cap" => cap = faults.take(source.read("cap", Kind::Size(CAP_MIN, CAP_MAX), value)),
            _ => faults.add(source.unknown(key)),
        }
    }
    if !table.contains_key("cost") && !table.contains_key("cap") {
        faults.add(source.wrong("a peer has neither `cost` nor `cap`", entry.span()));
    }
    if !table.contains_key("name") {
        faults.add(source.wrong("a peer has no `name`", entry.span()));
    }
    let cost = cost.and_then(|cost| if let Value::Duration(cost) = cost { Some(cost) } else { None });
    let cap = cap.and_then(|cap| if let Value::Number(cap) = cap { Some(cap) } else { None });
    faults.or(name.map(|name| PeerTerms { name, cost, cap }))
}
