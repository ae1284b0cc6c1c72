//! The experiment of responsiveness: events with a deadline, over links that become slow or lose
//! everything.
//!
//! After Kim, Karenos, Ye, Reason, Lei and Shagin, "Efficacy of techniques for responsiveness in a
//! wide-area publish/subscribe system" (IBM Research Report, 2010). Brokers' cores with their
//! overlay in virtual time; the links' truth is known to a checker, which computes for every event
//! what an omniscient router would have reached.

mod area;
mod audience;
mod dead;
mod judge;
mod lateness;
mod lossy;
mod multihop;
mod noise;
mod overhead;
mod overload;
mod plots;

mod reaction;
mod regions;
mod runs;
mod scene;
mod short;
mod slots;
mod spread;
mod stage;
mod tally;
mod told;
mod troubles;
mod truth;

use crate::experiment::Plan;

/// The seeds of a run, unless said otherwise: slots of three minutes quantise a run to 2 %.
pub const SEEDS: u64 = 50;

/// The parts that the virtual driver measures.
pub const VIRTUAL: &[Plan] = &[
    slots::DYNAMIC,
    slots::FAILURE,
    slots::RELIABLE,
    multihop::PLAN,
    overhead::PLAN,
    reaction::PLAN,
    dead::PLAN,
    noise::PLAN,
    told::PLAN,
    overload::PLAN,
    short::MESH,
    short::CITIES,
    lossy::PLAN,
    slots::LOSSY,
    regions::PLAN,
];
