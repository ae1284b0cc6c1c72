//! Durable publishing: this broker, compared with the journal alone, bare writes and syncs, and
//! JetStream with a sync for each message.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::link::Link;
use super::super::peers::{Peer, Setup};
use super::super::process::{self, CpuClock};
use super::alone::{self, RECORD};
use super::publishers::Publishers;
use super::{DurableArgs, Grouping, Rate, Row};
use crate::progress;

/// The groupings, with their names.
const GROUPINGS: [(&str, Grouping); 3] = [
    ("1 outstanding", Grouping { publishers: 1, window: 1 }),
    ("1 publisher, window 64", Grouping { publishers: 1, window: 64 }),
    ("16 publishers, window 64", Grouping { publishers: 16, window: 64 }),
];

/// The goal for this broker's rate relative to JetStream's.
const JETSTREAM_TIMES: f64 = 20.0;

/// The goal for one publisher's rate relative to that of the journal alone.
const JOURNAL_PART: f64 = 0.9;

/// The goal for this broker's rate with several publishers, relative to the lesser of the journal's
/// alone and its own with a journal that writes nothing.
const LESSER_PART: f64 = 0.85;

/// The time that one message may take beyond that in the journal alone, microseconds.
const LONGER: f64 = 80.0;

/// Settings by which all topics are logged, whatever subscriptions there are.
pub(super) const PERSISTENT: &str = "[[topic]]\nfilter = \"#\"\npersistence = \"persistent\"\n";

/// The thing that makes messages durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Keeper {
    Bare,
    Journal,
    /// The journal, with one thread that has the windows of all publishers.
    OneThread,
    /// This broker with a journal that writes nothing, behind the same sockets.
    Floor,
    Whimbrel,
    JetStream,
}

impl Keeper {
    fn name(self) -> &'static str {
        match self {
            Keeper::Bare => "bare write and sync",
            Keeper::Journal => "journal alone",
            Keeper::OneThread => "journal alone, one thread for all",
            Keeper::Floor => "whimbrel, nothing kept",
            Keeper::Whimbrel => "whimbrel",
            Keeper::JetStream => "JetStream, always synced",
        }
    }

    fn measure(self, args: &DurableArgs, grouping: Grouping) -> Result<Rate> {
        let (_, slice) = args.timing();
        match self {
            Keeper::Bare | Keeper::Journal | Keeper::OneThread => {
                process::bind_thread(None)?;
                let Grouping { publishers, window } = grouping;
                match self {
                    Keeper::Bare => alone::bare(&args.disk, grouping, slice),
                    Keeper::Journal => alone::journal(&args.disk, grouping, slice),
                    _ => alone::journal(&args.disk, Grouping { publishers: 1, window: publishers * window }, slice),
                }
            }
            Keeper::Floor | Keeper::Whimbrel => {
                let setup = Setup { keeps_nothing: self == Keeper::Floor, ..args.free(PERSISTENT) };
                let broker = args.start(Peer::Whimbrel, setup)?;
                let mut publishers = Publishers::connect(broker.target, grouping, RECORD_BODY)?;
                alone::until_made(|span| {
                    publishers.measure((Duration::ZERO, span), None)?;
                    Ok(broker.segment_files())
                })?;
                publishers.measure(args.timing(), Some(CpuClock::of(broker.pid())?))
            }
            Keeper::JetStream => {
                let broker = args.start(Peer::JetStream, args.free(""))?;
                Link::open(broker.target, "setup")?.make_stream_on_disk("setup")?;
                let mut publishers = Publishers::connect(broker.target, grouping, RECORD_BODY)?;
                publishers.measure(args.timing(), Some(CpuClock::of(broker.pid())?))
            }
        }
    }
}

/// The size of a body with which an event's record has about [`RECORD`] bytes: it also has the
/// topic, the publisher and times.
const RECORD_BODY: usize = RECORD - 48;

type Measured = BTreeMap<(usize, Keeper), Vec<Rate>>;

/// The groupings that are measured, with their indexes.
fn groupings(args: &DurableArgs) -> impl Iterator<Item = (usize, &'static str, Grouping)> {
    let all = GROUPINGS.iter().enumerate().map(|(index, (name, grouping))| (index, *name, *grouping));
    all.filter(|(.., grouping)| args.publishers.contains(&grouping.publishers))
}

fn measured(args: &DurableArgs, keepers: &[Keeper]) -> Result<Measured> {
    let all: Vec<(usize, Keeper)> = groupings(args)
        .flat_map(|(index, ..)| keepers.iter().map(move |keeper| (index, *keeper)))
        .filter(|(index, keeper)| *keeper != Keeper::OneThread || GROUPINGS[*index].1.publishers > 1)
        .collect();
    let plan = args.start.shuffled(args.rounds, &all);
    let progress = progress::bar(plan.len() as u64);
    let mut measured = Measured::new();
    for (round, (index, keeper)) in plan {
        let (name, grouping) = GROUPINGS[index];
        progress.set_message(format!("round {}: {name}, {}", round + 1, keeper.name()));
        let rate = keeper.measure(args, grouping);
        let rate = rate.with_context(|| format!("round {}, {name}, {}", round + 1, keeper.name()))?;
        measured.entry((index, keeper)).or_default().push(rate);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(measured)
}

/// The rows of one keeper.
fn own_rows(args: &DurableArgs, name: &str, keeper: Keeper, rates: &[Rate]) -> Vec<Row> {
    let row = |what: &str, unit, of: Vec<f64>| {
        let text = format!("{name}: {}{what}", keeper.name());
        (!of.is_empty()).then(|| Row::median("publish", text, unit, &of, args.start.seed))
    };
    let rate = row("", "1/s", rates.iter().map(|rate| rate.rate).collect());
    let all = [
        rate.map(|row| row.drawn(name, keeper.name())),
        row(", wait p50", "µs", rates.iter().map(|rate| rate.waits[0]).collect()),
        row(", wait p99", "µs", rates.iter().map(|rate| rate.waits[1]).collect()),
        row(", CPU per message", "µs", rates.iter().filter_map(|rate| rate.cpu).collect()),
        row(", commits", "1/s", rates.iter().filter_map(|rate| rate.commits).collect()),
    ];
    all.into_iter().flatten().collect()
}

/// Compares the journal alone with bare writes and syncs.
pub(super) fn journal(args: &DurableArgs) -> Result<Vec<Row>> {
    let keepers = [Keeper::Bare, Keeper::Journal];
    let measured = measured(args, &keepers)?;
    let mut rows = Vec::new();
    for (index, name, _) in groupings(args) {
        for keeper in keepers {
            let rates = measured.get(&(index, keeper)).map_or(&[][..], Vec::as_slice);
            rows.extend(own_rows(args, name, keeper, rates));
        }
        rows.extend(ratio(args, &measured, index, (Keeper::Journal, Keeper::Bare)));
    }
    Ok(rows)
}

/// One rate divided by another of the same round, if both were measured.
fn ratio(args: &DurableArgs, measured: &Measured, index: usize, (one, other): (Keeper, Keeper)) -> Option<Row> {
    let (ours, theirs) = (measured.get(&(index, one))?, measured.get(&(index, other))?);
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(one, other)| one.rate / other.rate).collect();
    let text = format!("{}: {} / {}", GROUPINGS[index].0, one.name(), other.name());
    Some(Row::median("publish", text, "", &ratios, args.start.seed))
}

/// This broker's rate divided by the lesser of the same round's two that bound it: that of the
/// journal alone, and that with a journal that writes nothing.
fn beside_lesser(args: &DurableArgs, measured: &Measured, index: usize) -> Option<Row> {
    let of = |keeper| measured.get(&(index, keeper));
    let bounds = of(Keeper::Floor)?.iter().zip(of(Keeper::Journal)?);
    let lesser = bounds.map(|(floor, journal)| floor.rate.min(journal.rate));
    let ratios: Vec<f64> = of(Keeper::Whimbrel)?.iter().zip(lesser).map(|(ours, lesser)| ours.rate / lesser).collect();
    let text = format!("{}: whimbrel / lesser of nothing kept and journal alone", GROUPINGS[index].0);
    Some(Row::median("publish", text, "", &ratios, args.start.seed).at_least(LESSER_PART))
}

/// Compares this broker with all others.
pub(super) fn rows(args: &DurableArgs) -> Result<Vec<Row>> {
    let mut keepers = vec![Keeper::Bare, Keeper::Journal, Keeper::OneThread, Keeper::Floor, Keeper::Whimbrel];
    keepers.extend(args.brokers.contains(&Peer::JetStream).then_some(Keeper::JetStream));
    let measured = measured(args, &keepers)?;
    let mut rows = Vec::new();
    for (index, name, grouping) in groupings(args) {
        for keeper in &keepers {
            let rates = measured.get(&(index, *keeper)).map_or(&[][..], Vec::as_slice);
            rows.extend(own_rows(args, name, *keeper, rates));
        }
        let beside = |other| ratio(args, &measured, index, (Keeper::Whimbrel, other));
        let (beside_journal, beside_jetstream) = (beside(Keeper::Journal), beside(Keeper::JetStream));
        if grouping.window == 1 {
            let pairs = measured[&(index, Keeper::Whimbrel)].iter().zip(&measured[&(index, Keeper::Journal)]);
            let longer: Vec<f64> = pairs.map(|(ours, journal)| ours.waits[0] - journal.waits[0]).collect();
            let text = format!("{name}: wait p50, whimbrel less journal alone");
            rows.push(Row::median("publish", text, "µs", &longer, args.start.seed).at_most(LONGER));
            rows.extend(beside_journal.into_iter().chain(beside_jetstream));
        } else {
            let is_one = grouping.publishers == 1;
            rows.extend(beside_journal.map(|row| if is_one { row.at_least(JOURNAL_PART) } else { row }));
            rows.extend(beside(Keeper::OneThread).into_iter().chain(beside(Keeper::Floor)));
            rows.extend((!is_one).then(|| beside_lesser(args, &measured, index)).flatten());
            rows.extend(beside_jetstream.map(|row| row.at_least(JETSTREAM_TIMES)));
        }
    }
    Ok(rows)
}
