//! A broker, its clients and the links between them in virtual time.
//!
//! The world is the broker's driver: an event queue that is ordered by time and then by when an
//! event was scheduled; nothing else decides what happens next. It carries bytes between clients
//! and the broker through [`Pipe`]s, and shows a [`Checker`] the broker's input and output.

mod lines;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_core::cache::Plan;
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Stats};

use crate::access::Shape;
use crate::cell::{Cell, Way};
use crate::check::{Checker, Gauges, Outcome, Seen};
use crate::client::Client;
use crate::link::{Arrival, Pipe, Profile};
use crate::plain_ways;
use crate::random::Random;
use crate::sink::Sink;
pub use crate::sink::Tamper;
use crate::trace::{KEPT, Trace};
use crate::wall::BrokerClock;

use store::Store;

/// The number of calls of the broker at one moment, at most.
const CALLS_AT_ONCE_MAX: u32 = 100_000;

/// How long until the gauges are checked again.
const GAUGES_EVERY: Duration = Duration::from_secs(1);

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client acts.
    Wake(usize),
    /// Bytes arrive at the broker over a line.
    Up(usize),
    /// Bytes arrive at the client over a line.
    Down(usize),
    /// Bytes arrive over a cell's access link, or a line has room on it again.
    Air(usize),
    /// The disk of the broker's log has made progress.
    Disk,
}

/// One connection, from its opening until both ends have let it go.
#[derive(Debug)]
struct Line {
    /// The broker's name for it while it is open there.
    conn: Option<ConnId>,
    /// The client; `None` once it has let go.
    client: Option<usize>,
    cell: Option<usize>,
    up: Pipe,
    down: Pipe,
    /// Whether the broker is to be told when the backlog is low.
    notify: bool,
    up_scheduled: Option<Time>,
    down_scheduled: Option<Time>,
}

/// A client and its present connection.
#[derive(Debug)]
struct Seat {
    client: Client,
    link: Profile,
    cell: Option<usize>,
    line: Option<usize>,
    scheduled: Option<Time>,
}

/// See the module's documentation.
pub struct World<'a> {
    /// Time as it passes; the broker has its own clock.
    now: Time,
    clock: BrokerClock,
    sequence: u64,
    queue: BTreeMap<(Time, u64), Event>,
    pub(crate) broker: MqttBroker,
    random: Random,
    lines: Vec<Line>,
    seats: Vec<Seat>,
    cells: Vec<Cell>,
    names: BTreeMap<ConnId, usize>,
    free: BTreeSet<u32>,
    /// The weight of one waiting byte: so small worlds reach the broker's marks, too.
    scale: usize,
    checker: Checker,
    trace: Trace,
    tamper: Option<&'a mut dyn Tamper>,
    /// The broker's log, if it has one.
    store: Option<Box<Store>>,
    #[cfg(feature = "mutants")]
    mutant: Option<whimbrel_core::Mutant>,
    gauges_at: Time,
    at_once: u32,
    /// Whether all clients have gone for good.
    is_deserted: bool,
}

impl<'a> World<'a> {
    /// A world with a fresh broker and no clients.
    pub fn new(config: Config, checker: Checker, scale: usize, mut random: Random, now: Time) -> Self {
        World {
            now,
            clock: BrokerClock::new(now),
            sequence: 0,
            queue: BTreeMap::new(),
            broker: plain_ways::set_up(MqttBroker::new(config, random.next(), now)),
            random,
            lines: Vec::new(),
            seats: Vec::new(),
            cells: Vec::new(),
            names: BTreeMap::new(),
            free: (0..4096).collect(),
            scale,
            checker,
            trace: Trace::new(KEPT),
            tamper: None,
            store: None,
            #[cfg(feature = "mutants")]
            mutant: None,
            gauges_at: now,
            at_once: 0,
            is_deserted: false,
        }
    }

    /// The wall clock of the broker's machine steps, forward or back. The broker is not told; its
    /// clock handles the step as it does.
    pub fn step_wall(&mut self, nanos: i64) {
        self.clock.step_wall(self.now, nanos);
    }

    /// The time that the broker's clock shows.
    fn broker_now(&self) -> Time {
        self.clock.read(self.now)
    }

    /// Sets the number of entries that are kept for the story of a failure, at least one.
    pub fn keep(&mut self, entries: usize) {
        self.trace = Trace::new(entries);
    }

    /// Tampers with the broker's input and output from now on.
    pub fn tamper(&mut self, tamper: &'a mut dyn Tamper) {
        self.tamper = Some(tamper);
    }

    /// Adds a client whose links have a profile.
    pub fn add(&mut self, client: Client, link: Profile) {
        self.add_at(client, link, None);
    }

    /// Adds a cell; its clients share an access link.
    pub fn add_cell(&mut self, shape: Shape) -> usize {
        self.cells.push(Cell::new(shape));
        self.cells.len() - 1
    }

    /// As [`World::add`], at the far end of a cell's access link, if one is named.
    pub fn add_at(&mut self, client: Client, link: Profile, cell: Option<usize>) {
        self.seats.push(Seat { client, link, cell, line: None, scheduled: None });
        self.schedule_wake(self.seats.len() - 1);
    }

    /// The present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The checker and its findings.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }

    /// The broker's own counters.
    pub fn stats(&self) -> Stats {
        self.broker.stats()
    }

    /// The record of what happened.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Lets time pass; ends early when a rule is broken or the checker cannot tell any more.
    pub fn run_until(&mut self, until: Time) {
        while self.goes_on() {
            let due = self.broker.next_deadline().map(|(at, _)| self.clock.when(at).max(self.now));
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = [due, event].into_iter().flatten().min().filter(|next| *next <= until) else { break };
            assert!(next >= self.now, "time goes forward");
            self.at_once = if next > self.now { 0 } else { self.at_once + 1 };
            let what = self.broker.next_deadline();
            assert!(self.at_once < CALLS_AT_ONCE_MAX, "time stands still at {next:?}: {what:?}");
            self.now = next;
            if due == Some(next) {
                self.call(Input::Deadline, Seen::Nothing);
            } else if let Some((_, event)) = self.queue.pop_first() {
                self.happen(event);
            }
            // Actions that are due at this very moment may not be done yet.
            let settled = self.broker.next_deadline().is_none_or(|(at, _)| at > self.broker_now());
            if self.now >= self.gauges_at && settled {
                self.gauges_at = self.now + GAUGES_EVERY;
                self.clock.look_at_wall(self.now);
                self.look_at_gauges();
            }
        }
        self.now = until;
    }

    /// Whether no rule was broken, and the checker can tell.
    fn goes_on(&self) -> bool {
        match &self.store {
            Some(store) => store.ledger.violations().is_empty(),
            None => self.checker.violations().is_empty() && !self.checker.is_unsure(),
        }
    }

    /// Divides the broker's cache anew.
    pub fn divide(&mut self, plan: &Plan) {
        self.call(Input::Cache(plan), Seen::Nothing);
    }

    /// Clients behave from now on, and links recover.
    pub fn calm(&mut self) {
        for seat in 0..self.seats.len() {
            let mut acts = Vec::new();
            self.seats[seat].client.calm(self.now, &mut acts);
            self.act(seat, acts);
        }
    }

    /// At the end: everything owed must have been delivered by now.
    pub fn finish(&mut self) {
        if self.store.is_some() {
            return self.finish_log();
        }
        self.look_at_gauges();
        self.checker.finish(self.broker_now());
    }

    /// The server shuts down: every connection must end.
    pub fn drain(&mut self) {
        self.call(Input::Drain { within: Duration::ZERO }, Seen::Drain);
        assert!(self.names.is_empty() || self.tamper.is_some(), "draining ends every connection");
    }

    fn look_at_gauges(&mut self) {
        if self.store.is_some() {
            return;
        }
        let stats = self.broker.stats().core;
        let gauges = Gauges {
            sessions: stats.sessions,
            sessions_attached: stats.sessions_attached,
            subscriptions: stats.subscriptions,
            queued_bytes: stats.queued_bytes,
        };
        self.checker.gauges(self.broker_now(), &gauges);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(_) if self.is_deserted => {}
            Event::Wake(seat) => {
                self.seats[seat].scheduled = None;
                let mut acts = Vec::new();
                self.seats[seat].client.wake(self.now, &mut acts);
                self.act(seat, acts);
            }
            Event::Up(line) => {
                self.lines[line].up_scheduled = None;
                while !self.holds_back()
                    && let Some(arrival) = self.read(line, Way::Up)
                {
                    self.reach_broker(line, arrival);
                }
                self.schedule_line(line);
            }
            Event::Down(line) => {
                self.lines[line].down_scheduled = None;
                while let Some(arrival) = self.read(line, Way::Down) {
                    self.reach_client(line, arrival);
                }
                self.tell_drained(line);
                self.schedule_line(line);
            }
            Event::Air(cell) => self.move_air(cell),
            Event::Disk => self.disk_changed(),
        }
    }

    fn reach_broker(&mut self, line: usize, arrival: Arrival) {
        let Some(conn) = self.lines[line].conn else { return };
        match arrival {
            Arrival::Bytes(bytes) => self.call(Input::Bytes { conn, bytes: &bytes }, Seen::Bytes(conn, &bytes)),
            Arrival::End => {
                self.let_go(conn);
                self.call(Input::Closed { conn }, Seen::Gone(conn));
            }
        }
    }

    /// Calls the broker, carries its output away, and submits its batches.
    fn call(&mut self, input: Input<'_>, seen: Seen<'_>) {
        self.call_once(input, seen);
        self.submit();
    }

    fn call_once(&mut self, input: Input<'_>, seen: Seen<'_>) {
        let now = self.broker_now();
        let (names, lines, scale) = (&self.names, &self.lines, self.scale);
        let backlog = |conn: ConnId| names.get(&conn).map_or(0, |line| lines[*line].down.backlog() * scale);
        let mut sink = Sink { outcome: Outcome::default(), notify: Vec::new(), backlog: &backlog };
        self.trace.note_seen(now, seen);
        match (input, &mut self.tamper) {
            (Input::Bytes { conn, bytes }, Some(tamper)) => {
                let mut heard = bytes.to_vec();
                tamper.mishear(conn, &mut heard);
                self.broker.handle(now, Input::Bytes { conn, bytes: &heard }, &mut sink);
            }
            _ => self.broker.handle(now, input, &mut sink),
        }
        let Sink { mut outcome, notify, .. } = sink;
        if let Some(tamper) = &mut self.tamper {
            tamper.tamper(seen, &mut outcome, &|conn| self.trace.version(conn));
        }
        self.trace.note_outcome(now, &outcome);
        for (conn, bytes) in &outcome.sends {
            if let Some(line) = self.names.get(conn).copied() {
                self.lines[line].down.write(self.now, bytes);
                self.schedule_line(line);
            }
        }
        let has_released = self.store.is_some() && self.broker.stats().core.gaps_released > 0;
        match &mut self.store {
            Some(store) => {
                if has_released {
                    store.ledger.note_released();
                }
                store.ledger.observe((self.now, now), seen, &outcome);
            }
            None => {
                let (names, lines) = (&self.names, &self.lines);
                let backlog = |conn| names.get(&conn).map_or(0, |line| lines[*line].down.backlog());
                self.checker.observe(now, seen, &outcome, backlog);
            }
        }
        for conn in outcome.closes {
            self.let_go(conn);
        }
        for conn in notify {
            if let Some(line) = self.names.get(&conn).copied() {
                self.lines[line].notify = true;
                self.tell_drained(line);
            }
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        // Bytes that waited for a stalled reader have arrived in the past.
        self.queue.insert((at.max(self.now), self.sequence), event);
    }

    fn schedule_wake(&mut self, seat: usize) {
        let known = &mut self.seats[seat];
        let next = known.client.next_wake().map(|at| at.max(self.now));
        if let Some(at) = next.filter(|at| known.scheduled.is_none_or(|known| *at < known)) {
            known.scheduled = Some(at);
            self.schedule(at, Event::Wake(seat));
        }
    }
}
