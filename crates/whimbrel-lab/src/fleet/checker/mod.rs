//! An independent judge of the broker: it knows only what was published and what each subscriber
//! received.
//!
//! Every message that is published after a subscription began and matches it must arrive exactly
//! once, unaltered, and in its vehicle's order; other messages must not arrive. A message that a
//! semi-durable subscriber misses while it has no connection must arrive later, or lie in a gap
//! that the broker tells; one that a nondurable subscriber misses is gone. The checker knows
//! nothing of MQTT and has no clock: time is an argument, counted from the start of the run.

mod names;
mod subscriber;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use whimbrel_client::{EventId, Gap};

use super::regions::{Disturbances, Sites};
use super::selection::{Content, Selection, Want};
use names::Names;
use subscriber::{Known, Subscriber};
pub use tally::Tally;

/// The number of messages of one vehicle that a subscriber may be behind. Beyond it the oldest
/// counts as lost, and as a duplicate if it arrives after all.
pub const MAX_BEHIND: usize = 1_024;

/// The subject of a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Every vehicle.
    All,
    /// The vehicles while they serve a line, by its index.
    Line(u32),
    /// The vehicles while a condition of the selection holds, by its index.
    Selected(usize),
}

/// The promise of a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Nothing may be lost (QoS 1 of broker sessions that hold).
    Reliable,
    /// Messages may be lost, and are counted apart (QoS 0).
    BestEffort,
    /// A message that is missed without a connection arrives later, or is told as a gap; nothing
    /// else may be lost.
    SemiDurable,
    /// A message that is missed without a connection is gone; nothing else may be lost.
    Nondurable,
}

impl Promise {
    /// Whether the subscription is a new one with each connection: at another broker it then starts
    /// with the events that this broker receives from that time on.
    fn begins_anew(self) -> bool {
        matches!(self, Promise::BestEffort | Promise::Nondurable)
    }
}

/// A subscriber that the checker watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriberId(usize);

/// The identity and content of a message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Message {
    /// Index of the vehicle.
    pub vehicle: u32,
    /// Its content, with the line of its topic.
    pub content: Content,
    /// The vehicle's own number for it: 1, 2, 3, ...
    pub seq: u64,
    /// A hash of everything that must arrive unaltered.
    pub digest: u64,
}

/// The circumstances of a delivery.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct How {
    /// Whether the broker marks it as a possible repetition after a broken connection (MQTT's DUP).
    pub may_repeat: bool,
    /// Whether the broker marks it as maybe sent twice by its publisher, to another broker as well
    /// (`w-maybe-repeat`).
    pub is_doubtful: bool,
    /// The event's name, if the subscriber is told names.
    pub id: Option<EventId>,
    /// The region of the subscriber's broker.
    pub region: usize,
}

impl From<bool> for How {
    fn from(may_repeat: bool) -> How {
        How { may_repeat, ..How::default() }
    }
}

/// The judgement of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Correct, this long after it was published.
    InOrder(Duration),
    /// Correct: it was missed without a connection, and arrives this long after it was published.
    Recovered(Duration),
    /// New, but it arrives after a later message of the same vehicle.
    OutOfOrder(Duration),
    /// A duplicate of an earlier arrival.
    Duplicate,
    /// An allowed repeat of an earlier arrival.
    Repeated,
    /// Its number is right, but not its content.
    Altered,
    /// Not published, or the subscription does not match it.
    Foreign,
    /// Published before the subscription: the message may arrive or not.
    Early,
}

impl Verdict {
    /// The fault, if there is one.
    pub fn fault(self) -> Option<&'static str> {
        match self {
            Verdict::OutOfOrder(_) => Some("came after a later one"),
            Verdict::Duplicate => Some("came again"),
            Verdict::Altered => Some("was altered"),
            Verdict::Foreign => Some("was not to come"),
            Verdict::InOrder(_) | Verdict::Recovered(_) | Verdict::Repeated | Verdict::Early => None,
        }
    }
}

/// The judge. See the module.
pub struct Checker {
    /// The highest number that each vehicle has published.
    published: Vec<u64>,
    names: Names,
    selection: Arc<Selection>,
    disturbances: Arc<Disturbances>,
    subscribers: Vec<Subscriber>,
}

impl Checker {
    /// A checker of a number of vehicles, and of subscribers to these conditions.
    pub fn new(vehicles: usize, selection: Arc<Selection>) -> Checker {
        let (names, disturbances) = (Names::new(vehicles), Arc::default());
        Checker { published: vec![0; vehicles], names, selection, disturbances, subscribers: Vec::new() }
    }

    /// Sets the disturbances by which promises are judged that hold only for brokers that can be
    /// reached.
    #[must_use]
    pub fn during(self, disturbances: Arc<Disturbances>) -> Checker {
        Checker { disturbances, ..self }
    }

    /// A subscription is in force from now on: every matching message that is published from now on
    /// must arrive.
    pub fn subscribed(&mut self, interest: Interest, promise: Promise) -> SubscriberId {
        self.subscribers.push(Subscriber::new(interest, promise, &self.published));
        SubscriberId(self.subscribers.len() - 1)
    }

    /// A vehicle hands a message to the broker; to be called before the broker can have it.
    ///
    /// # Panics
    /// If the vehicle's numbers are not consecutive.
    pub fn published(&mut self, message: Message, at: Duration) {
        let last = &mut self.published[message.vehicle as usize];
        assert_eq!(message.seq, *last + 1, "a vehicle numbers its messages consecutively");
        *last = message.seq;
        self.names.hand(message.vehicle, message.seq, Sites::NONE);
        for subscriber in &mut self.subscribers {
            match subscriber.interest.want(&self.selection, message.content) {
                Want::Yes => subscriber.expect(message, at, false, &self.names),
                Want::Either => subscriber.expect(message, at, true, &self.names),
                Want::No => {}
            }
        }
    }

    /// A vehicle hands its last message to a region's broker, perhaps as the second broker; to be
    /// called before the broker can have it.
    pub fn handed(&mut self, vehicle: u32, seq: u64, region: usize, at: Duration) {
        self.names.hand(vehicle, seq, Sites::one(region));
        let Checker { subscribers, disturbances, .. } = self;
        subscribers.iter_mut().for_each(|subscriber| subscriber.handed((vehicle, seq), (region, at), disturbances));
    }

    /// The broker never confirmed this message to its publisher: it may arrive or not.
    pub fn excuse(&mut self, vehicle: u32, seq: u64) {
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.excuse(vehicle, seq));
    }

    /// A subscriber has lost its connection: it misses the messages that have not arrived, and
    /// those that are published from now on.
    pub fn away(&mut self, subscriber: SubscriberId) {
        self.subscribers[subscriber.0].away();
    }

    /// A subscriber's subscription is in force again.
    pub fn back(&mut self, subscriber: SubscriberId) {
        self.subscribers[subscriber.0].back();
    }

    /// The answer to a subscriber said that the brokers of these regions have not confirmed its
    /// subscription: messages published there may be missed until they know of it.
    pub fn pending(&mut self, subscriber: SubscriberId, sites: Sites, at: Duration) {
        self.subscribers[subscriber.0].pending(sites, at);
    }

    /// A subscriber was told that everything in a range of a stream may be missing.
    pub fn gap(&mut self, subscriber: SubscriberId, gap: Gap) {
        self.subscribers[subscriber.0].gap(gap, &self.names);
    }

    /// A subscriber was told the name of a message; so it is known whether the message lies in
    /// another subscriber's gap.
    pub fn named(&mut self, vehicle: u32, seq: u64, id: EventId) {
        self.names.learn(vehicle, seq, id);
    }

    /// The regions to whose brokers a message was handed.
    pub fn sites(&self, vehicle: u32, seq: u64) -> Sites {
        self.names.sites(vehicle as usize, seq)
    }

    /// Checks again whether messages that have not arrived lie in gaps, as more names may be known.
    pub fn settle(&mut self) {
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.settle(&self.names));
    }

    /// Messages that a subscriber missed without a connection and that may still arrive.
    pub fn owed(&self, subscriber: SubscriberId) -> u64 {
        self.subscribers[subscriber.0].owed()
    }

    /// A subscriber received a message.
    pub fn arrived(
        &mut self,
        subscriber: SubscriberId,
        message: Message,
        how: impl Into<How>,
        at: Duration,
    ) -> Verdict {
        let known = self.published.get(message.vehicle as usize).is_some_and(|&last| message.seq <= last);
        let subscriber = &mut self.subscribers[subscriber.0];
        let wanted = subscriber.interest.want(&self.selection, message.content) != Want::No;
        if known && message.seq > 0 && wanted {
            return subscriber
                .judge((message, how.into()), Known { names: &self.names, disturbances: &self.disturbances, at });
        }
        subscriber.tally.foreign += 1;
        Verdict::Foreign
    }

    /// A subscriber received something that is not a message of the fleet.
    pub fn arrived_unreadable(&mut self, subscriber: SubscriberId) {
        self.subscribers[subscriber.0].tally.foreign += 1;
    }

    /// Messages that must arrive at subscribers with a promise and have not yet.
    pub fn in_flight(&self, promise: Promise) -> u64 {
        self.with(promise).map(|subscriber| subscriber.in_flight).sum()
    }

    /// Messages of [`Checker::in_flight`] that a later message has overtaken: lost, unless they
    /// arrive after all.
    pub fn missing(&self, promise: Promise) -> u64 {
        self.with(promise).map(|subscriber| subscriber.overtaken).sum()
    }

    /// Messages that subscribers with a promise missed without a connection and that are no longer
    /// awaited.
    pub fn waived(&self, promise: Promise) -> u64 {
        self.with(promise).map(Subscriber::waived).sum()
    }

    /// The counts of all subscribers with a promise.
    pub fn tally(&self, promise: Promise) -> Tally {
        let mut sum = Tally::default();
        self.with(promise).for_each(|subscriber| sum.add(&subscriber.tally));
        sum
    }

    /// The last messages of a vehicle that a subscriber received, in order, as an aid to examine a
    /// fault; empty if it received none as late as this number.
    pub fn last_before(&self, subscriber: SubscriberId, vehicle: u32, seq: u64) -> String {
        self.subscribers[subscriber.0].last_before(vehicle as usize, seq, &self.names)
    }

    /// The counts of one subscriber.
    pub fn tally_of(&self, subscriber: SubscriberId) -> Tally {
        self.subscribers[subscriber.0].tally
    }

    /// The run is over: messages that have not arrived are lost.
    pub fn close(&mut self) {
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.give_up(&self.names));
    }

    fn with(&self, promise: Promise) -> impl Iterator<Item = &Subscriber> {
        self.subscribers.iter().filter(move |subscriber| subscriber.promise == promise)
    }
}

impl Interest {
    fn want(self, selection: &Selection, content: Content) -> Want {
        match self {
            Interest::All => Want::Yes,
            Interest::Line(line) if line == content.line => Want::Yes,
            Interest::Line(_) => Want::No,
            Interest::Selected(index) => selection.want(selection.conditions[index], content),
        }
    }
}
