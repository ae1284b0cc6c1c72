//! An independent judge of the broker: it is told what was published and what each subscriber got, and nothing else.
//!
//! Every message published after a subscription began, and that matches it, has to arrive exactly once, unaltered, and in
//! the order in which its vehicle published; what does not match must not arrive. The checker knows nothing of MQTT and has no clock: time is an argument,
//! counted from the start of the run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::selection::{Content, Selection, Want};

/// The most messages of one vehicle that one subscriber may be behind; the oldest beyond it counts as lost,
/// and as a duplicate should it come after all.
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

/// What an arrival is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it should be, so long after it was published.
    InOrder(Duration),
    /// The first time, but after a later message of the same vehicle.
    OutOfOrder(Duration),
    /// It came before.
    Duplicate,
    /// It came before, and the broker said that it may have.
    Repeated,
    /// Its number is right, its content is not.
    Altered,
    /// Nobody published it, or the subscription does not match it.
    Foreign,
    /// Published before the subscription: it may come or not.
    Early,
}

/// Counts of what happened to one subscriber, or to several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Tally {
    /// Messages that had to arrive.
    pub expected: u64,
    /// Those that did, each counted once.
    pub delivered: u64,
    /// Those that never came.
    pub lost: u64,
    /// Arrivals beyond the first, the next ones not counted.
    pub duplicated: u64,
    /// Those that the broker marked as possible repetitions after a connection had broken: no promise is broken.
    pub redelivered: u64,
    /// First arrivals after a later message of the same vehicle.
    pub reordered: u64,
    /// Arrivals with other content than was published.
    pub altered: u64,
    /// Arrivals that nobody published, or that do not match the subscription.
    pub foreign: u64,
    /// Messages, not counted as expected, that are too close to the border of a fence to tell whether they match.
    pub bordering: u64,
    /// Messages whose publisher was never told that the broker has them, and that did not arrive: no promise is broken.
    pub excused: u64,
}

impl Tally {
    /// How often a promise was broken; losses count only where none may be.
    pub fn faults(&self, promise: Promise) -> u64 {
        let lost = if promise == Promise::Reliable { self.lost } else { 0 };
        lost + self.duplicated + self.reordered + self.altered + self.foreign
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.redelivered += other.redelivered;
        self.reordered += other.reordered;
        self.altered += other.altered;
        self.foreign += other.foreign;
        self.bordering += other.bordering;
        self.excused += other.excused;
    }
}

/// The judge. See the module.
pub struct Checker {
    /// The highest number that each vehicle has published.
    published: Vec<u64>,
    selection: Arc<Selection>,
    subscribers: Vec<Subscriber>,
}

struct Subscriber {
    interest: Interest,
    promise: Promise,
    vehicles: Vec<Stream>,
    tally: Tally,
    /// Messages expected and not yet arrived.
    in_flight: u64,
    /// Those of them that a later message has overtaken.
    overtaken: u64,
}

/// What a subscriber gets of one vehicle.
#[derive(Default)]
struct Stream {
    /// The highest number published when the subscription began.
    since: u64,
    /// The highest number that has arrived.
    highest: u64,
    /// What has to arrive, by number.
    expected: VecDeque<Expected>,
}

struct Expected {
    seq: u64,
    digest: u64,
    at: Duration,
    overtaken: bool,
    excused: bool,
    /// It may come or not, and counts only if it is wrong.
    bordering: bool,
}

impl Checker {
    /// A checker of so many vehicles, and of subscribers to these conditions.
    pub fn new(vehicles: usize, selection: Arc<Selection>) -> Checker {
        Checker { published: vec![0; vehicles], selection, subscribers: Vec::new() }
    }

    /// A subscription is in force from now on: everything published from now on that matches has to arrive.
    pub fn subscribed(&mut self, interest: Interest, promise: Promise) -> SubscriberId {
        let stream = |&since: &u64| Stream { since, highest: since, expected: VecDeque::new() };
        let vehicles = self.published.iter().map(stream).collect();
        let tally = Tally::default();
        self.subscribers.push(Subscriber { interest, promise, vehicles, tally, in_flight: 0, overtaken: 0 });
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
        for subscriber in &mut self.subscribers {
            match subscriber.interest.want(&self.selection, message.content) {
                Want::Yes => subscriber.expect(message, at, false),
                Want::Either => subscriber.expect(message, at, true),
                Want::No => {}
            }
        }
    }

    /// The broker never confirmed this message to its publisher: it may arrive or not.
    pub fn excuse(&mut self, vehicle: u32, seq: u64) {
        for subscriber in &mut self.subscribers {
            let expected = &mut subscriber.vehicles[vehicle as usize].expected;
            if let Some(found) = expected.iter_mut().find(|expected| expected.seq == seq) {
                found.excused = true;
            }
        }
    }

    /// A subscriber got a message, marked as one that `may_repeat` an earlier one after its connection had broken.
    pub fn arrived(&mut self, subscriber: SubscriberId, message: Message, may_repeat: bool, at: Duration) -> Verdict {
        let known = self.published.get(message.vehicle as usize).is_some_and(|&last| message.seq <= last);
        let subscriber = &mut self.subscribers[subscriber.0];
        let wanted = subscriber.interest.want(&self.selection, message.content) != Want::No;
        if known && message.seq > 0 && wanted {
            return subscriber.judge(message, may_repeat, at);
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

    /// Those of [`Checker::in_flight`] that a later message has overtaken: lost, unless they come after all.
    pub fn missing(&self, promise: Promise) -> u64 {
        self.with(promise).map(|subscriber| subscriber.overtaken).sum()
    }

    /// The counts of all subscribers with this promise.
    pub fn tally(&self, promise: Promise) -> Tally {
        let mut sum = Tally::default();
        self.with(promise).for_each(|subscriber| sum.add(&subscriber.tally));
        sum
    }

    /// The counts of one subscriber.
    pub fn tally_of(&self, subscriber: SubscriberId) -> Tally {
        self.subscribers[subscriber.0].tally
    }

    /// The run is over: what has not arrived is lost.
    pub fn close(&mut self) {
        for subscriber in &mut self.subscribers {
            for vehicle in 0..subscriber.vehicles.len() {
                while subscriber.give_up_oldest(vehicle) {}
            }
        }
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

impl Subscriber {
    fn expect(&mut self, message: Message, at: Duration, bordering: bool) {
        let Message { vehicle, seq, digest, .. } = message;
        if self.vehicles[vehicle as usize].expected.len() == MAX_BEHIND {
            self.give_up_oldest(vehicle as usize);
        }
        let expected = Expected { seq, digest, at, overtaken: false, excused: false, bordering };
        self.vehicles[vehicle as usize].expected.push_back(expected);
        if bordering {
            self.tally.bordering += 1;
        } else {
            self.in_flight += 1;
            self.tally.expected += 1;
        }
    }

    fn judge(&mut self, message: Message, may_repeat: bool, at: Duration) -> Verdict {
        let stream = &mut self.vehicles[message.vehicle as usize];
        if message.seq <= stream.since {
            return Verdict::Early;
        }
        let Ok(index) = stream.expected.binary_search_by_key(&message.seq, |expected| expected.seq) else {
            if may_repeat {
                self.tally.redelivered += 1;
                return Verdict::Repeated;
            }
            self.tally.duplicated += 1;
            return Verdict::Duplicate;
        };
        for before in stream.expected.iter_mut().take(index).filter(|before| !before.overtaken && !before.bordering) {
            before.overtaken = true;
            self.overtaken += 1;
        }
        let in_order = message.seq > stream.highest;
        stream.highest = stream.highest.max(message.seq);
        let expected = stream.expected.remove(index).expect("it was found at this index");
        let counts = u64::from(!expected.bordering);
        self.in_flight -= counts;
        self.overtaken -= u64::from(expected.overtaken);
        if expected.digest != message.digest {
            self.tally.altered += 1;
            return Verdict::Altered;
        }
        self.tally.delivered += counts;
        let delay = at.saturating_sub(expected.at);
        if in_order {
            return Verdict::InOrder(delay);
        }
        self.tally.reordered += 1;
        Verdict::OutOfOrder(delay)
    }

    /// Counts the oldest message expected of a vehicle as lost; false if there is none.
    fn give_up_oldest(&mut self, vehicle: usize) -> bool {
        let Some(oldest) = self.vehicles[vehicle].expected.pop_front() else { return false };
        if oldest.bordering {
            return true;
        }
        self.in_flight -= 1;
        self.overtaken -= u64::from(oldest.overtaken);
        if oldest.excused {
            self.tally.excused += 1;
        } else {
            self.tally.lost += 1;
        }
        true
    }
}
