//! Experiment (c): paths of several links that are shorter than the direct one.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::overlay::TopologyInfo;

use super::plots;
use super::runs::play_all;
use super::scene::{ALL_PAIRS, BROKERS, Contender, MESH, PAIRS, PUBLISHERS, Preset, Technique};
use super::slots::by_pair_note;
use super::stage::{AreaWorld, BEGIN, Play};
use super::tally::{PairTally, RunTally, sums};
use super::truth::{Floor, Truth};
use crate::bench::report::number;
use crate::cores::START;
use crate::experiment::chart::Axis;
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "multi-hop", rows: &["c-above", "c-above-paper"], measure };

/// The links that become short: 3–5 and 4–5.
const SHORT_LINKS: [[usize; 2]; 2] = [[2, 4], [3, 4]];

/// Their delay.
const SHORT: Duration = Duration::from_millis(1);

/// How long events are counted.
const LENGTH: Duration = Duration::from_secs(60);

/// What a hop may cost, ms.
const HOP_MS: f64 = 0.3;

fn truth() -> Truth {
    Truth::steady(MESH.map(|(ends, millis)| {
        let delay = Duration::from_millis(u64::from(millis));
        (ends, if SHORT_LINKS.contains(&ends) { SHORT } else { delay })
    }))
}

/// One run: its counts, and the number of links on the path of each pair at its end.
fn play(contender: Contender, seed: u64) -> (RunTally, [usize; PAIRS]) {
    let truth = truth();
    let mut world = AreaWorld::new(&Play::new(contender, &truth, seed));
    let from = START + BEGIN + contender.preset.warm_up();
    world.run_until(from + LENGTH);
    world.fall_silent();
    world.run_until(from + LENGTH * 2);
    let hosts = world.hosts();
    let links = ALL_PAIRS.map(|pair| {
        let topology = world.core(PUBLISHERS[pair.topic]).topology(world.net.now);
        let of = |info: &TopologyInfo| info.path.len().saturating_sub(1);
        topology.iter().find(|info| info.host == hosts[pair.to]).map_or(0, of)
    });
    (RunTally::of(&world, &truth, |at| f64::from(u8::from(at >= from))), links)
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let jobs: Vec<(Contender, u64)> =
        Contender::all().flat_map(|contender| (1..=effort.seeds).map(move |seed| (contender, seed))).collect();
    let runs = play_all(&jobs, bar, |(contender, seed)| play(*contender, *seed));
    let of = |contender: Contender| {
        let of_it = jobs.iter().zip(&runs).filter(move |((known, _), _)| *known == contender);
        of_it.map(|(_, run)| run)
    };
    let latency: Vec<(Contender, Vec<f64>)> = Contender::all()
        .map(|contender| {
            let sums = sums(of(contender).map(|(run, _)| run));
            (contender, sums.iter().map(PairTally::mean_ms).collect())
        })
        .collect();
    let truth = truth();
    let mut floor = Floor::new(&truth, BROKERS);
    let least = ALL_PAIRS.map(|pair| {
        let takes = floor.takes(PUBLISHERS[pair.topic], pair.to, START).expect("all are linked");
        takes.as_secs_f64() * 1e3
    });
    let rows = [("c-above", Preset::Own), ("c-above-paper", Preset::Paper)].map(|(id, preset)| {
        let above = of(Contender { version: Technique::Reactive, preset }).map(|(run, _)| {
            let above = run.pairs.iter().zip(least).map(|(pair, least)| pair.mean_ms() - least);
            above.fold(0.0, f64::max)
        });
        let measure = match preset {
            Preset::Own => "(c) mean latency above the shortest way's, worst pair, BP+QoS",
            Preset::Paper => "(c) mean latency above the shortest way's, worst pair, BP+QoS, preset paper",
        };
        let head = Head { id, measure, unit: "ms", paper: None, goal: Goal::at_most(HOP_MS) };
        head.worst(&above.collect::<Vec<_>>()).beside(0.0)
    });
    let best = of(Contender { version: Technique::Best, preset: Preset::Own }).next().expect("there is a seed");
    let table = ALL_PAIRS.iter().enumerate().map(|(index, pair)| {
        let direct = truth.way(PUBLISHERS[pair.topic], pair.to, START).delay.as_millis();
        format!("{} {direct} → {} over {} links", pair.name, number(least[index]), best.1[index])
    });
    let notes = vec![
        format!("figure 7, direct and best delays in ms: {}", table.collect::<Vec<_>>().join(", ")),
        by_pair_note("(c) mean latency, ms", &latency),
    ];
    let title = "Latency under static link delay with shorter indirect paths";
    let chart = plots::by_pair("responsiveness-figure-8", title, Axis::linear("mean latency, ms"), &latency);
    Ok(Part { rows: rows.into(), notes, charts: vec![chart] })
}
