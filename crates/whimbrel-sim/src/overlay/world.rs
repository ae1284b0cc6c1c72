//! A world of many brokers: the net between them, their clients, and the book.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use whimbrel_event::Time;
use whimbrel_mqtt::{Config, MqttBroker};

use super::book::{Book, Rule};
use super::client::{Client, Role};
use super::deed::Deed;
use super::logs::Log;
use super::net::Fabric;
use crate::engine::BuiltIn;
use crate::random::Random;
use crate::rig::START;

/// A change to brokers or connections at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Everything that the flagged ends of an edge send is lost.
    Cut(usize, [bool; 2]),
    /// The edge is no longer cut.
    Heal(usize),
    /// The connection of an edge breaks.
    Reset(usize),
    /// A process ends; the flag: whether others are told.
    Crash(usize, bool),
    /// A process is started on a machine without one, with its clock ahead by this many
    /// nanoseconds.
    Start(usize, i64),
}

/// Called for each broker that is started.
type Starter<'a> = Box<dyn Fn(&mut MqttBroker) + 'a>;

/// See the module's documentation.
pub(super) struct World<'a> {
    pub(super) net: Fabric,
    pub(super) clients: Vec<Client>,
    pub(super) book: Book,
    pub(super) random: Random,
    wakes: BTreeSet<(Time, usize)>,
    /// The faults to come, soonest last.
    faults: Vec<(Time, Fault)>,
    config: Config,
    starter: Starter<'a>,
    /// Logs are on engines, with such a fault; `None`: there are none.
    pub(super) engines: Option<BuiltIn>,
    is_calm: bool,
    digest: u64,
    story: Option<(usize, VecDeque<String>)>,
}

impl<'a> World<'a> {
    pub(super) fn new(seed: u64, config: Config, kept: Option<usize>, starter: Starter<'a>) -> World<'a> {
        let mut random = Random::new(seed ^ 0x6f_7665_726c_6179);
        World {
            net: Fabric::new(START, random.fork()),
            clients: Vec::new(),
            book: Book::default(),
            random,
            wakes: BTreeSet::new(),
            faults: Vec::new(),
            config,
            starter,
            engines: None,
            is_calm: false,
            digest: 0xcbf2_9ce4_8422_2325,
            story: kept.map(|kept| (kept, VecDeque::new())),
        }
    }

    /// Adds a machine with a broker and a witness.
    #[cfg(test)]
    pub(super) fn add_node(&mut self, ahead: i64) -> usize {
        self.add_machine(ahead, None)
    }

    /// Adds a machine, perhaps with a disk, with a broker and a witness.
    pub(super) fn add_machine(&mut self, ahead: i64, log: Option<Log>) -> usize {
        let node = self.net.add_node(ahead);
        if log.is_some() {
            self.book.disks.insert(node);
        }
        self.net.nodes[node].log = log;
        self.net.start(node, self.config.clone(), &self.starter);
        let witness = Client::new(format!("w{node}"), node, Role::Witness, self.random.fork(), self.net.now);
        self.add(witness);
        node
    }

    pub(super) fn add(&mut self, client: Client) -> usize {
        self.clients.push(client);
        self.clients.len() - 1
    }

    /// Replaces the faults to come.
    pub(super) fn plan(&mut self, mut faults: Vec<(Time, Fault)>) {
        // Faults of one moment keep the order in which they were planned.
        faults.sort_by_key(|(at, _)| *at);
        faults.reverse();
        self.faults = faults;
    }

    pub(super) fn now(&self) -> Time {
        self.net.now
    }

    /// Clients change nothing any more, and those that are away return. Publishers continue.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        let now = self.now();
        for client in &mut self.clients {
            if !client.is_connected() {
                client.wake = Some(now);
            }
        }
    }

    /// Publishers publish nothing more.
    pub(super) fn hush(&mut self) {
        for client in &mut self.clients {
            client.hush();
        }
    }

    /// All publishers publish once.
    pub(super) fn publish_all(&mut self) {
        for number in 0..self.clients.len() {
            if matches!(self.clients[number].role, Role::Publisher(_)) {
                let mut deeds = Vec::new();
                self.clients[number].publish(&mut self.net, &mut deeds);
                self.settle(number, deeds);
                self.tell();
            }
        }
    }

    /// Runs the world until a moment.
    pub(super) fn run_until(&mut self, until: Time) {
        loop {
            self.wakes =
                self.clients.iter().zip(0..).filter_map(|(client, number)| Some((client.wake?, number))).collect();
            if !self.run_part(until) {
                break;
            }
        }
        self.net.now = self.net.now.max(until);
    }

    /// Runs the world until a moment; `false`: nothing more is due by then.
    fn run_part(&mut self, until: Time) -> bool {
        loop {
            let wake = self.wakes.first().copied();
            let fault = self.faults.last().map(|(at, _)| *at);
            let net = self.net.next();
            let Some(at) = [wake.map(|(at, _)| at), fault, net].into_iter().flatten().min().filter(|at| *at <= until)
            else {
                return false;
            };
            if fault == Some(at) {
                let (_, fault) = self.faults.pop().expect("just seen");
                self.net.now = self.net.now.max(at);
                self.happen(fault);
            } else if net == Some(at) {
                self.net.step();
            } else {
                let (_, number) = wake.expect("something is due");
                self.net.now = self.net.now.max(at);
                self.wakes.pop_first();
                let mut deeds = Vec::new();
                self.clients[number].act(&mut self.net, number, self.is_calm, &mut deeds);
                self.settle(number, deeds);
                self.rewake(number);
            }
            self.tell();
        }
    }

    fn rewake(&mut self, number: usize) {
        self.wakes.retain(|(_, known)| *known != number);
        if let Some(at) = self.clients[number].wake {
            self.wakes.insert((at, number));
        }
    }

    /// Clients receive what brokers sent them.
    fn tell(&mut self) {
        while let Some((number, told)) = self.net.told.pop_front() {
            let mut deeds = Vec::new();
            let before = self.clients[number].wake;
            self.clients[number].hear(&mut self.net, told, &mut deeds);
            if self.clients[number].wake != before {
                self.rewake(number);
            }
            self.settle(number, deeds);
        }
        for node in core::mem::take(&mut self.net.owners.ended) {
            let process = self.net.process(node);
            self.book.breaks(Rule::Takeover, format!("the log of {process:?} has ended, and nobody has taken it"));
            self.happen(Fault::Crash(node, true));
            self.happen(Fault::Start(node, 0));
        }
    }

    /// Tells the book what a client did and received.
    fn settle(&mut self, number: usize, deeds: Vec<Deed>) {
        let now = self.net.now;
        for deed in deeds {
            self.digest_of(now, number, &deed);
            let client = &self.clients[number];
            let at = (client.node, self.net.nodes[client.node].life);
            if let Some((kept, story)) = &mut self.story {
                if story.len() >= *kept {
                    story.pop_front();
                }
                let text = deed.words();
                let after = now.since(START).as_secs_f64();
                story.push_back(format!("{after:>12.6} {}@{}.{}: {text}", client.name, at.0, at.1));
            }
            match (&client.role, deed) {
                (Role::Witness, Deed::Heard(crate::speech::Heard::Publish(message))) => {
                    self.book.witnessed(at, &message);
                }
                (Role::Collector, Deed::Heard(crate::speech::Heard::Publish(message))) => {
                    self.book.collected(at.0, &message);
                }
                (Role::Witness | Role::Collector, _) => {}
                (_, deed) => {
                    self.book.shown = self.net.nodes[at.0].clock(now);
                    self.book.note(now, (number, &client.name), at, deed);
                }
            }
        }
    }

    fn digest_of(&mut self, now: Time, number: usize, deed: &Deed) {
        let mut mix = |value: u64| self.digest = (self.digest ^ value).wrapping_mul(0x0100_0000_01b3);
        mix(now.as_nanos());
        mix(number as u64);
        if let Deed::Heard(crate::speech::Heard::Publish(message)) = deed {
            message.payload.iter().take(32).for_each(|byte| mix(u64::from(*byte)));
        }
    }

    /// The digest of the run: equal for two runs in which the same happened.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// The last things that happened, one line each.
    pub(super) fn story(&self) -> String {
        let lines = self.story.iter().flat_map(|(_, story)| story);
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn tell_story(&mut self, text: &str) {
        let after = self.net.now.since(START).as_secs_f64();
        if let Some((_, story)) = &mut self.story {
            story.push_back(format!("{after:>12.6} {text}"));
        }
    }

    pub(super) fn happen(&mut self, fault: Fault) {
        self.tell_story(&format!("{fault:?}"));
        match fault {
            Fault::Cut(edge, sides) => self.net.cut(edge, sides),
            Fault::Heal(edge) => self.net.heal(edge),
            Fault::Reset(edge) => self.net.reset(edge),
            Fault::Crash(node, is_told) => {
                if self.net.is_up(node) {
                    self.book.crashed((node, self.net.nodes[node].life));
                    self.net.crash(node, is_told);
                    self.tell();
                }
            }
            Fault::Start(node, ahead) => {
                if !self.net.is_up(node) {
                    if self.net.nodes[node].log.is_none() {
                        self.net.nodes[node].clock.ahead = ahead;
                    }
                    self.net.start(node, self.config.clone(), &self.starter);
                    // The witness connects before all other clients.
                    let witness = self.clients.iter().position(|client| client.name == format!("w{node}"));
                    let witness = witness.expect("each machine has a witness");
                    let mut deeds = Vec::new();
                    self.clients[witness].act(&mut self.net, witness, self.is_calm, &mut deeds);
                    self.settle(witness, deeds);
                    self.tell();
                }
            }
        }
    }

    /// Connects a collector at every broker.
    pub(super) fn collect(&mut self) {
        for node in 0..self.net.nodes.len() {
            let collector = Client::new(format!("r{node}"), node, Role::Collector, self.random.fork(), self.net.now);
            self.add(collector);
        }
        self.run_until(self.net.now + Duration::from_secs(3));
    }
}
