//! Brokers and the connections between them: the work of a broker's driver, in virtual time.
//!
//! Clients reach a broker without delay. Each broker has its own clock, which differs from the
//! world's by a constant.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use whimbrel_core::overlay::INTEREST_MAX;
use whimbrel_core::overlay::OverlayStats;
use whimbrel_core::{HangUp, OverlayConfig};
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Origin};

use super::book::Process;
use super::clock::MachineClock;
use super::door::{Door, Told};
use super::line::{Edge, Line};
use super::logs::{Log, Prepare, TopicTerms, diskless};
use super::owners::Owners;
use super::still::{Source, Still};
use crate::digests::Digests;
use crate::disk::Logged;
use crate::plain_ways;
use crate::random::Random;
use crate::trunk::Side;

/// How many things may happen at one moment before the world counts as stuck.
const AT_ONCE_MAX: u32 = 200_000;

/// A machine, with or without a running broker.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) broker: Option<MqttBroker>,
    /// The number of its process, from 1.
    pub(super) life: u32,
    pub(super) clock: MachineClock,
    /// By connection: the client that has it.
    pub(super) conns: Vec<Option<usize>>,
    /// By link: the line, and this broker's side of it.
    pub(super) peers: Vec<Option<(usize, Side)>>,
    /// Its disk, if it has one.
    pub(super) log: Option<Log>,
    /// Bytes of clients that the broker has not taken yet, as it has too much to write.
    pub(super) held: VecDeque<(ConnId, Vec<u8>)>,
    /// Set while the machine does not schedule the process.
    pub(super) still: Option<Still>,
    /// Sources that it has ended itself since it continued, while it is still given what had
    /// waited.
    pub(super) ended: Option<Vec<Source>>,
    /// The machine whose broker it was, if that has a successor.
    pub(super) former_of: Option<usize>,
}

impl Node {
    pub(super) fn clock(&self, now: Time) -> Time {
        self.clock.at(now)
    }
}

/// A thing that acts at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Item {
    Node(usize),
    /// The disk of a broker.
    Disk(usize),
    Line(usize),
    Edge(usize),
    /// A broker that stands still continues.
    Still(usize),
    /// The other end of a line learns that it has ended.
    End(usize),
    /// A broker asks whether its log still belongs to it.
    Beat(usize),
}

/// Counters of the connections between brokers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Connections that were opened.
    pub dialed: u64,
    /// Connections that a broker ended.
    pub hung_up: u64,
    /// The most bytes that were unsent on one way of one connection.
    pub unsent: usize,
}

/// See the module's documentation.
pub(super) struct Fabric {
    pub(super) now: Time,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    pub(super) lines: BTreeMap<usize, Line>,
    pub(super) next_line: usize,
    agenda: BTreeSet<(Time, Item)>,
    planned: BTreeMap<Item, Time>,
    /// Output for clients, in order.
    pub(super) told: VecDeque<(usize, Told)>,
    pub(super) traffic: Traffic,
    /// Digests of everything that brokers have sent.
    pub(super) digests: Digests,
    /// When connections stalled, as packets were lost again and again.
    pub(super) stalls: Vec<(Time, Time)>,
    /// When processes stood still.
    pub(super) stills: Vec<(Time, Time)>,
    /// Between which processes connections were made.
    pub(super) met: Vec<[Process; 2]>,
    /// Why brokers have ended connections, in order of [`HangUp::ALL`].
    pub(super) hang_ups: [u64; HangUp::ALL.len()],
    /// Whether sessions move between brokers.
    pub(super) moves_sessions: bool,
    /// Entries of the interest that a broker tells, at most.
    pub(super) interest_max: usize,
    /// How brokers divide their caches; `None`: as by default.
    pub(super) cache: Option<whimbrel_core::cache::Plan>,
    /// The counters of processes that have ended.
    past: Vec<OverlayStats>,
    /// Records of events that became durable, each with its machine; `None`: not collected.
    pub(super) logged: Option<Vec<(usize, Logged)>>,
    /// Who owns the logs that are on an engine.
    pub(super) owners: Owners,
    /// What holds for all topics.
    pub(super) terms: TopicTerms,
    pub(super) prepare: Box<Prepare>,
    pub(super) random: Random,
    at_once: u32,
}

impl Fabric {
    pub(super) fn new(now: Time, random: Random) -> Fabric {
        Fabric {
            now,
            nodes: Vec::new(),
            edges: Vec::new(),
            lines: BTreeMap::new(),
            next_line: 0,
            agenda: BTreeSet::new(),
            planned: BTreeMap::new(),
            told: VecDeque::new(),
            traffic: Traffic::default(),
            digests: Digests::default(),
            stalls: Vec::new(),
            stills: Vec::new(),
            met: Vec::new(),
            hang_ups: Default::default(),
            moves_sessions: true,
            interest_max: INTEREST_MAX,
            cache: None,
            past: Vec::new(),
            logged: None,
            owners: Owners::default(),
            terms: TopicTerms::default(),
            prepare: Box::new(|_| {}),
            random,
            at_once: 0,
        }
    }

    /// Adds a machine without a broker.
    pub(super) fn add_node(&mut self, ahead: i64) -> usize {
        let name = format!("b{}", self.nodes.len());
        let (conns, peers) = (Vec::new(), Vec::new());
        let held = VecDeque::new();
        let (still, ended) = (None, None);
        self.nodes.push(Node {
            name,
            broker: None,
            life: 0,
            clock: MachineClock { ahead, ppm: 0 },
            conns,
            peers,
            log: None,
            held,
            still,
            ended,
            former_of: None,
        });
        self.nodes.len() - 1
    }

    /// Adds a connection that is to be kept open.
    pub(super) fn add_edge(&mut self, mut edge: Edge) -> usize {
        edge.dial_at = self.now + self.random.span(Duration::from_millis(100));
        self.edges.push(edge);
        let number = self.edges.len() - 1;
        self.plan_edge(number);
        number
    }

    /// Starts a process that knows only what its log has, if it has one.
    pub(super) fn start(&mut self, node: usize, mut config: Config, change: impl FnOnce(&mut MqttBroker)) {
        config.sys_interval = None;
        let seed = self.random.next();
        let now = self.nodes[node].clock(self.now);
        let terms = self.terms;
        let mut broker = match &mut self.nodes[node].log {
            Some(log) => log.with_terms(terms).open(config, (seed, now), &self.prepare),
            None => diskless(config, seed, now, terms),
        };
        broker = plain_ways::set_up(broker);
        change(&mut broker);
        let (addresses, expects_peers, moves_sessions) = (vec![], self.nodes.len() > 1, self.moves_sessions);
        let overlay = OverlayConfig {
            name: self.nodes[node].name.as_str().into(),
            version: "".into(),
            addresses,
            interest_max: self.interest_max,
            expects_peers,
            links_wanted: 0,
            surcharges: Default::default(),
            domains: Default::default(),
            routing: whimbrel_core::Routing::default(),
            pace: whimbrel_core::Pace::DEFAULT,
            moves_sessions,
        };
        broker.open_overlay(now, overlay);
        self.nodes[node].broker = Some(broker);
        self.nodes[node].life += 1;
        if let Some(plan) = self.cache.clone() {
            self.handle(node, Input::Cache(&plan));
        }
        self.submit(node);
        self.plan_node(node);
        self.begin_beats(node);
    }

    /// Ends a process without DISCONNECT or hang-up. `is_told`: its machine stays up, and the
    /// others learn that the connections are gone.
    pub(super) fn crash(&mut self, node: usize, is_told: bool) {
        let known = &mut self.nodes[node];
        let Some(broker) = known.broker.take() else { return };
        self.past.extend(broker.core().overlay_stats());
        known.held.clear();
        known.still = None;
        if let Some(log) = &mut known.log {
            log.crash();
        }
        let clients: Vec<usize> = known.conns.iter().flatten().copied().collect();
        known.conns.clear();
        let ends: Vec<(usize, Side)> = core::mem::take(&mut known.peers).into_iter().flatten().collect();
        self.told.extend(clients.into_iter().map(|client| (client, Told::Closed)));
        for (number, side) in ends {
            self.let_go(number, side);
            let Some(line) = self.lines.get_mut(&number).filter(|_| !is_told) else { continue };
            // The other end finds out by itself; meanwhile another connection may be opened.
            [Side::Near, Side::Far].into_iter().for_each(|side| line.trunk.cut(side));
            let edge = line.edge;
            self.unplan(Item::End(number));
            self.edges[edge].line = None;
            self.edges[edge].dial_at = self.now + self.edges[edge].pause;
            self.plan_edge(edge);
        }
        self.unplan(Item::Node(node));
        self.unplan(Item::Disk(node));
        self.unplan(Item::Still(node));
        self.unplan(Item::Beat(node));
    }

    pub(super) fn is_up(&self, node: usize) -> bool {
        self.nodes[node].broker.is_some()
    }

    /// The sum of a counter over all processes, ended ones included.
    pub(super) fn sum(&self, part: impl Fn(&OverlayStats) -> u64 + Copy) -> u64 {
        let present = self.nodes.iter().filter_map(|node| node.broker.as_ref()?.core().overlay_stats());
        present.map(|stats| part(&stats)).sum::<u64>() + self.past.iter().map(part).sum::<u64>()
    }

    /// The sum of a counter over all present links.
    pub(super) fn sum_of_links(&self, part: impl Fn(&whimbrel_core::overlay::LinkInfo) -> u64) -> u64 {
        let links = self.nodes.iter().filter_map(|node| Some(node.broker.as_ref()?.core().links()));
        links.flatten().map(|link| part(&link)).sum()
    }

    /// A client connects to a broker that is up.
    pub(super) fn open(&mut self, node: usize, client: usize) -> ConnId {
        // A broker that stands still does not know yet that a connection has ended.
        let is_free = |conn: &Option<usize>| conn.is_none() && self.nodes[node].still.is_none();
        let conns = &self.nodes[node].conns;
        let place = conns.iter().position(is_free).unwrap_or(conns.len());
        let conns = &mut self.nodes[node].conns;
        if place == conns.len() {
            conns.push(None);
        }
        conns[place] = Some(client);
        let conn = ConnId(place as u32);
        self.handle(node, Input::Opened { conn, origin: Origin::Tcp });
        conn
    }

    /// A client sends bytes.
    pub(super) fn say(&mut self, node: usize, conn: ConnId, bytes: &[u8]) {
        if self.is_congested(node) {
            return self.nodes[node].held.push_back((conn, bytes.to_vec()));
        }
        self.handle(node, Input::Bytes { conn, bytes });
    }

    /// A client's connection ends without DISCONNECT.
    pub(super) fn close(&mut self, node: usize, conn: ConnId) {
        self.nodes[node].held.retain(|(of, _)| *of != conn);
        if self.nodes[node].conns.get_mut(conn.0 as usize).is_some_and(|place| place.take().is_some()) {
            self.handle(node, Input::Closed { conn });
        }
    }

    pub(super) fn handle(&mut self, node: usize, input: Input<'_>) {
        if self.keeps(node, &input) {
            return;
        }
        self.handle_once(node, input);
        self.submit(node);
    }

    /// Gives a broker an input, without submitting what it wants written.
    pub(super) fn handle_once(&mut self, node: usize, input: Input<'_>) {
        let known = &mut self.nodes[node];
        let now = known.clock(self.now);
        let Some(broker) = known.broker.as_mut() else { return };
        let mut door = Door {
            now: self.now,
            node,
            digests: &mut self.digests,
            conns: &known.conns,
            peers: &known.peers,
            lines: &mut self.lines,
            told: &mut self.told,
            touched: BTreeSet::new(),
            hang_ups: Vec::new(),
            closed: Vec::new(),
            drained: Vec::new(),
            unsent: 0,
        };
        broker.handle(now, input, &mut door);
        let Door { touched, hang_ups, closed, drained, unsent, .. } = door;
        self.traffic.unsent = self.traffic.unsent.max(unsent);
        for conn in closed {
            known.conns[conn.0 as usize] = None;
            if let Some(ended) = &mut known.ended {
                ended.push(Source::Client(conn));
            }
            known.held.retain(|(of, _)| *of != conn);
        }
        for (link, why) in hang_ups {
            self.traffic.hung_up += 1;
            self.hang_ups[why as usize] += 1;
            if let Some(ended) = &mut self.nodes[node].ended {
                ended.push(Source::Link(link));
            }
            // The broker has not learned yet of a line that ended while it stood still.
            let Some((number, side)) = self.nodes[node].peers[link.0 as usize].take() else { continue };
            let line = self.lines.get_mut(&number).expect("a link has a line");
            if why == HangUp::Itself {
                self.edges[line.edge].is_loop = true;
            }
            self.let_go(number, side);
        }
        touched.into_iter().for_each(|number| self.plan_line(number));
        self.plan_node(node);
        for conn in drained {
            if self.nodes[node].conns.get(conn.0 as usize).is_some_and(Option::is_some) {
                self.handle(node, Input::Drained { conn });
            }
        }
    }

    /// One end of a line is gone; the other learns of it after the delay.
    pub(super) fn let_go(&mut self, number: usize, side: Side) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        line.is_open[side as usize] = false;
        let at = self.now + line.delay(side);
        if !line.is_open[side.other() as usize] {
            self.end_line(number);
        } else if !self.planned.contains_key(&Item::End(number)) {
            self.plan(Item::End(number), Some(at));
        }
    }

    fn end_line(&mut self, number: usize) {
        let Some(line) = self.lines.remove(&number) else { return };
        self.unplan(Item::Line(number));
        self.unplan(Item::End(number));
        let edge = &mut self.edges[line.edge];
        if edge.line != Some(number) {
            return;
        }
        edge.line = None;
        if self.now.since(line.opened) > super::line::STEADY {
            edge.pause = super::line::PAUSE_MIN;
        }
        edge.dial_at = self.now + edge.pause + self.random.span(edge.pause / 4);
        edge.pause = (edge.pause * 2).min(super::line::PAUSE_MAX);
        self.plan_edge(line.edge);
    }

    pub(super) fn plan(&mut self, item: Item, at: Option<Time>) {
        if let Some(at) = at {
            let at = at.max(self.now);
            match self.planned.insert(item, at) {
                Some(old) if old == at => return,
                Some(old) => self.agenda.remove(&(old, item)),
                None => true,
            };
            self.agenda.insert((at, item));
        } else {
            self.unplan(item);
        }
    }

    pub(super) fn unplan(&mut self, item: Item) {
        if let Some(old) = self.planned.remove(&item) {
            self.agenda.remove(&(old, item));
        }
    }

    /// When a thing acts.
    pub(super) fn planned_at(&self, item: Item) -> Option<Time> {
        self.planned.get(&item).copied()
    }

    pub(super) fn plan_node(&mut self, node: usize) {
        let known = &self.nodes[node];
        let at = known.broker.as_ref().and_then(|broker| broker.next_deadline()).map(|(at, _)| known.clock.world(at));
        self.plan(Item::Node(node), at);
    }

    pub(super) fn plan_line(&mut self, number: usize) {
        if let Some(line) = self.lines.get(&number) {
            let at = line.trunk.next_event();
            self.plan(Item::Line(number), at);
        }
    }

    pub(super) fn plan_edge(&mut self, number: usize) {
        let edge = &self.edges[number];
        let at = (edge.line.is_none() && !edge.is_loop).then_some(edge.dial_at);
        self.plan(Item::Edge(number), at);
    }

    /// When something next happens by itself.
    pub(super) fn next(&self) -> Option<Time> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Does the next thing, which is due.
    pub(super) fn step(&mut self) {
        let Some((at, item)) = self.agenda.pop_first() else { return };
        self.planned.remove(&item);
        self.at_once = if at > self.now { 0 } else { self.at_once + 1 };
        assert!(self.at_once < AT_ONCE_MAX, "{item:?} goes on and on in one moment");
        self.now = self.now.max(at);
        match item {
            Item::Node(node) => self.handle(node, Input::Deadline),
            Item::Disk(node) if self.nodes[node].still.is_some() => {}
            Item::Disk(node) => self.disk_changed(node),
            Item::Still(node) => self.go_on(node),
            Item::Line(number) => self.poll(number),
            Item::Edge(number) => self.dial(number),
            Item::Beat(node) => self.beat(node),
            Item::End(number) => {
                if let Some(line) = self.lines.get_mut(&number) {
                    line.trunk.reset(self.now);
                    self.plan_line(number);
                }
            }
        }
    }
}
