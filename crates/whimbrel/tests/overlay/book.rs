//! What clients sent and saw, and when: all that the judge knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::watch;
use whimbrel_client::{EventId, PubendId, Tick};

/// The name of an event: its publisher, and the publisher's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub publisher: u32,
    pub number: u32,
}

impl Name {
    /// What an event's payload begins with.
    pub fn mark(self) -> String {
        format!("load-{}-{};", self.publisher, self.number)
    }

    /// Reads it back.
    pub fn unmark(payload: &[u8]) -> Option<Name> {
        let text = payload.strip_prefix(b"load-")?;
        let end = text.iter().position(|byte| *byte == b';')?;
        let (publisher, number) = std::str::from_utf8(&text[..end]).ok()?.split_once('-')?;
        Some(Name { publisher: publisher.parse().ok()?, number: number.parse().ok()? })
    }
}

/// One start of one broker.
pub type Life = (usize, u32);

/// One event as its publisher knows it.
#[derive(Clone, Debug)]
pub struct Published {
    pub topic: String,
    /// What selectors ask about.
    pub level: u8,
    /// The publisher's last one in this topic, which every selector lets pass.
    pub last: bool,
    pub reliable: bool,
    /// To which broker it was sent.
    pub life: Life,
    pub sent: Instant,
    pub acknowledged: Option<Instant>,
}

/// What a subscriber is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nondurable, and the broker does not tell it of gaps.
    Plain,
    /// Nondurable, with notices.
    Notices,
    /// Semi-durable: it keeps its position, and comes back at another broker.
    Roamer,
}

/// What a client saw of its subscription.
#[derive(Clone, Debug)]
pub enum Seen {
    /// The subscription was granted in this life of a broker; these other brokers had not confirmed
    /// it.
    Granted {
        life: Life,
        pending: Vec<String>,
    },
    /// The connection is over.
    Away,
    Delivered {
        name: Name,
        id: Option<EventId>,
    },
    /// The broker told that something may be missing.
    Gap {
        pubend: PubendId,
        from: Tick,
        to: Tick,
        reason: String,
    },
    /// Something arrived that no publisher has sent.
    Stray(String),
}

/// All that was seen of one subscription, in order.
#[derive(Clone, Debug)]
pub struct History {
    pub subscription: String,
    pub kind: Kind,
    pub filter: &'static str,
    /// Its selector: at least this level, or the last one of a publisher.
    pub least: Option<u8>,
    pub seen: Vec<(Instant, Seen)>,
}

impl History {
    pub fn wants(&self, event: &Published) -> bool {
        matches(self.filter, &event.topic) && (event.last || self.least.is_none_or(|least| event.level >= least))
    }
}

/// Whether a topic filter matches, as MQTT has it.
fn matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for part in filter.split('/') {
        match (part, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (part, Some(level)) if part == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

/// What all clients have sent and seen.
#[derive(Clone, Debug, Default)]
pub struct Book {
    pub published: BTreeMap<Name, Published>,
    pub histories: Vec<History>,
    /// Lives of brokers that ended by `kill -9`.
    pub ended: BTreeSet<Life>,
    /// When lives of brokers began.
    pub began: BTreeMap<Life, Instant>,
    /// When everybody was seen to reach everybody.
    pub whole: Vec<Instant>,
}

/// How far the run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Running,
    /// Publishers send their last events.
    Last,
    /// These are all last events; who has them is done.
    Over(Vec<Name>),
}

/// What all clients of a run share.
#[derive(Clone)]
pub struct Desk {
    book: Arc<Mutex<Book>>,
    /// How many events have been sent.
    pub sent: Arc<watch::Sender<u64>>,
    pub phase: Arc<watch::Sender<Phase>>,
}

impl Desk {
    pub fn new() -> Desk {
        let (sent, phase) = (watch::Sender::new(0), watch::Sender::new(Phase::Running));
        Desk { book: Arc::default(), sent: Arc::new(sent), phase: Arc::new(phase) }
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nobody panics while writing")
    }

    /// Waits until this number of further events has been sent.
    pub async fn events(&self, more: u64) {
        let mut sent = self.sent.subscribe();
        let until = *sent.borrow() + more;
        sent.wait_for(|sent| *sent >= until).await.expect("the desk outlives its clients");
    }
}
