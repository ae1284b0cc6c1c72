//! Several network layers, joined by links in virtual time, without any broker.
//!
//! Each [`node::Node`] is a `Net` with the least composition that carries events. The same calls
//! give the same bytes: time passes only in [`Fabric::run`], and there is no other source of
//! anything.

#![allow(dead_code, reason = "the example uses its part")]

pub mod ledger;
pub mod node;
pub mod reception;
mod sender;
mod shelf;
mod time;
mod wires;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{DomainLabel, EventId, FNV_OFFSET, HostId, Reliability, Time};
use whimbrel_net::interest::others::KnownInterest;
use whimbrel_net::rpc::MessageContent;
use whimbrel_net::{Channel, HangUp, PeerInput, PeerLink};

use ledger::{Ledger, Published};
use node::{Change, Node, Setup, host_of};
use wires::{Flight, LinkUse, Wire, WireState};

pub use sender::Content;
pub use wires::{Side, Trouble};

/// When a fabric begins.
pub const START: Time = Time::from_nanos(1_000_000_000_000_000_000);

/// Where streams of bytes are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cuts {
    /// Behind each frame.
    Frames,
    /// Anywhere, from a seed: frames that arrive at one moment are joined first.
    Anywhere(u64),
}

/// The place of a node: the node, unless it is dead, its links, and what it sends.
struct Slot {
    setup: Setup,
    node: Option<Node>,
    side: Side,
    links: Vec<LinkUse>,
    hung_up: Vec<(PeerLink, HangUp)>,
    dials: Vec<(String, String)>,
}

/// Nodes, wires between them, and what is on its way.
pub struct Fabric {
    pub now: Time,
    pub ledger: Ledger,
    slots: Vec<Slot>,
    wires: Vec<Wire>,
    flights: BTreeMap<(Time, u64), Flight>,
    flights_begun: u64,
    digest: u64,
    cuts: Cuts,
    /// The state of what decides which datagrams are lost.
    random: u64,
}

impl Fabric {
    /// Nodes without wires.
    pub fn new(setups: impl IntoIterator<Item = Setup>) -> Fabric {
        let mut fabric = Fabric {
            now: START,
            ledger: Ledger::default(),
            slots: Vec::new(),
            wires: Vec::new(),
            flights: BTreeMap::new(),
            flights_begun: 0,
            digest: FNV_OFFSET,
            cuts: Cuts::Frames,
            random: 7,
        };
        for setup in setups {
            fabric.add(setup);
        }
        fabric
    }

    /// Nodes `b0`, `b1`, … without wires.
    pub fn of(count: usize) -> Fabric {
        Fabric::new((0..count).map(|number| Setup::named(format!("b{number}"))))
    }

    /// Nodes in a line, each linked to the next one.
    pub fn line(count: usize, delay: Duration) -> Fabric {
        let mut fabric = Fabric::of(count);
        for number in 1..count {
            fabric.link([number - 1, number], delay);
        }
        fabric
    }

    /// Adds a node, which begins now.
    pub fn add(&mut self, setup: Setup) -> usize {
        let number = self.slots.len();
        self.slots.push(Slot {
            node: Some(Node::new(setup.local(self.now), number, &setup)),
            setup,
            side: Side::default(),
            links: Vec::new(),
            hung_up: Vec::new(),
            dials: Vec::new(),
        });
        number
    }

    /// Sets where streams are cut from now on.
    pub fn cut_streams(&mut self, cuts: Cuts) {
        self.cuts = cuts;
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// A node that is alive.
    pub fn node(&self, number: usize) -> &Node {
        self.slots[number].node.as_ref().expect("it is alive")
    }

    /// A node that is alive, to be changed without any effect on links.
    pub fn node_mut(&mut self, number: usize) -> &mut Node {
        self.slots[number].node.as_mut().expect("it is alive")
    }

    /// The name of a node.
    pub fn name(&self, number: usize) -> &str {
        &self.slots[number].setup.name
    }

    /// The numbers of the nodes that are alive.
    pub fn alive(&self) -> Vec<usize> {
        (0..self.len()).filter(|number| self.slots[*number].node.is_some()).collect()
    }

    /// The links that a node has hung up, with the reasons.
    pub fn hung_up(&self, number: usize) -> &[(PeerLink, HangUp)] {
        &self.slots[number].hung_up
    }

    /// The brokers that a node has asked for links to: names and addresses.
    pub fn dials(&self, number: usize) -> &[(String, String)] {
        &self.slots[number].dials
    }

    /// A digest of all bytes that were sent, with their times and places.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Joins two nodes with a wire, over which the first one dials the second. Returns its number.
    pub fn link(&mut self, nodes: [usize; 2], delay: Duration) -> usize {
        self.wires.push(Wire {
            nodes,
            delay,
            state: WireState::Closed,
            connection: 0,
            links: [None; 2],
            flow: None,
            busy_until: Default::default(),
            trouble: Default::default(),
            loss: Default::default(),
            arrives: Default::default(),
        });
        self.heal(self.wires.len() - 1);
        self.wires.len() - 1
    }

    /// The nodes at the ends of each wire, its delay, and whether it is up.
    pub fn wires(&self) -> impl Iterator<Item = ([usize; 2], Duration, bool)> {
        self.wires.iter().map(|wire| (wire.nodes, wire.delay, wire.state == WireState::Up))
    }

    /// Sets how many bytes per millisecond a wire takes of each stream; `None`: all at once.
    pub fn limit(&mut self, wire: usize, flow: Option<u64>) {
        self.wires[wire].flow = flow;
        for (node, link) in self.ends(wire) {
            let unsent = &mut self.slots[node].side.unsent;
            if flow.is_some() {
                unsent.entry(link).or_default();
            } else {
                unsent.remove(&link);
            }
        }
    }

    /// A wire loses everything from now on, also what is on its way, and its ends are not told.
    pub fn cut(&mut self, wire: usize) {
        self.wires[wire].state = WireState::Cut;
    }

    /// What a node sends over a wire has this trouble from now on.
    pub fn trouble(&mut self, wire: usize, from: usize, trouble: Trouble) {
        let side = self.wires[wire].nodes.iter().position(|node| *node == from).expect("it is at an end");
        self.wires[wire].trouble[side] = trouble;
    }

    /// So many thousandths of the datagrams that a node sends over a wire are lost from now on, at
    /// random.
    pub fn lose(&mut self, wire: usize, from: usize, loss: u16) {
        let side = self.wires[wire].nodes.iter().position(|node| *node == from).expect("it is at an end");
        self.wires[wire].loss[side] = loss;
    }

    /// The moment of a node's clock, in the fabric's time.
    pub fn global(&self, number: usize, at: Time) -> Time {
        self.slots[number].setup.global(at)
    }

    /// Whether a published event has arrived at a node within this time.
    pub fn has_within(&self, number: usize, id: EventId, span: Duration) -> bool {
        let at = self.ledger.published[&id].at;
        let mut delivered = self.node(number).told.delivered.iter();
        let arrived = delivered.find(|delivered| delivered.id == id).map(|delivered| delivered.arrived);
        arrived.is_some_and(|arrived| self.global(number, arrived).since(at) <= span)
    }

    /// A connection ends: what is on its way is lost, and both ends are told.
    pub fn close(&mut self, wire: usize) {
        self.wires[wire].state = WireState::Closed;
        for side in 0..2 {
            self.close_end(wire, side);
        }
    }

    /// A wire gets another connection.
    pub fn heal(&mut self, wire: usize) {
        self.close(wire);
        let nodes = self.wires[wire].nodes;
        if nodes.iter().any(|node| self.slots[*node].node.is_none()) {
            return;
        }
        for (side, node) in nodes.into_iter().enumerate() {
            let link = self.take_link(node, LinkUse::Wire { wire, side });
            self.wires[wire].links[side] = Some(link);
        }
        let at = &mut self.wires[wire];
        (at.state, at.connection) = (WireState::Up, at.connection + 1);
        at.busy_until = Default::default();
        at.arrives = Default::default();
        self.limit(wire, self.wires[wire].flow);
        for (side, node) in nodes.into_iter().enumerate() {
            // The first end may have hung up already.
            let Some(link) = self.wires[wire].links[side] else { continue };
            let name = self.slots[nodes[1 - side]].setup.name.clone();
            self.input(node, PeerInput::Opened { link, dialed: side == 0, name: Some(&name) });
        }
    }

    /// The nodes and links at those ends of a wire that have not ended it.
    fn ends(&self, wire: usize) -> Vec<(usize, PeerLink)> {
        let Wire { nodes, links, .. } = &self.wires[wire];
        nodes.iter().zip(links).filter_map(|(node, link)| Some((*node, (*link)?))).collect()
    }

    fn take_link(&mut self, node: usize, used_by: LinkUse) -> PeerLink {
        let links = &mut self.slots[node].links;
        let at = links.iter().position(|link| *link == LinkUse::Free).unwrap_or(links.len());
        links.resize(links.len().max(at + 1), LinkUse::Free);
        links[at] = used_by;
        PeerLink(at as u32)
    }

    fn free_link(&mut self, node: usize, link: PeerLink) {
        self.slots[node].links[link.0 as usize] = LinkUse::Free;
        self.slots[node].side.unsent.remove(&link);
    }

    fn close_end(&mut self, wire: usize, side: usize) {
        let node = self.wires[wire].nodes[side];
        if let Some(link) = self.wires[wire].links[side].take() {
            self.free_link(node, link);
            self.input(node, PeerInput::Closed { link });
        }
    }

    /// A node dies: its connections end.
    pub fn kill(&mut self, number: usize) {
        self.slots[number].node = None;
        for wire in 0..self.wires.len() {
            if self.wires[wire].nodes.contains(&number) {
                self.close(wire);
            }
        }
        let slot = &mut self.slots[number];
        (slot.side, slot.links) = (Side::default(), Vec::new());
    }

    /// A dead node begins anew, with nothing of its state, and all its wires are healed.
    pub fn revive(&mut self, number: usize) {
        assert!(self.slots[number].node.is_none(), "it is dead");
        self.ledger.restart(number);
        self.slots[number].node =
            Some(Node::new(self.slots[number].setup.local(self.now), number, &self.slots[number].setup));
        for wire in 0..self.wires.len() {
            if self.wires[wire].nodes.contains(&number) {
                self.heal(wire);
            }
        }
    }

    /// Opens a link to a node whose other end is a test; `name` is that of the certificate.
    pub fn stranger(&mut self, number: usize, name: Option<&str>) -> PeerLink {
        let link = self.take_link(number, LinkUse::Stranger);
        self.input(number, PeerInput::Opened { link, dialed: false, name });
        link
    }

    /// Bytes arrive at a node over a link to a test.
    pub fn bytes(&mut self, number: usize, link: PeerLink, channel: Channel, bytes: &[u8]) {
        self.input(number, PeerInput::Bytes { link, channel, bytes });
    }

    /// A node's connection over a wire counts packets that it has sent, and those that were lost.
    pub fn packets(&mut self, number: usize, wire: usize, sent: u32, lost: u32) {
        let Wire { nodes, links, .. } = &self.wires[wire];
        let side = usize::from(nodes[1] == number);
        let link = links[side].expect("it is linked");
        self.input(number, PeerInput::Packets { link, sent, lost });
    }

    fn input(&mut self, number: usize, input: PeerInput<'_>) {
        let Slot { node, side, setup, .. } = &mut self.slots[number];
        if let Some(node) = node {
            node.input(setup.local(self.now), input, side);
            self.carry(number);
        }
    }

    /// Does something at a node, and carries what it sends.
    pub fn act<R>(&mut self, number: usize, act: impl FnOnce(&mut Node, Time, &mut Side) -> R) -> R {
        let Slot { node, side, setup, .. } = &mut self.slots[number];
        let result = act(node.as_mut().expect("it is alive"), setup.local(self.now), side);
        self.carry(number);
        result
    }

    /// A node subscribes to a filter.
    pub fn subscribe(&mut self, number: usize, filter: &str) {
        self.act(number, |node, now, _| node.subscribe(now, filter));
    }

    /// A node publishes an event, which all nodes are to get that want it now.
    pub fn publish(&mut self, number: usize, content: Content<'_>) -> EventId {
        let Content { topic, payload, .. } = content;
        let id = self.act(number, |node, now, side| node.publish(now, content, side));
        let wants = |other: &usize| *other != number && self.node(*other).wants(topic);
        let wanted_by: BTreeSet<usize> = self.alive().into_iter().filter(wants).collect();
        let (topic, payload) = (topic.into(), payload.into());
        let published = Published { at: self.now, by: number, topic, payload, wanted_by, is_excused: false };
        self.ledger.published.insert(id, published);
        id
    }

    /// A node publishes a reliable event without a payload.
    pub fn publish_topic(&mut self, number: usize, topic: &str) -> EventId {
        self.publish(number, Content { topic, payload: b"", reliability: Reliability::Reliable, deadline_ms: None })
    }

    /// A node changes a key of the first map.
    pub fn put(&mut self, number: usize, key: &str, value: Option<&str>) {
        self.change(number, Change { map: 0, key, value });
    }

    /// A node changes a key of a map.
    pub fn change(&mut self, number: usize, change: Change<'_>) {
        self.act(number, |node, now, side| node.put(now, change, side));
    }

    /// A node sends a message. Returns whether it could.
    pub fn message(&mut self, number: usize, to: usize, kind: u8, body: &[u8]) -> bool {
        let content = MessageContent { kind, body, is_bulk: false, label: DomainLabel::ANY };
        self.act(number, |node, now, side| node.net.send_to(now, host_of(to), content, side))
    }

    /// Whether each living node has a path to each other one.
    pub fn is_complete(&self) -> bool {
        let alive = self.alive();
        let reaches = |from: &usize, to: &usize| from == to || self.node(*from).net.routes().is_reachable(host_of(*to));
        alive.iter().all(|from| alive.iter().all(|to| reaches(from, to)))
    }

    /// Whether each living node knows the present interest of each other one.
    pub fn knows_interests(&self) -> bool {
        let alive = self.alive();
        let version = |known: &KnownInterest| (known.incarnation, known.version);
        let of = |at: &usize, host: HostId| self.node(*at).net.interest_of(host).map(version);
        alive.iter().all(|owner| alive.iter().all(|at| of(at, host_of(*owner)) == of(owner, host_of(*owner))))
    }

    /// Whether each map is the same at all living nodes.
    pub fn has_one_map(&self) -> bool {
        let alive = self.alive();
        let of = |number: usize| [0, 1].map(|map| self.node(number).shelves[map].values());
        alive.iter().all(|number| of(*number) == of(alive[0]))
    }

    /// Checks that what was delivered is right so far, whether or not it is everything.
    pub fn check_order(&self) -> Result<(), String> {
        self.ledger.check_circles()?;
        self.alive().iter().try_for_each(|node| self.ledger.check_order(*node, &self.node(*node).told.delivered))
    }

    /// Checks that no event has reached a node that does not want it. That may happen where
    /// something was lost, and does no harm.
    pub fn check_exact(&self) -> Result<(), String> {
        let unwanted = |node: usize| self.node(node).told.unwanted.first().map(|id| format!("{id} at {node}"));
        self.alive().into_iter().find_map(unwanted).map_or(Ok(()), Err)
    }

    /// Checks that each event was delivered once, in order, to all nodes that want it and to no
    /// other.
    pub fn check(&self) -> Result<(), String> {
        self.check_order()?;
        self.alive().iter().try_for_each(|node| self.ledger.check_all(*node, &self.node(*node).told.delivered))
    }
}
