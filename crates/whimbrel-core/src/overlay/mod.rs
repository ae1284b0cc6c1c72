//! Other brokers: what the links to them are like, who is linked with whom, and the paths that follow from it.

pub mod estimate;
pub mod routes;
pub mod topology;
