//! Counters and gauges of the core.

use whimbrel_event::EventRef;

use crate::cursor::GapReason;

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters (since the start) and gauges (current values; marked so). Exact, and free of
        /// cost to read.
        // tidy: table
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }
    };
}

stats! {
    /// Events of clients that got their id; the broker's own events are not among them.
    events_accepted,
    /// Payload bytes of these.
    payload_bytes_accepted,
    /// Events that were given to the log.
    events_logged,
    /// Filter records that were given to the log.
    filter_records,
    /// Durable subscriptions that they name; each counts once per event.
    filter_names,
    /// Bytes of filter records.
    filter_bytes,
    /// Events after which their publisher was held up, because its stream had run ahead of the
    /// clock.
    publishers_held,
    /// Times that a publisher was not read for a while, as it exceeded the rate of a topic.
    publishers_over_rate,
    /// Events of QoS 0 that were dropped, as they exceeded the rate of their topic.
    events_over_rate,
    /// Times that a client was not read for a while, because more of its requests to subscribe or
    /// unsubscribe waited than should.
    subscribers_held,
    /// Events refused (bad topic, log).
    events_refused,
    /// Events that were passed on and not retained, as that would have exceeded a bound.
    retained_refused,
    /// Exactly-once publishes that came again before their release, and were not published again.
    publishes_repeated,
    /// Events that no subscription wanted.
    events_unwanted,
    /// Events that went by the plain way: nothing about them, their publishers or their
    /// subscriptions asked for more.
    events_plain,
    /// Deliveries handed to edges.
    deliveries,
    /// Deliveries to subscriptions that were catching up, out of the cache.
    deliveries_recovered,
    /// Gaps because the cache had given the room to other events.
    gaps_overwritten,
    /// Gaps because there had been no interest in such events here before.
    gaps_not_buffered,
    /// Gaps because something was given up before it was acknowledged.
    gaps_released,
    /// Gaps because a stream had ended, or its broker had lost a part of it.
    gaps_lost,
    /// Gaps because a client took less than came.
    gaps_slow,
    /// Gaps because a client named no position and one was assumed.
    gaps_assumed,
    /// Gaps of streams of which nothing is promised.
    gaps_best_effort,
    /// Subscriptions that fell behind because their client took less than came.
    fell_behind,
    /// Times that a durable subscription lacked something of another broker's stream, and that was
    /// set aside for it.
    streams_set_aside,
    /// Subscriptions that named a place to begin, and were given it.
    resumed,
    /// Parts of other brokers' streams that were refused: of an unknown broker, empty, or with a
    /// bad topic.
    knowledge_refused,
    /// Places to begin that were refused.
    starts_refused,
    /// Positions that clients acknowledged by token.
    tokens_acknowledged,
    /// Deliveries sent again after a reconnection.
    deliveries_repeated,
    /// Best-effort deliveries dropped because the client reads too slowly.
    dropped_slow,
    /// Reliable deliveries dropped, oldest first, because a session's queue was full while its
    /// client was away.
    dropped_queue_full,
    /// Deliveries dropped because the event had expired.
    dropped_expired,
    /// Deliveries dropped because the client does not accept packets of that size.
    dropped_too_large,
    /// Notices left out because the client does not accept packets of that size.
    notices_too_large,
    /// Notices that an event had not come by its deadline.
    notices_overdue,
    /// Events that were not awaited for such notices, as too many were.
    overdue_untold,
    /// Notices that no event had come for the period of its topic's profile.
    notices_stalled,
    /// Events of shared subscriptions that were passed over because no member that was there could
    /// be sent them: too large for it, or not allowed.
    dropped_untaken,
    /// Deliveries dropped because their session or shared subscription ended.
    dropped_session_ended,
    /// Deliveries of shared subscriptions that moved from a member that left, or could not be sent
    /// them, to another.
    shared_moved,
    /// Clients disconnected because they read too slowly.
    kicked_slow,
    /// Connections ended because the log failed while something of them waited for it.
    kicked_log_failed,
    /// Connections ended because their client id attached elsewhere.
    takeovers,
    /// Takeovers that did not wait until all that the old connection had sent was read: it was too
    /// much, or took too long.
    takeovers_cut,
    /// Wills published.
    wills_published,
    /// Sessions that ended because they were away too long.
    sessions_expired,
    /// Attachments refused for the number of sessions.
    sessions_refused,
    /// Subscriptions refused.
    subscriptions_refused,
    /// Gauge: sessions.
    sessions,
    /// Gauge: sessions with a connection.
    sessions_attached,
    /// Gauge: subscriptions that are semi-durable or have notices.
    subscriptions_tracked,
    /// Gauge: those of them in catch-up, those of absent clients included.
    subscriptions_lagging,
    /// Gauge: events in the cache.
    cached_events,
    /// Gauge: bytes of the cache.
    cached_bytes,
    /// Gauge: subscriptions, members of shared ones included.
    subscriptions,
    /// Gauge: selectors; equal ones under the same topic filter count once.
    selectors,
    /// Gauge: retained messages, without those of the broker itself.
    retained,
    /// Gauge: bytes of retained messages.
    retained_bytes,
    /// Gauge: bytes waiting in all queues; an event counts once per queue.
    queued_bytes,
    /// Gauge: events waiting in all queues.
    queued_events,
    /// Routes computed because the cache had none.
    route_misses,
    /// Selectors evaluated because the index could not tell without it.
    selector_evaluations,
    /// Steps of these evaluations.
    selector_steps,
    /// Selectors found true.
    selector_matches,
}

/// The class of a subscription that was told a gap: what it gets of the time in which its client is
/// away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GapClass {
    /// Nothing: it has notices only.
    Nondurable,
    /// The events that the cache has.
    SemiDurable,
    /// All events.
    Durable,
}

impl GapClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [GapClass; 3] = [GapClass::Nondurable, GapClass::SemiDurable, GapClass::Durable];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            GapClass::Nondurable => "nondurable",
            GapClass::SemiDurable => "semi_durable",
            GapClass::Durable => "durable",
        }
    }
}

/// Gaps since the start, by class and reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GapCounts([[u64; GapReason::ALL.len()]; GapClass::ALL.len()]);

impl GapCounts {
    pub(crate) fn count(&mut self, class: GapClass, reason: GapReason) {
        self.0[class as usize][reason.index()] += 1;
    }

    /// Gaps of one class and reason.
    pub fn of(&self, class: GapClass, reason: GapReason) -> u64 {
        self.0[class as usize][reason.index()]
    }

    /// Gaps of one class in which something that was promised may be lost: all but those of clients
    /// that named no position, and of best effort.
    pub fn lost(&self, class: GapClass) -> u64 {
        GapReason::ALL.into_iter().filter(|reason| reason.is_loss()).map(|reason| self.of(class, reason)).sum()
    }

    /// Gaps of streams of which nothing is promised.
    pub fn best_effort(&self) -> u64 {
        GapClass::ALL.into_iter().map(|class| self.of(class, GapReason::BestEffort)).sum()
    }

    /// Gaps of all other streams.
    pub fn promised(&self) -> u64 {
        self.0.iter().flatten().sum::<u64>() - self.best_effort()
    }
}

impl Stats {
    /// Counts an event of a client that has got its id.
    #[inline]
    pub(crate) fn record_accepted(&mut self, event: &EventRef<'_>) {
        self.events_accepted += 1;
        self.payload_bytes_accepted += event.payload.len() as u64;
    }

    /// Counts a gap.
    pub(crate) fn count_gap(&mut self, reason: GapReason) {
        let counter = match reason {
            GapReason::Overwritten => &mut self.gaps_overwritten,
            GapReason::NotBuffered => &mut self.gaps_not_buffered,
            GapReason::Released => &mut self.gaps_released,
            GapReason::Lost => &mut self.gaps_lost,
            GapReason::Slow => &mut self.gaps_slow,
            GapReason::Assumed => &mut self.gaps_assumed,
            GapReason::BestEffort => &mut self.gaps_best_effort,
        };
        *counter += 1;
    }
}
