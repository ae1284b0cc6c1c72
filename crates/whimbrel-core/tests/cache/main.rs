//! The cache against a list of all events ever written to it.

mod complete;
mod divided;
mod exact;
mod reading;
mod world;
