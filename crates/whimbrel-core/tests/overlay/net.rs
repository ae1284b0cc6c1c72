//! Several cores, joined by links that deliver after a delay, in order.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_core::{Broker, Channel, Input, Limits, OverlayConfig, PeerInput, PeerLink};
use whimbrel_event::{Domains, HostId, Time};
use whimbrel_wire::Frame;

use crate::common::START;
use crate::common::side::Side;
use crate::disk::Durable;
use whimbrel_core::store::Fetched;

pub struct Node {
    pub core: Broker,
    pub side: Side,
    /// How far its clock is ahead of the world's clock.
    pub ahead: Duration,
    /// The durable part of its log, if it has one: every write is durable at once.
    pub disk: Option<Durable>,
    /// Its disk does nothing until this time.
    pub stalls_until: Time,
    pub is_dead: bool,
    /// It is about to end, and nothing more goes out on its links.
    is_mute: bool,
}

impl Node {
    fn new(core: Broker, disk: Option<Durable>) -> Node {
        let (side, ahead, stalls_until) = (Side::default(), Duration::ZERO, Time::ZERO);
        Node { core, side, ahead, disk, stalls_until, is_dead: false, is_mute: false }
    }
}

struct Wire {
    ends: [(usize, PeerLink); 2],
    delay: Duration,
    is_cut: bool,
}

/// Whether a frame that a broker sends on a way is lost.
type Drops = Box<dyn FnMut(usize, Channel, &[u8]) -> bool>;

pub struct Net {
    pub nodes: Vec<Node>,
    pub now: Time,
    wires: Vec<Wire>,
    flying: VecDeque<(Time, usize, PeerLink, Channel, Vec<u8>)>,
    next_link: u32,
    /// Frames for which it is true are dropped.
    pub drops: Drops,
    /// By broker: the domains that it is in; without an entry none.
    pub domains: Vec<Domains>,
    /// Bytes that frames are searched for; empty: they are not.
    pub marked: Vec<u8>,
    /// The links, by sender and receiver, over which a broker has sent a frame with these bytes.
    pub crossings: BTreeSet<(usize, usize)>,
}

/// The frame that a broker sends to a link, behind its length.
pub fn frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let length = bytes.iter().position(|byte| *byte < 0x80)?;
    Frame::decode(&bytes[length + 1..]).ok()
}

pub fn config(name: &str) -> OverlayConfig {
    OverlayConfig {
        name: name.into(),
        version: format!("of {name}").into(),
        addresses: Vec::new(),
        interest_max: 256,
        expects_peers: true,
        links_wanted: 0,
        surcharges: Default::default(),
        domains: Default::default(),
        routing: whimbrel_core::Routing::default(),
        pace: whimbrel_core::Pace::DEFAULT,
        moves_sessions: true,
    }
}

impl Net {
    /// Brokers `b0`, `b1`, … without links.
    pub fn new(count: usize) -> Net {
        let nodes = (0..count).map(|number| Net::node(number, number as u64 + 7, START)).collect();
        let drops = Box::new(|_: usize, _: Channel, _: &[u8]| false);
        Net {
            nodes,
            now: START,
            wires: Vec::new(),
            flying: VecDeque::new(),
            next_link: 0,
            drops,
            domains: Vec::new(),
            marked: Vec::new(),
            crossings: BTreeSet::new(),
        }
    }

    pub fn node(number: usize, seed: u64, now: Time) -> Node {
        let mut core = Broker::new(Limits::default(), seed, now);
        core.open_overlay(now, config(&format!("b{number}")));
        Node::new(core, None)
    }

    /// Another broker takes the place of one without links: it has a log, and a clock of its own.
    pub fn replace(&mut self, number: usize, ahead: Duration) {
        let node = Net::logged(number, number as u64 + 7, self.now.after(ahead), Durable::default());
        self.nodes[number] = Node { ahead, ..node };
    }

    /// A broker with a log.
    fn logged(number: usize, seed: u64, now: Time, disk: Durable) -> Node {
        let mut core = disk.core(&Limits::default(), seed, now);
        core.open_overlay(now, config(&format!("b{number}")));
        Node::new(core, Some(disk))
    }

    /// Brokers with logs, in these domains, without links. `change` is made before they are opened.
    pub fn placed(domains: &[&str], change: impl Fn(&mut Broker)) -> Net {
        let mut net = Net::new(0);
        for domains in domains {
            let names = domains.split(',').filter(|name| !name.is_empty());
            net.domains.push(Domains::of(names).expect("valid names"));
            let number = net.nodes.len();
            let node = net.in_domains(number, number as u64 + 7, Durable::default(), &change);
            net.nodes.push(node);
        }
        net
    }

    fn in_domains(&self, number: usize, seed: u64, disk: Durable, change: impl Fn(&mut Broker)) -> Node {
        let mut core = disk.core(&Limits::default(), seed, self.now);
        change(&mut core);
        let domains = self.domains[number].clone();
        core.open_overlay(self.now, OverlayConfig { domains, ..config(&format!("b{number}")) });
        Node::new(core, Some(disk))
    }

    /// A broker with a log ends, and is there again at once, in its present domains and without
    /// links.
    pub fn renew(&mut self, number: usize, change: impl Fn(&mut Broker)) {
        self.close_all(number);
        self.now = self.now.after(Duration::from_millis(1));
        let disk = self.nodes[number].disk.take().expect("it has a log");
        self.nodes[number] = self.in_domains(number, self.now.as_nanos(), disk, change);
    }

    /// Brokers with logs, each linked to each other.
    pub fn mesh(count: usize) -> Net {
        Net::mesh_within(count, &Limits::default())
    }

    /// The same, with these limits.
    pub fn mesh_within(count: usize, limits: &Limits) -> Net {
        let mut net = Net::new(count);
        for number in 0..count {
            let disk = Durable::default();
            let mut core = disk.core(limits, number as u64 + 7, START);
            core.open_overlay(START, config(&format!("b{number}")));
            net.nodes[number] = Node::new(core, Some(disk));
            for other in 0..number {
                net.join(other, number, Duration::from_millis(1));
            }
        }
        net.advance(Duration::from_secs(3));
        net
    }

    /// A broker is killed: its links end.
    pub fn kill(&mut self, number: usize) {
        self.end_links(number, true);
        self.nodes[number].is_dead = true;
    }

    /// A broker ends in good order, as in the server: its clients have left, it waits until its
    /// sessions are handed over, at most `limit`, and its frames arrive.
    pub fn end(&mut self, number: usize, limit: Duration) {
        let until = self.now.after(limit);
        while self.now < until && !self.nodes[number].core.is_handed_over() {
            self.advance(Duration::from_millis(5));
        }
        self.nodes[number].is_mute = true;
        let last = self.flying.back().map_or(Duration::ZERO, |(at, ..)| at.since(self.now));
        self.advance(last);
        self.kill(number);
    }

    /// A broker dies, and its links send nothing more: others have to find out.
    pub fn kill_silently(&mut self, number: usize) {
        self.end_links(number, false);
        self.nodes[number].is_dead = true;
    }

    fn end_links(&mut self, number: usize, is_told: bool) {
        for wire in 0..self.wires.len() {
            let ends = self.wires[wire].ends;
            if self.wires[wire].is_cut || !ends.iter().any(|(node, _)| *node == number) {
                continue;
            }
            self.cut(wire);
            for (node, link) in ends.into_iter().filter(|_| is_told) {
                if node != number {
                    self.peer(node, PeerInput::Closed { link });
                }
            }
        }
    }

    /// A killed broker resumes with its disk, or with another one, and is linked with all living
    /// ones.
    pub fn revive(&mut self, number: usize, with_disk: bool) {
        self.now = self.now.after(Duration::from_millis(50));
        let disk = self.nodes[number].disk.take().filter(|_| with_disk).unwrap_or_default();
        self.nodes[number] = Net::logged(number, self.now.as_nanos(), self.now, disk);
        self.link_all(number);
    }

    /// Frames between two brokers take `delay` from now on.
    pub fn delay(&mut self, pair: [usize; 2], delay: Duration) {
        let is_it = |wire: &Wire| pair.iter().all(|node| wire.ends.iter().any(|(end, _)| end == node));
        self.wires.iter_mut().filter(|wire| is_it(wire)).for_each(|wire| wire.delay = delay);
    }

    /// Links a broker with all other living ones that it has no link to.
    pub fn link_all(&mut self, number: usize) {
        for other in 0..self.nodes.len() {
            let is_it = |wire: &Wire| {
                let nodes = wire.ends.map(|(node, _)| node);
                !wire.is_cut && nodes.contains(&number) && nodes.contains(&other)
            };
            if other != number && !self.nodes[other].is_dead && !self.wires.iter().any(is_it) {
                self.join(number, other, Duration::from_millis(1));
            }
        }
    }

    /// Makes all pending writes of a broker durable, and serves its pending reads.
    fn serve_disk(&mut self, node: usize) {
        let Node { core, side, disk, ahead, stalls_until, .. } = &mut self.nodes[node];
        let Some(disk) = disk.as_mut().filter(|_| *stalls_until <= self.now) else { return };
        let now = self.now.after(*ahead);
        loop {
            core.flush(now);
            let mut upto = None;
            while let Some((number, writes)) = Durable::taken(core) {
                writes.into_iter().for_each(|write| disk.apply(write));
                upto = Some(number);
            }
            if let Some(upto) = upto {
                core.handle(now, Input::Committed { upto }, side);
            }
            let mut has_read = false;
            while let Some(fetch) = core.fetch() {
                has_read = true;
                let records = disk.streams.get(&fetch.stream).into_iter().flatten();
                let wanted = records.filter(|(tick, _)| **tick > fetch.after && **tick <= fetch.upto);
                let found: Vec<_> = wanted.map(|(tick, body)| (*tick, body.as_slice())).collect();
                let fetched = Fetched { number: fetch.number, records: &found, upto: fetch.upto, lost: None };
                core.handle(now, Input::Fetched(fetched), side);
            }
            if upto.is_none() && !has_read {
                return;
            }
        }
    }

    /// A line of brokers, each linked to the next.
    pub fn line(count: usize) -> Net {
        let mut net = Net::new(count);
        for number in 1..count {
            net.join(number - 1, number, Duration::from_millis(1));
        }
        net.advance(Duration::from_secs(2));
        net
    }

    /// Links two brokers; returns the number of the link.
    pub fn join(&mut self, one: usize, other: usize, delay: Duration) -> usize {
        let ends = [one, other].map(|node| {
            self.next_link += 1;
            (node, PeerLink(self.next_link))
        });
        self.wires.push(Wire { ends, delay, is_cut: false });
        for (end, (node, link)) in ends.into_iter().enumerate() {
            self.peer(node, PeerInput::Opened { link, dialed: end == 0, name: None });
        }
        self.wires.len() - 1
    }

    /// The brokers at the ends of a link, and its name at each.
    pub fn ends(&self, wire: usize) -> [(usize, PeerLink); 2] {
        self.wires[wire].ends
    }

    /// Sets the unsent bytes on a way.
    pub fn room(&mut self, node: usize, link: PeerLink, channel: Channel, unsent: usize) {
        self.nodes[node].side.unsent.insert((link, channel as usize), unsent);
        self.peer(node, PeerInput::Room { link, channel, unsent });
    }

    /// Frames on a link are lost, and its ends are not told.
    pub fn cut(&mut self, wire: usize) {
        self.wires[wire].is_cut = true;
        let ends = self.wires[wire].ends;
        self.flying.retain(|(_, node, link, ..)| !ends.contains(&(*node, *link)));
    }

    /// A link ends, as its connection does.
    pub fn close(&mut self, wire: usize) {
        self.cut(wire);
        for (node, link) in self.wires[wire].ends {
            self.peer(node, PeerInput::Closed { link });
        }
    }

    /// All links of a broker end.
    pub fn close_all(&mut self, number: usize) {
        let is_its = |wire: &Wire| !wire.is_cut && wire.ends.iter().any(|(node, _)| *node == number);
        let wires: Vec<usize> = (0..self.wires.len()).filter(|wire| is_its(&self.wires[*wire])).collect();
        wires.into_iter().for_each(|wire| self.close(wire));
    }

    /// All links between two brokers end.
    pub fn part(&mut self, pair: [usize; 2]) {
        let is_it = |wire: &Wire| !wire.is_cut && pair.iter().all(|node| wire.ends.iter().any(|(end, _)| end == node));
        let wires: Vec<usize> = (0..self.wires.len()).filter(|wire| is_it(&self.wires[*wire])).collect();
        wires.into_iter().for_each(|wire| self.close(wire));
    }

    /// A broker is killed, and another process takes its place, without its state.
    pub fn restart(&mut self, number: usize, seed: u64) {
        for wire in 0..self.wires.len() {
            let ends = self.wires[wire].ends;
            if self.wires[wire].is_cut || !ends.iter().any(|(node, _)| *node == number) {
                continue;
            }
            self.cut(wire);
            for (node, link) in ends {
                if node != number {
                    self.peer(node, PeerInput::Closed { link });
                }
            }
        }
        self.nodes[number] = Net::node(number, seed, self.now);
    }

    fn peer(&mut self, node: usize, input: PeerInput<'_>) {
        self.input(node, Input::Peer(input));
    }

    pub fn input(&mut self, node: usize, input: Input<'_>) {
        if self.nodes[node].is_dead {
            return;
        }
        let Node { core, side, ahead, .. } = &mut self.nodes[node];
        core.handle(self.now.after(*ahead), input, side);
        self.serve_disk(node);
        self.carry(node);
    }

    /// Asks another broker a question; tells whether it could.
    pub fn ask_broker(&mut self, node: usize, to: HostId, question: (u64, &str)) -> bool {
        let Node { core, side, ahead, .. } = &mut self.nodes[node];
        let is_sent = core.ask_broker(self.now.after(*ahead), to, question, side);
        self.carry(node);
        is_sent
    }

    /// Answers another broker's question; tells whether it could.
    pub fn answer_broker(&mut self, node: usize, to: HostId, answer: (u64, &str)) -> bool {
        let Node { core, side, ahead, .. } = &mut self.nodes[node];
        let is_sent = core.answer_broker(self.now.after(*ahead), to, answer, side);
        self.carry(node);
        is_sent
    }

    /// Carries the frames that a broker sent to its links.
    fn carry(&mut self, node: usize) {
        while let Some((link, channel, bytes)) = self.nodes[node].side.said.pop_front() {
            let Some(wire) = self.wires.iter().find(|wire| wire.ends.contains(&(node, link))) else { continue };
            let (to, far) = if wire.ends[0] == (node, link) { wire.ends[1] } else { wire.ends[0] };
            if wire.is_cut || self.nodes[node].is_mute || (self.drops)(node, channel, &bytes) {
                continue;
            }
            let is_marked = |part: &[u8]| part == self.marked;
            if !self.marked.is_empty() && bytes.windows(self.marked.len()).any(is_marked) {
                self.crossings.insert((node, to));
            }
            let at = self.now.after(wire.delay);
            let place = self.flying.partition_point(|(other, ..)| *other <= at);
            self.flying.insert(place, (at, to, far, channel, bytes));
        }
        for (link, _) in core::mem::take(&mut self.nodes[node].side.hung_up) {
            let Some(wire) = self.wires.iter().position(|wire| wire.ends.contains(&(node, link))) else { continue };
            if self.wires[wire].is_cut {
                continue;
            }
            self.cut(wire);
            let ends = self.wires[wire].ends;
            let (to, far) = if ends[0] == (node, link) { ends[1] } else { ends[0] };
            self.peer(to, PeerInput::Closed { link: far });
        }
    }

    fn next(&self) -> Option<Time> {
        let deadline = |node: &Node| {
            let (at, _) = node.core.next_deadline()?;
            let nanos = at.as_nanos().saturating_sub(node.ahead.as_nanos() as u64);
            Some(Time::from_nanos(nanos).max(self.now))
        };
        let flying = self.flying.front().map(|(at, ..)| *at);
        let alive = self.nodes.iter().filter(|node| !node.is_dead);
        let stalls = alive.clone().map(|node| node.stalls_until).filter(|until| *until > self.now);
        alive.filter_map(deadline).chain(stalls).chain(flying).min()
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: Duration) {
        let end = self.now.after(span);
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.now = at;
            if self.flying.front().is_some_and(|(due, ..)| *due <= at) {
                let (_, node, link, channel, bytes) = self.flying.pop_front().expect("it was there");
                self.peer(node, PeerInput::Bytes { link, channel, bytes: &bytes });
                continue;
            }
            for node in 0..self.nodes.len() {
                let Node { core, ahead, stalls_until, is_dead, .. } = &self.nodes[node];
                let is_due = core.next_deadline().is_some_and(|(at, _)| at <= self.now.after(*ahead));
                if !is_dead && (is_due || *stalls_until == self.now) {
                    self.input(node, Input::Deadline);
                }
            }
        }
        self.now = end;
    }
}
