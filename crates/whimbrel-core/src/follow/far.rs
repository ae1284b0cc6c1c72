//! What a durable subscription has of other brokers' reliable streams: their logs count for it as its own broker's does.

use super::Positions;
use crate::lazy::at_rest;

/// What is kept of a durable subscription for other brokers' reliable streams.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// After which ticks what it wants was logged there: behind them silence of the log is silence, before them it is a gap, unless the cache has
    /// it. Only these streams are in its written position.
    pub(crate) since: Positions,
}

at_rest!(Far, Far { since: Positions::new() });
