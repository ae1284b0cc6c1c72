//! The families of worlds whose bytes are compared.

use whimbrel_sim::digests::Digests;
use whimbrel_sim::overlay::roam::{Wander, run_overloaded, run_wandering};
use whimbrel_sim::{durable, overlay, simulation};

/// A kind of worlds: its name, and how one of them is played.
pub type Family = (&'static str, fn(u64) -> Digests);

pub const FAMILIES: [Family; 8] = [
    ("simulation", |seed| simulation::run(seed).streams),
    ("durable", |seed| durable::run(seed).streams),
    ("durable-wide", |seed| durable::run_wide(seed).streams),
    ("overlay", |seed| overlay::run(seed).streams),
    ("roam", |seed| run_wandering(seed, Wander::Everywhere).streams),
    ("roam-home", |seed| run_wandering(seed, Wander::Home).streams),
    ("roam-bound", |seed| run_wandering(seed, Wander::Bound).streams),
    ("roam-overloaded", |seed| run_overloaded(seed, Wander::Everywhere).streams),
];
