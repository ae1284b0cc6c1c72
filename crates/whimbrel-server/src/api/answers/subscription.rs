//! Answers about subscriptions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A position in a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Position {
    /// The pubend.
    pub stream: String,
    /// The tick; nanoseconds since the Unix epoch.
    pub tick: String,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscription {
    /// As it was asked for.
    pub filter: String,
    /// Its selector, if the session is in the journal.
    pub selector: Option<String>,
    /// It has a selector.
    pub selective: bool,
    /// The most that deliveries have.
    pub qos: u8,
    /// `durable`, `semi-durable`, `queued` or `nondurable`.
    pub durability: String,
    /// `client` or `broker`.
    pub position_kept_by: String,
    /// It answers events that ask for replies.
    #[serde(default)]
    pub replier: bool,
    /// How old its position is, if it is behind what it wants.
    pub lag_ms: Option<u64>,
    /// Up to where it has acknowledged, if it is durable.
    pub positions: Vec<Position>,
}
