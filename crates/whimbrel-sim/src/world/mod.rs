//! A broker, its clients and the links between them in virtual time.
//!
//! The world is the broker's driver: an event queue ordered by time and then by when an event was
//! scheduled, and nothing else decides what happens next. It carries bytes between clients and the
//! broker through [`Pipe`]s, and shows a [`Checker`] what passes the broker's door.

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
use crate::random::Random;
use crate::sink::Sink;
pub use crate::sink::Tamper;
use crate::trace::{KEPT, Trace};
use crate::wall::BrokerClock;

use store::Store;

/// How often the broker may be called without time moving on.
const CALLS_AT_ONCE_MAX: u32 = 100_000;

/// How often the gauges are looked at.
const GAUGES_EVERY: Duration = Duration::from_secs(1);

/// What happens at a moment.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client wanted to act.
    Wake(usize),
    /// Something arrives at the broker over that line.
    Up(usize),
    /// Something arrives at the client over that line.
    Down(usize),
    /// Something arrives over the access link of that cell, or somebody may send over it again.
    Air(usize),
    /// The disk of the broker's log has done something.
    Disk,
}

/// One connection, from its opening until both ends have let go.
#[derive(Debug)]
struct Line {
    /// The broker's name for it while it is open there.
    conn: Option<ConnId>,
    /// The client, while it cares.
    client: Option<usize>,
    cell: Option<usize>,
    up: Pipe,
    down: Pipe,
    /// The broker wants to know when the backlog is low.
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
    /// Time as it passes; the broker has a clock of its own.
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
    /// What one byte that waits counts for: small worlds reach the broker's marks, too.
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
    /// All clients have gone for good.
    is_deserted: bool,
}

impl<'a> World<'a> {
    /// A world with a fresh broker and nobody else.
    pub fn new(config: Config, checker: Checker, scale: usize, mut random: Random, now: Time) -> Self {
        World {
            now,
            clock: BrokerClock::new(now),
            sequence: 0,
            queue: BTreeMap::new(),
            broker: MqttBroker::new(config, random.next(), now),
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

    /// The wall clock of the broker's machine steps, forward or back; the broker is not told, and
    /// its clock makes of that what it does.
    pub fn step_wall(&mut self, nanos: i64) {
        self.clock.step_wall(self.now, nanos);
    }

    /// What the broker's clock says.
    fn broker_now(&self) -> Time {
        self.clock.read(self.now)
    }

    /// Keeps another number of entries of what happens, at least one, for the story of a failure.
    pub fn keep(&mut self, entries: usize) {
        self.trace = Trace::new(entries);
    }

    /// From now on what the broker says is tampered with.
    pub fn tamper(&mut self, tamper: &'a mut dyn Tamper) {
        self.tamper = Some(tamper);
    }

    /// Adds a client that comes and goes as it likes over links of that kind.
    pub fn add(&mut self, client: Client, link: Profile) {
        self.add_at(client, link, None);
    }

    /// Adds a cell: whose clients share an access link.
    pub fn add_cell(&mut self, shape: Shape) -> usize {
        self.cells.push(Cell::new(shape));
        self.cells.len() - 1
    }

    /// As [`World::add`], at the far end of the access link of a cell, if one is named.
    pub fn add_at(&mut self, client: Client, link: Profile, cell: Option<usize>) {
        self.seats.push(Seat { client, link, cell, line: None, scheduled: None });
        self.schedule_wake(self.seats.len() - 1);
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What the checker has found.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }

    /// The broker's own account of itself.
    pub fn stats(&self) -> Stats {
        self.broker.stats()
    }

    /// What happened.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Lets time pass, and ends early when a rule is broken or the checker cannot tell any more.
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
            // What is due at this very moment may not have been done yet.
            let settled = self.broker.next_deadline().is_none_or(|(at, _)| at > self.broker_now());
            if self.now >= self.gauges_at && settled {
                self.gauges_at = self.now + GAUGES_EVERY;
                self.clock.look_at_wall(self.now);
                self.look_at_gauges();
            }
        }
        self.now = until;
    }

    /// Whether no rule was broken, and it can be told whether one is.
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

    /// Everything owed must have come by now.
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

    /// Calls the broker, carries away what it says, and writes what it wants written.
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
        // What waited for a stalled reader has arrived in the past.
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
