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
    /// The longest time without an event that subscribers of these topics accept.
    #[serde(default)]
    pub period_ms: Option<u64>,
    /// The throughput of each topic: `NUMBER/s` events, or `SIZE/s`.
    pub rate: Option<String>,
    /// The importance of events that name none.
    pub importance: Option<u8>,
    /// How long events without an expiry of their own are delivered.
    pub expiry_ms: Option<u64>,
    /// How best-effort events go over links to other brokers: `stream` or `datagram`.
    #[serde(default)]
    pub transport: String,
    /// The paths that events take to each broker that wants them: `1`, `2` or `targeted`.
    #[serde(default = "one")]
    pub paths: String,
    /// The share of time in which one of the paths is to be in order, parts per million; missing:
    /// `paths` counts.
    #[serde(default)]
    pub availability_ppm: Option<u32>,
    /// Whether deliveries at this broker were in time, since the profile is in effect here; missing
    /// without a deadline, and where a profile was just made or removed.
    #[serde(default)]
    pub deliveries: Option<DeadlineDeliveries>,
}

/// The paths of events at a broker that tells none.
fn one() -> String {
    "1".to_owned()
}

/// Deliveries of topics with a deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadlineDeliveries {
    /// The share of deliveries that were in time, thousandths, rounded down; missing before the
    /// first one.
    pub in_time_permille: Option<u64>,
    /// Deliveries in time by their slack, what was left until the deadline.
    pub slack: Vec<SlackCount>,
    /// Late deliveries by their causes.
    pub late: Vec<LateCount>,
    /// Late deliveries to clients that had been away, or subscribed later; they do not count.
    pub late_after_absence: u64,
}

/// Deliveries with about the same slack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlackCount {
    /// The greatest slack, per cent of the deadline; greater than the one before.
    pub up_to_percent: u64,
    /// How many.
    pub deliveries: u64,
}

/// Late deliveries of one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateCount {
    /// `path`: the event was late when it came from another broker. `loss`: so it was, as it had
    /// been lost and was asked for. `wait`: it waited at this broker, for the log, for an event
    /// before it, or for its client.
    pub cause: String,
    /// How many.
    pub deliveries: u64,
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
