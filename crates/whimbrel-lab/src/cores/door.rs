//! The output of a core, for its clients and for other brokers, and its costs.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_core::{
    Accepted, Channel, Delivery, Granted, HangUp, Hop, Kick, Link, LinkOutput, Output, PeerLink, Refusal, Segment, Sent,
};
use whimbrel_event::{AcceptedEvent, Qos, Time};

use super::Clients;
use super::costs::Costs;
use super::wire::Wire;

/// Bytes for another broker, and when they leave.
#[derive(Debug)]
pub struct Said {
    pub link: PeerLink,
    pub channel: Channel,
    pub bytes: Vec<u8>,
    pub at: Time,
}

/// The wires, of which those with a rate take frames at once.
pub struct Links<'a> {
    pub wires: &'a mut [Wire],
    /// By end that is up: the wire.
    pub by_end: &'a BTreeMap<(usize, PeerLink), usize>,
    /// The wires and sides whose drivers were given frames.
    pub given: Vec<(usize, usize)>,
}

impl Links<'_> {
    /// Gives the driver of a broker's link a frame. Returns the channel's unsent bytes; `None`: the
    /// link has no driver.
    fn give(&mut self, end: (usize, PeerLink), now: Time, channel: Channel, frame: &[u8]) -> Option<usize> {
        let wire = *self.by_end.get(&end)?;
        let side = self.wires[wire].side_of(end.0);
        if channel == Channel::Datagram || !self.wires[wire].has_driver(side, now) {
            return None;
        }
        self.given.push((wire, side));
        Some(self.wires[wire].give(side, now, channel, frame))
    }
}

/// See the module's documentation.
pub struct Door<'a, C> {
    pub clients: &'a mut C,
    pub node: usize,
    pub costs: &'a Costs,
    /// When the turn began, and its cost so far.
    pub began: Time,
    pub spent: Duration,
    pub links: Links<'a>,
    pub said: Vec<Said>,
    pub hung_up: Vec<PeerLink>,
}

impl<C: Clients> Door<'_, C> {
    fn now(&self) -> Time {
        self.began + self.spent
    }

    fn clients(&mut self) -> &mut C {
        self.clients.at(self.began + self.spent, self.node);
        self.clients
    }
}

impl<C: Clients> LinkOutput for Door<'_, C> {
    fn peer_bytes(&mut self, link: PeerLink, channel: Channel, bytes: &[u8]) -> usize {
        if matches!(channel, Channel::Urgent | Channel::Reliable) {
            self.spent += self.costs.forward;
        }
        let at = self.now();
        if let Some(unsent) = self.links.give((self.node, link), at, channel, bytes) {
            return unsent;
        }
        self.said.push(Said { link, channel, bytes: bytes.to_vec(), at });
        0
    }

    fn peer_hang_up(&mut self, link: PeerLink, _: HangUp) {
        self.hung_up.push(link);
    }

    fn wants_steps(&self) -> bool {
        self.clients.wants_steps()
    }

    fn hop(&mut self, event: &AcceptedEvent<'_>, hop: Hop) {
        self.clients().hop(event, hop);
    }
}

impl<C: Clients> Output for Door<'_, C> {
    fn attached(&mut self, link: Link, present: bool) {
        self.clients().attached(link, present);
    }

    fn refused(&mut self, link: Link, why: Refusal) {
        self.clients().refused(link, why);
    }

    fn kicked(&mut self, link: Link, why: Kick) {
        self.clients().kicked(link, why);
    }

    fn subscribed(&mut self, link: Link, tag: u16, results: &[Result<Granted, Refusal>], pending: &[Box<str>]) {
        self.clients().subscribed(link, tag, results, pending);
    }

    fn unsubscribed(&mut self, link: Link, tag: u16, existed: &[bool]) {
        self.clients().unsubscribed(link, tag, existed);
    }

    fn accepted(&mut self, link: Link, tag: u16, qos: Qos, result: Accepted) {
        self.clients().accepted(link, tag, qos, result);
    }

    fn completed(&mut self, link: Link, tag: u16, known: bool) {
        self.clients().completed(link, tag, known);
    }

    fn release(&mut self, link: Link, tag: u16, known: bool) {
        self.clients().release(link, tag, known);
    }

    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        self.spent += self.costs.deliver;
        self.clients().deliver(link, delivery)
    }

    fn knowledge(&mut self, segment: &Segment<'_>) {
        self.clients().knowledge(segment);
    }
}
