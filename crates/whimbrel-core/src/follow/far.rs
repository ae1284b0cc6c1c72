//! What a durable subscription has of other brokers' reliable streams: their logs count for it as its own broker's does.

use whimbrel_event::Tick;

use super::Positions;
use crate::lazy::at_rest;
use crate::store::{OWN, OwnTicks};

/// What is kept of a durable subscription for other brokers' reliable streams.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// After which ticks what it wants was logged there: behind them silence of the log is silence, before them it is a gap, unless the cache has
    /// it. Only these streams are in its written position.
    pub(crate) since: Positions,
    /// Up to where filter records of the own streams do not name it: it was somewhere else.
    pub(crate) unnamed: OwnTicks,
}

at_rest!(Far, Far { since: Positions::new(), unnamed: [Tick(0); OWN] });
