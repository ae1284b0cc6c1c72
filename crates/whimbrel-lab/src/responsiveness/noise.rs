//! Changes of paths that only noise has caused.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_event::Time;

use super::runs::play_all;
use super::scene::{BROKERS, Contender, Preset, Technique};
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
pub const PLAN: Plan = Plan { id: "noise", rows: &["wrong-reroutes"], measure };

/// By how much each packet's delay differs at most.
const NOISE: f64 = 0.2;

/// The length of a run, and of a quick one.
const LENGTH: Duration = Duration::from_secs(3_600);
const QUICK_LENGTH: Duration = Duration::from_secs(300);

/// The interval at which paths are compared with those before.
const LOOK: Duration = Duration::from_millis(100);

/// What a hop is worth to a router that prefers few, so that two ways of the same delay differ.
const HOP: Duration = Duration::from_micros(300);

/// The pairs of a broker and a destination.
const DESTINATIONS: usize = BROKERS * (BROKERS - 1);

/// The changes of all paths in one run.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    /// All of them.
    all: u64,
    /// Those to a path that is no better in truth than the one before.
    wrong: u64,
}

/// The paths from a broker, by destination; empty where there is none.
fn paths(world: &AreaWorld, from: usize, at: Time) -> Vec<Vec<usize>> {
    let hosts = world.hosts();
    let mut paths = vec![Vec::new(); BROKERS];
    for info in world.core(from).topology(at) {
        let Some(to) = hosts.iter().position(|host| *host == info.host) else { continue };
        let number = |name: &str| name.trim_start_matches('b').parse().expect("brokers are named by their numbers");
        paths[to] = info.path.iter().map(|name| number(name)).collect();
    }
    paths
}

/// The time that a path takes in truth.
fn takes(truth: &Truth, path: &[usize]) -> Duration {
    path.windows(2).map(|ends| truth.way(ends[0], ends[1], START).delay + HOP).sum()
}

/// Plays one run. As the truth does not change, an oracle with the next ten seconds would have
/// stayed if the new path is no better in truth.
fn play(seed: u64, length: Duration) -> Changes {
    let truth = Truth::mesh().map(|way| WayTruth { noise: NOISE, ..way });
    let contender = Contender { version: Technique::Reactive, preset: Preset::Own };
    let mut world = AreaWorld::new(&Play::new(contender, &truth, seed));
    let from = START + BEGIN + contender.preset.warm_up();
    world.run_until(from);
    let mut known: Vec<_> = (0..BROKERS).map(|node| paths(&world, node, from)).collect();
    let mut changes = Changes::default();
    let mut now = from;
    while now.since(from) < length {
        now = now + LOOK;
        world.run_until(now);
        for (node, known) in known.iter_mut().enumerate() {
            let present = paths(&world, node, now);
            for (old, new) in known.iter().zip(&present).filter(|(old, new)| old != new) {
                let is_wrong = new.is_empty() || takes(&truth, new) >= takes(&truth, old);
                changes.all += 1;
                changes.wrong += u64::from(is_wrong);
            }
            *known = present;
        }
        world.audience.forget();
    }
    changes
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let length = if effort.quick { QUICK_LENGTH } else { LENGTH };
    let seeds: Vec<u64> = (1..=effort.seeds).collect();
    let runs = play_all(&seeds, bar, |seed| play(*seed, length));
    let hours = length.as_secs_f64() / 3_600.0;
    let each = |count: u64| count as f64 / DESTINATIONS as f64 / hours;
    let head = Head {
        id: "wrong-reroutes",
        measure: "changes to a path that is no better in truth, ± 20 % noise, per hour and destination",
        unit: "changes",
        paper: None,
        goal: Goal::at_most(1.0),
    };
    let all: Vec<f64> = runs.iter().map(|changes| each(changes.all)).collect();
    let all = number(mean(&all));
    Ok(Part {
        // The truth does not change: an omniscient router never changes a path.
        rows: vec![head.mean(&runs.iter().map(|changes| each(changes.wrong)).collect::<Vec<_>>()).beside(0.0)],
        notes: vec![format!("noise: {all} changes of paths per hour and destination in all")],
        charts: Vec::new(),
    })
}
