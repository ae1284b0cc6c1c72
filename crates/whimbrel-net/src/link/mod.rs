//! Links to other brokers.

pub mod estimate;
