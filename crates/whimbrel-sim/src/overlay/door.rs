//! The output of a broker's step: bytes for clients, and frames for other brokers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{Channel, HangUp, PeerLink};
use whimbrel_event::Time;
use whimbrel_mqtt::{ConnId, Output};

use super::line::Line;
use crate::digests::{Digests, Stream};
use crate::trunk::Side;

/// Output for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Bytes(Vec<u8>),
    Closed,
}

/// The receiver of a broker's output.
pub(super) struct Door<'a> {
    pub(super) now: Time,
    /// The broker whose output this is.
    pub(super) node: usize,
    pub(super) digests: &'a mut Digests,
    pub(super) conns: &'a [Option<usize>],
    pub(super) peers: &'a [Option<(usize, Side)>],
    pub(super) lines: &'a mut BTreeMap<usize, Line>,
    pub(super) told: &'a mut VecDeque<(usize, Told)>,
    pub(super) touched: BTreeSet<usize>,
    pub(super) hang_ups: Vec<(PeerLink, HangUp)>,
    pub(super) closed: Vec<ConnId>,
    pub(super) drained: Vec<ConnId>,
    pub(super) unsent: usize,
}

impl Output for Door<'_> {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        self.digests.record_bytes(self.now, Stream::client(self.node, conn), bytes);
        if let Some(client) = self.conns[conn.0 as usize] {
            self.told.push_back((client, Told::Bytes(core::mem::take(bytes))));
        }
    }

    fn close(&mut self, conn: ConnId) {
        self.digests.record_end(self.now, Stream::client(self.node, conn));
        if let Some(client) = self.conns[conn.0 as usize] {
            self.told.push_back((client, Told::Closed));
        }
        self.closed.push(conn);
    }

    fn backlog(&self, _conn: ConnId) -> usize {
        0
    }

    fn notify_drained(&mut self, conn: ConnId) {
        // One step may have had more than a broker writes at once; the client has read it.
        self.drained.push(conn);
    }

    fn peer_bytes(&mut self, link: PeerLink, channel: Channel, bytes: &[u8]) -> usize {
        let Some((number, side)) = self.peers[link.0 as usize] else { return 0 };
        let line = self.lines.get_mut(&number).expect("a link that is there has a line");
        self.touched.insert(number);
        self.digests.record_bytes(self.now, Stream::link(self.node, (number, side), channel), bytes);
        let unsent = line.write(self.now, side, channel, bytes);
        self.unsent = self.unsent.max(unsent);
        unsent
    }

    fn peer_hang_up(&mut self, link: PeerLink, why: HangUp) {
        if let Some(end) = self.peers[link.0 as usize] {
            self.digests.record_end(self.now, Stream::link(self.node, end, Channel::Control));
        }
        self.hang_ups.push((link, why));
    }
}
