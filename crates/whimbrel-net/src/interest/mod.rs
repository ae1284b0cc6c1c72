//! What brokers want of each other's events: filters with selectors, in versions.

pub mod others;
pub mod own;
pub mod reduce;
