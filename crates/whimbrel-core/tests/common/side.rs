//! The outputs of one of several brokers.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{
    Accepted, Channel, Delivery, Granted, HangUp, Kick, Link, LinkOutput, Output, PeerLink, Refusal, Segment, Sent,
    Unread,
};

use whimbrel_event::{HostId, Qos};

use super::Edges;

/// The outputs of a core to its links and to its clients.
#[derive(Default)]
pub struct Side {
    pub edges: Edges,
    pub said: VecDeque<(PeerLink, Channel, Vec<u8>)>,
    pub hung_up: Vec<(PeerLink, HangUp)>,
    /// Unsent bytes on each way, as the driver reports them.
    pub unsent: BTreeMap<(PeerLink, usize), usize>,
    pub pending: Vec<Box<str>>,
    pub dialed: Vec<String>,
    /// The clients whose sessions resumed from copies, and the age of these.
    pub copies_used: Vec<(String, Duration)>,
    /// Questions of other brokers.
    pub asked: Vec<(HostId, u64, String)>,
    /// Their answers.
    pub answered: Vec<(HostId, u64, String)>,
    /// Connections that sessions are taken from are read only later.
    pub reads_late: bool,
}

impl LinkOutput for Side {
    fn peer_bytes(&mut self, link: PeerLink, channel: Channel, bytes: &[u8]) -> usize {
        self.said.push_back((link, channel, bytes.to_vec()));
        self.unsent.get(&(link, channel as usize)).copied().unwrap_or(0)
    }
    fn peer_hang_up(&mut self, link: PeerLink, why: HangUp) {
        self.hung_up.push((link, why));
    }
    fn peer_dial(&mut self, name: &str, _: &str) {
        self.dialed.push(name.into());
    }
}

impl Output for Side {
    fn attached(&mut self, link: Link, present: bool) {
        self.edges.attached(link, present);
    }
    fn refused(&mut self, link: Link, why: Refusal) {
        self.edges.refused(link, why);
    }
    fn kicked(&mut self, link: Link, why: Kick) {
        self.edges.kicked(link, why);
    }
    fn subscribed(&mut self, link: Link, tag: u16, results: &[Result<Granted, Refusal>], pending: &[Box<str>]) {
        self.pending = pending.to_vec();
        self.edges.subscribed(link, tag, results, pending);
    }
    fn unsubscribed(&mut self, link: Link, tag: u16, existed: &[bool]) {
        self.edges.unsubscribed(link, tag, existed);
    }
    fn accepted(&mut self, link: Link, tag: u16, qos: Qos, result: Accepted) {
        self.edges.accepted(link, tag, qos, result);
    }
    fn completed(&mut self, link: Link, tag: u16, known: bool) {
        self.edges.completed(link, tag, known);
    }
    fn release(&mut self, link: Link, tag: u16, known: bool) {
        self.edges.release(link, tag, known);
    }
    fn takes(&mut self, link: Link, delivery: &Delivery<'_>) -> bool {
        self.edges.takes(link, delivery)
    }
    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        self.edges.deliver(link, delivery)
    }
    fn knowledge(&mut self, segment: &Segment<'_>) {
        self.edges.knowledge(segment);
    }
    fn read_out(&mut self, _: Link) -> Unread {
        if self.reads_late { Unread::Coming } else { Unread::Nothing }
    }
    fn copy_used(&mut self, client: &str, age: Duration) {
        self.copies_used.push((client.into(), age));
    }
    fn asked(&mut self, from: HostId, number: u64, question: &str) {
        self.asked.push((from, number, question.into()));
    }
    fn answered(&mut self, from: HostId, number: u64, answer: &str) {
        self.answered.push((from, number, answer.into()));
    }
}
