//! Routed messages between brokers that need not be neighbours.
//!
//! A message goes hop by hop over the best path, and may be lost, doubled or late. So its content
//! must be true at any time of arrival, or have the time to which it refers. A sender that needs an
//! answer asks again.

use core::time::Duration;

use whimbrel_event::{DomainLabel, HostId, Time};
use whimbrel_wire::{Frame, MESSAGE_BYTES_MAX, MessageFrame, PreviousIdentities};

use crate::domains::DomainPlace;
use crate::event::NetEvent;
use crate::forward::nack::HOPS_MAX;
use crate::io::{Io, LinkOutput};
use crate::link::peers::{Peer, UNSENT_LITTLE};
use crate::link::queue::FrameClass;
use crate::{Channel, Net, PeerLink};

/// Least time between two bulk messages that are added to a link with more than [`UNSENT_LITTLE`]
/// bytes unsent.
const BULK_EVERY: Duration = Duration::from_millis(50);

/// The longest delay of a path that is believed: what other brokers announce of their links is in
/// it, and the age of an event grows by it.
pub const WAY_MAX: Duration = Duration::from_secs(5);

/// The content of a message of this broker to another one.
#[derive(Clone, Copy, Debug)]
pub struct MessageContent<'a> {
    /// Its kind, which says how the body is read.
    pub kind: u8,
    /// Its body.
    pub body: &'a [u8],
    /// It gives way to all other traffic.
    pub is_bulk: bool,
    /// Which brokers may carry it.
    pub label: DomainLabel<'a>,
}

impl Net {
    /// Sends a message to another broker. Returns `false` if there is no path or no room at
    /// present.
    ///
    /// # Panics
    /// When it is to this broker itself.
    pub fn send_to(&mut self, now: Time, to: HostId, content: MessageContent<'_>, out: &mut dyn LinkOutput) -> bool {
        assert!(to != self.identity.host, "a broker does not write to itself");
        let MessageContent { kind, body, is_bulk, label } = content;
        let (from, incarnation) = (self.identity.host, self.identity.incarnation);
        let message = MessageFrame { to, hops: 0, is_bulk, from, incarnation, kind, label, body };
        let is_sent = self.route(now, &message, out);
        self.stats.messages_out += u64::from(is_sent);
        self.stats.messages_unsent += u64::from(!is_sent);
        is_sent
    }

    /// Sends a message of another broker on, one hop farther. Returns `false` if there is no path
    /// or no room at present.
    pub fn pass_on_message(&mut self, now: Time, message: &MessageFrame<'_>, out: &mut dyn LinkOutput) -> bool {
        self.route(now, &MessageFrame { hops: message.hops + 1, ..*message }, out)
    }

    /// Sends a message in another broker's name, of which this one has a copy. Returns `false` if
    /// there is no path or no room at present.
    ///
    /// # Panics
    /// When it is in this broker's own name: [`Net::send_to`] does that.
    pub fn send_as(&mut self, now: Time, message: &MessageFrame<'_>, out: &mut dyn LinkOutput) -> bool {
        assert!(message.from != self.identity.host, "an own message is counted");
        self.route(now, message, out)
    }

    /// Handles a message: for this broker, or for another one.
    pub(crate) fn on_message<'w>(&mut self, io: &mut Io<'_>, message: MessageFrame<'w>) -> Option<NetEvent<'w>> {
        // A neighbour may still know the domains of this broker before it was restarted.
        if !self.domains().may_carry_here(message.label) {
            self.domains().record_refusal(DomainPlace::Message);
            return None;
        }
        if message.to != self.identity.host {
            if message.hops >= HOPS_MAX {
                return None;
            }
            // A message of this broker has returned: brokers disagree about the path.
            let is_own = message.from == self.identity.host;
            if !is_own && self.config.examined_kinds.contains(&message.kind) {
                return Some(NetEvent::Passing(message));
            }
            self.pass_on_message(io.now, &message, io.out);
            return None;
        }
        self.stats.messages_in += 1;
        // Only this broker sends in its name, and it does not send to itself.
        if message.from == self.identity.host {
            self.stats.messages_refused += 1;
            return None;
        }
        Some(NetEvent::Message(message))
    }

    /// Handles ended hosts that had a broker's name before it.
    pub(crate) fn on_previous(&mut self, io: &mut Io<'_>, previous: PreviousIdentities) -> Option<NetEvent<'static>> {
        if previous.to == self.identity.host {
            return Some(NetEvent::PreviousIdentities(previous));
        }
        if previous.hops < HOPS_MAX {
            let (to, mut frame) = (previous.to, Vec::new());
            Frame::PreviousIdentities(PreviousIdentities { hops: previous.hops + 1, ..previous }).encode(&mut frame);
            self.send_towards(io.now, to, &frame, io.out);
        }
        None
    }

    /// How long to wait for an answer: `least`, or twice the round trip if that is longer.
    pub fn answered_within(&self, whom: HostId, least: Duration) -> Duration {
        let way = self.routes.time_us(whom).unwrap_or(0);
        least.max(Duration::from_micros(way.saturating_mul(4)))
    }

    /// The estimated delay of the path to a broker, at most [`WAY_MAX`]; zero if there is none.
    /// Costs a look at the links of each broker on it.
    pub fn way(&self, whom: HostId) -> Duration {
        let path = self.routes.path(whom);
        let delay = |hop: &[HostId]| {
            let ends = &self.topology.get(hop[0])?.neighbours;
            ends.iter().filter(|end| end.host == hop[1]).map(|end| end.delay_us).min()
        };
        let way = path.windows(2).filter_map(delay).map(u64::from).sum();
        Duration::from_micros(way).min(WAY_MAX)
    }

    /// The estimated delay of a link, zero if it is unknown.
    pub fn link_delay(&self, link: PeerLink) -> Duration {
        let known = self.peers.get(link).and_then(|peer| peer.estimate.delay_us());
        Duration::from_micros(known.map_or(0, u64::from))
    }

    /// Sends a message to the next broker on its path. Returns `false` if there is no path, or no
    /// room on the link.
    fn route(&mut self, now: Time, message: &MessageFrame<'_>, out: &mut dyn LinkOutput) -> bool {
        let label = message.label;
        if !label.is_any() && message.body.len() + label.as_str().len() > MESSAGE_BYTES_MAX {
            return false;
        }
        let link = self.domains().link_towards(message.to, label);
        if link.is_none() && !label.is_any() {
            self.domains().record_refusal(DomainPlace::Message);
        }
        let framed = || {
            let mut frame = Vec::with_capacity(message.body.len() + 64);
            message.framed().encode(&mut frame);
            frame
        };
        if !message.is_bulk {
            return self.carrier(now).send_with_room(link, &framed(), out);
        }
        // On a link that is never idle, one bulk message per interval is sent nevertheless.
        let has_room = |peer: &&mut Peer| {
            let is_due = now.since(peer.bulk_at) >= BULK_EVERY && peer.has_room(Channel::BestEffort);
            peer.backlog(Channel::BestEffort) < UNSENT_LITTLE || is_due
        };
        let Some(link) = link else { return false };
        let Some(peer) = self.peers.get_mut(link).filter(has_room) else { return false };
        peer.bulk_at = now;
        self.send(now, link, FrameClass::Bulk, &framed(), out);
        true
    }

    /// Sends a frame to the next broker on the path to `to`. Returns `false` if there is no path,
    /// or no room on the link.
    pub fn send_towards(&mut self, now: Time, to: HostId, frame: &[u8], out: &mut dyn LinkOutput) -> bool {
        let link = self.domains().link_towards(to, DomainLabel::ANY);
        self.carrier(now).send_with_room(link, frame, out)
    }
}
