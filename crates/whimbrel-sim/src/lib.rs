//! Whimbrel's broker in virtual time: a two-endpoint rig for tests of single behaviours.
//!
//! Everything here is deterministic: time is a number that the caller moves, and randomness comes from one seed. The
//! packets that clients send and receive go through `mqtt-protocol-core`, a codec that shares nothing with the broker's.

pub mod link;
pub mod packets;
pub mod random;
pub mod rig;
pub mod speech;
