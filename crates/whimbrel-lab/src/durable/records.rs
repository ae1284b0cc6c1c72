//! Filter records, compared with logging each event for each subscriber that wants it: the
//! microbenchmark of the paper (its section 5.1.2), with records as this broker writes them, and
//! its journal for both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use indicatif::ProgressBar;
use whimbrel_journal::{Journal, Options, Stream, StreamId};

use super::crowd::Crowd;
use super::subscriber::Keeper;
use super::topology::Topology;
use super::{CLASSES, RATE};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "records", rows: &["record-size", "record-data", "record-speed"], measure };

/// The number of durable subscriptions.
const SUBSCRIBERS: usize = 100;

/// The number of them that want an event.
const WANTING: usize = SUBSCRIBERS / CLASSES;

/// Bytes of a logged event, as in the paper.
const EVENT: usize = 418;

/// The seconds of events that are kept; older ones are given up at each sync.
const KEPT: u64 = 5;

/// The seconds of events: in full runs, as in the paper, and in trial runs.
const SECONDS: [u64; 2] = [100, 5];

/// The greatest size of a record, bytes: 8, and 16 for each subscription in it.
const SIZE_MAX: usize = 8 + 16 * WANTING;

/// The journal's result for one of the two.
struct Logged {
    took: Duration,
    bytes: u64,
}

/// Bytes of the record that the broker writes for an event that [`WANTING`] subscriptions want.
fn record_size(effort: Effort, seed: u64) -> Result<usize> {
    let topology = Topology::alone()?;
    let mut crowd = Crowd::connect(&topology, Keeper::Broker, Duration::ZERO, seed)?;
    crowd.add_subscribers(SUBSCRIBERS)?;
    crowd.settle(Duration::ZERO)?;
    ensure!(crowd.drain()?, "the subscribers have not got everything");
    let counts = || -> Result<[f64; 3]> {
        Ok([
            topology.sum("whimbrel_filter_records_total")?,
            topology.sum("whimbrel_filter_names_total")?,
            topology.sum("whimbrel_filter_bytes_total")?,
        ])
    };
    let before = counts()?;
    crowd.run(Duration::from_secs(if effort.quick { 1 } else { 4 }))?;
    ensure!(crowd.drain()?, "the subscribers have not got everything");
    let after = counts()?;
    let [records, names, bytes] = [0, 1, 2].map(|index: usize| after[index] - before[index]);
    ensure!(records > 0.0 && names == records * WANTING as f64, "{names} names in {records} records");
    Ok((bytes / records).ceil() as usize)
}

/// Appends a record of `size` bytes to each of these streams for each event, and waits once per
/// second of events until all are durable. `wanting` tells whether an event goes to a stream.
fn log(streams: usize, size: usize, seconds: u64, wanting: impl Fn(u64, usize) -> bool) -> Result<Logged> {
    let folder = tempfile::tempdir().context("making a folder for the journal")?;
    let refused = |error| anyhow!("the journal refuses: {error}");
    let opened = Journal::open(folder.path(), Options::default(), |_| {});
    let (journal, _) = opened.map_err(|error| anyhow!("{error}"))?;
    let open = |id| journal.open_stream(StreamId { kind: 0, id }).map(|(stream, _)| stream).map_err(refused);
    let streams = (0..streams as u64).map(open).collect::<Result<Vec<Stream>>>()?;
    let record = vec![0x5a; size];
    let frames = || journal.submit(|log| Ok(log.counters().frame_bytes)).map_err(refused);
    let (begin, before) = (Instant::now(), frames()?);
    let mut last = None;
    for event in 1..=seconds * RATE {
        for (_, stream) in streams.iter().enumerate().filter(|(index, _)| wanting(event, *index)) {
            last = Some(journal.append(*stream, event, &[&record]).map_err(refused)?);
        }
        if !event.is_multiple_of(RATE) {
            continue;
        }
        if let Some(upto) = event.checked_sub(KEPT * RATE).filter(|upto| *upto > 0) {
            for stream in &streams {
                last = Some(journal.chop(*stream, upto).map_err(refused)?);
            }
        }
        journal.wait(last.context("an event is wanted")?).map_err(refused)?;
    }
    Ok(Logged { took: begin.elapsed(), bytes: frames()? - before })
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    bar.set_length(effort.seeds * 3);
    let (mut sizes, mut data, mut speed) = (Vec::new(), Vec::new(), Vec::new());
    let mut part = Part::default();
    let seconds = SECONDS[usize::from(effort.quick)];
    for seed in 1..=effort.seeds {
        let size = record_size(effort, seed)?;
        bar.inc(1);
        let filtered = log(1, size, seconds, |_, _| true)?;
        bar.inc(1);
        let each = log(SUBSCRIBERS, EVENT, seconds, |event, index| event % CLASSES as u64 == (index % CLASSES) as u64)?;
        bar.inc(1);
        sizes.push(size as f64);
        data.push(each.bytes as f64 / filtered.bytes as f64);
        speed.push(each.took.as_secs_f64() / filtered.took.as_secs_f64());
        part.notes.push(format!(
            "records: {} events, {WANTING} of {SUBSCRIBERS} subscribers want each: filter records {:.1} MB in {:.0} ms, logging for each {:.1} MB in {:.0} ms",
            seconds * RATE,
            filtered.bytes as f64 / 1e6,
            filtered.took.as_secs_f64() * 1e3,
            each.bytes as f64 / 1e6,
            each.took.as_secs_f64() * 1e3,
        ));
    }
    let rows = [
        (
            "record-size",
            "filter record of an event that 25 subscribers want",
            "bytes",
            None,
            Goal::at_most(SIZE_MAX as f64),
            sizes,
        ),
        (
            "record-data",
            "data of logging each event for each subscriber, divided by filter records",
            "times",
            Some(25.0),
            Goal::at_least(25.0),
            data,
        ),
        (
            "record-speed",
            "time of the same, synced once per second of events",
            "times",
            Some(5.0),
            Goal::at_least(5.0),
            speed,
        ),
    ];
    for (id, measure, unit, paper, goal, values) in rows {
        part.rows.push(Head { id, measure, unit, paper, goal }.row(&values));
    }
    Ok(part)
}
