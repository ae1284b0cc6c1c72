//! How soon all know that a broker is dead.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::DARK_COST_US;
use whimbrel_sim::random::Random;

use super::runs::play_all;
use super::scene::{BROKERS, Contender, Preset, Technique};
use super::stage::{AreaWorld, BEGIN, Play};
use super::truth::Truth;
use crate::cores::START;
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "dead-broker", rows: &["dead-busy", "dead-rest"], measure };

/// The interval of the checks.
const LOOK: Duration = Duration::from_millis(10);

/// The longest time that is waited.
const PATIENCE: Duration = Duration::from_secs(60);

/// The moment of the end is drawn from this span, milliseconds.
const SPAN_MS: u64 = 2_000;

/// Brokers that end, and trials of each per seed: one where a publisher and subscribers are, and
/// others.
const TRIALS: u64 = 4;

/// What happens.
#[derive(Clone, Copy, Debug)]
struct BrokerLoss {
    victim: usize,
    is_busy: bool,
    seed: u64,
    number: u64,
}

impl BrokerLoss {
    /// The machine of a broker stops: its links lose everything, and no other end is told. Returns
    /// the time until no other broker has a path to it without a dark link.
    fn play(&self) -> Duration {
        let mut random = Random::new(self.seed << 16 | self.number << 8 | self.victim as u64);
        let truth = Truth::mesh();
        let contender = Contender { version: Technique::Reactive, preset: Preset::Own };
        let play = Play { publishes: self.is_busy, ..Play::new(contender, &truth, self.seed << 8 | self.number) };
        let mut world = AreaWorld::new(&play);
        let end = START + BEGIN + contender.preset.warm_up() + Duration::from_millis(random.below(SPAN_MS));
        world.run_until(end);
        let host = world.hosts()[self.victim];
        let others: Vec<usize> = (0..BROKERS).filter(|node| *node != self.victim).collect();
        world.lose(self.victim);
        let mut now = end;
        let is_there =
            |world: &AreaWorld, node: usize| world.core(node).way_us(host).is_some_and(|us| us < DARK_COST_US);
        while now.since(end) < PATIENCE && others.iter().any(|node| is_there(&world, *node)) {
            now = now + LOOK;
            world.run_until(now);
        }
        now.since(end)
    }
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let mut jobs = Vec::new();
    for is_busy in [true, false] {
        for victim in 0..BROKERS {
            let trials = (1..=effort.seeds).flat_map(|seed| (0..TRIALS).map(move |number| (seed, number)));
            jobs.extend(trials.map(|(seed, number)| BrokerLoss { victim, is_busy, seed, number }));
        }
    }
    let took = play_all(&jobs, bar, BrokerLoss::play);
    let of = |is_busy: bool| -> Vec<f64> {
        let of_it = jobs.iter().zip(&took).filter(|(job, _)| job.is_busy == is_busy);
        of_it.map(|(_, took)| took.as_secs_f64()).collect()
    };
    // What a broker has sent is on its way for as long after its end.
    let truth = Truth::mesh();
    let delays = truth.links.iter().map(|link| link.courses[0].at(START).delay);
    let floor = delays.max().expect("there are links").as_secs_f64();
    let row = |id, measure, paper, goal, is_busy| {
        Head { id, measure, unit: "s", paper, goal: Goal::at_most(goal) }.worst(&of(is_busy)).beside(floor)
    };
    let rows = vec![
        row("dead-busy", "a dead broker is known to all, while events flow, worst", None, 0.5, true),
        row("dead-rest", "a dead broker is known to all, at rest, worst", None, 2.5, false),
    ];
    let note = "dead-busy, dead-rest: the floor is the longest delay of a link, at which the last packet arrives; \
                a receiver can miss nothing before the next one is due: a report (20 ms), at rest a probe (500 ms)";
    Ok(Part { rows, notes: vec![note.to_owned()], ..Part::default() })
}
