//! The cache against a list of everything that was ever written to it.

mod complete;
mod world;
