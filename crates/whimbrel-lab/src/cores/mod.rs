//! Brokers' cores in virtual time, for experiments: linked by the broker's own overlay over links
//! of fixed delays, or of delay, loss and rate that change by a schedule ([`wire`]); each with its
//! own processor that is busy for as long as its operations cost, and with a log if it is to have
//! one.
//!
//! Simpler than the worlds of `whimbrel-sim`, which look for faults: the cores are told of unsent
//! bytes only where a link has a rate ([`driver`]), clients call the core without MQTT, and a disk
//! does not fail. Clients tell an experiment what it wants to know through [`Clients`].

mod birth;
pub mod costs;
mod door;
pub mod drift;
mod driver;
mod give;
mod links;
mod log;
pub mod meter;
pub mod tape;
pub mod wire;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use whimbrel_core::store::Fetched;
use whimbrel_core::{
    Broker, CacheInterest, Channel, Durability, Input, Link, Output, Pace, PeerLink, Profile, Routing,
};
use whimbrel_event::{CheckpointToken, Event, Qos, Time};
use whimbrel_selector::Selector;

use birth::Birth;
use costs::Costs;
use door::{Door, Links};
use drift::ClockDrift;
use give::give;
use log::{Log, Slice};
use meter::{Kind, Meter, events_come};
use tape::{Replayed, Tape};
use wire::Wire;

/// The start of every simulation.
pub const START: Time = Time::from_nanos(1_700_000_000_000_000_000);

/// The receiver of the cores' output.
pub trait Clients: Output {
    /// Tells the time and the broker of the output that follows.
    fn at(&mut self, now: Time, node: usize);
}

/// A subscriber's request.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The topic filter.
    pub filter: Cow<'static, str>,
    /// The selector of events.
    pub selector: Option<Selector>,
    /// The events that it receives from the time when it is not connected.
    pub durability: Durability,
    /// The quality of service.
    pub qos: Qos,
    /// The position where it begins, if not its session's.
    pub from: Option<CheckpointToken>,
    /// Whether the client keeps its position.
    pub by_token: bool,
    /// Whether gaps are told.
    pub notices: bool,
}

/// A client's request to its broker.
#[derive(Clone, Debug)]
pub enum Ask {
    /// The client connects. `lasting`: how long its session outlives the connection; zero: it
    /// begins a new session.
    Attach {
        /// The name of the connection.
        link: Link,
        /// The client's name.
        client: String,
        /// How long the session outlives the connection.
        lasting: Duration,
        /// Unsettled deliveries, at most.
        window: u16,
    },
    /// Its connection ends.
    Detach(Link),
    /// The client subscribes.
    Subscribe(Link, Box<Wish>),
    /// The client publishes, with a packet identifier.
    Publish(Link, u16, Event),
    /// The client acknowledges the position of its only subscription that keeps it by token.
    Acknowledge(Link, Box<CheckpointToken>),
    /// The client takes more.
    Writable(Link),
}

/// An input of a broker.
#[derive(Clone, Debug)]
enum Task {
    Ask(Ask),
    Bytes(PeerLink, Channel, Vec<u8>),
    Room(PeerLink, Channel, usize),
    Opened(PeerLink, bool),
    Closed(PeerLink),
    Committed,
    Read,
    Deadline,
}

/// An action at a moment; for a process that has ended, nothing.
#[derive(Debug)]
enum What {
    Task(usize, u32, Task),
    Wake(usize, u32),
    Redial(usize),
    /// The driver of a side of a wire is served.
    Serve(usize, usize),
}

struct Node {
    name: String,
    core: Option<Broker>,
    /// The number of its process.
    life: u32,
    log: Option<Log>,
    /// The interests cached for itself, and the division of the cache.
    buffer: Vec<CacheInterest>,
    cache: Option<whimbrel_core::cache::Plan>,
    /// Until when its processor is busy, and how long it has been busy in all.
    free: Time,
    busy: Duration,
    inbox: VecDeque<Task>,
    is_waking: bool,
    /// The planned deadline.
    due: Option<Time>,
    moves_sessions: bool,
    routing: Routing,
    pace: Pace,
    profiles: Vec<Profile>,
    drift: ClockDrift,
    tape: Option<Tape>,
}

/// See the module's documentation.
pub struct Cores {
    /// The present time.
    pub now: Time,
    nodes: Vec<Node>,
    wires: Vec<Wire>,
    /// By end that is up: the wire.
    by_end: BTreeMap<(usize, PeerLink), usize>,
    /// The meter of processor times; `None`: not measured.
    pub meter: Option<Meter>,
    agenda: BTreeMap<(Time, u64), What>,
    next: u64,
    next_link: u32,
    costs: Costs,
    seed: u64,
}

/// The properties of a broker.
#[derive(Debug, Default)]
pub struct Setup {
    /// How long a commit of its log takes; `None`: it has no log.
    pub commit: Option<Duration>,
    /// The interests that it caches for itself.
    pub buffer: Vec<CacheInterest>,
    /// The division of its cache; `None`: the default.
    pub cache: Option<whimbrel_core::cache::Plan>,
    /// Whether sessions move to the broker to which their client connects; the same at all brokers.
    pub moves_sessions: bool,
    /// How it chooses paths.
    pub routing: Routing,
    /// How fast it measures links, tells of them and follows them.
    pub pace: Pace,
    /// The profiles of topics.
    pub profiles: Vec<Profile>,
    /// The rate of its clock.
    pub drift: ClockDrift,
    /// Whether its input is recorded until it ends: see [`Cores::replay`]. It has no log then.
    pub is_recorded: bool,
}

impl Cores {
    /// A world without brokers, whose processors have these costs.
    pub fn new(costs: Costs, seed: u64) -> Cores {
        Cores {
            now: START,
            nodes: Vec::new(),
            wires: Vec::new(),
            by_end: BTreeMap::new(),
            meter: None,
            agenda: BTreeMap::new(),
            next: 0,
            next_link: 0,
            costs,
            seed,
        }
    }

    /// Adds a running broker, and returns its number.
    pub fn add(&mut self, setup: Setup) -> usize {
        let Setup { commit, buffer, cache, moves_sessions, routing, pace, profiles, drift, is_recorded } = setup;
        assert!(commit.is_none() || !is_recorded, "what a log gives is not recorded");
        let number = self.nodes.len();
        self.nodes.push(Node {
            name: format!("b{number}"),
            core: None,
            life: 0,
            log: commit.map(Log::new),
            buffer,
            cache,
            free: self.now,
            busy: Duration::ZERO,
            inbox: VecDeque::new(),
            is_waking: false,
            due: None,
            moves_sessions,
            routing,
            pace,
            profiles,
            drift,
            tape: is_recorded.then(Tape::default),
        });
        self.boot(number);
        number
    }

    fn boot(&mut self, number: usize) {
        let (now, expects_peers) = (self.now, number > 0 || !self.wires.is_empty());
        self.seed += 1;
        let node = &mut self.nodes[number];
        let birth = Birth { seed: self.seed, at: node.drift.shown_at(now), expects_peers };
        node.core = Some(node.born(birth));
        node.free = now;
        if let Some(tape) = &mut node.tape {
            tape.begin(birth);
        }
        self.after_turn(number);
    }

    /// A broker's process is killed. Its links end, except those that are cut, and its clients are
    /// gone.
    pub fn kill(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        (node.core, node.due, node.is_waking) = (None, None, false);
        node.life += 1;
        node.inbox.clear();
        if let Some(log) = &mut node.log {
            log.crash();
        }
        for wire in 0..self.wires.len() {
            let Wire { ends, is_up, .. } = self.wires[wire];
            if is_up && let Some(side) = ends.iter().position(|(node, _)| *node == number) {
                self.close(wire, side);
            }
        }
    }

    /// A broker is started again with the contents of its log, and its links come up.
    pub fn start(&mut self, number: usize) {
        self.boot(number);
        let down: Vec<usize> = (0..self.wires.len()).filter(|wire| !self.wires[*wire].is_up).collect();
        down.into_iter().for_each(|wire| self.raise(wire));
    }

    /// A broker's core.
    ///
    /// # Panics
    /// If it does not run.
    pub fn core(&self, number: usize) -> &Broker {
        self.nodes[number].core.as_ref().expect("it runs")
    }

    /// Replays the input of a broker's process so far to another core like it, which has this
    /// thread's processor to itself. The recording ends.
    ///
    /// # Panics
    /// If the broker is not recorded.
    pub fn replay(&mut self, number: usize, from: Time) -> Replayed {
        let tape = self.nodes[number].tape.take().expect("it is recorded");
        let node = &self.nodes[number];
        tape.play(|birth| node.born(birth), from)
    }

    /// Events that the broker has logged, in all its incarnations.
    pub fn logged(&self, number: usize) -> u64 {
        self.nodes[number].log.as_ref().map_or(0, |log| log.events)
    }

    /// How long its processor has been busy so far.
    pub fn busy(&self, number: usize) -> Duration {
        self.nodes[number].busy
    }

    /// A client sends a request to a broker, which has it at once.
    pub fn ask(&mut self, number: usize, ask: Ask, clients: &mut impl Clients) {
        if self.nodes[number].core.is_some() {
            self.arrive(number, Task::Ask(ask), clients);
        }
    }

    fn plan(&mut self, at: Time, number: usize, task: Task) {
        self.next += 1;
        let life = self.nodes[number].life;
        self.agenda.insert((at, self.next), What::Task(number, life, task));
    }

    /// When the next action is due.
    pub fn next(&self) -> Option<Time> {
        self.agenda.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets time pass until a moment.
    pub fn run_until(&mut self, end: Time, clients: &mut impl Clients) {
        while self.next().is_some_and(|at| at <= end) {
            self.step(clients);
        }
        self.now = end;
    }

    /// Does the next action.
    pub fn step(&mut self, clients: &mut impl Clients) {
        let Some(((at, _), what)) = self.agenda.pop_first() else { return };
        self.now = at;
        match what {
            What::Task(number, life, task) if self.nodes[number].life == life => {
                if matches!(task, Task::Deadline) && self.nodes[number].due != Some(at) {
                    return;
                }
                self.arrive(number, task, clients);
            }
            What::Wake(number, life) if self.nodes[number].life == life => {
                self.nodes[number].is_waking = false;
                self.work(number, clients);
            }
            What::Redial(wire) => self.redial(wire),
            What::Serve(wire, side) => self.serve(wire, side),
            What::Task(..) | What::Wake(..) => {}
        }
    }

    fn arrive(&mut self, number: usize, task: Task, clients: &mut impl Clients) {
        self.nodes[number].inbox.push_back(task);
        self.work(number, clients);
    }

    /// Does waiting work, as far as the processor is free.
    fn work(&mut self, number: usize, clients: &mut impl Clients) {
        loop {
            let node = &mut self.nodes[number];
            if node.free > self.now {
                if !node.is_waking && !node.inbox.is_empty() {
                    node.is_waking = true;
                    self.next += 1;
                    self.agenda.insert((node.free, self.next), What::Wake(number, node.life));
                }
                return;
            }
            let Some(task) = node.inbox.pop_front() else { return };
            self.turn(number, task, clients);
        }
    }

    /// One input of a core, and its consequences.
    fn turn(&mut self, number: usize, task: Task, clients: &mut impl Clients) {
        let node = &mut self.nodes[number];
        let Some(core) = &mut node.core else { return };
        let now = node.drift.shown_at(self.now);
        if let Some(tape) = &mut node.tape {
            tape.keep(now, &task);
        }
        let spent = cost_of(&self.costs, &task);
        let measured = self.meter.as_ref().map(|_| (Kind::of(&task), events_come(core), Meter::clock()));
        if matches!(task, Task::Deadline) {
            node.due = None;
        }
        let (said, hung_up) = (Vec::new(), Vec::new());
        let links = Links { wires: &mut self.wires, by_end: &self.by_end, given: Vec::new() };
        let (costs, began) = (&self.costs, self.now);
        let mut door = Door { clients, node: number, costs, began, spent, links, said, hung_up };
        match task {
            Task::Committed => {
                let upto = node.log.as_mut().and_then(Log::committed);
                if let Some(upto) = upto {
                    core.handle(now, Input::Committed { upto }, &mut door);
                }
            }
            Task::Read => {
                if let Some(Slice { number, records, upto }) = node.log.as_mut().and_then(Log::read) {
                    let records: Vec<_> = records.iter().map(|(tick, body)| (*tick, body.as_slice())).collect();
                    let fetched = Fetched { number, records: &records, upto, lost: None };
                    core.handle(now, Input::Fetched(fetched), &mut door);
                }
            }
            task => give(core, now, task, &mut door),
        }
        let Door { said, hung_up, spent, links: Links { given, .. }, .. } = door;
        if let (Some(meter), Some((kind, events, began))) = (&mut self.meter, measured) {
            let spent = meter.since(began);
            let is_event = kind == Kind::Silence && events_come(core) > events;
            meter.add(number, if is_event { Kind::Event } else { kind }, spent);
        }
        node.free = self.now + spent;
        node.busy += spent;
        said.into_iter().for_each(|said| self.carry(number, said));
        given.into_iter().for_each(|(wire, side)| self.serve(wire, side));
        for link in hung_up {
            self.end(number, link);
        }
        self.after_turn(number);
    }

    /// Writes what a core wants written, and plans its next deadline.
    fn after_turn(&mut self, number: usize) {
        let now = self.now;
        let node = &mut self.nodes[number];
        let Some(core) = &mut node.core else { return };
        core.flush(node.drift.shown_at(now));
        let mut tasks = Vec::new();
        if let Some(log) = &mut node.log {
            let (begins, reads) = log.take(core);
            tasks.extend(begins.then_some(Task::Committed));
            tasks.extend((0..reads).map(|_| Task::Read));
        }
        let takes = node.log.as_ref().map_or(Duration::ZERO, Log::takes);
        let due = core.next_deadline().map(|(at, _)| node.drift.reaches(at).max(now));
        let is_new = due != node.due;
        node.due = due;
        if let Some(at) = due.filter(|_| is_new) {
            self.plan(at, number, Task::Deadline);
        }
        tasks.into_iter().for_each(|task| self.plan(now + takes, number, task));
    }
}

/// The cost of a task before it has any output.
fn cost_of(costs: &Costs, task: &Task) -> Duration {
    match task {
        Task::Ask(Ask::Publish(..)) => costs.publish,
        Task::Ask(Ask::Acknowledge(..)) => costs.acknowledge,
        Task::Bytes(_, Channel::Urgent | Channel::Reliable, _) => costs.receive,
        _ => Duration::ZERO,
    }
}
