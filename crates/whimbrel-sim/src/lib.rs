//! Whimbrel's broker in virtual time: a rig for tests of single behaviours, and whole worlds drawn
//! from one seed.
//!
//! Everything here is deterministic: time is a number that the caller advances, and randomness
//! comes from one seed. The packets of clients go through `mqtt-protocol-core`, a codec that shares
//! nothing with the broker's.
//!
//! - [`rig`] moves a broker and a few connections by hand.
//! - [`simulation`] plays a scenario: [`client`]s that connect, leave, stall and vanish, over
//!   [`link`]s that delay, cut and fail, in a [`world`] in which the checkers of [`check`] see
//!   every byte between broker and clients.
//! - [`overlay`] plays worlds of many brokers, with connections of a wide area between them.
//! - [`mobility`] models when mobile clients are connected, and [`access`] an access link that they
//!   share.

pub mod access;
mod cell;
pub mod check;
pub mod choice;
pub mod cities;
pub mod client;
pub mod digests;
pub mod disk;
pub mod durable;
mod engine;
pub mod ledger;
pub mod link;
pub mod mobility;
pub mod overlay;
pub mod packets;
pub mod plain_ways;
pub mod random;
pub mod rig;
pub mod simulation;
mod sink;
pub mod speech;
pub mod trace;
pub mod trunk;
mod wall;
pub mod wan;
pub mod world;
