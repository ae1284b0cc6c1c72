//! Routed messages between brokers that need not be neighbours.
//!
//! A message goes hop by hop over the best path, and may be lost, doubled or late. So its content
//! must be true at any time of arrival, or have the time to which it refers. A sender that needs an
//! answer asks again.

use core::time::Duration;

use whimbrel_event::{HostId, Time};
use whimbrel_net::link::peers::{Peer, UNSENT_LITTLE};
use whimbrel_wire::{BrokerMessage, Frame, MessageFrame};

use super::net::Net;
use super::repair::NACK_HOPS_MAX;
use crate::api::{Channel, Output};
use crate::broker::Broker;

/// Least time between two bulk messages that are added to a link with more than [`UNSENT_LITTLE`]
/// bytes unsent.
const BULK_EVERY: Duration = Duration::from_millis(50);

/// The sender of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sender {
    pub(crate) host: HostId,
    /// The incarnation in which the host sent it.
    pub(crate) incarnation: u64,
}

impl Broker {
    /// Sends a message to another broker. A bulk message gives way to all other traffic. Returns
    /// `false` if there is no path or no room at present.
    pub(crate) fn send_to(
        &mut self,
        now: Time,
        to: HostId,
        (message, is_bulk): (&BrokerMessage<'_>, bool),
        out: &mut dyn Output,
    ) -> bool {
        let Some(overlay) = self.overlay.as_deref_mut() else { return false };
        assert!(to != overlay.net.host, "a broker does not write to itself");
        let mut body = Vec::with_capacity(64);
        let kind = message.encode(&mut body);
        let (from, incarnation) = (overlay.net.host, overlay.net.incarnation);
        let is_sent = overlay.net.forward_message(
            now,
            &MessageFrame { to, hops: 0, is_bulk, from, incarnation, kind, body: &body },
            out,
        );
        overlay.net.stats.messages_out += u64::from(is_sent);
        overlay.net.stats.messages_unsent += u64::from(!is_sent);
        is_sent
    }

    /// Handles a message for this broker, or passes it on.
    pub(super) fn on_message(&mut self, now: Time, routed: &MessageFrame<'_>, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if routed.to != overlay.net.host {
            if routed.hops < NACK_HOPS_MAX {
                self.pass_message(now, routed, out);
            }
            return;
        }
        overlay.net.stats.messages_in += 1;
        // Only this broker sends in its name, and it does not send to itself.
        if routed.from == overlay.net.host {
            overlay.net.stats.messages_refused += 1;
            return;
        }
        // Brokers that pass a message on do not decode it, so an invalid one is no fault of the
        // link.
        match BrokerMessage::decode(routed.kind, routed.body) {
            Ok(message) => {
                let from = Sender { host: routed.from, incarnation: routed.incarnation };
                overlay.record_incarnation(now, from);
                if let BrokerMessage::ReadTold(told) = &message {
                    self.answer_passes(now, routed.to, from, (told, routed.body), out);
                }
                self.dispatch_message(now, from, message, out);
            }
            Err(_) => overlay.net.stats.messages_refused += 1,
        }
    }

    /// Dispatches a message for this broker.
    fn dispatch_message(&mut self, now: Time, from: Sender, message: BrokerMessage<'_>, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        match message {
            BrokerMessage::HoldReport(holds) => self.on_hold_report(now, from, &holds, out),
            BrokerMessage::TakenOver(took) => self.on_taken_over(now, took.owner, from.host),
            BrokerMessage::HoldGrant(grant) => self.on_hold_grant(now, from, grant, out),
            BrokerMessage::ReadAsk(ask) => self.read_asked(now, from, &ask),
            BrokerMessage::ReadTold(told) => self.read_told(now, from, &told),
            BrokerMessage::Question(asked) => out.asked(from.host, asked.number, asked.text),
            BrokerMessage::Reply(reply) => out.answered(from.host, reply.number, reply.text),
            BrokerMessage::Unknown(..) => overlay.net.stats.messages_refused += 1,
            other => {
                self.dispatch_shared_message(now, from, &other, out);
                self.dispatch_roaming(now, from, other, out);
            }
        }
    }
}

impl Net {
    /// How long to wait for an answer: `least`, or twice the round trip if that is longer.
    pub(super) fn answered_within(&self, whom: HostId, least: Duration) -> Duration {
        let way = self.routes.cost_us(whom).unwrap_or(0);
        least.max(Duration::from_micros(way.saturating_mul(4)))
    }

    /// Sends a message to the next broker on its path. Returns `false` if there is no path, or no
    /// room on the link.
    pub(super) fn forward_message(&mut self, now: Time, routed: &MessageFrame<'_>, out: &mut dyn Output) -> bool {
        if !routed.is_bulk {
            let mut frame = Vec::with_capacity(routed.body.len() + 64);
            Frame::MessageFrame(*routed).encode(&mut frame);
            return self.send_towards(now, routed.to, &frame, out);
        }
        self.routes.update(&self.topology);
        let link = self.routes.next_hop(routed.to).and_then(|(neighbour, _)| self.peers.to(neighbour));
        // On a link that is never idle, one bulk message per interval is sent nevertheless.
        let has_room = |peer: &&mut Peer| {
            let is_due = now.since(peer.bulk_at) >= BULK_EVERY && peer.has_room(Channel::BestEffort);
            peer.unsent[Channel::BestEffort as usize] < UNSENT_LITTLE || is_due
        };
        let Some(link) = link else { return false };
        let Some(peer) = self.peers.get_mut(link).filter(has_room) else { return false };
        peer.bulk_at = now;
        let mut frame = Vec::with_capacity(routed.body.len() + 64);
        Frame::MessageFrame(*routed).encode(&mut frame);
        self.send(now, link, Channel::BestEffort, &frame, out);
        true
    }

    /// Sends a frame to the next broker on the path to `to`. Returns `false` if there is no path,
    /// or no room on the link.
    pub(super) fn send_towards(&mut self, now: Time, to: HostId, frame: &[u8], out: &mut dyn Output) -> bool {
        self.routes.update(&self.topology);
        let link = self.routes.next_hop(to).and_then(|(neighbour, _)| self.peers.to(neighbour));
        let link = link.filter(|link| self.peers.get(*link).is_some_and(|peer| peer.has_room(Channel::Control)));
        if let Some(link) = link {
            self.send(now, link, Channel::Control, frame, out);
        }
        link.is_some()
    }
}
