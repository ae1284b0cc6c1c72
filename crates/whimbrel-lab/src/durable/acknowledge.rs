//! Subscribers that acknowledge each event before they receive the next one, while the broker keeps
//! their positions: elsewhere this is called auto-acknowledge.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::CLASSES;
use super::crowd::Crowd;
use super::subscriber::Keeper;
use super::topology::Topology;
use crate::bench::process::{self, CpuClock};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "acknowledge", rows: &["acknowledge-25", "acknowledge-200"], measure };

/// Subscribers, the paper's rate, and the rate that is sufficient.
const CASES: [(&str, usize, f64, f64); 2] =
    [("acknowledge-25", 25, 4_000.0, 20_000.0), ("acknowledge-200", 200, 7_600.0, 100_000.0)];

/// The part that must be reached of the rate that the disk's commits alone would allow.
const PART: f64 = 0.8;

/// The offered rate, relative to the goal's.
const OFFERED: f64 = 1.3;

fn once(subscribers: usize, most: f64, effort: Effort, seed: u64) -> Result<(f64, Duration, String)> {
    let mut topology = Topology::star(1)?;
    let commit = topology.shb(0).commit_time()?;
    let mut crowd = Crowd::connect(&topology, Keeper::Broker, Duration::ZERO, seed)?;
    crowd.add_subscribers(subscribers)?;
    let offered = if effort.quick { 200.0 } else { OFFERED * most * CLASSES as f64 / subscribers as f64 };
    crowd.set_rate(offered as u64);
    let span = Duration::from_millis(if effort.quick { 500 } else { 4_000 });
    crowd.run(span / 4)?;
    let broker = topology.shb(0);
    let cpu = broker.cpu()?;
    let commits = || broker.metric("whimbrel_journal_commits_total");
    let own = CpuClock::own();
    let (begin, before, used, synced) = (Instant::now(), crowd.counts(), cpu.read()?, commits()?);
    let own_used = own.read()?;
    crowd.run(span)?;
    let (elapsed, after) = (begin.elapsed().as_secs_f64(), crowd.counts());
    ensure!(after.wrong() == 0, "{}", after.note());
    let rate = (after.received - before.received) as f64 / elapsed;
    let note = format!(
        "acknowledge: {subscribers} subscribers: {rate:.0} events/s of {:.0} offered, SHB {:.0} % busy, generator {:.0} %, {:.0} commits/s; the disk \
         alone commits in {:.2} ms",
        offered * subscribers as f64 / CLASSES as f64,
        100.0 * (cpu.read()? - used).as_secs_f64() / elapsed,
        100.0 * (own.read()? - own_used).as_secs_f64() / elapsed,
        (commits()? - synced) / elapsed,
        commit.as_secs_f64() * 1e3,
    );
    Ok((rate, commit, note))
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let cores = process::cores();
    ensure!(cores >= 2, "broker and generator need a core each, and this machine has {cores}");
    bar.set_length(effort.seeds * CASES.len() as u64);
    let mut part = Part::default();
    for (id, subscribers, paper, most) in CASES {
        let (mut rates, mut goals) = (Vec::new(), Vec::new());
        for seed in 1..=effort.seeds {
            let (rate, commit, note) = once(subscribers, most, effort, seed)?;
            goals.push(PART * most.min(subscribers as f64 / commit.as_secs_f64()));
            rates.push(rate);
            part.notes.push(note);
            bar.inc(1);
        }
        goals.sort_by(f64::total_cmp);
        let measure = match subscribers {
            25 => {
                "events per second to 25 subscribers that acknowledge each before the next, the broker keeping positions"
            }
            _ => "the same to 200; goals: 80 % of what as many commits in turn allow, at most of 20,000 and 100,000",
        };
        let goal = Goal::at_least(goals[goals.len() / 2].round());
        let head = Head { id, measure, unit: "events/s", paper: Some(paper), goal };
        part.rows.push(head.row(&rates));
    }
    Ok(part)
}
