//! What a driver may tell the broker, and what it is told.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_access::Principal;
use whimbrel_core::cache::Plan;
use whimbrel_core::store::{BatchNo, Disk, Fetched};
use whimbrel_core::{CacheInterest, Channel, Delivery, EventStep, HangUp, PeerInput, PeerLink, Unread};
use whimbrel_event::{AcceptedEvent, HostId, Time};
use whimbrel_selector::Fences;

use super::Origin;
use crate::config::Access;

/// The driver's name for one open connection: small numbers, unique among open ones, reusable after
/// closing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u32);

/// What a client says of who it is.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The user name, if there is one.
    pub user_name: Option<&'a str>,
    /// A password or a token.
    pub password: &'a [u8],
    /// The client id that it asks for.
    pub client_id: &'a str,
}

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who.
    pub principal: Principal,
    /// By a token, not by a password: the mark of its key. It is known as long as there is such a
    /// key, or such a user.
    pub by_token: Option<u64>,
}

/// Why it is not known who a client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unidentified {
    /// What it says is not believed.
    Refused,
    /// Too many others are being identified.
    Busy,
}

/// Something was refused for want of a right, or of a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    /// What was asked for: `connect`, `publish` or `subscribe`.
    pub action: &'static str,
    /// Who asked.
    pub principal: &'a str,
    /// With which client id.
    pub client_id: &'a str,
    /// The topic or filter, if it is about one.
    pub about: &'a str,
    /// The reason code of MQTT 5.
    pub code: u8,
    /// Why.
    pub why: &'a str,
}

impl<'a> Decision<'a> {
    /// The same about a topic or filter.
    pub(super) fn about(self, about: &'a str) -> Decision<'a> {
        Decision { about, ..self }
    }
}

/// A connection gets no session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnedAway<'a> {
    /// The client id that its CONNECT asks for; empty if there is none, or none came.
    pub client_id: &'a str,
    /// The reason code of MQTT 5, also where MQTT 3.1.1 has another one or none.
    pub code: u8,
    /// Why, and what helps.
    pub why: &'a str,
}

/// What can happen to the broker.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A transport connection exists.
    Opened {
        /// Its name.
        conn: ConnId,
        /// The kind of listener it came over.
        origin: Origin,
    },
    /// The connection has shown the certificate of that principal. Comes before its first bytes.
    Certified {
        /// Which.
        conn: ConnId,
        /// Who.
        principal: &'a Principal,
    },
    /// The answer to [`Output::identify`]. Ignored if the connection does not wait for it any more.
    Identified {
        /// Which.
        conn: ConnId,
        /// As it was asked.
        ticket: u64,
        /// Who it is.
        result: Result<&'a Identity, Unidentified>,
    },
    /// Who may do what, from now on: connections and subscriptions that are not allowed any more
    /// end. That takes several steps, if there are many connections.
    Access(&'a Access),
    /// An operator disconnects a client (0x98). Its session stays for as long as it outlives its
    /// connection.
    Kick {
        /// Which; ignored if it is not attached to a session.
        conn: ConnId,
    },
    /// The certificate of a connection is not believed any more.
    Revoked {
        /// Which.
        conn: ConnId,
        /// Why.
        why: &'static str,
    },
    /// The next bytes of the connection's stream, cut anywhere. Ignored after the broker closed the
    /// connection.
    Bytes {
        /// From where.
        conn: ConnId,
        /// At least one.
        bytes: &'a [u8],
    },
    /// The transport connection is gone without the broker having asked for it. Its name is free,
    /// unless [`crate::MqttBroker::is_open`] says that what it has sent cannot be handled yet: then
    /// once [`Output::close`] is called.
    Closed {
        /// Which.
        conn: ConnId,
    },
    /// What [`Output::read_out`] has asked for: what the connection had sent by then has been given
    /// to the broker.
    ReadOut {
        /// Which.
        conn: ConnId,
        /// Nothing was left unread; else there was more than may be read at once.
        is_whole: bool,
    },
    /// At most [`crate::LOW_WATER`] bytes are unsent, as asked with [`Output::notify_drained`].
    Drained {
        /// Of which connection.
        conn: ConnId,
    },
    /// [`crate::MqttBroker::next_deadline`] has come.
    Deadline,
    /// The fences that selectors refer to, from now on.
    Fences(&'a Arc<Fences>),
    /// How the cache for semi-durable subscriptions is divided, from now on.
    Cache(&'a Plan),
    /// What the broker asks other brokers for on its own behalf, from now on.
    Buffer(&'a [CacheInterest]),
    /// All batches up to this one are durable; see [`whimbrel_core::store`].
    Committed {
        /// The last of them.
        upto: BatchNo,
    },
    /// What the log takes has changed.
    Disk(Disk),
    /// What [`crate::MqttBroker::fetch`] asked for.
    Fetched(Fetched<'a>),
    /// An operator ends the session of that client, which is disconnected (0x98) if it is there.
    DropSession {
        /// Whose; it need not exist.
        client_id: &'a str,
    },
    /// Something happens on the links to other brokers.
    Peer(PeerInput<'a>),
    /// The server is about to end: every client is told (0x8B) and disconnected; new ones are
    /// refused. Who is owed answers to what it has published or asked for gets them before that,
    /// for [`crate::ANSWERS_WITHIN`] at most; meanwhile it is not read.
    Drain {
        /// And no longer than this.
        within: Duration,
    },
}

/// Where the broker's output goes.
pub trait Output {
    /// Takes bytes for a connection; may swap the vector for an empty one. At most once per
    /// connection and step.
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>);
    /// Closes a connection once everything sent has been written. No [`Input::Closed`] follows.
    fn close(&mut self, conn: ConnId);
    /// Asks for all that a connection has already sent, also if it is paused: given as
    /// [`Input::Bytes`], at most [`crate::READ_OUT_BYTES`], and then [`Input::ReadOut`], or
    /// [`Input::Closed`] where that is its end. A driver that reads nothing late has nothing to do.
    fn read_out(&mut self, _conn: ConnId) -> Unread {
        Unread::Nothing
    }
    /// Bytes taken by [`Output::send`] and not written yet.
    fn backlog(&self, conn: ConnId) -> usize;
    /// Asks for one [`Input::Drained`] as soon as the backlog is at most [`crate::LOW_WATER`].
    fn notify_drained(&mut self, conn: ConnId);
    /// Asks for no more input of a connection for a while: its publisher runs ahead of the clock.
    fn hold(&mut self, _conn: ConnId, _span: Duration) {}
    /// Asks for no more input of a connection until [`Output::resume`] or its end: enough of what
    /// it asked for waits. What was read already may still be given to the broker.
    fn pause(&mut self, _conn: ConnId) {}
    /// Asks for input of that connection again.
    fn resume(&mut self, _conn: ConnId) {}
    /// Asks who a client is: [`Input::Identified`] with this ticket is awaited, for
    /// [`crate::IDENTIFY_MAX`] at most. Is asked only if [`crate::Access::judges`].
    fn identify(&mut self, _conn: ConnId, _ticket: u64, _credentials: Credentials<'_>) {}
    /// A connection is ended before it had a session: its CONNECT was refused, or none came in
    /// time.
    fn turned_away(&mut self, _conn: ConnId, _refusal: &TurnedAway<'_>) {}
    /// Something was refused for want of a right or of a quota, or a publish for any reason.
    fn refused(&mut self, _conn: ConnId, _decision: &Decision<'_>) {}
    /// Whether [`Output::step`], [`Output::delivered`] and [`Output::settled`] are wanted.
    fn wants_steps(&self) -> bool {
        false
    }
    /// As [`whimbrel_core::Output::step`], now.
    fn step(&mut self, _now: Time, _event: &AcceptedEvent<'_>, _step: EventStep) {}
    /// An event was handed to the client of a connection.
    fn delivered(&mut self, _now: Time, _conn: ConnId, _delivery: &Delivery<'_>) {}
    /// The client of a connection acknowledges the delivery with that tag for good, or refuses it.
    /// It need not have had one.
    fn settled(&mut self, _now: Time, _conn: ConnId, _tag: u16, _is_refused: bool) {}
    /// As [`whimbrel_core::Output::peer_bytes`].
    fn peer_bytes(&mut self, _link: PeerLink, _channel: Channel, _bytes: &[u8]) -> usize {
        0
    }
    /// As [`whimbrel_core::Output::peer_hang_up`].
    fn peer_hang_up(&mut self, _link: PeerLink, _why: HangUp) {}
    /// As [`whimbrel_core::Output::peer_dial`].
    fn peer_dial(&mut self, _name: &str, _address: &str) {}
    /// As [`whimbrel_core::Output::copy_used`].
    fn copy_used(&mut self, _client: &str, _age: Duration) {}
    /// As [`whimbrel_core::Output::asked`].
    fn asked(&mut self, _from: HostId, _number: u64, _question: &str) {}
    /// As [`whimbrel_core::Output::answered`].
    fn answered(&mut self, _from: HostId, _number: u64, _answer: &str) {}
}

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// A connection has to have sent its CONNECT, or something within its keep-alive.
    Silence,
    /// A connection may be read again, as its principal's quota has recovered.
    Quota,
    /// A connection ends of which a publish was refused without an answer.
    Refused,
    /// More connections are to be compared with new rules.
    Review,
    /// `$SYS` is due.
    Sys,
    /// Clients are told to go, whether or not they have all their answers.
    Leave,
    /// A deadline of the core.
    Core(whimbrel_core::Reason),
}
