//! What the clients of a storm saw, and when: all that the judge knows.

use std::sync::Arc;

use tokio::sync::watch;
use whimbrel_client::{EventId, PubendId, Tick};

/// A moment of the storm: how many things its clients have seen so far.
pub type Moment = u64;

/// After every other moment.
pub const NEVER: Moment = Moment::MAX;

/// The one clock of all clients. It advances when one of them sees or does something, so that what
/// happened before what is certain.
#[derive(Clone, Debug)]
pub struct Clock(Arc<watch::Sender<Moment>>);

impl Clock {
    pub fn new() -> Clock {
        Clock(Arc::new(watch::Sender::new(0)))
    }

    /// A new moment, after all that were given before.
    pub fn tick(&self) -> Moment {
        let mut moment = 0;
        self.0.send_modify(|now| {
            *now += 1;
            moment = *now;
        });
        moment
    }

    /// The last moment that was given.
    pub fn now(&self) -> Moment {
        *self.0.borrow()
    }

    /// Waits until that moment has been given.
    pub async fn reached(&self, moment: Moment) {
        let mut now = self.0.subscribe();
        now.wait_for(|now| *now >= moment).await.expect("the clock outlives its waiters");
    }
}

/// The name of an event: its publisher, and the publisher's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub publisher: u32,
    pub number: u32,
}

/// What is known of an event's acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was sent, and no answer came.
    Unknown,
    /// It was acknowledged at that moment.
    Accepted(Moment),
    /// It was refused at that moment, and not sent again.
    Refused(Moment),
}

/// One event as its publisher knows it.
#[derive(Clone, Debug)]
pub struct Published {
    pub name: Name,
    pub topic: String,
    /// What selectors ask about.
    pub level: u8,
    /// The publisher's last one in this topic, which every selector lets pass.
    pub last: bool,
    /// Numbered or QoS 2: however often it is sent, it is accepted once.
    pub exact: bool,
    /// Published with QoS 2. With QoS 1 it is delivered with QoS 1 to everyone.
    pub qos2: bool,
    /// When it was sent for the first time.
    pub first: Moment,
    /// How often it was sent.
    pub sends: u32,
    pub fate: Fate,
}

impl Published {
    /// The last moment at which it may have been accepted.
    pub fn settled(&self) -> Moment {
        match self.fate {
            Fate::Unknown => NEVER,
            Fate::Accepted(at) | Fate::Refused(at) => at,
        }
    }

    /// How many events it may have become at most.
    pub fn copies(&self) -> usize {
        let not_refused = self.sends - u32::from(matches!(self.fate, Fate::Refused(_)));
        if self.exact { not_refused.min(1) as usize } else { not_refused as usize }
    }

    pub fn is_accepted(&self) -> bool {
        matches!(self.fate, Fate::Accepted(_))
    }
}

/// What a subscription asks of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Any,
    AtLeast(u8),
    Below(u8),
}

impl Condition {
    /// As a selector.
    pub fn text(self) -> Option<String> {
        match self {
            Condition::Any => None,
            Condition::AtLeast(level) => Some(format!("level >= {level} OR last = TRUE")),
            Condition::Below(level) => Some(format!("level < {level} OR last = TRUE")),
        }
    }

    pub fn holds(self, event: &Published) -> bool {
        event.last
            || match self {
                Condition::Any => true,
                Condition::AtLeast(level) => event.level >= level,
                Condition::Below(level) => event.level < level,
            }
    }
}

/// Who keeps a subscription's position, which decides what may come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// (i) The client: nothing comes twice.
    Client,
    /// (ii) The broker, QoS 2: nothing comes twice that was published with QoS 2.
    ExactlyOnce,
    /// (iii) The broker, QoS 1: what was not durably acknowledged may come again after a
    /// reconnection, under the same id.
    AtLeastOnce,
}

/// What a client saw of one subscription.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A connection was made; whether the broker still had the session.
    Connected { present: bool },
    /// The subscription was asked for, with this condition.
    Asked(Condition),
    /// It was granted.
    Granted,
    /// The new condition was refused, and the one before stays.
    Refused,
    /// Its end was asked for.
    Leaving,
    /// It was ended.
    Left,
    /// An event arrived.
    Delivered { name: Name, id: Option<EventId> },
    /// The broker told that something may be missing.
    Gap { pubend: PubendId, from: Tick, to: Tick, reason: String },
    /// Something arrived that no publisher of the storm has sent.
    Stray(String),
}

/// All that was seen of one subscription, in order.
#[derive(Clone, Debug)]
pub struct History {
    pub subscription: String,
    pub keeper: Keeper,
    pub filter: Filter,
    pub seen: Vec<(Moment, Seen)>,
}

/// A topic filter of the storm.
#[derive(Clone, Debug)]
pub struct Filter(pub &'static str);

impl Filter {
    /// Whether it matches, as MQTT has it.
    pub fn matches(&self, topic: &str) -> bool {
        let mut levels = topic.split('/');
        for part in self.0.split('/') {
            match (part, levels.next()) {
                ("#", _) => return true,
                ("+", Some(_)) => {}
                (part, Some(level)) if part == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }
}

/// What the publishers and the subscribers of a storm have seen.
#[derive(Clone, Debug, Default)]
pub struct Book {
    pub published: Vec<Published>,
    pub histories: Vec<History>,
}
