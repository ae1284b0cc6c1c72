//! The outputs of the core to an edge.

use core::time::Duration;

use whimbrel_event::{AcceptedEvent, HostId, Qos};

use super::{Granted, Hop, Link, Segment};

/// The outcome of a published event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// It has its id and is routed.
    Routed {
        /// Whether any subscription wanted it.
        matched: bool,
    },
    /// A repetition of a tag before its release; the event was accepted the first time.
    Repeat,
    /// It is not accepted.
    Refused(Refusal),
    /// The edge has refused it with this code.
    RefusedAtEdge(u8),
}

/// The reason for which the core refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A topic filter is not well-formed.
    BadFilter(whimbrel_selector::TopicError),
    /// A topic name is not well-formed.
    BadTopic(whimbrel_selector::TopicError),
    /// A shared subscription asks to leave out the session's own events.
    SharedNoLocal,
    /// A shared subscription asks for another selector than its other members have.
    OtherSelector,
    /// The session has reached its bound of subscriptions.
    TooManySubscriptions,
    /// The session's selectors have reached the bound of their total length.
    TooManySelectors,
    /// The broker has reached its bound of sessions.
    TooManySessions,
    /// A shared subscription asks for a start position, for a position that its client keeps, for
    /// the cache, or for notices.
    SharedTracked,
    /// A shared subscription asks to be a replier.
    SharedReplier,
    /// A start position needs a subscription that gets what it missed.
    StartNotKept,
    /// The token belongs to another deployment.
    OtherDeployment,
    /// The start position is ahead of what the broker can have sent.
    FutureStart,
    /// The start position names too many streams of brokers that are not known here.
    TooManyStrangers,
    /// No subscription of the session is acknowledged by token, or several are and none is named.
    NotAcknowledged,
    /// The event would have to be logged, and the log has no room at present.
    LogFull,
    /// The event would have to be logged, and a write or a sync of the log has failed.
    LogFailed,
    /// The event would have to be logged, and is larger than the log's bound.
    TooLargeForLog,
    /// The event is larger than other brokers take.
    TooLargeForOthers,
    /// The topic's events may be carried only by brokers of domains that this one is not in.
    OutsideDomains,
    /// More publishers number their events than the broker can remember.
    TooManyPublishers,
    /// The subscription was changed too often: first it must get the events of its earlier
    /// selectors.
    TooManyChanges,
    /// Neither the owner of the session nor a replica of it can be reached.
    SessionUnreachable,
    /// The session belongs to another principal.
    ForeignSession,
    /// The client connected again while its session was being fetched.
    ConnectedAgain,
    /// The publisher's number is greater than one that was refused on this connection: the refused
    /// one must be repeated first.
    NumberAfterRefused,
    /// The event exceeds the rate of its topic, and is of QoS 0.
    OverRate,
}

/// The reason for which the core ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// The same client id has attached on another connection.
    TakenOver,
    /// More waits for this client than its bounds allow.
    TooSlow,
    /// More requests of the client wait than could be told apart, although it should not have been
    /// read any more.
    AsksTooMuch,
    /// The log has failed, and it is unknown whether the client's last publishes are in it.
    LogFailed,
    /// An operator has ended its session.
    Dropped,
    /// The client has answered a delivery with an acknowledgement of another kind than the delivery
    /// asks for.
    OtherAnswer,
}

/// The edge's treatment of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Taken, and more can be.
    Open,
    /// Taken, but no more until [`crate::Input::Writable`].
    Full,
    /// Larger than the client accepts: dropped as if it had been delivered and settled.
    TooLarge,
    /// No rule allows it for this client: dropped in the same way.
    Denied,
}

/// Whether a delivery has the name of its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Naming {
    /// Its subscription asks for no names.
    None,
    /// Its subscription asks for names.
    Event,
    /// Its subscription asks for names, but this is no event of its streams: a retained message, or
    /// a notice. Its name would be taken for a position.
    Withheld,
}

impl Naming {
    /// For an event of the streams, to a subscription that asks for names or not.
    pub(crate) fn of(named: bool) -> Naming {
        if named { Naming::Event } else { Naming::None }
    }

    /// For a delivery beside the streams.
    pub(crate) fn beside(named: bool) -> Naming {
        if named { Naming::Withheld } else { Naming::None }
    }
}

/// The bytes that a connection has sent and its edge has not been given yet, for
/// [`Output::read_out`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// Nothing.
    Nothing,
    /// There may be some: they are read, then [`crate::Input::ReadOut`] or [`crate::Input::Detach`]
    /// follows.
    Coming,
}

/// A step of an event at this broker, for [`Output::step`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventStep {
    /// It was accepted here and is routed now.
    Passed {
        /// It has just become durable in the log.
        is_logged: bool,
    },
    /// It has gone over a link.
    Hop(Hop),
}

/// The delivery of one event to one subscription.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The event, with its name and the moment of its acceptance; by this broker's clock that is
    /// [`AcceptedEvent::accepted_here`], from which its age counts.
    pub accepted: &'a AcceptedEvent<'a>,
    /// Deliveries with the same number carry the same event, so an edge may reuse its encoding; 0:
    /// unknown.
    pub serial: u64,
    /// The tag of the delivery until it is settled; 0 with [`Qos::AtMostOnce`].
    pub tag: u16,
    /// The quality of service of the hand-over.
    pub qos: Qos,
    /// It was sent before, on another connection.
    pub repeated: bool,
    /// The retain mark.
    pub retain: bool,
    /// The subscription's identifier; 0: none.
    pub identifier: u32,
    /// Whether it has the event's name.
    pub naming: Naming,
    /// The cursor of the subscription, if it follows the streams, as [`crate::Broker::class_of`]
    /// knows it; for other subscriptions a number that no cursor has.
    pub cursor: u32,
}

/// The receiver of the core's decisions. All calls for one link are in the order in which they take
/// effect. What concerns links to other brokers is in [`whimbrel_net::LinkOutput`].
pub trait Output: whimbrel_net::LinkOutput {
    /// The link has its session; `present` if it existed before. Repeated and waiting deliveries
    /// follow.
    fn attached(&mut self, link: Link, present: bool);
    /// The link gets no session.
    fn refused(&mut self, link: Link, why: Refusal);
    /// The edge must end this connection; the core has already let go of it.
    fn kicked(&mut self, link: Link, why: Kick);
    /// The session of this link is to be taken from it: first the edge should read what the link
    /// has already sent.
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
    /// Hands an event to the client.
    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent;
    /// Whether [`Output::deliver`] would take the delivery, now or later: it is neither too large
    /// for the client nor denied. Asked where another client could get the event instead.
    fn takes(&mut self, _link: Link, _delivery: &Delivery<'_>) -> bool {
        true
    }
    /// Keeps back further outputs to the link, in their order, until [`Output::uncork`]; if the
    /// link ends before, they are dropped.
    fn cork(&mut self, _link: Link) {}
    /// Sends what was kept back.
    fn uncork(&mut self, _link: Link) {}
    /// The stream to which the link publishes has run ahead of the clock: the edge should take
    /// nothing from the link for `span`.
    fn hold(&mut self, _link: Link, _span: Duration) {}
    /// The bound of the link's waiting requests is reached: the edge should take nothing more from
    /// it until [`Output::resume`], or until it ends. Requests already taken may still be given to
    /// the core.
    fn pause(&mut self, _link: Link) {}
    /// The edge may take more from the link again.
    fn resume(&mut self, _link: Link) {}
    /// Knowledge of an own stream, for a driver that carries it to other brokers.
    fn knowledge(&mut self, _segment: &Segment<'_>) {}
    /// A step of an event. Called only if [`whimbrel_net::LinkOutput::wants_steps`].
    fn step(&mut self, _event: &AcceptedEvent<'_>, _step: EventStep) {}
    /// A client's session goes on, here or elsewhere, from the copy kept here, as its owner cannot
    /// be reached. The copy lacks deliveries and acknowledgements of the last `age` or a little
    /// longer. Repeated if the session is asked for again.
    fn copy_used(&mut self, _client: &str, _age: Duration) {}
    /// A question of another broker that only the driver can answer, with
    /// [`crate::Broker::answer_broker`]. Repeated if no answer arrives.
    fn asked(&mut self, _from: HostId, _number: u64, _question: &str) {}
    /// Another broker's answer to the question of this number. The question need not have been
    /// asked, and the answer may be repeated.
    fn answered(&mut self, _from: HostId, _number: u64, _answer: &str) {}
}
