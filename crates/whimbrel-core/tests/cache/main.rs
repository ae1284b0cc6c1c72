//! The cache against a list of everything that was ever written to it.

mod complete;
mod divided;
mod exact;
mod reading;
mod world;
