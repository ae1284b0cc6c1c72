//! How brokers connect to each other.

use whimbrel_core::{PeerInput, PeerLink};
use whimbrel_mqtt::Input;

use super::line::Line;
use super::net::{Fabric, Node};
use crate::trunk::{Side, Trunk};

impl Fabric {
    /// An edge tries to connect.
    pub(super) fn dial(&mut self, number: usize) {
        let edge = &self.edges[number];
        let (from, to) = edge.ends;
        let is_linked = |net: &Fabric| {
            let ends = |line: &Line| [line.ends[0].0, line.ends[1].0];
            let lines = net.nodes[from].peers.iter().flatten().map(|(line, _)| &net.lines[line]);
            lines.into_iter().any(|line| ends(line) == [from, to] || ends(line) == [to, from])
        };
        let has_gone = |node: usize| self.nodes[node].former_of.is_some() && !self.is_up(node);
        if has_gone(from) || has_gone(to) {
            return;
        }
        let is_possible = self.is_up(from) && self.is_up(to) && !edge.is_cut.contains(&true);
        if !is_possible || (!edge.is_stubborn && is_linked(self)) {
            let edge = &mut self.edges[number];
            edge.dial_at = self.now + edge.pause;
            if self.nodes[from].broker.is_some() {
                edge.pause = (edge.pause * 2).min(super::line::PAUSE_MAX);
            }
            return self.plan_edge(number);
        }
        let trunk = Trunk::new(self.now, edge.shape, self.random.fork());
        let name = self.next_line;
        self.next_line += 1;
        self.traffic.dialed += 1;
        self.met.push([from, to].map(|node| self.process(node)));
        let ends = [(from, Side::Near), (to, Side::Far)].map(|(node, side)| {
            let Node { peers, still, .. } = &mut self.nodes[node];
            let is_free = |peer: &Option<(usize, Side)>| peer.is_none() && still.is_none();
            let place = peers.iter().position(is_free).unwrap_or_else(|| {
                peers.push(None);
                peers.len() - 1
            });
            peers[place] = Some((name, side));
            (node, PeerLink(place as u32))
        });
        self.lines.insert(name, Line::new(self.now, number, trunk, ends));
        self.edges[number].line = Some(name);
        for (side, dialed) in [(Side::Near, true), (Side::Far, false)] {
            let (node, link) = ends[side as usize];
            if self.lines.get(&name).is_some_and(|line| line.is_open[side as usize]) {
                self.handle(node, Input::Peer(PeerInput::Opened { link, dialed, name: None }));
            }
        }
        self.plan_line(name);
    }
}
