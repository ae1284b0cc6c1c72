//! Answers about profiles of topics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A profile of topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicProfile {
    /// The topics, as a topic filter.
    pub filter: String,
    /// Its rank, if it was made at a running broker; missing for one of the configuration, which
    /// counts before all that were made.
    pub rank: Option<u32>,
    /// Whether events are logged: `auto`, `persistent` or `volatile`.
    pub persistence: String,
    /// The guarantee for events: `reliable` or `best-effort`; missing: as each is published.
    pub reliability: Option<String>,
    /// The deadline of events, from acceptance to the subscriber's edge.
    pub deadline_ms: Option<u64>,
    /// The throughput of each topic: `NUMBER/s` events, or `SIZE/s`.
    pub rate: Option<String>,
    /// The importance of events that name none.
    pub importance: Option<u8>,
    /// How long events without an expiry of their own are delivered.
    pub expiry_ms: Option<u64>,
}

/// Profiles of topics, in the order in which they count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicProfiles {
    /// Of those that match a topic the first counts.
    pub profiles: Vec<TopicProfile>,
    /// Brokers whose configurations have other profiles than this one's. At each broker its own
    /// count for what is published there.
    pub differing: Vec<String>,
    /// Where the others follow; missing at the end.
    pub next: Option<u64>,
}

/// A profile was made or removed: at this broker from now on, at the others as soon as they learn
/// of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicChanged {
    /// The profile that is in effect, or was.
    pub profile: TopicProfile,
    /// The change is on this broker's disk, too, or there is none.
    pub durable: bool,
}
