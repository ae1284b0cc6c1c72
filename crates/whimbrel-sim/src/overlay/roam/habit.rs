//! How clients that subscribe behave.

use std::time::Duration;

/// How a subscriber behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habit {
    /// The mean time between two moves; `None`: it stays where it is.
    pub(super) pause: Option<Duration>,
    /// Whether it returns to its own broker only.
    pub(super) is_bound: bool,
    /// The mean time that it is away.
    pub(super) away: Duration,
    /// How many of 1,000 deliveries it acknowledges only later.
    pub(super) withholds: u64,
    /// How many of 1,000 moves leave the older connection open.
    pub(super) haunts: u64,
}
