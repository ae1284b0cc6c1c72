//! The parts of the network layer, each for itself.

mod estimate;
mod paths;
mod reduce;
mod reduce_traffic;
mod topology;
mod trees;
mod world;
