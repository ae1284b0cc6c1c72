//! Answers about single events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PlannedTopic;

/// Something that a broker knows of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Noted {
    /// How long after the first thing that it knows, microseconds of its own clock; missing for
    /// what has no moment.
    pub after_us: Option<u64>,
    /// What, in words.
    pub what: String,
    /// What, in one word: `sent`, `came`, `came-again` (it was asked for), `joined` (a copy that
    /// ends here), `held-back`, `rerouted`, `given-up`, `taken`, `sent-again`; missing for what has
    /// no moment, and from brokers of 0.1.
    #[serde(default)]
    pub step: Option<String>,
    /// The neighbour that it is about.
    #[serde(default)]
    pub peer: Option<String>,
    /// The event's age when it came, microseconds since it was accepted.
    #[serde(default)]
    pub age_us: Option<u64>,
}

/// What one broker knows of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traced {
    /// The broker's name.
    pub broker: String,
    /// What it knows.
    pub notes: Vec<Noted>,
    /// Of the broker that accepted it and still has it: who wants it, and how such an event goes
    /// there now.
    #[serde(default)]
    pub plan: Option<PlannedTopic>,
}

/// What became of an event on one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedPath {
    /// The brokers on it, both ends included; of one that is not planned, as far as it is known.
    pub brokers: Vec<String>,
    /// How long it takes by the plan; missing if it is not in the plan of now.
    pub planned_us: Option<u64>,
    /// The plan is within the deadline; missing without plan or deadline.
    pub in_time: Option<bool>,
    /// The event's age when it came to each of the brokers, microseconds; missing where it has not
    /// been seen.
    pub ages_us: Vec<Option<u64>>,
    /// What became of it: `first` or `later` at its destination; `joined`: it ended at a broker
    /// that had passed on another copy before; `lost`: there is no sign of it beyond a broker;
    /// `held-back`: too much was unsent there; `rerouted`: it has taken another way from there;
    /// `not-sent`: it was not sent on from there on this way, as its plan was another one or it
    /// waits; `asked-for`: it came when it was asked for, as no copy had come; `unknown`: brokers
    /// on the way have not answered.
    pub state: String,
    /// The broker where that was: the last one that has seen it.
    pub at: String,
    /// By how much it came later than the first one, microseconds of the destination's clock.
    pub behind_us: Option<u64>,
}

/// How an event has gone to one broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedDestination {
    /// The broker.
    pub broker: String,
    /// Subscriptions there have taken it; `null` if that broker has not answered.
    pub taken: Option<bool>,
    /// Its paths: those of the plan of now, the quickest first; then others that it came by; then
    /// copies that have left its first broker for a neighbour to which the plan leads no more,
    /// and may have been for other destinations.
    pub paths: Vec<TracedPath>,
    /// Other brokers that all planned paths visit, where there are several.
    pub shared_brokers: Vec<String>,
    /// Links that all planned paths take, where there are several: the names of both ends.
    pub shared_links: Vec<Vec<String>>,
}

/// What brokers know of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// The event's id.
    pub event: String,
    /// Those that know something, in the order of its way.
    pub brokers: Vec<Traced>,
    /// How it has gone to each broker that wanted it, as long as its first broker has it.
    #[serde(default)]
    pub destinations: Vec<TracedDestination>,
    /// Its deadline, if it has one and its first broker has it.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    /// What its topic's profile says of `paths`, if its first broker has it: `1`, `2`, `targeted`,
    /// or `for` an availability.
    #[serde(default)]
    pub setting: Option<String>,
    /// Those that know nothing.
    pub ignorant: Vec<String>,
    /// Those that were asked and have not answered in time.
    pub silent: Vec<String>,
    /// Those that could not be asked: there is no way to them, or no room on it.
    pub missed: Vec<String>,
}
