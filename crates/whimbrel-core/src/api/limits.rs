//! Bounds that an operator may set.

use core::time::Duration;

use whimbrel_event::Deployment;

/// Bounds that an operator may set. Each protects the broker from one kind of excess.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Deliveries that may be unsettled in one session, whatever larger window its client offers.
    pub inflight_max: u16,
    /// Bytes that wait in one session for a reliable delivery.
    pub session_queue_bytes: usize,
    /// Bytes that wait in one session for a best-effort delivery; [`crate::BURST_FACTOR`] times as
    /// many for the first second in which its client does not take all at once.
    pub best_effort_queue_bytes: usize,
    /// Bytes that wait in all sessions together. An event counts once per session that waits for
    /// it.
    pub total_queue_bytes: usize,
    /// Sessions, attached or not.
    pub sessions_max: usize,
    /// Subscriptions in one session.
    pub subscriptions_per_session: usize,
    /// Bytes of the selectors of one session, in canonical form. Bounds what a client can make the
    /// index hold and do.
    pub selector_bytes_per_session: usize,
    /// How long a session outlives its connection at most.
    pub session_expiry_max: Duration,
    /// Retained messages.
    pub retained_max: usize,
    /// Bytes of retained messages.
    pub retained_bytes: usize,
    /// Bytes that wait in one session for its tracked subscriptions (semi-durable, or with
    /// notices); one that would exceed it reads from the cache instead, once the client takes more.
    pub tracked_queue_bytes: usize,
    /// How often a subscription with notices is told how far it has come.
    pub silence_after: Duration,
    /// Bytes of one event that is logged, packed.
    pub logged_event_bytes: usize,
    /// How long what durable subscriptions have not acknowledged is kept, if those that are there
    /// and live have; `None`: until they have, or have expired. Where there are other brokers it is
    /// kept longer by an eighth of that, 90 s at most.
    pub max_retain: Option<Duration>,
    /// How often it is written where all streams of other brokers stand, for the positions of
    /// durable subscriptions that change: these are written as if nothing had come since in streams
    /// that have had nothing for them.
    pub base_every: Duration,
    /// What tokens are bound to.
    pub deployment: Deployment,
}

impl Limits {
    /// How far the queues may grow in all before those of absent sessions and of shared
    /// subscriptions grow no more: a quarter of [`Limits::total_queue_bytes`] is kept for clients
    /// that are here and have to wait for a moment.
    pub fn absent_queue_bytes(&self) -> usize {
        self.total_queue_bytes / 4 * 3
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            inflight_max: 1024,
            session_queue_bytes: 64 << 20,
            best_effort_queue_bytes: 1 << 20,
            total_queue_bytes: 1 << 30,
            sessions_max: 1_000_000,
            subscriptions_per_session: 10_000,
            selector_bytes_per_session: 1 << 20,
            session_expiry_max: Duration::from_secs(7 * 24 * 3600),
            retained_max: 1_000_000,
            retained_bytes: 1 << 30,
            tracked_queue_bytes: 256 << 10,
            silence_after: Duration::from_secs(30),
            logged_event_bytes: 1 << 20,
            max_retain: None,
            base_every: Duration::from_secs(300),
            deployment: Deployment::named("whimbrel"),
        }
    }
}
