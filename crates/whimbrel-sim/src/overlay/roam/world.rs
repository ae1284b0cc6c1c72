//! A world of roaming clients: the net, the clients, and the book.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_core::{Persistence, Profile};
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, MqttBroker};

use super::book::Book;
use super::client::{Client, Role};
use super::deed::Deed;
use super::owners::Ownership;
use super::web::Reach;
use crate::overlay::book::Rule;
use crate::overlay::logs::Log;
use crate::overlay::net::Fabric;
use crate::random::Random;
use crate::rig::START;
use crate::speech::Heard;
use crate::trunk::Side;
use crate::wan::WanProfile;

/// A change to brokers or connections at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Everything that the flagged ends of an edge send is lost.
    Cut(usize, [bool; 2]),
    /// The edge is as it was at first.
    Heal(usize),
    /// What one end of an edge sends passes over such a path.
    Disturb(usize, Side, WanProfile),
    /// The connection of an edge breaks.
    Reset(usize),
    /// A process ends; the flag: whether others are told.
    Crash(usize, bool),
    /// A process stands still for this long.
    Still(usize, Duration),
    /// A process is started on a machine without one. Its clock has stepped by this many
    /// nanoseconds; the flag: its disk is lost.
    Start(usize, i64, bool),
    /// The successor of a process begins on a machine with such a step, while the process goes on.
    Succeed(usize, i64),
    /// The engine does not answer a process for this long.
    Silence(usize, Duration),
}

/// A world has fewer steps; more are a violation.
const STEPS_MAX: u64 = 3_000_000;

/// Called for each broker that is started.
type Starter<'a> = Box<dyn Fn(&mut MqttBroker) + 'a>;

/// See the module's documentation.
pub(super) struct World<'a> {
    pub(super) net: Fabric,
    pub(super) clients: Vec<Client>,
    pub(super) book: Book,
    pub(super) random: Random,
    /// Links become bad, and nothing else breaks; all topics have a deadline, all clocks drift.
    pub(super) is_disturbed: bool,
    pub(super) ownership: Ownership,
    /// The number of each machine's disk.
    disks: Vec<u32>,
    /// The faults to come, soonest last.
    faults: Vec<(Time, Fault)>,
    config: Config,
    pub(super) profiles: Vec<Profile>,
    starter: Starter<'a>,
    steps: u64,
    is_calm: bool,
    is_hushed: bool,
    digest: u64,
    story: Option<(usize, VecDeque<String>)>,
}

impl<'a> World<'a> {
    pub(super) fn new(
        seed: u64,
        (config, profiles): (Config, Vec<Profile>),
        kept: Option<usize>,
        starter: Starter<'a>,
    ) -> World<'a> {
        let mut random = Random::new(seed ^ 0x726f_616d);
        let mut net = Fabric::new(START, random.fork());
        net.logged = Some(Vec::new());
        let book = Book::new(config.core.max_retain.is_some());
        World {
            net,
            clients: Vec::new(),
            book,
            random,
            is_disturbed: false,
            ownership: Ownership::default(),
            disks: Vec::new(),
            faults: Vec::new(),
            config,
            profiles,
            starter,
            steps: 0,
            is_calm: false,
            is_hushed: false,
            digest: 0xcbf2_9ce4_8422_2325,
            story: kept.map(|kept| (kept, VecDeque::new())),
        }
    }

    /// Adds a machine with a disk, a broker and a witness.
    pub(super) fn add_machine(&mut self, ahead: i64) {
        let node = self.net.add_node(ahead);
        self.net.nodes[node].log = Some(self.new_log());
        self.book.names.push(self.net.nodes[node].name.clone());
        self.disks.push(0);
        self.net.start(node, self.config.clone(), &self.starter);
        self.note_begun(node);
        self.add(format!("w{node}"), node, Role::Witness, self.net.now);
    }

    pub(super) fn add(&mut self, name: String, node: usize, role: Role, wake: Time) {
        let number = self.clients.len();
        if let Role::Subscriber(life) = &role {
            self.book.open(number, &name, life.keeper, life.wish.clone());
        }
        let random = self.random.fork();
        self.clients.push(Client::new(name, (number, node), role, random, wake));
    }

    /// Replaces the faults to come.
    pub(super) fn plan(&mut self, mut faults: Vec<(Time, Fault)>) {
        faults.sort_by_key(|(at, _)| *at);
        faults.reverse();
        self.faults = faults;
    }

    /// Whether some events are never logged.
    pub(super) fn has_volatile(&self) -> bool {
        self.profiles.iter().any(|profile| profile.persistence == Persistence::Volatile)
    }

    pub(super) fn now(&self) -> Time {
        self.net.now
    }

    /// Clients move no more, and those that are away return. Publishers continue.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        let now = self.now();
        for client in &mut self.clients {
            client.wake = client.wake.map_or(Some(now), |wake| Some(wake.min(now + Duration::from_secs(1))));
        }
    }

    /// Publishers publish nothing more; those that are away return and send unacknowledged events
    /// again.
    pub(super) fn hush(&mut self) {
        self.is_hushed = true;
    }

    /// All publishers publish once.
    pub(super) fn publish_all(&mut self) {
        for number in 0..self.clients.len() {
            let mut deeds = Vec::new();
            self.clients[number].publish(&mut self.net, &mut deeds);
            self.settle(number, deeds);
            self.tell();
        }
    }

    /// Runs the world until a moment.
    pub(super) fn run_until(&mut self, until: Time) {
        loop {
            let wakes = self.clients.iter().enumerate().filter_map(|(number, client)| Some((client.wake?, number)));
            let wake = wakes.min();
            let fault = self.faults.last().map(|(at, _)| *at);
            let net = self.net.next();
            let next = [wake.map(|(at, _)| at), fault, net].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            self.steps += 1;
            if self.steps == STEPS_MAX {
                self.book.breaks(Rule::Bounds, "the world goes on and on".to_owned());
            }
            if self.steps >= STEPS_MAX {
                break;
            }
            if fault == Some(at) {
                let (_, fault) = self.faults.pop().expect("just seen");
                self.net.now = self.net.now.max(at);
                self.happen(fault);
            } else if net == Some(at) {
                self.net.step();
            } else {
                let (_, number) = wake.expect("something is due");
                self.net.now = self.net.now.max(at);
                self.wake(number);
            }
            self.tell();
        }
        self.net.now = self.net.now.max(until);
    }

    fn wake(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if self.is_hushed && matches!(client.role, Role::Publisher(_)) && client.is_welcome() {
            client.wake = None;
            return;
        }
        let mut deeds = Vec::new();
        client.act(&mut self.net, self.is_calm, &mut deeds);
        self.settle(number, deeds);
    }

    /// Clients receive what brokers sent them, and the book what was written.
    fn tell(&mut self) {
        self.book.troubles.web.look(&self.net);
        self.book.troubles.hearing.look_at_heard(&self.net);
        self.book.troubles.stall(self.net.stalls.drain(..));
        self.book.troubles.stills.append(&mut self.net.stills);
        while let Some((place, told)) = self.net.told.pop_front() {
            let (number, slot) = (place / 2, place % 2);
            let mut deeds = Vec::new();
            self.clients[number].hear(&mut self.net, (slot, told), &mut deeds);
            self.settle(number, deeds);
        }
        let logged = self.net.logged.as_mut().map(core::mem::take).unwrap_or_default();
        for (node, (pubend, tick, record)) in logged {
            let machine = self.net.machine_of(node);
            self.book.logged((machine, self.disks[machine]), (pubend, tick, &record));
        }
        self.end_owners();
    }

    /// Tells the book what a client did and received.
    fn settle(&mut self, number: usize, deeds: Vec<Deed>) {
        let now = self.net.now;
        for deed in deeds {
            self.digest_of(now, number, &deed);
            let client = &self.clients[number];
            let (node, at) = (client.node, self.net.process(client.node));
            if self.story.is_some() {
                let text = format!("{}@{}.{}: {}", client.name, at.0, at.1, deed.words());
                self.tell_story(&text);
            }
            let client = &self.clients[number];
            match (&client.role, deed) {
                (Role::Witness, Deed::Takes(message)) => self.book.witnessed(at, &message),
                (Role::Witness, _) => {}
                (_, deed) => {
                    let net = &self.net;
                    self.book.note(now, (number, at), deed, Reach { net, node });
                }
            }
        }
    }

    fn digest_of(&mut self, now: Time, number: usize, deed: &Deed) {
        let mut mix = |value: u64| self.digest = (self.digest ^ value).wrapping_mul(0x0100_0000_01b3);
        mix(now.as_nanos());
        mix(number as u64);
        match deed {
            Deed::Takes(message) => message.payload.iter().take(32).for_each(|byte| mix(u64::from(*byte))),
            Deed::Heard(Heard::Connack { code, .. }) => mix(u64::from(*code)),
            _ => {}
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
        if let Some((kept, story)) = &mut self.story {
            if story.len() >= *kept {
                story.pop_front();
            }
            story.push_back(format!("{after:>12.6} {text}"));
        }
    }

    pub(super) fn happen(&mut self, fault: Fault) {
        self.tell_story(&format!("{fault:?}"));
        let now = self.net.now;
        match fault {
            Fault::Cut(edge, sides) => {
                self.net.cut(edge, sides);
                self.book.troubles.cuts.push(now);
            }
            Fault::Heal(edge) => self.net.heal(edge),
            Fault::Disturb(edge, side, profile) => return self.net.disturb(edge, side, profile),
            Fault::Reset(edge) => {
                self.net.reset(edge);
                self.book.troubles.cuts.push(now);
            }
            Fault::Crash(node, is_told) if self.net.is_up(node) => {
                self.book.troubles.ends.insert(self.net.process(node), now);
                self.note_heard(node);
                self.net.crash(node, is_told);
            }
            Fault::Start(node, step, loses) if !self.net.is_up(node) => self.start(node, step, loses),
            Fault::Still(node, span) => return self.net.stand_still(node, now + span),
            Fault::Succeed(node, step) => self.succeed(node, step),
            Fault::Silence(node, span) => {
                self.silence(node, now + span);
                return;
            }
            Fault::Crash(..) | Fault::Start(..) => return,
        }
        let is_down = (0..self.net.nodes.len()).any(|node| self.net.is_up(node) != (node < self.net.machines()));
        let is_cut = self.net.edges.iter().any(|edge| edge.is_cut.contains(&true));
        self.book.troubles.set(now, is_down || is_cut);
        self.tell();
    }

    /// Tells the book which host a machine's new broker is.
    fn note_begun(&mut self, node: usize) {
        if let Some(broker) = &self.net.nodes[node].broker {
            self.book.troubles.begin((node, self.disks[node]), broker.core().host());
        }
    }

    /// Tells the book of which hosts a machine's broker has heard.
    pub(super) fn note_heard(&mut self, node: usize) {
        if let Some(broker) = &self.net.nodes[node].broker {
            self.book.troubles.hear(self.net.machine_of(node), broker.core());
        }
    }

    pub(super) fn start(&mut self, node: usize, step: i64, loses: bool) {
        let now = self.net.now;
        // What is on an engine is not lost with a disk.
        if loses && self.ownership.engines.is_none() {
            self.disks[node] += 1;
            let log = Log::new(self.profiles.clone(), self.random.fork());
            self.net.nodes[node].log = Some(log);
            self.book.troubles.losses.push((now, node));
        }
        self.net.nodes[node].clock.ahead += step;
        self.net.start(node, self.config.clone(), &self.starter);
        self.note_begun(node);
        self.book.troubles.begins.insert((node, self.net.nodes[node].life), now);
        // The witness connects before all other clients.
        let witness = self.clients.iter().position(|client| client.name == format!("w{node}"));
        self.wake(witness.expect("each machine has a witness"));
    }
}
