//! What the clients of a storm share: whether the broker is there, how far the storm is, and the
//! clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::book::{Clock, Name};

/// How long a client waits for another life of the broker before it tries again with this one.
const AGAIN: Duration = Duration::from_millis(50);

/// How far the storm is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Round(u32),
    /// No more kills, and no client leaves any more; those that are about to come back do.
    Closing,
    /// Everyone is there: publishers send their last events.
    Over,
}

/// One life of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Up {
    pub life: u32,
    pub url: String,
}

/// Events with their topics.
pub type Last = Vec<(Name, String)>;

#[derive(Clone, Debug)]
pub struct Weather {
    pub clock: Clock,
    /// The broker, while it is there.
    pub up: Arc<watch::Sender<Option<Up>>>,
    pub phase: Arc<watch::Sender<Phase>>,
    /// Subscriptions that have been ended and not been granted anew.
    pub ended: Arc<watch::Sender<u32>>,
    /// The last accepted events and their topics, once they are known: a subscriber that has
    /// received those that it wants has received everything.
    pub last: Arc<watch::Sender<Option<Last>>>,
    /// When whatever is still not done counts as never done.
    pub deadline: Instant,
}

impl Weather {
    /// Whether clients may still vanish, leave and change their minds.
    pub fn is_stormy(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Round(_))
    }

    /// Ends the rounds: when all are subscribed that want to be, publishers send their last events.
    pub async fn close(&self) {
        self.phase.send_replace(Phase::Closing);
        let mut ended = self.ended.subscribe();
        // A subscriber that is not back by then misses what it misses.
        let _ = timeout_at(self.deadline, ended.wait_for(|ended| *ended == 0)).await;
        self.phase.send_replace(Phase::Over);
    }

    pub fn new(limit: Duration) -> Weather {
        Weather {
            clock: Clock::new(),
            up: Arc::new(watch::Sender::new(None)),
            phase: Arc::new(watch::Sender::new(Phase::Round(0))),
            ended: Arc::new(watch::Sender::new(0)),
            last: Arc::new(watch::Sender::new(None)),
            deadline: Instant::now() + limit,
        }
    }

    /// Waits for the broker.
    pub async fn is_up(&self) -> Up {
        let mut up = self.up.subscribe();
        let up = up.wait_for(Option::is_some).await.expect("the weather outlives its clients");
        up.clone().expect("waited for")
    }

    /// Waits until the broker has ended, or for a moment if it is the same all along.
    pub async fn is_other(&self, old: &Up) {
        let mut up = self.up.subscribe();
        // The same broker may have ended the connection for a reason of its own.
        let _ = timeout(AGAIN, up.wait_for(|up| up.as_ref() != Some(old))).await;
    }
}
