//! What brokers want of each other's events.

pub mod reduce;
