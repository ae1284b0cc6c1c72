//! The state that all connections of the run write to and the view reads: one lock, held for
//! microseconds.

mod recorded;
mod shown;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use whimbrel_client::Gap;

pub use super::roles::{ROLES, Role, Seats};
pub use super::snapshot::{LineRow, Phase, Published, Replayed, Second, Sighting, Snapshot};

use super::alarms::AlarmBoard;
use super::checker::{Checker, How, Interest, Message, Promise, SubscriberId, Verdict};
use super::crashes::CrashLog;
use super::delays::Delays;
use super::freight::Desk;
use super::geo::{Motion, Place};
use super::message::{self, Outgoing, Report};
use super::record::Recorder;
use super::regions::{Census, Disturbances, Sites};
use super::roaming::Roaming;
use super::selection::{Condition, Content, Selection, Watch};
use super::trace::{Position, Trace};

/// Seconds of rates that are kept for the view.
pub const HISTORY: usize = 300;
/// Rates are shown as the mean over this many seconds.
const RATE_SECONDS: usize = 5;
/// The number of different troubles that are kept, the first ones, each with its count.
const TROUBLES: usize = 20;
/// User properties with this prefix are the broker's.
const RESERVED: &str = "w-";

/// A line with its watcher.
struct Watched {
    line: u32,
    subscriber: Option<SubscriberId>,
    delays: Delays,
    delivered: u64,
    seconds: VecDeque<u64>,
}

/// A console that loses its signal.
struct Roamer {
    role: Role,
    subscriber: SubscriberId,
    has_signal: bool,
}

struct State {
    phase: Phase,
    checker: Checker,
    delays: Delays,
    seats: HashMap<Role, Seats>,
    published: Published,
    delivered: u64,
    watched: Vec<Watched>,
    /// The consoles that lose their signal.
    roamers: Vec<Roamer>,
    recovered: u64,
    /// The watcher of each condition.
    selected: Vec<Option<SubscriberId>>,
    sightings: Vec<Option<Sighting>>,
    seconds: VecDeque<Second>,
    totals: Second,
    replayed: Replayed,
    troubles: Vec<(String, u64)>,
    running_since: Option<Duration>,
    stopped_at: Option<Duration>,
}

/// The shared state of a run.
pub struct Board {
    /// The trace that is replayed.
    pub trace: Arc<Trace>,
    /// The conditions that are watched by content.
    pub selection: Arc<Selection>,
    /// The freight desk.
    pub freight: Desk,
    /// Alarms, and what positions are beside them.
    pub alarms: AlarmBoard,
    /// The record of kills and restarts of brokers.
    pub crashes: CrashLog,
    /// The clients in each region.
    pub regions: Census,
    /// The times at which brokers could not be reached.
    pub disturbances: Arc<Disturbances>,
    vehicles: HashMap<String, u32>,
    lines: HashMap<String, u32>,
    start: Instant,
    recorder: Option<Arc<Recorder>>,
    state: Mutex<State>,
}

/// A subscription as the board knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    role: Role,
    subscriber: SubscriberId,
    watched: Option<usize>,
    /// Its index among the consoles that lose their signal.
    roamer: Option<usize>,
}

/// A message that a subscriber received and that is not a retained one.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The payload.
    pub body: &'a [u8],
    /// The circumstances of its delivery.
    pub how: How,
}

impl Board {
    /// A board for a run of `trace` with watchers of lines and of conditions.
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
        let disturbances = Arc::<Disturbances>::default();
        let checker = Checker::new(trace.vehicles.len(), selection.clone()).during(disturbances.clone());
        let millis = trace.positions.first().map_or(0, |first| first.fix.millis);
        let state = State {
            phase: Phase::Connecting,
            checker,
            delays: Delays::default(),
            seats: HashMap::new(),
            published: Published::default(),
            delivered: 0,
            watched: watched.iter().map(watch).collect(),
            roamers: Vec::new(),
            recovered: 0,
            selected: vec![None; selection.conditions.len()],
            sightings: vec![None; trace.vehicles.len()],
            seconds: VecDeque::new(),
            totals: Second::default(),
            replayed: Replayed { millis, laps: 0 },
            troubles: Vec::new(),
            running_since: None,
            stopped_at: None,
        };
        Board {
            vehicles: index(&trace.vehicles),
            lines: index(&trace.lines),
            trace,
            selection,
            freight: Desk::new(disturbances.clone()),
            alarms: AlarmBoard::new(disturbances.clone()),
            crashes: CrashLog::default(),
            regions: Census::default(),
            disturbances,
            start: Instant::now(),
            recorder: None,
            state: Mutex::new(state),
        }
    }

    /// Time since the board was made.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A panic in a connection's task leaves counts that are as true as before.
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

    /// The number of connections of a role that should be open changes.
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

    /// A connection of this role was closed, as its client goes to another region.
    pub fn sets_out(&self, role: Role) {
        self.left(role);
        self.state().seats.entry(role).or_default().moving += 1;
    }

    /// A client that has set out has arrived, or could not connect.
    pub fn has_set_out(&self, role: Role) {
        let mut state = self.state();
        let seats = state.seats.entry(role).or_default();
        seats.moving = seats.moving.saturating_sub(1);
    }

    /// A connection of this role was lost.
    pub fn dropped(&self, role: Role, why: String) {
        self.left(role);
        self.state().seats.entry(role).or_default().lost += 1;
        self.lost_connection(why);
    }

    /// A connection was lost or cannot be opened. That is no trouble where a broker was killed or a
    /// link cut.
    pub fn lost_connection(&self, why: String) {
        if !self.crashes.are_going_on() && !self.disturbances.is_going_on() {
            self.trouble(why);
        }
    }

    /// Whether all connections that should be open are, except those of clients that move at will,
    /// and no order and no alarm is owed that was sent before a moment.
    pub fn is_served(&self, before: Duration) -> bool {
        let is_there = |seats: &Seats| seats.connected + seats.moving == seats.wanted;
        let all_there = self.state().seats.iter().all(|(role, seats)| role.roams() || is_there(seats));
        all_there && self.freight.is_served(before) && self.alarms.is_served(before)
    }

    /// Something went wrong that does not end the run.
    pub fn trouble(&self, what: String) {
        if let Some(recorder) = &self.recorder {
            recorder.says("judge", &what);
        }
        let troubles = &mut self.state().troubles;
        if let Some(known) = troubles.iter_mut().find(|(known, _)| *known == what) {
            known.1 += 1;
        } else if troubles.len() < TROUBLES {
            troubles.push((what, 1));
        }
    }

    /// The broker has confirmed a subscription.
    pub fn subscribed(&self, role: Role, interest: Interest) -> Seat {
        let mut state = self.state();
        let subscriber = state.checker.subscribed(interest, role.promise());
        let mut seat = Seat { role, subscriber, watched: None, roamer: None };
        if role.roams() {
            seat.roamer = Some(state.roamers.len());
            state.roamers.push(Roamer { role, subscriber, has_signal: true });
            return seat;
        }
        match interest {
            Interest::All => {}
            Interest::Line(line) => seat.watched = state.watched.iter().position(|watched| watched.line == line),
            Interest::Selected(index) => state.selected[index] = Some(subscriber),
        }
        if let Some(index) = seat.watched {
            state.watched[index].subscriber = Some(subscriber);
        }
        seat
    }

    /// A console has lost its signal, or has it back with its subscription in force.
    pub fn signal(&self, seat: Seat, has_signal: bool) {
        let mut state = self.state();
        let Some(roamer) = seat.roamer else { return };
        state.roamers[roamer].has_signal = has_signal;
        if has_signal {
            state.checker.back(seat.subscriber);
            state.seats.entry(seat.role).or_default().connected += 1;
        } else {
            state.checker.away(seat.subscriber);
            let seats = state.seats.entry(seat.role).or_default();
            (seats.connected, seats.outages) = (seats.connected.saturating_sub(1), seats.outages + 1);
        }
    }

    /// A console's subscription is in force, but some brokers have not confirmed it yet.
    pub fn pending(&self, seat: Seat, sites: Sites) {
        let now = self.now();
        self.state().checker.pending(seat.subscriber, sites, now);
    }

    /// The broker has told a subscriber of a gap.
    pub fn gap(&self, seat: Seat, gap: Gap) {
        self.state().checker.gap(seat.subscriber, gap);
    }

    /// A vehicle is about to hand this message, due at `at`, to a broker.
    pub fn publishing(&self, position: &Position, seq: u64, message: &Outgoing, at: Duration) {
        let fix = position.fix;
        let content = Content { line: fix.line, place: fix.place, speed: message.speed };
        let sent = Message { vehicle: fix.vehicle, content, seq, digest: message.digest() };
        let mut state = self.state();
        state.checker.published(sent, at);
        state.published.sent += 1;
        state.replayed.millis = fix.millis;
    }

    /// A vehicle hands its last message to the broker of a region, perhaps as the second broker.
    pub fn handing(&self, vehicle: u32, seq: u64, region: usize) {
        let now = self.now();
        self.state().checker.handed(vehicle, seq, region, now);
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

    /// A position was handed to its vehicle later than it was due, by `lag`.
    pub fn note_lag(&self, lag: Duration) {
        let latest = &mut self.state().published.latest_micros;
        *latest = (*latest).max(u64::try_from(lag.as_micros()).unwrap_or(u64::MAX));
    }

    /// The lines with watchers.
    pub fn watched_lines(&self) -> Vec<u32> {
        self.state().watched.iter().map(|watched| watched.line).collect()
    }

    /// The number of times that the trace was replayed to its end.
    pub fn set_laps(&self, laps: u64) {
        self.state().replayed.laps = laps;
    }

    /// A subscriber received a message. Attributes that the broker itself adds are ignored.
    pub fn arrived<'a>(&self, seat: Seat, arrival: Arrival<'_>, attributes: impl Iterator<Item = (&'a str, &'a str)>) {
        let at = self.now();
        let Arrival { topic, body, how } = arrival;
        let report = serde_json::from_slice::<Report>(body);
        let names = message::parse_topic(topic);
        let known = names.and_then(|(line, vehicle)| Some((*self.lines.get(line)?, *self.vehicles.get(vehicle)?)));
        let (Ok(report), Some((line, vehicle))) = (report, known) else {
            self.state().checker.arrived_unreadable(seat.subscriber);
            return;
        };
        let digest = message::digest(topic, body, attributes.filter(|(name, _)| !name.starts_with(RESERVED)));
        let mut state = self.state();
        let place = Place { lat: report.lat, lon: report.lon };
        let content = Content { line, place, speed: report.speed };
        let message = Message { vehicle, content, seq: report.seq, digest };
        let before = state.checker.last_before(seat.subscriber, vehicle, report.seq);
        let verdict = state.checker.arrived(seat.subscriber, message, how, at);
        if let Some(fault) = verdict.fault()
            && (state.troubles.len() < TROUBLES || self.recorder.is_some())
        {
            let name = how.id.map(|id| format!(" ({id})")).unwrap_or_default();
            let (vehicle, seq) = (&self.trace.vehicles[vehicle as usize], report.seq);
            let (role, at, region) = (seat.role, at.as_secs_f64(), how.region);
            let what = format!(
                "{role:?} {:?}: message {seq}{name} of {vehicle} {fault} at {at:.3} s in region {region}; {before}; \
                 out of reach: {}",
                seat.subscriber,
                self.disturbances.last()
            );
            if let Some(recorder) = &self.recorder {
                recorder.says("judge", &what);
            }
            if state.troubles.len() < TROUBLES {
                state.troubles.push((what, 1));
            }
        }
        if let Some(id) = how.id {
            state.checker.named(vehicle, report.seq, id);
        }
        if let Verdict::Recovered(_) = verdict {
            (state.delivered, state.recovered) = (state.delivered + 1, state.recovered + 1);
            return;
        }
        let (Verdict::InOrder(delay) | Verdict::OutOfOrder(delay)) = verdict else { return };
        state.delivered += 1;
        state.delays.record(delay);
        if matches!(seat.role, Role::Console | Role::Watcher) {
            self.alarms.ordinary(state.checker.sites(vehicle, report.seq), how.region, delay, at);
        }
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
        state.checker.settle();
        let now = Second { published: state.published.sent, delivered: state.delivered, recovered: state.recovered };
        let second = Second {
            published: now.published - state.totals.published,
            delivered: now.delivered - state.totals.delivered,
            recovered: now.recovered - state.totals.recovered,
        };
        state.totals = now;
        remember(&mut state.seconds, second, HISTORY);
        state.delays.tick();
        for watched in &mut state.watched {
            remember(&mut watched.seconds, watched.delivered, RATE_SECONDS + 1);
            watched.delays.tick();
        }
    }

    /// Messages in flight: to subscribers that may lose nothing, and to those that may.
    pub fn in_flight(&self) -> (u64, u64) {
        let state = self.state();
        let lasting = [Promise::Reliable, Promise::SemiDurable, Promise::Nondurable];
        let lasting = lasting.map(|promise| state.checker.in_flight(promise)).iter().sum();
        (lasting, state.checker.in_flight(Promise::BestEffort))
    }

    /// The run is over: messages that have not arrived are lost.
    pub fn close(&self) {
        self.freight.close();
        self.alarms.close(self.now());
        self.state().checker.close();
    }

    /// The present state for the view.
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
            roaming: Roaming {
                semi_durable: state.class(Role::SemiDurable),
                nondurable: state.class(Role::Nondurable),
            },
            lines: state.lines(&self.trace.lines),
            watches: state.watches(&self.selection, &self.trace.lines),
            sightings: state.sightings.clone(),
            replayed: state.replayed,
            troubles: state.troubles.clone(),
            freight: self.freight.snapshot(),
            alarms: self.alarms.snapshot(),
            crashes: self.crashes.read(),
            regions: self.regions.snapshot(),
        }
    }
}

fn remember<T>(queue: &mut VecDeque<T>, value: T, bound: usize) {
    if queue.len() == bound {
        queue.pop_front();
    }
    queue.push_back(value);
}
