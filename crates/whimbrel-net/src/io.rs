//! The interface between the network layer and its driver: effects of a step, and the replicated
//! maps that a step reads.

use whimbrel_event::{AcceptedEvent, HostId, Time};

use crate::registry::Replicated;
use crate::{Channel, HangUp, PeerLink};

/// The receiver of the network layer's effects on links.
pub trait LinkOutput {
    /// Sends bytes to another broker: the next of a stream, or one datagram. Returns how many bytes
    /// are unsent on that channel now; a datagram is sent at once or never.
    fn peer_bytes(&mut self, _link: PeerLink, _channel: Channel, _bytes: &[u8]) -> usize {
        0
    }
    /// Ends a connection to another broker, which is removed here already.
    fn peer_hang_up(&mut self, _link: PeerLink, _why: HangUp) {}
    /// Asks for a link to a known broker without one. Repeated if there still is none after a
    /// while.
    fn peer_dial(&mut self, _name: &str, _address: &str) {}
    /// Whether [`LinkOutput::hop`] is wanted; if not, events are not even read for it.
    fn wants_steps(&self) -> bool {
        false
    }
    /// An event has gone over a link. Called only if [`LinkOutput::wants_steps`].
    fn hop(&mut self, _event: &AcceptedEvent<'_>, _hop: Hop) {}
}

/// The passage of an event over one link of this broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hop {
    /// It was sent on the link to a neighbour.
    Sent {
        /// The neighbour.
        to: HostId,
        /// It answers a nack.
        is_answer: bool,
    },
    /// It was received on the link from a neighbour.
    Came {
        /// The neighbour.
        from: HostId,
        /// It answers a nack.
        is_answer: bool,
    },
}

/// The surroundings of one step.
pub struct Io<'a> {
    /// The time of the step.
    pub now: Time,
    /// The receiver of its effects.
    pub out: &'a mut dyn LinkOutput,
    /// The replicated maps, by their numbers, the same at each step; at most
    /// [`MAPS_MAX`](crate::registry::MAPS_MAX).
    pub maps: &'a [&'a dyn Replicated],
}
