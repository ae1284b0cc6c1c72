//! Output of a link: what waits, in which order QUIC is given it, and how much of it.
//!
//! A [`Port`] has an [`outlet::Outlet`] for each stream. What they give goes through a
//! [`pipe::Pipe`], within the room that the path (`window`) and the link's cap (`cap`) leave.
//! Output waits for more to follow it (`gather`, `beat`); on a thin link (`thin`) a compressed
//! stream follows a plain one (`changes`, `succession`).

mod beat;
mod cap;
mod changes;
mod gather;
mod outlet;
mod pipe;
mod port;
mod succession;
mod thin;
mod window;

pub(super) use beat::Beat;
pub(super) use changes::PACKERS_MAX;
pub use port::Port;
pub(super) use port::{HUNG_UP, PortPlan};
pub(super) use window::{MeasuredPaths, WINDOW_MAX};
