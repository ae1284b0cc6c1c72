//! An independent judge of the broker: it is told what was published and what each subscriber got,
//! and nothing else.
//!
//! Every message published after a subscription began, and that matches it, has to arrive exactly
//! once, unaltered, and in the order in which its vehicle published; what does not match must not
//! arrive. What a subscriber misses while it has no connection has to come later, or lie in a gap
//! of which the broker tells, if it is semi-durable; if it is nondurable, it is gone. The checker
//! knows nothing of MQTT and has no clock: time is an argument, counted from the start of the run.

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

/// The most messages of one vehicle that one subscriber may be behind; the oldest beyond it counts
/// as lost, and as a duplicate should it come after all.
pub const MAX_BEHIND: usize = 1_024;

/// What a subscriber has subscribed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Every vehicle.
    All,
    /// The vehicles while they serve a line, by its index.
    Line(u32),
    /// The vehicles while a condition of the selection holds, by its index.
    Selected(usize),
}

/// What the subscription promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Nothing may be lost (QoS 1 of broker sessions that hold).
    Reliable,
    /// Messages may be lost, and are counted apart (QoS 0).
    BestEffort,
    /// What is missed without a connection comes later, or is told as a gap; nothing else may be
    /// lost.
    SemiDurable,
    /// What is missed without a connection is gone; nothing else may be lost.
    Nondurable,
}

impl Promise {
    /// Whether its subscription is a new one with each connection: elsewhere it gets what that
    /// broker has got by then.
    fn begins_anew(self) -> bool {
        matches!(self, Promise::BestEffort | Promise::Nondurable)
    }
}

/// A subscriber the checker watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriberId(usize);

/// What tells a message from all others of the run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Message {
    /// Index of the vehicle.
    pub vehicle: u32,
    /// What it says, with the line of its topic.
    pub content: Content,
    /// The vehicle's own number for it: 1, 2, 3, ...
    pub seq: u64,
    /// Hash of everything that has to arrive as it was sent.
    pub digest: u64,
}

/// How a message came.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct How {
    /// The broker says that the subscriber may have got it before its connection broke (MQTT's
    /// DUP).
    pub may_repeat: bool,
    /// The broker says that its publisher may have sent it twice, to another broker as well
    /// (`w-maybe-repeat`).
    pub is_doubtful: bool,
    /// Its name, if the subscriber is told names.
    pub id: Option<EventId>,
    /// The region where it came.
    pub region: usize,
}

impl From<bool> for How {
    fn from(may_repeat: bool) -> How {
        How { may_repeat, ..How::default() }
    }
}

/// What an arrival is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it should be, so long after it was published.
    InOrder(Duration),
    /// As it should be: it was missed without a connection, and comes so long after it was
    /// published.
    Recovered(Duration),
    /// The first time, but after a later message of the same vehicle.
    OutOfOrder(Duration),
    /// It came before.
    Duplicate,
    /// It came before, and may come again.
    Repeated,
    /// Its number is right, its content is not.
    Altered,
    /// Nobody published it, or the subscription does not match it.
    Foreign,
    /// Published before the subscription: it may come or not.
    Early,
}

impl Verdict {
    /// What is wrong, if anything.
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
    /// A checker of so many vehicles, and of subscribers to these conditions.
    pub fn new(vehicles: usize, selection: Arc<Selection>) -> Checker {
        let (names, disturbances) = (Names::new(vehicles), Arc::default());
        Checker { published: vec![0; vehicles], names, selection, disturbances, subscribers: Vec::new() }
    }

    /// What is promised only of brokers that can be reached is judged by when they could not.
    #[must_use]
    pub fn during(self, disturbances: Arc<Disturbances>) -> Checker {
        Checker { disturbances, ..self }
    }

    /// A subscription is in force from now on: everything published from now on that matches has to
    /// arrive.
    pub fn subscribed(&mut self, interest: Interest, promise: Promise) -> SubscriberId {
        self.subscribers.push(Subscriber::new(interest, promise, &self.published));
        SubscriberId(self.subscribers.len() - 1)
    }

    /// A vehicle hands a message to the broker; to be told before the broker can have it.
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

    /// A vehicle hands its last message to the broker of a region, which may be the second one that
    /// gets it; to be told before it can have it.
    pub fn handed(&mut self, vehicle: u32, seq: u64, region: usize, at: Duration) {
        self.names.hand(vehicle, seq, Sites::one(region));
        let Checker { subscribers, disturbances, .. } = self;
        subscribers.iter_mut().for_each(|subscriber| subscriber.handed((vehicle, seq), (region, at), disturbances));
    }

    /// The broker never confirmed this message to its publisher: it may arrive or not.
    pub fn excuse(&mut self, vehicle: u32, seq: u64) {
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.excuse(vehicle, seq));
    }

    /// A subscriber has lost its connection: what has not arrived it misses, and what is published
    /// from now on.
    pub fn away(&mut self, subscriber: SubscriberId) {
        self.subscribers[subscriber.0].away();
    }

    /// Its subscription is in force again.
    pub fn back(&mut self, subscriber: SubscriberId) {
        self.subscribers[subscriber.0].back();
    }

    /// The brokers of these regions have not confirmed it, the answer said: what is published there
    /// may be missed until they know of it.
    pub fn pending(&mut self, subscriber: SubscriberId, sites: Sites, at: Duration) {
        self.subscribers[subscriber.0].pending(sites, at);
    }

    /// A subscriber was told that everything in this range of a stream may be missing.
    pub fn gap(&mut self, subscriber: SubscriberId, gap: Gap) {
        self.subscribers[subscriber.0].gap(gap, &self.names);
    }

    /// A subscriber was told the name of a message, which tells whether it lies in a gap of
    /// another.
    pub fn named(&mut self, vehicle: u32, seq: u64, id: EventId) {
        self.names.learn(vehicle, seq, id);
    }

    /// Looks again whether messages that have not arrived lie in gaps, now that more names may be
    /// known.
    pub fn settle(&mut self) {
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.settle(&self.names));
    }

    /// Messages that a subscriber missed without a connection and that may still come.
    pub fn owed(&self, subscriber: SubscriberId) -> u64 {
        self.subscribers[subscriber.0].owed()
    }

    /// A subscriber got a message.
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

    /// A subscriber got something that is not even a message of the fleet.
    pub fn arrived_unreadable(&mut self, subscriber: SubscriberId) {
        self.subscribers[subscriber.0].tally.foreign += 1;
    }

    /// Messages that have to arrive at subscribers with this promise and have not yet.
    pub fn in_flight(&self, promise: Promise) -> u64 {
        self.with(promise).map(|subscriber| subscriber.in_flight).sum()
    }

    /// Those of [`Checker::in_flight`] that a later message has overtaken: lost, unless they come
    /// after all.
    pub fn missing(&self, promise: Promise) -> u64 {
        self.with(promise).map(|subscriber| subscriber.overtaken).sum()
    }

    /// Messages that subscribers with this promise missed without a connection and that nobody
    /// waits for.
    pub fn waived(&self, promise: Promise) -> u64 {
        self.with(promise).map(Subscriber::waived).sum()
    }

    /// The counts of all subscribers with this promise.
    pub fn tally(&self, promise: Promise) -> Tally {
        let mut sum = Tally::default();
        self.with(promise).for_each(|subscriber| sum.add(&subscriber.tally));
        sum
    }

    /// What a subscriber got last of a vehicle, the last one at the end, for a person who looks
    /// into a fault; empty if it got nothing as late as this number.
    pub fn last_before(&self, subscriber: SubscriberId, vehicle: u32, seq: u64) -> String {
        self.subscribers[subscriber.0].last_before(vehicle as usize, seq, &self.names)
    }

    /// The counts of one subscriber.
    pub fn tally_of(&self, subscriber: SubscriberId) -> Tally {
        self.subscribers[subscriber.0].tally
    }

    /// The run is over: what has not arrived is lost.
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
