//! Links to other brokers: what a driver says of them, and what they are like.

mod driver;
pub mod estimate;

pub use driver::{Channel, HangUp, PeerInput, PeerLink};
