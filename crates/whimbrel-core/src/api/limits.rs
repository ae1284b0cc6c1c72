//! Bounds that an operator may set.

use core::time::Duration;

use whimbrel_event::Deployment;

/// Bounds that an operator may set. Each protects the broker from one kind of excess.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most unsettled deliveries of one session, also if its client offers a larger window.
    pub inflight_max: u16,
    /// Bytes that may wait in one session for reliable delivery.
    pub session_queue_bytes: usize,
    /// Bytes that may wait in one session for best-effort delivery; [`crate::BURST_FACTOR`] times
    /// as many in the first second in which its client does not take all at once.
    pub best_effort_queue_bytes: usize,
    /// Bytes that may wait in all sessions together. An event counts once per session in which it
    /// waits.
    pub total_queue_bytes: usize,
    /// Most sessions, attached or not.
    pub sessions_max: usize,
    /// Most subscriptions in one session.
    pub subscriptions_per_session: usize,
    /// Bytes of the selectors of one session, in canonical form. Bounds the memory and work that a
    /// client can cause in the index.
    pub selector_bytes_per_session: usize,
    /// The longest time that a session outlives its connection.
    pub session_expiry_max: Duration,
    /// Most retained messages.
    pub retained_max: usize,
    /// Bytes of retained messages.
    pub retained_bytes: usize,
    /// Bytes that may wait in one session for its tracked subscriptions (semi-durable, or with
    /// notices). A subscription that would exceed it reads from the cache instead, once the client
    /// takes more.
    pub tracked_queue_bytes: usize,
    /// The interval at which a subscription with notices is told its progress.
    pub silence_after: Duration,
    /// Most bytes of one event that is logged, packed.
    pub logged_event_bytes: usize,
    /// Another process may become this broker while this one goes on, and take its log. This one
    /// learns it from a commit that is refused: what it tells a client of a session that outlives
    /// its connection, and other brokers of their interest, waits for one.
    pub has_successors: bool,
    /// How long events that durable subscriptions have not acknowledged are kept, if the
    /// subscriptions that are connected and caught up have acknowledged them; `None`: until all
    /// have, or have expired. Where there are other brokers they are kept longer by an eighth of
    /// that, 90 s at most.
    pub max_retain: Option<Duration>,
    /// The interval at which a position base is written, for positions of durable subscriptions
    /// that change: these are written as if no event had been accepted since in streams without
    /// events for them.
    pub base_every: Duration,
    /// The deployment to which tokens are bound.
    pub deployment: Deployment,
}

impl Limits {
    /// The total of all queues above which those of absent sessions and of shared subscriptions do
    /// not grow: a quarter of [`Limits::total_queue_bytes`] is reserved for connected clients that
    /// have to wait for a moment.
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
            has_successors: false,
            max_retain: None,
            base_every: Duration::from_secs(300),
            deployment: Deployment::named("whimbrel"),
        }
    }
}
