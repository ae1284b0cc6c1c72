//! What all connections of the run write to and what the view reads: one lock, held for microseconds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use super::roles::{ROLES, Role, Seats};

use super::checker::{Checker, Interest, Message, Promise, SubscriberId, Tally, Verdict};
use super::delays::{Delays, Quantiles};
use super::geo::{Motion, Place};
use super::message::{self, Outgoing, Report};
use super::selection::{Condition, Content, Selection, Watch};
use super::trace::{Position, Trace};

/// Seconds of rates that are remembered for the view.
pub const HISTORY: usize = 300;
/// Rates are shown as the mean of the last so many seconds.
const RATE_SECONDS: usize = 5;
/// How many different troubles are remembered, the first ones, with how often each occurred.
const TROUBLES: usize = 20;

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
}

/// A line with its watcher.
struct Watched {
    line: u32,
    subscriber: Option<SubscriberId>,
    delays: Delays,
    delivered: u64,
    seconds: VecDeque<u64>,
}

struct State {
    phase: Phase,
    checker: Checker,
    delays: Delays,
    seats: HashMap<Role, Seats>,
    published: Published,
    delivered: u64,
    watched: Vec<Watched>,
    /// The watcher of each condition.
    selected: Vec<Option<SubscriberId>>,
    sightings: Vec<Option<Sighting>>,
    seconds: VecDeque<Second>,
    totals: Second,
    replayed: i64,
    laps: u64,
    troubles: Vec<(String, u64)>,
    running_since: Option<Duration>,
    stopped_at: Option<Duration>,
}

/// The shared state of a run.
pub struct Board {
    /// What is replayed.
    pub trace: Arc<Trace>,
    /// What is watched by content.
    pub selection: Arc<Selection>,
    vehicles: HashMap<String, u32>,
    lines: HashMap<String, u32>,
    start: Instant,
    state: Mutex<State>,
}

/// A subscription as the board knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    role: Role,
    subscriber: SubscriberId,
    watched: Option<usize>,
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
    pub seats: [Seats; 4],
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
    /// Watched lines.
    pub lines: Vec<LineRow>,
    /// Watchers by content.
    pub watches: Vec<Watch>,
    /// Vehicles as the viewer saw them.
    pub sightings: Vec<Option<Sighting>>,
    /// The recording's time, ms since the Unix epoch.
    pub replayed: i64,
    /// How often the trace was replayed to its end.
    pub laps: u64,
    /// What went wrong, and how often.
    pub troubles: Vec<(String, u64)>,
}

impl Board {
    /// A board for a run of `trace` with watchers on these lines and by content.
    pub fn new(trace: Arc<Trace>, watched: &[u32], selection: Selection) -> Board {
        let selection = Arc::new(selection);
        let index = |names: &[String]| names.iter().cloned().zip(0..).collect();
        let watch = |&line: &u32| Watched {
            line,
            subscriber: None,
            delays: Delays::default(),
            delivered: 0,
            seconds: VecDeque::new(),
        };
        let state = State {
            phase: Phase::Connecting,
            checker: Checker::new(trace.vehicles.len(), selection.clone()),
            delays: Delays::default(),
            seats: HashMap::new(),
            published: Published::default(),
            delivered: 0,
            watched: watched.iter().map(watch).collect(),
            selected: vec![None; selection.conditions.len()],
            sightings: vec![None; trace.vehicles.len()],
            seconds: VecDeque::new(),
            totals: Second::default(),
            replayed: trace.positions.first().map_or(0, |first| first.fix.millis),
            laps: 0,
            troubles: Vec::new(),
            running_since: None,
            stopped_at: None,
        };
        Board {
            vehicles: index(&trace.vehicles),
            lines: index(&trace.lines),
            trace,
            selection,
            start: Instant::now(),
            state: Mutex::new(state),
        }
    }

    /// Time since the board was made.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A connection's task that panics leaves counts that are as true as before.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run enters its next phase.
    pub fn enter(&self, phase: Phase) {
        let now = self.now();
        let mut state = self.state();
        state.phase = phase;
        match phase {
            Phase::Connecting => {}
            Phase::Running => state.running_since = Some(now),
            Phase::Draining => state.stopped_at = Some(now),
        }
    }

    /// So many connections of this role should be open.
    pub fn want(&self, role: Role, wanted: u32) {
        self.state().seats.entry(role).or_default().wanted = wanted;
    }

    /// A connection of this role is open.
    pub fn connected(&self, role: Role) {
        self.state().seats.entry(role).or_default().connected += 1;
    }

    /// A connection of this role was closed, as intended.
    pub fn left(&self, role: Role) {
        let mut state = self.state();
        let seats = state.seats.entry(role).or_default();
        seats.connected = seats.connected.saturating_sub(1);
    }

    /// A connection of this role was lost.
    pub fn dropped(&self, role: Role, why: String) {
        self.left(role);
        self.state().seats.entry(role).or_default().lost += 1;
        self.trouble(why);
    }

    /// Something went wrong that does not end the run.
    pub fn trouble(&self, what: String) {
        let troubles = &mut self.state().troubles;
        if let Some(known) = troubles.iter_mut().find(|(known, _)| *known == what) {
            known.1 += 1;
        } else if troubles.len() < TROUBLES {
            troubles.push((what, 1));
        }
    }

    /// The broker has confirmed a subscription.
    pub fn subscribed(&self, role: Role, interest: Interest) -> Seat {
        let promise = if role == Role::Viewer { Promise::BestEffort } else { Promise::Reliable };
        let mut state = self.state();
        let subscriber = state.checker.subscribed(interest, promise);
        let line = if let Interest::Line(line) = interest { Some(line) } else { None };
        let watched = state.watched.iter().position(|watched| Some(watched.line) == line);
        if let Some(index) = watched {
            state.watched[index].subscriber = Some(subscriber);
        }
        if let Interest::Selected(index) = interest {
            state.selected[index] = Some(subscriber);
        }
        Seat { role, subscriber, watched }
    }

    /// A vehicle is about to hand this message, due at `at`, to the broker.
    pub fn publishing(&self, position: &Position, seq: u64, message: &Outgoing, at: Duration) {
        let fix = position.fix;
        let content = Content { line: fix.line, place: fix.place, speed: message.speed };
        let sent = Message { vehicle: fix.vehicle, content, seq, digest: message.digest() };
        let mut state = self.state();
        state.checker.published(sent, at);
        state.published.sent += 1;
        state.replayed = fix.millis;
    }

    /// The broker has confirmed a message.
    pub fn confirmed(&self) {
        self.state().published.confirmed += 1;
    }

    /// The broker has not told whether it has a message.
    pub fn unconfirmed(&self, vehicle: u32, seq: u64) {
        let mut state = self.state();
        state.published.unconfirmed += 1;
        state.checker.excuse(vehicle, seq);
    }

    /// A position was left out because its vehicle is too far behind.
    pub fn held_back(&self) {
        self.state().published.held_back += 1;
    }

    /// A position was handed to its vehicle so much later than it was due.
    pub fn note_lag(&self, lag: Duration) {
        let latest = &mut self.state().published.latest_micros;
        *latest = (*latest).max(u64::try_from(lag.as_micros()).unwrap_or(u64::MAX));
    }

    /// The lines with watchers.
    pub fn watched_lines(&self) -> Vec<u32> {
        self.state().watched.iter().map(|watched| watched.line).collect()
    }

    /// The trace has been replayed so often.
    pub fn set_laps(&self, laps: u64) {
        self.state().laps = laps;
    }

    /// A subscriber got a message that is no retained one; the broker `may_repeat` an earlier one.
    pub fn arrived<'a>(
        &self,
        seat: Seat,
        topic: &str,
        body: &[u8],
        attributes: impl Iterator<Item = (&'a str, &'a str)>,
        may_repeat: bool,
    ) {
        let at = self.now();
        let report = serde_json::from_slice::<Report>(body);
        let names = message::parse_topic(topic);
        let known = names.and_then(|(line, vehicle)| Some((*self.lines.get(line)?, *self.vehicles.get(vehicle)?)));
        let (Ok(report), Some((line, vehicle))) = (report, known) else {
            self.state().checker.arrived_unreadable(seat.subscriber);
            return;
        };
        let digest = message::digest(topic, body, attributes);
        let mut state = self.state();
        let place = Place { lat: report.lat, lon: report.lon };
        let content = Content { line, place, speed: report.speed };
        let message = Message { vehicle, content, seq: report.seq, digest };
        let verdict = state.checker.arrived(seat.subscriber, message, may_repeat, at);
        let (Verdict::InOrder(delay) | Verdict::OutOfOrder(delay)) = verdict else { return };
        state.delivered += 1;
        state.delays.record(delay);
        if let Some(watched) = seat.watched {
            state.watched[watched].delays.record(delay);
            state.watched[watched].delivered += 1;
        }
        if seat.role == Role::Viewer {
            let motion = Motion { speed: report.speed as f32, heading: report.heading as f32 };
            state.sightings[vehicle as usize] = Some(Sighting { line, place, motion });
        }
    }

    /// A second has passed.
    pub fn tick(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let now = Second { published: state.published.sent, delivered: state.delivered };
        let second = Second {
            published: now.published - state.totals.published,
            delivered: now.delivered - state.totals.delivered,
        };
        state.totals = now;
        remember(&mut state.seconds, second, HISTORY);
        state.delays.tick();
        for watched in &mut state.watched {
            remember(&mut watched.seconds, watched.delivered, RATE_SECONDS + 1);
            watched.delays.tick();
        }
    }

    /// Messages on their way: to subscribers that may lose nothing, and to those that may.
    pub fn in_flight(&self) -> (u64, u64) {
        let state = self.state();
        (state.checker.in_flight(Promise::Reliable), state.checker.in_flight(Promise::BestEffort))
    }

    /// The run is over: what has not arrived is lost.
    pub fn close(&self) {
        self.state().checker.close();
    }

    /// What there is to show now.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.now();
        let state = self.state();
        let from = state.running_since.unwrap_or_default();
        let checked = |promise| {
            let checker = &state.checker;
            (checker.tally(promise), checker.in_flight(promise), checker.missing(promise))
        };
        Snapshot {
            phase: state.phase,
            elapsed: state.stopped_at.unwrap_or(now).saturating_sub(from),
            seats: ROLES.map(|role| state.seats.get(&role).copied().unwrap_or_default()),
            published: state.published,
            delivered: state.delivered,
            rates: state.rates(),
            seconds: state.seconds.iter().copied().collect(),
            recent: state.delays.recent(),
            overall: state.delays.overall(),
            reliable: checked(Promise::Reliable),
            best_effort: checked(Promise::BestEffort),
            lines: state.lines(&self.trace.lines),
            watches: state.watches(&self.selection, &self.trace.lines),
            sightings: state.sightings.clone(),
            replayed: state.replayed,
            laps: state.laps,
            troubles: state.troubles.clone(),
        }
    }
}

fn remember<T>(queue: &mut VecDeque<T>, value: T, bound: usize) {
    if queue.len() == bound {
        queue.pop_front();
    }
    queue.push_back(value);
}

impl State {
    fn rates(&self) -> (f64, f64) {
        let last = self.seconds.iter().rev().take(RATE_SECONDS);
        let count = last.len().max(1) as f64;
        let (published, delivered) =
            last.fold((0, 0), |sum, second| (sum.0 + second.published, sum.1 + second.delivered));
        (published as f64 / count, delivered as f64 / count)
    }

    fn watches(&self, selection: &Selection, lines: &[String]) -> Vec<Watch> {
        let row = |(&condition, subscriber): (&Condition, &Option<SubscriberId>)| {
            let tally = subscriber.map(|subscriber| self.checker.tally_of(subscriber)).unwrap_or_default();
            Watch::new(condition.kind(), selection.selector(condition, lines), &tally)
        };
        selection.conditions.iter().zip(&self.selected).map(row).collect()
    }

    fn lines(&self, names: &[String]) -> Vec<LineRow> {
        let mut vehicles = vec![0; names.len()];
        for sighting in self.sightings.iter().flatten() {
            vehicles[sighting.line as usize] += 1;
        }
        let row = |watched: &Watched| {
            let span = watched.seconds.len().saturating_sub(1).max(1) as f64;
            let ends = watched.seconds.front().zip(watched.seconds.back());
            let tally = watched.subscriber.map(|subscriber| self.checker.tally_of(subscriber)).unwrap_or_default();
            LineRow {
                name: names[watched.line as usize].clone(),
                vehicles: vehicles[watched.line as usize],
                rate: ends.map_or(0.0, |(first, last)| (last - first) as f64 / span),
                delivered: watched.delivered,
                recent: watched.delays.recent(),
                delay_ms: watched.delays.overall(),
                faults: tally.faults(Promise::Reliable),
            }
        };
        self.watched.iter().map(row).collect()
    }
}
