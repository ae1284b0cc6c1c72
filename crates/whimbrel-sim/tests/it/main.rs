//! All tests from outside that need no binary of their own: one is linked sooner than many.

#[path = "../families/mod.rs"]
mod families;

#[path = "../seeds/mod.rs"]
mod seeds;

#[path = "../tamper/mod.rs"]
mod tamper;

mod bounds;
mod durable;
mod durable_mutants;
mod mutants;
mod overlay;
mod overlay_mutants;
mod overlay_traffic;
mod plain_ways;
mod replicated;
mod replicated_mutants;
mod rig;
mod roam;
mod roam_mutants;
mod shared;
mod simulation;
mod takeover;
mod tracked;
mod tracked_mutants;
