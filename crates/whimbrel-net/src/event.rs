//! What the network layer tells the composition above it.

use std::sync::Arc;

use whimbrel_event::HostId;
use whimbrel_wire::{Dest, EventFrame, Hello, MessageFrame, Nack, PreviousIdentities, Registry, Silence};

use crate::PeerLink;
use crate::topology::LinkState;

/// One thing that has happened in the network layer, for the composition to dispatch before
/// [`Net::step`](crate::Net::step) is called again: what follows in the network layer itself
/// depends on it.
#[derive(Debug)]
pub enum NetEvent<'a> {
    /// A link is up: its other end has said hello, and was accepted.
    LinkUp {
        /// The link.
        link: PeerLink,
        /// The hello of the other end.
        hello: Hello<'a>,
        /// The topology had the other end already.
        was_known: bool,
    },
    /// A broker announces a link state, which is learned after this event. It may name ended hosts.
    StateOffered(Arc<LinkState>),
    /// A broker's link state was new, and is in the topology.
    BrokerKnown {
        /// The broker.
        host: HostId,
        /// The topology had the broker before.
        was_known: bool,
    },
    /// Others have heard of a greater incarnation of this broker than its own, and believe nothing
    /// that it says of itself. The composition answers with
    /// [`Net::outbid`](crate::Net::outbid), if this process still is the broker. It may be
    /// [`NetEvent::Joined`] as well, see [`Net::check_joined`](crate::Net::check_joined).
    Outbid,
    /// This broker knows all brokers that its neighbours have named, or it has waited for them long
    /// enough: see [`Net::is_young`](crate::Net::is_young).
    Joined,
    /// The interest of another broker has changed.
    InterestChanged {
        /// The broker.
        host: HostId,
    },
    /// The own interest is to be announced, with [`Net::tell_interest`](crate::Net::tell_interest).
    InterestDue,
    /// Nothing was heard of these brokers for too long. The composition forgets them with
    /// [`Net::forget`](crate::Net::forget).
    Expired(Vec<HostId>),
    /// Time to repeat state that other brokers may have lost; every five seconds.
    Refreshed,
    /// An event of another broker for this one. It was passed on to the destinations behind.
    Event {
        /// The event's frame.
        frame: EventFrame<'a>,
        /// The version of the own interest it was matched against, and the tick before it of its
        /// stream that this broker was told.
        own: Dest,
        /// The age of the event: since it was accepted by its broker, microseconds.
        age_us: u64,
        /// See [`whimbrel_wire::CopiedEvent::last_us`].
        last_us: Option<u32>,
    },
    /// Silence of another broker's streams for this broker.
    Silence(Silence<'a>),
    /// A broker asks for parts of an own stream.
    Nack {
        /// The link that the nack came over.
        link: PeerLink,
        /// The nack.
        nack: Nack,
    },
    /// A neighbour has sent entries of a replicated map. The composition records those that are
    /// news with [`Net::record_entry`](crate::Net::record_entry).
    Entries {
        /// The number of the map.
        map: u8,
        /// The link to the neighbour.
        link: PeerLink,
        /// The entries.
        registry: Registry<'a>,
    },
    /// Ended hosts that had this broker's name before it.
    PreviousIdentities(PreviousIdentities),
    /// A message for this broker.
    Message(MessageFrame<'a>),
    /// A message between two other brokers, of one of [`Config::examined_kinds`]. It goes on only
    /// if the composition sends it with [`Net::pass_on_message`](crate::Net::pass_on_message).
    ///
    /// [`Config::examined_kinds`]: crate::Config::examined_kinds
    Passing(MessageFrame<'a>),
}

/// The result of [`Net::step`](crate::Net::step).
#[derive(Debug)]
pub enum NetStep<'a> {
    /// There is something for the composition; the work is not finished.
    Event(NetEvent<'a>),
    /// A part of the work is done, and there is more.
    More,
    /// The work is finished.
    Done,
}
