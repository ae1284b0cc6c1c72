//! What there is to show of a run.

use std::time::Duration;

use super::checker::Tally;
use super::crashes::Crashes;
use super::delays::Quantiles;
use super::freight;
use super::geo::{Motion, Place};
use super::regions;
use super::roaming::Roaming;
use super::roles::{ROLES, Seats};
use super::selection::Watch;

/// How far the run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Subscribers and vehicles connect.
    Connecting,
    /// Positions are published.
    Running,
    /// Nothing is published any more; what is in flight may arrive.
    Draining,
}

/// What vehicles did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Published {
    /// Positions handed to the broker.
    pub sent: u64,
    /// Those that the broker confirmed.
    pub confirmed: u64,
    /// Those of which the broker did not tell whether it has them.
    pub unconfirmed: u64,
    /// Positions left out because too many of the same vehicle waited for the broker.
    pub held_back: u64,
    /// How much later than due a position was handed to its vehicle at worst, µs.
    pub latest_micros: u64,
}

/// How far the trace is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// The recording's time, ms since the Unix epoch.
    pub millis: i64,
    /// How often it was replayed to its end.
    pub laps: u64,
}

/// Where the viewer last saw a vehicle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sighting {
    /// Index of its line.
    pub line: u32,
    /// Where.
    pub place: Place,
    /// How it moved.
    pub motion: Motion,
}

/// One second of traffic.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Second {
    /// Messages published.
    pub published: u64,
    /// Messages delivered to all subscribers together.
    pub delivered: u64,
    /// Those of them that had been missed without a connection.
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

/// What there is to show of a run at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// How far the run is.
    pub phase: Phase,
    /// Since the start of publishing, or of the program before it.
    pub elapsed: Duration,
    /// Connections, in the order of [`ROLES`].
    pub seats: [Seats; ROLES.len()],
    /// What vehicles did.
    pub published: Published,
    /// Deliveries to all subscribers together.
    pub delivered: u64,
    /// Mean rates of the last seconds, per second.
    pub rates: (f64, f64),
    /// The last seconds, oldest first.
    pub seconds: Vec<Second>,
    /// Delays of the last seconds.
    pub recent: Quantiles,
    /// Delays of the whole run.
    pub overall: Quantiles,
    /// Subscribers that may lose nothing: counts, in flight, overtaken.
    pub reliable: (Tally, u64, u64),
    /// Subscribers that may.
    pub best_effort: (Tally, u64, u64),
    /// Consoles that lose their signal.
    pub roaming: Roaming,
    /// Watched lines.
    pub lines: Vec<LineRow>,
    /// Watchers by content.
    pub watches: Vec<Watch>,
    /// Vehicles as the viewer saw them.
    pub sightings: Vec<Option<Sighting>>,
    /// How far the trace is.
    pub replayed: Replayed,
    /// What went wrong, and how often.
    pub troubles: Vec<(String, u64)>,
    /// The freight desk, if there is one.
    pub freight: Option<freight::Snapshot>,
    /// How often the broker was killed.
    pub crashes: Crashes,
    /// The regions, if there are several.
    pub regions: Option<regions::Snapshot>,
}

impl Snapshot {
    /// Messages on their way to anyone.
    pub fn in_flight(&self) -> u64 {
        let Roaming { semi_durable, nondurable } = &self.roaming;
        self.reliable.1 + self.best_effort.1 + semi_durable.in_flight + nondurable.in_flight
    }
}
