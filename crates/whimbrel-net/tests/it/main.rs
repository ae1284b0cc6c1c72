//! The parts of the network layer, each for itself; and the whole of it, without any broker.

mod carrying;
mod copies;
mod domains;
mod estimate;
mod fabric;
#[cfg(feature = "mutants")]
mod faults;
mod joining;
mod maps;
mod messages;
mod paths;
mod queueing;
mod reduce;
mod reduce_traffic;
mod refusing;
mod repeats;
mod routing;
mod same;
mod scenarios;
mod topology;
mod trees;
mod watching;
mod world;
