//! Every link loses some packets at random: best effort with two paths, by datagrams and by
//! streams.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::TopicTransport;
use whimbrel_event::Time;

use super::lateness::LateCount;
use super::overhead::{QUIC_BYTES, sent};
use super::runs::play_all;
use super::scene::{Contender, Preset, Technique};
use super::stage::{AreaWorld, BEGIN, Play};
use super::tally::mean;
use super::truth::Truth;
use crate::bench::report::number;
use crate::cores::START;
use crate::cores::wire::WayTruth;
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan {
    id: "random-loss",
    rows: &[
        "loss-1-late",
        "loss-1-packets",
        "loss-1-bytes",
        "loss-1-stream",
        "loss-5-late",
        "loss-5-packets",
        "loss-5-bytes",
        "loss-5-stream",
        "loss-20-late",
        "loss-20-packets",
        "loss-20-bytes",
        "loss-20-stream",
    ],
    measure,
};

/// The shares of packets that links lose, with the events that may be late or lost.
const LOSSES: [LossGoal; 3] = [
    LossGoal { percent: 1, late: 0.01, published: 0.02 },
    LossGoal { percent: 5, late: 0.1, published: 0.5 },
    LossGoal { percent: 20, late: 1.5, published: 7.2 },
];

/// A share of packets that links lose.
#[derive(Clone, Copy, Debug)]
struct LossGoal {
    /// The share, per cent.
    percent: u32,
    /// Events that may be late or lost, per cent.
    late: f64,
    /// What two paths of one link each, on which nothing is repeated, have in the mean, per cent.
    published: f64,
}

/// Packets that may be sent, of those of one path without loss; and bytes.
const PACKETS: f64 = 2.05;
const BYTES: f64 = 3.0;

/// The length of a run, and of a quick one.
const LENGTH: Duration = Duration::from_secs(90);
const QUICK_LENGTH: Duration = Duration::from_secs(10);

/// Seeds, at most: with them a thousandth of a per cent of all events are ten.
const SEEDS_MAX: u64 = 20;

/// How long events may take after it.
const DRAIN: Duration = Duration::from_secs(5);

/// One run.
#[derive(Clone, Copy, Debug)]
struct LossRun {
    /// The share of packets that links lose, per cent.
    percent: u32,
    version: Technique,
    transport: TopicTransport,
    length: Duration,
    seed: u64,
}

/// What a run gives.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LossOutcome {
    /// Events that were late or lost, per cent.
    late: f64,
    /// Links that an event crosses.
    crossings: f64,
    /// Packets with events, per second.
    event_packets: f64,
    /// Their bytes, with QUIC around each, per second.
    event_bytes: f64,
    /// All packets on all links, per second.
    packets: f64,
    /// Their bytes, with QUIC around each, per second.
    bytes: f64,
}

impl LossRun {
    fn play(&self) -> LossOutcome {
        let loss = f64::from(self.percent) / 100.0;
        let truth = Truth::mesh().map(|way| WayTruth { loss, ..way });
        let contender = Contender { version: self.version, preset: Preset::Own };
        let play = Play { transport: self.transport, ..Play::new(contender, &truth, self.seed) };
        let mut world = AreaWorld::new(&play);
        let from = START + BEGIN + contender.preset.warm_up();
        let until = from + self.length;
        world.run_until(from);
        let (before, packets_before) = (sent(&world), world.net.sent());
        world.run_until(until);
        let (after, packets) = (sent(&world), world.net.sent());
        world.fall_silent();
        world.run_until(until + DRAIN);
        let weight = |at: Time| f64::from(u8::from(from <= at && at < until));
        let per_second = |count: u64| count as f64 / self.length.as_secs_f64();
        let events = per_second(after.events - before.events);
        let all = per_second(packets.packets - packets_before.packets);
        LossOutcome {
            late: LateCount::of(&world, weight).late(),
            crossings: events * world.area.every.as_secs_f64() / world.area.topics.len() as f64,
            event_packets: events,
            event_bytes: per_second(after.event_bytes - before.event_bytes) + QUIC_BYTES * events,
            packets: all,
            bytes: per_second(packets.bytes - packets_before.bytes) + QUIC_BYTES * all,
        }
    }
}

/// All runs.
struct LossRuns {
    jobs: Vec<LossRun>,
    all: Vec<LossOutcome>,
}

impl LossRuns {
    /// By seed.
    fn of(&self, percent: u32, version: Technique, transport: TopicTransport) -> Vec<LossOutcome> {
        let is_it = |job: &LossRun| (job.percent, job.version, job.transport) == (percent, version, transport);
        self.jobs.iter().zip(&self.all).filter(|(job, _)| is_it(job)).map(|(_, outcome)| *outcome).collect()
    }
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let length = if effort.quick { QUICK_LENGTH } else { LENGTH };
    let (datagram, stream) = (TopicTransport::Datagram, TopicTransport::Stream);
    let mut jobs = Vec::new();
    let mut add = |percent, version, transport| {
        jobs.extend((1..=effort.seeds.min(SEEDS_MAX)).map(|seed| LossRun {
            percent,
            version,
            transport,
            length,
            seed,
        }));
    };
    add(0, Technique::Reactive, datagram);
    for LossGoal { percent, .. } in LOSSES {
        [datagram, stream].into_iter().for_each(|transport| add(percent, Technique::Multipath, transport));
        add(percent, Technique::Reactive, datagram);
        add(percent, Technique::Targeted, datagram);
    }
    let all = play_all(&jobs, bar, LossRun::play);
    let runs = LossRuns { jobs, all };
    let single = runs.of(0, Technique::Reactive, datagram);
    let mut ids = PLAN.rows.iter();
    let mut head = |measure, unit, paper, goal| {
        let id = ids.next().expect("there is a row for each");
        Head { id, measure, unit, paper, goal }
    };
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for LossGoal { percent, late, published } in LOSSES {
        let two = runs.of(percent, Technique::Multipath, datagram);
        let ratios = |of: fn(&LossOutcome) -> f64| -> Vec<f64> {
            two.iter().zip(&single).map(|(two, single)| of(two) / of(single)).collect()
        };
        let shares = |runs: &[LossOutcome]| runs.iter().map(|run| run.late).collect::<Vec<f64>>();
        let streams = runs.of(percent, Technique::Multipath, stream);
        let measure = "random loss: events late or lost, best effort by datagrams, two paths";
        let first = rows.len();
        rows.push(head(measure, "%", Some(published), Goal::at_most(late)).mean(&shares(&two)).beside(0.0));
        let measure = "random loss: packets with events, of those of one path without loss";
        rows.push(head(measure, "times", None, Goal::at_most(PACKETS)).mean(&ratios(|run| run.event_packets)));
        let measure = "random loss: bytes of events with QUIC, of those of one path without loss";
        rows.push(head(measure, "times", None, Goal::at_most(BYTES)).mean(&ratios(|run| run.event_bytes)));
        let measure = "random loss: events late or lost, best effort by streams, two paths";
        rows.push(head(measure, "%", None, Goal::SHOWN).mean(&shares(&streams)).beside(0.0));
        for row in &mut rows[first..] {
            let _ = write!(row.measure, ", every link loses {percent} %");
        }
        let told = |version: Technique| {
            let runs = runs.of(percent, version, datagram);
            let crossings = mean(&runs.iter().map(|run| run.crossings).collect::<Vec<_>>());
            format!("{}: {} % late, {} links", version.name(), number(mean(&shares(&runs))), number(crossings))
        };
        let versions = [Technique::Reactive, Technique::Multipath, Technique::Targeted];
        notes.push(format!(
            "random loss of {percent} %, datagrams, links that an event crosses: {}; all that links carry with two \
             paths, control too: {} times the packets, {} times the bytes of one path without loss",
            versions.map(told).join(", "),
            number(mean(&ratios(|run| run.packets))),
            number(mean(&ratios(|run| run.bytes)))
        ));
    }
    let crossings = mean(&single.iter().map(|run| run.crossings).collect::<Vec<_>>());
    notes.push(format!("random loss: one path without loss crosses {} links", number(crossings)));
    Ok(Part { rows, notes, charts: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(percent: u32, version: Technique) -> LossOutcome {
        let length = Duration::from_secs(10);
        LossRun { percent, version, transport: TopicTransport::Datagram, length, seed: 1 }.play()
    }

    #[test]
    fn without_loss_all_is_in_time_and_one_path_loses_what_its_links_do() {
        let whole = run(0, Technique::Reactive);
        assert_eq!((whole, whole.late), (run(0, Technique::Reactive), 0.0));
        assert!(whole.packets > whole.event_packets && whole.bytes > whole.event_bytes, "{whole:?}");
        let [one, two] = [Technique::Reactive, Technique::Multipath].map(|version| run(20, version));
        assert!(one.late > two.late && two.late > 0.0, "{one:?} {two:?}");
        assert!(two.event_packets > 1.5 * whole.event_packets, "{two:?}");
    }
}
