//! Digests of what brokers send in worlds drawn from seeds, a line for each: family, seed, how many
//! streams there were, digest.
//!
//! `cargo run --profile quick -p whimbrel-sim --example traces [FAMILY [SEED]]`; with a seed, a
//! line for each stream of that world. `WHIMBREL_SEEDS` says how many seeds are played (200),
//! `WHIMBREL_SEED` which is the first (1). `cargo xtask traces` compares two such lists.

#[path = "../tests/seeds/mod.rs"]
mod seeds;

use whimbrel_sim::digests::Digests;
use whimbrel_sim::overlay::roam::{Wander, run_overloaded, run_wandering};
use whimbrel_sim::{durable, overlay, simulation};

/// Seeds that are played unless told otherwise.
const SEEDS: u64 = 200;

/// A kind of worlds: its name, and how one of them is played.
type Family = (&'static str, fn(u64) -> Digests);

const FAMILIES: [Family; 8] = [
    ("simulation", |seed| simulation::run(seed).streams),
    ("durable", |seed| durable::run(seed).streams),
    ("durable-wide", |seed| durable::run_wide(seed).streams),
    ("overlay", |seed| overlay::run(seed).streams),
    ("roam", |seed| run_wandering(seed, Wander::Everywhere).streams),
    ("roam-home", |seed| run_wandering(seed, Wander::Home).streams),
    ("roam-bound", |seed| run_wandering(seed, Wander::Bound).streams),
    ("roam-overloaded", |seed| run_overloaded(seed, Wander::Everywhere).streams),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first();
    let families = FAMILIES.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
    if let Some(seed) = arguments.get(1) {
        let seed = seed.parse().unwrap_or_else(|_| panic!("a seed is a whole number, not {seed:?}"));
        families.for_each(|(_, play)| print!("{}", play(seed)));
        return;
    }
    let (first, count) =
        (seeds::number("WHIMBREL_SEED").unwrap_or(1), seeds::number("WHIMBREL_SEEDS").unwrap_or(SEEDS));
    for (name, play) in families {
        let all = seeds::play(first, count, |seed| (seed, play(seed)), |_| false);
        for (seed, streams) in all {
            println!("{name} {seed} {} {:016x}", streams.len(), streams.total());
        }
    }
}
