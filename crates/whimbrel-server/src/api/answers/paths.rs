//! Answers about the paths of events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A path of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokerPath {
    /// The brokers on it, both ends included.
    pub brokers: Vec<String>,
    /// How long it takes, as it is planned: delays of its links, 0.3 ms for each, and what is sent
    /// again where links lose.
    pub time_us: u64,
    /// That is within the deadline; missing where there is none.
    pub in_time: Option<bool>,
}

/// How events go to one broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedDestination {
    /// Its name.
    pub broker: String,
    /// Its host.
    pub host: String,
    /// What it wants, for which it gets them.
    pub filter: String,
    /// Which of their events; all if missing.
    pub selector: Option<String>,
    /// The paths to it, the quickest first; none if there is no way to it.
    pub paths: Vec<BrokerPath>,
    /// Other brokers that all paths visit, where there are several paths.
    pub shared_brokers: Vec<String>,
    /// Links that all paths take, where there are several paths: the names of both ends.
    pub shared_links: Vec<Vec<String>>,
    /// The delay of the link to it, if there is one.
    pub direct_us: Option<u64>,
}

/// How events of a topic go from a broker to all others that want them, as it is planned at the
/// moment of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedTopic {
    /// The topic.
    pub topic: String,
    /// The broker from which they go.
    pub from: String,
    /// Their deadline, if they have one.
    pub deadline_ms: Option<u64>,
    /// What the topic's profile says of `paths`: `1`, `2`, `targeted`, or `for` an
    /// availability.
    pub setting: String,
    /// Brokers that want them, in the order of their hosts.
    pub destinations: Vec<PlannedDestination>,
    /// How many further ones there are that are not shown.
    pub more: u64,
}
