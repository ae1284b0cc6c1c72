//! What an edge is told.

use core::time::Duration;

use whimbrel_event::{AcceptedEvent, EventId, EventRef, HostId, Qos};

use super::{Channel, Granted, HangUp, Link, PeerLink, Segment};

/// What became of a published event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// It has its id and is on its way.
    Routed {
        /// Whether any subscription wanted it.
        matched: bool,
    },
    /// The same tag again before its release; it was accepted the first time.
    Repeat,
    /// It is not accepted.
    Refused(Refusal),
    /// The edge has refused it with that code.
    RefusedAtEdge(u8),
}

/// Why the core does not do what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A topic filter is not well-formed.
    BadFilter(whimbrel_selector::TopicError),
    /// A topic name is not well-formed.
    BadTopic(whimbrel_selector::TopicError),
    /// A shared subscription asks to leave out the session's own events.
    SharedNoLocal,
    /// A shared subscription asks for another selector than that which its other members share.
    OtherSelector,
    /// The session has as many subscriptions as it may.
    TooManySubscriptions,
    /// The session's selectors are as long together as they may be.
    TooManySelectors,
    /// The broker has as many sessions as it may.
    TooManySessions,
    /// A shared subscription asks for a place to begin, for a position that its client keeps, for
    /// the cache or for notices.
    SharedTracked,
    /// A place to begin needs a subscription that gets what it missed.
    StartNotKept,
    /// The token belongs to another deployment.
    OtherDeployment,
    /// The place to begin lies ahead of what the broker can have sent.
    FutureStart,
    /// The place to begin names too many streams of brokers that are not known here.
    TooManyStrangers,
    /// No subscription of the session is acknowledged by token, or several are and none is named.
    NotAcknowledged,
    /// It would have to be logged, and the log takes no more at present.
    LogFull,
    /// It would have to be logged, and a write or a sync of the log has failed.
    LogFailed,
    /// It would have to be logged, and is larger than what the log takes.
    TooLargeForLog,
    /// It is larger than what other brokers take.
    TooLargeForOthers,
    /// More publishers number their events than the broker can remember.
    TooManyPublishers,
    /// The subscription was changed too often: first it has to get what it wanted before.
    TooManyChanges,
    /// Whoever keeps the session, and whoever has a copy of it, cannot be reached.
    SessionUnreachable,
    /// The session is somebody else's.
    ForeignSession,
    /// The client connected again while its session was being fetched.
    ConnectedAgain,
    /// The publisher's number is greater than one that was refused on this connection: that one is
    /// to be repeated first.
    NumberAfterRefused,
}

/// Why the core ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// The same client id attached elsewhere.
    TakenOver,
    /// More waits for this client than its bounds allow.
    TooSlow,
    /// More of what it asked for waits than it could tell apart, although it should not have been
    /// read any more.
    AsksTooMuch,
    /// The log has failed, and nobody knows whether what the client published last is in it.
    LogFailed,
    /// An operator has ended its session.
    Dropped,
    /// It has answered a delivery with another kind of acknowledgement than that asks for.
    OtherAnswer,
}

/// What the edge did with a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Taken, and more can be.
    Open,
    /// Taken, but no more until [`crate::Input::Writable`].
    Full,
    /// Larger than the client accepts: dropped as if it had been delivered and settled.
    TooLarge,
    /// No rule allows the client to get it: dropped in the same way.
    Denied,
}

/// Whether a delivery says the name of its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Naming {
    /// Its subscription asks for no names.
    None,
    /// It does.
    Event,
    /// Its subscription asks for names, and this is no event of its streams: a retained message, or
    /// a notice. Its name would be taken for a position.
    Withheld,
}

impl Naming {
    /// Of an event that goes to a subscription which asks for names or not.
    pub(crate) fn of(named: bool) -> Naming {
        if named { Naming::Event } else { Naming::None }
    }

    /// Of something that goes to it beside its streams.
    pub(crate) fn beside(named: bool) -> Naming {
        if named { Naming::Withheld } else { Naming::None }
    }
}

/// What a connection has sent and its edge has not been given yet, for [`Output::read_out`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// Nothing.
    Nothing,
    /// There may be something: it is read, then [`crate::Input::ReadOut`] or
    /// [`crate::Input::Detach`] follows.
    Coming,
}

/// What becomes of an event at this broker, for [`Output::step`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventStep {
    /// It was accepted here and is passed on now.
    Passed {
        /// It is durable in the log since just now.
        is_logged: bool,
    },
    /// It was given to the link to a neighbour.
    Sent {
        /// Which.
        to: HostId,
        /// Somebody lacked it and had asked for it.
        is_answer: bool,
    },
    /// It came over the link from a neighbour.
    Came {
        /// Which.
        from: HostId,
        /// Somebody lacked it and had asked for it.
        is_answer: bool,
    },
}

/// One event on its way to one subscription.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The event.
    pub event: EventRef<'a>,
    /// Its name.
    pub id: EventId,
    /// Deliveries with the same number carry the same event, so an edge may reuse what it encoded;
    /// 0: not known.
    pub serial: u64,
    /// Names the delivery until it is settled; 0 with [`Qos::AtMostOnce`].
    pub tag: u16,
    /// How surely it is handed over.
    pub qos: Qos,
    /// It was sent before, on another connection.
    pub repeated: bool,
    /// The retain mark.
    pub retain: bool,
    /// The subscription's identifier; 0: none.
    pub identifier: u32,
    /// Whether it says the event's name.
    pub naming: Naming,
    /// The subscription that follows the streams and that it is for, as [`crate::Broker::class_of`]
    /// knows it; a number that is none for others.
    pub cursor: u32,
}

/// Where the core's decisions go. All calls for one link are in the order in which they take
/// effect.
pub trait Output {
    /// The link has its session; `present` if it existed before. Repeated and waiting deliveries
    /// follow.
    fn attached(&mut self, link: Link, present: bool);
    /// The link gets no session.
    fn refused(&mut self, link: Link, why: Refusal);
    /// The edge must end this connection; the core has already let go of it.
    fn kicked(&mut self, link: Link, why: Kick);
    /// The session of that link is to be taken from it: what it has already sent is wanted first.
    fn read_out(&mut self, _link: Link) -> Unread {
        Unread::Nothing
    }
    /// The answers to a subscribe, in its order, and the names of brokers that do not know of the
    /// subscriptions yet. Retained messages follow.
    fn subscribed(&mut self, link: Link, tag: u16, results: &[Result<Granted, Refusal>], pending: &[Box<str>]);
    /// The answers to an unsubscribe, in its order: whether there was such a subscription.
    fn unsubscribed(&mut self, link: Link, tag: u16, existed: &[bool]);
    /// The answer to a publish with a tag.
    fn accepted(&mut self, link: Link, tag: u16, qos: Qos, result: Accepted);
    /// A publish without a tag, which has no answer, is refused.
    fn dropped(&mut self, _link: Link, _why: Refusal) {}
    /// The tag of an exactly-once publish is free again; `known` if the core had it.
    fn completed(&mut self, link: Link, tag: u16, known: bool);
    /// Second phase of an exactly-once delivery; `known` if the core has such a delivery.
    fn release(&mut self, link: Link, tag: u16, known: bool);
    /// Hand an event to the client.
    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent;
    /// Whether [`Output::deliver`] would take that delivery, if not now: it is neither too large
    /// for the client nor denied. Asked where another client could get the event instead.
    fn takes(&mut self, _link: Link, _delivery: &Delivery<'_>) -> bool {
        true
    }
    /// What the link is told is kept back from now on, in its order, until [`Output::uncork`]; if
    /// it ends before, it is told nothing of it.
    fn cork(&mut self, _link: Link) {}
    /// What was kept back goes out.
    fn uncork(&mut self, _link: Link) {}
    /// The stream to which that link publishes has run ahead of the clock: nothing should be taken
    /// from it for a while.
    fn hold(&mut self, _link: Link, _span: Duration) {}
    /// As much as should waits of what that link asked for: nothing more is to be taken from it
    /// until [`Output::resume`], or until it ends. What was taken already may still be given to the
    /// core.
    fn pause(&mut self, _link: Link) {}
    /// More may be taken from that link again.
    fn resume(&mut self, _link: Link) {}
    /// Something is known of an own stream, for whoever carries it to other brokers.
    fn knowledge(&mut self, _segment: &Segment<'_>) {}
    /// Whether [`Output::step`] is wanted; if not, events are not even read for it.
    fn wants_steps(&self) -> bool {
        false
    }
    /// Something became of an event. Told only if [`Output::wants_steps`].
    fn step(&mut self, _event: &AcceptedEvent<'_>, _step: EventStep) {}
    /// Send bytes to another broker: the next of a stream, or one datagram. Returns how many bytes
    /// are unsent on that way now; a datagram is sent at once or never.
    fn peer_bytes(&mut self, _link: PeerLink, _channel: Channel, _bytes: &[u8]) -> usize {
        0
    }
    /// End a connection to another broker; the core has already let go of it.
    fn peer_hang_up(&mut self, _link: PeerLink, _why: HangUp) {}
    /// There is another broker of that name, with which there is no link and should be one. Told
    /// again if there still is none after a while.
    fn peer_dial(&mut self, _name: &str, _address: &str) {}
    /// A client's session goes on, here or elsewhere, from what was kept here of it while somebody
    /// else had it, who cannot be reached: that lacks what was delivered and acknowledged in the
    /// last `age` or a little longer. Told again if it is asked for again.
    fn copy_used(&mut self, _client: &str, _age: Duration) {}
    /// Another broker asks something that only the driver can answer, with
    /// [`crate::Broker::answer_broker`]. Asked again if no answer comes.
    fn asked(&mut self, _from: HostId, _number: u64, _question: &str) {}
    /// Another broker has answered the question of that number; it need not have been asked, and
    /// may answer twice.
    fn answered(&mut self, _from: HostId, _number: u64, _answer: &str) {}
}
