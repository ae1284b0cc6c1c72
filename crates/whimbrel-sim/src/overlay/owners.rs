//! Logs on an engine, and who owns them: a broker's successor may begin elsewhere while its former
//! process goes on, with its clients and links, until it learns that its log has been taken.
//!
//! A former process is a node behind those of the machines. It dials on, and clients may reach it.

use std::collections::BTreeSet;
use std::time::Duration;

use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use super::book::Process;
use super::door::Told;
use super::logs::Log;
use super::net::{Fabric, Item, Node};
use crate::random::Random;

/// How often a process asks whether its log still belongs to it.
pub(super) const BEAT: Duration = Duration::from_secs(2);

/// How soon it asks again after a question without an answer.
const BEAT_AGAIN: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Processes that end, as their log does not belong to them any more, or has failed.
    pub(super) ended: Vec<usize>,
    /// Former processes that clients do not reach.
    pub(super) lonely: BTreeSet<usize>,
    /// Whether processes do not look at what they are told about the owner of their log.
    pub(super) are_blind: bool,
}

impl Fabric {
    /// The number of machines: further nodes are former processes.
    pub(super) fn machines(&self) -> usize {
        self.nodes.iter().take_while(|node| node.former_of.is_none()).count()
    }

    /// Any machine.
    pub(super) fn any_machine(&self, random: &mut Random) -> usize {
        random.below(self.machines() as u64) as usize
    }

    /// The machine of a process, or of its successor.
    pub(super) fn machine_of(&self, node: usize) -> usize {
        self.nodes[node].former_of.unwrap_or(node)
    }

    /// The process of a node.
    pub(super) fn process(&self, node: usize) -> Process {
        (self.machine_of(node), self.nodes[node].life)
    }

    /// The former process of a machine that still runs.
    pub(super) fn former(&self, machine: usize) -> Option<usize> {
        (0..self.nodes.len()).find(|node| self.nodes[*node].former_of == Some(machine) && self.is_up(*node))
    }

    /// Which process a client reaches that looks for that of a machine: perhaps its former one.
    pub(super) fn door(&self, node: usize, random: &mut Random) -> usize {
        let machine = self.machine_of(node);
        let former = self.former(machine).filter(|former| !self.owners.lonely.contains(former));
        former.filter(|_| random.chance(500)).unwrap_or(machine)
    }

    /// From now on the process asks whether its log belongs to it, if that is on an engine.
    pub(super) fn begin_beats(&mut self, node: usize) {
        if self.nodes[node].log.as_ref().is_some_and(Log::is_on_engine) {
            self.plan(Item::Beat(node), Some(self.now + BEAT));
        }
    }

    /// A process asks whether its log belongs to it.
    pub(super) fn beat(&mut self, node: usize) {
        let now = self.now;
        let Some(driver) = self.nodes[node].log.as_mut().and_then(Log::driver) else { return };
        match driver.is_taken(now) {
            Some(true) if !self.owners.are_blind => self.owners.ended.push(node),
            Some(_) => self.plan(Item::Beat(node), Some(now + BEAT)),
            None => self.plan(Item::Beat(node), Some(now + BEAT_AGAIN)),
        }
    }

    /// A process is not answered by its engine until a moment; returns until when it is not, after
    /// all.
    pub(super) fn silence(&mut self, node: usize, until: Time) -> Time {
        let Some(driver) = self.nodes[node].log.as_mut().and_then(Log::driver) else { return until };
        let until = driver.silence(until);
        let next = driver.next_change();
        self.plan(Item::Disk(node), next);
        self.stalls.push((self.now, until));
        until
    }

    /// The process of a machine becomes a former one, with its clients, its links and its disk, and
    /// leaves the machine, which has another disk for the same log; returns its node.
    pub(super) fn succeed(&mut self, node: usize) -> usize {
        let former = self.nodes.len();
        let known = &mut self.nodes[node];
        let log = known.log.as_mut().map(Log::successor);
        let place = Node {
            name: known.name.clone(),
            broker: None,
            life: known.life,
            clock: known.clock,
            conns: Vec::new(),
            peers: Vec::new(),
            log,
            held: Default::default(),
            still: None,
            ended: None,
            former_of: None,
        };
        let mut process = core::mem::replace(known, place);
        process.former_of = Some(node);
        self.nodes.push(process);
        for (number, side) in self.nodes[former].peers.clone().into_iter().flatten() {
            let line = self.lines.get_mut(&number).expect("a link has a line");
            line.ends[side as usize].0 = former;
        }
        for number in 0..self.edges.len() {
            self.share_edge(number, (node, former));
        }
        for item in [Item::Node(node), Item::Disk(node), Item::Beat(node)] {
            let at = self.planned_at(item);
            self.plan(item.of(former), at);
            self.unplan(item);
        }
        former
    }

    /// The clients and links of a former process are cut off, and it is left with its engine.
    pub(super) fn leave_alone(&mut self, former: usize) {
        self.owners.lonely.insert(former);
        for place in 0..self.nodes[former].conns.len() {
            if let Some(client) = self.nodes[former].conns[place] {
                self.close(former, ConnId(place as u32));
                self.told.push_back((client, Told::Closed));
            }
        }
        for number in 0..self.edges.len() {
            if [self.edges[number].ends.0, self.edges[number].ends.1].contains(&former) {
                self.cut(number, [true; 2]);
            }
        }
    }

    /// An edge of a machine belongs to its new process, and an equal one to the former.
    fn share_edge(&mut self, number: usize, (node, former): (usize, usize)) {
        let edge = &mut self.edges[number];
        let (near, far) = edge.ends;
        if (near == node) == (far == node) {
            return;
        }
        let mut its = edge.clone();
        its.ends = if near == node { (former, far) } else { (near, former) };
        edge.line = None;
        edge.dial_at = self.now + edge.pause;
        self.edges.push(its);
        let new = self.edges.len() - 1;
        if let Some(line) = self.edges[new].line.and_then(|line| self.lines.get_mut(&line)) {
            line.edge = new;
        }
        self.plan_edge(number);
        self.plan_edge(new);
    }
}

impl Item {
    /// The same of another node.
    fn of(self, node: usize) -> Item {
        match self {
            Item::Node(_) => Item::Node(node),
            Item::Disk(_) => Item::Disk(node),
            Item::Beat(_) => Item::Beat(node),
            other => other,
        }
    }
}
