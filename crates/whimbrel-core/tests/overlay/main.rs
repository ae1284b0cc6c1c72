//! Estimates of links, the topology, and routes.

mod estimate;
mod paths;
mod topology;
mod trees;
mod world;
