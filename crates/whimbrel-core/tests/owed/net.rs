//! Several cores with logs, joined by links that deliver after a delay, in order.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::overlay::{NotForgotten, OverlayStats};
use whimbrel_core::store::{BatchNo, Fetched, StreamName};
use whimbrel_core::{
    Attach, Broker, Channel, Filter, Input, Limits, Link, OverlayConfig, PeerInput, PeerLink, Publish, Settlement,
};
use whimbrel_event::{Qos, Time};

use crate::common::side::Side;
use crate::common::{Client, Got, START, Told, event};
use crate::disk::{Durable, Kept, kept, restoring};

pub struct Node {
    pub core: Broker,
    pub side: Side,
    pub disk: Durable,
    pending: VecDeque<(BatchNo, Vec<Kept>)>,
    /// The broker is down: frames to it are lost.
    pub is_down: bool,
    /// Its disk is slow: nothing becomes durable.
    pub is_stuck: bool,
    /// Its disk reads nothing for now.
    pub reads_nothing: bool,
    /// Filter records cannot be read.
    pub is_damaged: bool,
    /// Events that were written.
    pub logged: usize,
}

struct Wire {
    ends: [(usize, PeerLink); 2],
    is_cut: bool,
}

pub struct Net {
    pub nodes: Vec<Node>,
    pub now: Time,
    pub limits: Limits,
    /// Sessions move between brokers.
    moves_sessions: bool,
    wires: Vec<Wire>,
    flying: VecDeque<(Time, usize, PeerLink, Channel, Vec<u8>)>,
    next_link: u32,
    next_seed: u64,
}

const DELAY: Duration = Duration::from_millis(1);

impl Net {
    /// Brokers `b0`, `b1`, … of which each is linked to the next.
    pub fn line(count: usize) -> Net {
        Net::with(count, Limits::default())
    }

    pub fn with(count: usize, limits: Limits) -> Net {
        Net::new(count, limits, false).settled()
    }

    /// Brokers that have begun at this moment.
    pub fn young(count: usize) -> Net {
        Net::new(count, Limits::default(), false)
    }

    /// Brokers between which sessions move.
    pub fn moving(count: usize) -> Net {
        Net::new(count, Limits::default(), true).settled()
    }

    /// Waits until all brokers know each other.
    fn settled(mut self) -> Net {
        self.advance(Duration::from_secs(2));
        self
    }

    fn new(count: usize, limits: Limits, moves_sessions: bool) -> Net {
        let nodes = Vec::new();
        let (wires, flying) = (Vec::new(), VecDeque::new());
        let mut net = Net { nodes, now: START, limits, moves_sessions, wires, flying, next_link: 0, next_seed: 7 };
        for number in 0..count {
            let node = net.open(number, Durable::default());
            net.nodes.push(node);
        }
        for number in 1..count {
            net.join(number - 1, number);
        }
        net
    }

    fn open(&mut self, number: usize, disk: Durable) -> Node {
        self.next_seed += 1;
        let restoring = restoring(&disk);
        let mut core = restoring.finish(self.limits.clone(), self.next_seed, self.now, &disk.state()).expect("sense");
        let config = OverlayConfig {
            name: format!("b{number}").into(),
            version: "".into(),
            addresses: Vec::new(),
            interest_max: 256,
            expects_peers: true,
            links_wanted: 0,
            surcharges: Default::default(),
            domains: Default::default(),
            routing: whimbrel_core::Routing::default(),
            pace: whimbrel_core::Pace::DEFAULT,
            moves_sessions: self.moves_sessions,
        };
        core.open_overlay(self.now, config);
        let (side, pending) = (Side::default(), VecDeque::new());
        Node {
            core,
            side,
            disk,
            pending,
            is_down: false,
            is_stuck: false,
            reads_nothing: false,
            is_damaged: false,
            logged: 0,
        }
    }

    pub fn join(&mut self, one: usize, other: usize) -> usize {
        let ends = [one, other].map(|node| {
            self.next_link += 1;
            (node, PeerLink(self.next_link))
        });
        self.wires.push(Wire { ends, is_cut: false });
        for (end, (node, link)) in ends.into_iter().enumerate() {
            self.input(node, Input::Peer(PeerInput::Opened { link, dialed: end == 0, name: None }));
        }
        self.wires.len() - 1
    }

    /// The links of a broker end.
    pub fn part(&mut self, number: usize) {
        for wire in 0..self.wires.len() {
            let ends = self.wires[wire].ends;
            if self.wires[wire].is_cut || !ends.iter().any(|(node, _)| *node == number) {
                continue;
            }
            self.wires[wire].is_cut = true;
            self.flying.retain(|(_, node, link, ..)| !ends.contains(&(*node, *link)));
            for (node, link) in ends {
                self.input(node, Input::Peer(PeerInput::Closed { link }));
            }
        }
    }

    /// One more broker, linked to `beside`.
    pub fn grow(&mut self, beside: usize) {
        let node = self.open(self.nodes.len(), Durable::default());
        self.nodes.push(node);
        self.join(beside, self.nodes.len() - 1);
    }

    /// The counters of a broker.
    pub fn stats(&self, node: usize) -> OverlayStats {
        self.nodes[node].core.overlay_stats().expect("it has an overlay")
    }

    /// A broker is killed.
    pub fn kill(&mut self, number: usize) {
        self.nodes[number].is_down = true;
        self.part(number);
    }

    /// The written part is gone with it.
    pub fn lose_disk(&mut self, number: usize) {
        self.nodes[number].disk = Durable::default();
    }

    /// Another process takes its place, with its disk.
    pub fn revive(&mut self, number: usize) {
        let disk = core::mem::take(&mut self.nodes[number].disk);
        self.nodes[number] = self.open(number, disk);
    }

    pub fn input(&mut self, node: usize, input: Input<'_>) {
        if self.nodes[node].is_down {
            return;
        }
        let Node { core, side, .. } = &mut self.nodes[node];
        core.handle(self.now, input, side);
        self.settle(node);
        self.carry(node);
    }

    /// Makes pending writes of a broker durable, and serves its pending reads.
    fn settle(&mut self, node: usize) {
        let Node { core, side, disk, pending, is_stuck, reads_nothing, is_damaged, logged, .. } = &mut self.nodes[node];
        loop {
            core.flush(self.now);
            while let Some(batch) = core.batch() {
                let writes = kept(&batch);
                let is_event = |write: &&Kept| matches!(write, Kept::Record(StreamName::Events(_), ..));
                *logged += writes.iter().filter(is_event).count();
                let number = core.submitted();
                pending.push_back((number, writes));
            }
            if *is_stuck {
                return;
            }
            let last = pending.back().map(|(number, _)| *number);
            pending.drain(..).flat_map(|(_, writes)| writes).for_each(|write| disk.apply(write));
            if let Some(upto) = last {
                core.handle(self.now, Input::Committed { upto }, side);
            }
            let mut has_read = false;
            while !*reads_nothing && let Some(fetch) = core.fetch() {
                has_read = true;
                let records = disk.streams.get(&fetch.stream).into_iter().flatten();
                let wanted = records.filter(|(tick, _)| **tick > fetch.after && **tick <= fetch.upto);
                let mut found: Vec<_> = wanted.take(4).map(|(tick, body)| (*tick, body.as_slice())).collect();
                let mut upto = fetch.upto;
                if found.len() == 4 {
                    found.pop();
                    upto = found[2].0;
                }
                let mut lost = None;
                if *is_damaged && matches!(fetch.stream, StreamName::Filter { .. }) {
                    (found, lost) = (Vec::new(), Some((fetch.after, upto)));
                }
                let fetched = Fetched { number: fetch.number, records: &found, upto, lost };
                core.handle(self.now, Input::Fetched(fetched), side);
            }
            if last.is_none() && !has_read && core.batch().is_none() {
                return;
            }
        }
    }

    /// Carries the frames that a broker sent to its links.
    fn carry(&mut self, node: usize) {
        while let Some((link, channel, bytes)) = self.nodes[node].side.said.pop_front() {
            let Some(wire) = self.wires.iter().find(|wire| wire.ends.contains(&(node, link))) else { continue };
            let (to, far) = if wire.ends[0] == (node, link) { wire.ends[1] } else { wire.ends[0] };
            if !wire.is_cut {
                self.flying.push_back((self.now.after(DELAY), to, far, channel, bytes));
            }
        }
        let hung_up = &self.nodes[node].side.hung_up;
        assert!(hung_up.is_empty(), "b{node} hangs up {hung_up:?}");
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: Duration) {
        let end = self.now.after(span);
        loop {
            let up = |node: &&Node| !node.is_down;
            let due = self.nodes.iter().filter(up).filter_map(|node| Some(node.core.next_deadline()?.0));
            let flying = self.flying.front().map(|(at, ..)| *at);
            let Some(at) = due.chain(flying).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if self.flying.front().is_some_and(|(due, ..)| *due <= self.now) {
                let (_, node, link, channel, bytes) = self.flying.pop_front().expect("it was there");
                self.input(node, Input::Peer(PeerInput::Bytes { link, channel, bytes: &bytes }));
                continue;
            }
            for node in 0..self.nodes.len() {
                let next = self.nodes[node].core.next_deadline();
                if next.is_some_and(|(at, _)| at <= self.now) {
                    self.input(node, Input::Deadline);
                }
            }
        }
        self.now = end;
    }

    pub fn attach(&mut self, node: usize, link: u32, client_id: &str, client: Client) -> Told {
        let Client { clean: clean_start, expiry, window, .. } = client;
        let attach = Attach {
            link: Link(link),
            client_id,
            clean_start,
            expiry,
            window,
            will: None,
            without_copy: false,
            principal: None,
        };
        self.input(node, Input::Attach(attach));
        // Its session may be at another broker.
        for _ in 0..5_000 {
            let mut told = self.told(node, link);
            if !told.is_empty() {
                let first = told.remove(0);
                // Output received with it is not lost.
                self.nodes[node].side.edges.told.insert(link, told);
                return first;
            }
            self.advance(Duration::from_millis(1));
        }
        panic!("it is answered")
    }

    pub fn detach(&mut self, node: usize, link: u32) {
        self.input(node, Input::Detach { link: Link(link), publish_will: false, expiry: None });
        self.told(node, link);
    }

    /// An operator ends a host with `whimbrel forget`.
    pub fn forget(&mut self, node: usize, name: &str, force: bool) -> Result<usize, NotForgotten> {
        let Node { core, side, .. } = &mut self.nodes[node];
        let result = core.retire_broker(self.now, name, force, side);
        self.settle(node);
        self.carry(node);
        result
    }

    /// Subscribes; returns the time until the answer.
    pub fn subscribe(&mut self, node: usize, link: u32, filter: Filter<'_>) -> Duration {
        let began = self.now;
        self.input(node, Input::Subscribe { link: Link(link), tag: 1, filters: &[filter] });
        for _ in 0..2_000 {
            let told = self.told(node, link);
            if let Some(Told::Subscribed(results)) = told.iter().find(|told| matches!(told, Told::Subscribed(_))) {
                assert!(results.iter().all(Result::is_ok), "{results:?}");
                return self.now.since(began);
            }
            self.advance(Duration::from_millis(1));
        }
        panic!("no answer to a SUBSCRIBE");
    }

    pub fn publish(&mut self, node: usize, link: u32, topic: &str, payload: &str) {
        let event = event(topic, payload, Qos::AtLeastOnce);
        self.input(
            node,
            Input::Publish(Publish { link: Link(link), tag: 77, retain: false, number: None, event: &event }),
        );
    }

    pub fn told(&mut self, node: usize, link: u32) -> Vec<Told> {
        self.nodes[node].side.edges.told.remove(&link).unwrap_or_default()
    }

    /// The deliveries that a client was sent, and acknowledges.
    pub fn got(&mut self, node: usize, link: u32) -> Vec<Got> {
        let mut all = Vec::new();
        loop {
            let told = self.told(node, link).into_iter();
            let got: Vec<Got> =
                told.filter_map(|told| if let Told::Event(got) = told { Some(got) } else { None }).collect();
            if got.is_empty() {
                return all;
            }
            for one in &got {
                let by = Settlement::Acknowledged;
                self.input(node, Input::Settle { link: Link(link), tag: one.tag, by });
            }
            all.extend(got);
        }
    }

    /// The payloads of these deliveries.
    pub fn payloads(&mut self, node: usize, link: u32) -> Vec<String> {
        self.got(node, link).into_iter().map(|got| got.payload).collect()
    }
}
