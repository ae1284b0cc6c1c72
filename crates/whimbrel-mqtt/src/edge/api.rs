//! Inputs and outputs of the broker, for drivers.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_access::Principal;
use whimbrel_core::cache::Plan;
use whimbrel_core::store::{BatchNo, Disk, Fetched};
use whimbrel_core::{CacheInterest, Channel, Delivery, EventStep, HangUp, PeerInput, PeerLink, RankedProfile, Unread};
use whimbrel_event::{AcceptedEvent, HostId, Time};
use whimbrel_selector::Fences;

use super::Origin;
use crate::config::Access;

/// The driver's number for one open connection: small, unique among open ones, reusable after
/// closing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u32);

/// The credentials that a client presents.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The user name, if there is one.
    pub user_name: Option<&'a str>,
    /// A password or a token.
    pub password: &'a [u8],
    /// The client id that the client asks for.
    pub client_id: &'a str,
}

/// An identified client.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The client's principal.
    pub principal: Principal,
    /// With a token instead of a password: the mark of its key. The identity is valid as long as
    /// the key, or with a password the user, exists.
    pub by_token: Option<u64>,
}

/// The reason why a client was not identified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unidentified {
    /// The credentials are wrong.
    Refused,
    /// Too many other clients are being identified.
    Busy,
}

/// A refusal for lack of a permission or of quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    /// The action: `connect`, `publish` or `subscribe`.
    pub action: &'static str,
    /// The client's principal.
    pub principal: &'a str,
    /// The client's id.
    pub client_id: &'a str,
    /// The topic or filter, if the action has one.
    pub about: &'a str,
    /// The reason code of MQTT 5.
    pub code: u8,
    /// The cause.
    pub why: &'a str,
}

impl<'a> Decision<'a> {
    /// The decision with its topic or filter.
    pub(super) fn about(self, about: &'a str) -> Decision<'a> {
        Decision { about, ..self }
    }
}

/// A connection is refused a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnedAway<'a> {
    /// The client id in its CONNECT; empty if there is none, or no CONNECT arrived.
    pub client_id: &'a str,
    /// The reason code of MQTT 5, also where MQTT 3.1.1 has another one or none.
    pub code: u8,
    /// The cause, and what helps.
    pub why: &'a str,
}

/// Inputs of the broker.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A transport connection exists.
    Opened {
        /// The connection.
        conn: ConnId,
        /// The kind of listener it came over.
        origin: Origin,
    },
    /// The connection has shown the certificate of a principal. Precedes its first bytes.
    Certified {
        /// The connection.
        conn: ConnId,
        /// The principal.
        principal: &'a Principal,
    },
    /// The answer to [`Output::identify`]. Ignored if the connection does not wait for it any more.
    Identified {
        /// The connection.
        conn: ConnId,
        /// The ticket of the question.
        ticket: u64,
        /// The identity, or why there is none.
        result: Result<&'a Identity, Unidentified>,
    },
    /// New permissions and quotas: connections and subscriptions that are not allowed any more end.
    /// With many connections that takes several steps.
    Access(&'a Access),
    /// An operator disconnects a client (0x98). Its session is kept until its expiry.
    Kick {
        /// The connection; ignored if it is not attached to a session.
        conn: ConnId,
    },
    /// The certificate of a connection is not valid any more.
    Revoked {
        /// The connection.
        conn: ConnId,
        /// The cause.
        why: &'static str,
    },
    /// The next bytes of the connection's stream, cut anywhere. Ignored after the broker closed the
    /// connection.
    Bytes {
        /// The connection.
        conn: ConnId,
        /// The bytes, at least one.
        bytes: &'a [u8],
    },
    /// The transport connection has ended without a request of the broker. Its number is free,
    /// unless [`crate::MqttBroker::is_open`] says that its last bytes cannot be handled yet: then
    /// it is free once [`Output::close`] is called.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// The end of a request of [`Output::read_out`]: the bytes that the connection had sent by then
    /// have been given to the broker.
    ReadOut {
        /// The connection.
        conn: ConnId,
        /// No byte was left unread; otherwise there were more than may be read at once.
        is_whole: bool,
    },
    /// At most [`crate::LOW_WATER`] bytes are unsent, as requested with [`Output::notify_drained`].
    Drained {
        /// The connection.
        conn: ConnId,
    },
    /// The time of [`crate::MqttBroker::next_deadline`] has come.
    Deadline,
    /// New fences that selectors refer to.
    Fences(&'a Arc<Fences>),
    /// The new division of the cache for semi-durable subscriptions.
    Cache(&'a Plan),
    /// The events that the broker now asks other brokers for on its own behalf, to buffer them.
    Buffer(&'a [CacheInterest]),
    /// All batches up to this one are durable; see [`whimbrel_core::store`].
    Committed {
        /// The last of these batches.
        upto: BatchNo,
    },
    /// Whether the log accepts events has changed.
    Disk(Disk),
    /// The part of the log that [`crate::MqttBroker::fetch`] asked for.
    Fetched(Fetched<'a>),
    /// A profile of topics is made or removed, at this broker and all others.
    ChangeProfile {
        /// The filter of the profile, which is valid.
        filter: &'a str,
        /// The profile; `None`: it is removed.
        made: Option<&'a RankedProfile>,
    },
    /// An operator ends the session of a client, which is disconnected (0x98) if it is connected.
    DropSession {
        /// The client; it need not exist.
        client_id: &'a str,
    },
    /// An event on the links to other brokers.
    Peer(PeerInput<'a>),
    /// The server is about to end: every client is told (0x8B) and disconnected; new ones are
    /// refused. A client with pending answers to publishes or requests gets them first, for
    /// [`crate::ANSWERS_WITHIN`] at most; meanwhile it is not read.
    Drain {
        /// A further limit of that time.
        within: Duration,
    },
}

/// Effects of the broker, for the driver to carry out.
pub trait Output {
    /// Takes bytes for a connection; may swap the vector for an empty one. At most once per
    /// connection and step.
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>);
    /// Closes a connection once everything sent has been written. No [`Input::Closed`] follows.
    fn close(&mut self, conn: ConnId);
    /// Asks for all bytes that a connection has already sent, even if it is paused: they are given
    /// as [`Input::Bytes`], at most [`crate::READ_OUT_BYTES`], and then [`Input::ReadOut`], or
    /// [`Input::Closed`] at the end of the connection. A driver without unread input has nothing to
    /// do.
    fn read_out(&mut self, _conn: ConnId) -> Unread {
        Unread::Nothing
    }
    /// Bytes taken by [`Output::send`] and not written yet.
    fn backlog(&self, conn: ConnId) -> usize;
    /// Asks for one [`Input::Drained`] as soon as the backlog is at most [`crate::LOW_WATER`].
    fn notify_drained(&mut self, conn: ConnId);
    /// Asks for no more input of a connection for this time: its publisher runs ahead of the clock.
    fn hold(&mut self, _conn: ConnId, _span: Duration) {}
    /// Asks for no more input of a connection until [`Output::resume`] or its end, because enough
    /// of its requests wait. Bytes that were read already may still be given to the broker.
    fn pause(&mut self, _conn: ConnId) {}
    /// Asks for input of that connection again.
    fn resume(&mut self, _conn: ConnId) {}
    /// Asks to identify a client: [`Input::Identified`] with this ticket is awaited for
    /// [`crate::IDENTIFY_MAX`] at most. Called only if [`crate::Access::judges`].
    fn identify(&mut self, _conn: ConnId, _ticket: u64, _credentials: Credentials<'_>) {}
    /// A connection was ended before it had a session: its CONNECT was refused, or none arrived in
    /// time.
    fn turned_away(&mut self, _conn: ConnId, _refusal: &TurnedAway<'_>) {}
    /// An action was refused for lack of a permission or quota, or a publish for any reason.
    fn refused(&mut self, _conn: ConnId, _decision: &Decision<'_>) {}
    /// Whether [`Output::step`], [`Output::delivered`] and [`Output::settled`] are wanted.
    fn wants_steps(&self) -> bool {
        false
    }
    /// As [`whimbrel_core::Output::step`], at this time.
    fn step(&mut self, _now: Time, _event: &AcceptedEvent<'_>, _step: EventStep) {}
    /// An event was handed to the client of a connection.
    fn delivered(&mut self, _now: Time, _conn: ConnId, _delivery: &Delivery<'_>) {}
    /// The client of a connection acknowledges the delivery with that tag for good, or refuses it.
    /// There may be no such delivery.
    fn settled(&mut self, _now: Time, _conn: ConnId, _tag: u16, _is_refused: bool) {}
    /// As [`whimbrel_core::LinkOutput::peer_bytes`].
    fn peer_bytes(&mut self, _link: PeerLink, _channel: Channel, _bytes: &[u8]) -> usize {
        0
    }
    /// As [`whimbrel_core::LinkOutput::peer_hang_up`].
    fn peer_hang_up(&mut self, _link: PeerLink, _why: HangUp) {}
    /// As [`whimbrel_core::LinkOutput::peer_dial`].
    fn peer_dial(&mut self, _name: &str, _address: &str) {}
    /// As [`whimbrel_core::Output::copy_used`].
    fn copy_used(&mut self, _client: &str, _age: Duration) {}
    /// As [`whimbrel_core::Output::asked`].
    fn asked(&mut self, _from: HostId, _number: u64, _question: &str) {}
    /// As [`whimbrel_core::Output::answered`].
    fn answered(&mut self, _from: HostId, _number: u64, _answer: &str) {}
}

/// The purpose of a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// A connection has to send its CONNECT, or any packet within its keep-alive.
    Silence,
    /// A connection may be read again, because its principal's quota has recovered.
    Quota,
    /// A connection ends after the refusal of a publish that has no acknowledgement.
    Refused,
    /// More connections are to be checked against new rules.
    Review,
    /// `$SYS` is due.
    Sys,
    /// Clients are disconnected, whether or not they have all their answers.
    Leave,
    /// A deadline of the core.
    Core(whimbrel_core::Reason),
}
