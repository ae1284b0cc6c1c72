//! The state of a run for the view.

use std::time::Duration;

use super::alarms::AlarmSnapshot;
use super::checker::Tally;
use super::crashes::Crashes;
use super::delays::Quantiles;
use super::freight;
use super::geo::{Motion, Place};
use super::regions;
use super::roaming::Roaming;
use super::roles::{ROLES, Seats};
use super::selection::Watch;

/// The phase of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Subscribers and vehicles connect.
    Connecting,
    /// Positions are published.
    Running,
    /// No more is published; messages in flight may arrive.
    Draining,
}

/// The counts of vehicles' publishes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Published {
    /// Positions handed to the broker.
    pub sent: u64,
    /// Positions among these that the broker confirmed.
    pub confirmed: u64,
    /// Positions among these of which the broker did not tell whether it has them.
    pub unconfirmed: u64,
    /// Positions left out because too many of the same vehicle waited for the broker.
    pub held_back: u64,
    /// The greatest delay from due to handed over to the vehicle, µs.
    pub latest_micros: u64,
}

/// The progress of the replay.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// The recording's time, ms since the Unix epoch.
    pub millis: i64,
    /// The number of times that the trace was replayed to its end.
    pub laps: u64,
}

/// The last sighting of a vehicle by the viewer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sighting {
    /// Index of its line.
    pub line: u32,
    /// The place.
    pub place: Place,
    /// The motion.
    pub motion: Motion,
}

/// One second of traffic.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Second {
    /// Messages published.
    pub published: u64,
    /// Messages delivered, over all subscribers.
    pub delivered: u64,
    /// Messages among these that had been missed without a connection.
    pub recovered: u64,
}

/// A line in a [`Snapshot`].
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct LineRow {
    /// The line's name.
    pub name: String,
    /// Vehicles last seen on it.
    pub vehicles: u32,
    /// Deliveries to its watcher per second, lately.
    #[serde(skip)]
    pub rate: f64,
    /// Deliveries to its watcher.
    pub delivered: u64,
    /// Their delays in the last seconds.
    #[serde(skip)]
    pub recent: Quantiles,
    /// Their delays in the whole run, ms.
    pub delay_ms: Quantiles,
    /// Broken promises.
    pub faults: u64,
}

/// The state of a run at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The phase.
    pub phase: Phase,
    /// The time since the start of publishing; before it, since the start of the program.
    pub elapsed: Duration,
    /// Connections, in the order of [`ROLES`].
    pub seats: [Seats; ROLES.len()],
    /// The counts of vehicles' publishes.
    pub published: Published,
    /// Deliveries to all subscribers.
    pub delivered: u64,
    /// Mean rates of publishes and deliveries in the last seconds, per second.
    pub rates: (f64, f64),
    /// The last seconds, oldest first.
    pub seconds: Vec<Second>,
    /// Delays of the last seconds.
    pub recent: Quantiles,
    /// Delays of the whole run.
    pub overall: Quantiles,
    /// Subscribers that may lose nothing: counts, messages in flight, messages overtaken.
    pub reliable: (Tally, u64, u64),
    /// Subscribers that may lose messages: the same counts.
    pub best_effort: (Tally, u64, u64),
    /// Consoles that lose their signal.
    pub roaming: Roaming,
    /// Watched lines.
    pub lines: Vec<LineRow>,
    /// Watchers by content.
    pub watches: Vec<Watch>,
    /// Vehicles as the viewer saw them.
    pub sightings: Vec<Option<Sighting>>,
    /// The progress of the replay.
    pub replayed: Replayed,
    /// Troubles, each with its count.
    pub troubles: Vec<(String, u64)>,
    /// The freight desk, if there is one.
    pub freight: Option<freight::Snapshot>,
    /// Alarms, if there are any.
    pub alarms: Option<AlarmSnapshot>,
    /// Kills and restarts of brokers.
    pub crashes: Crashes,
    /// The regions, if there are several.
    pub regions: Option<regions::Snapshot>,
}

impl Snapshot {
    /// Messages in flight to all subscribers.
    pub fn in_flight(&self) -> u64 {
        let Roaming { semi_durable, nondurable } = &self.roaming;
        self.reliable.1 + self.best_effort.1 + semi_durable.in_flight + nondurable.in_flight
    }
}
