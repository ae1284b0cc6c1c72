//! How much of a link's bytes QUIC is given: about what is on its way at once, so that little waits
//! in the network, and the order of what waits is still this broker's.
//!
//! QUIC shares its send window among all streams and tells of no stream what was acknowledged. Its
//! congestion controller learns of all packets, so one is put around it that counts them. What is
//! given is limited to the bandwidth of the last round trip times the least round-trip time and a
//! few milliseconds, as delay-based congestion control does (Vegas, LEDBAT); QUIC's own window
//! stays in force.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn_proto::RttEstimator;

use crate::overlay::LinkFaults;

/// How much longer than the least the round trip may take because of what this broker sends.
const QUEUE: Duration = Duration::from_millis(5);

/// Bytes that may be under way on any path. With fewer packets than the other end may leave
/// unacknowledged, the link would wait for its timer.
const WINDOW_MIN: u64 = 10_000;

/// Bytes of ordinary events and bulk that QUIC has at once, at most. Its send window is greater.
pub(in crate::overlay) const WINDOW_MAX: u64 = 4 << 20;

/// Beyond the window there is room for urgent events: a part of the window, one in this many, and
/// [`URGENT_MIN`].
const URGENT_ONE_IN: u64 = 4;

/// See [`URGENT_ONE_IN`]; bytes.
const URGENT_MIN: u64 = 4 << 10;

/// Bytes beyond the congestion window that QUIC is given, or it would not find that it is the
/// limit: a part of it, one in this many, and [`BEYOND_MIN`].
const BEYOND_ONE_IN: u64 = 4;

/// See [`BEYOND_ONE_IN`]; bytes.
const BEYOND_MIN: u64 = 6_000;

/// A round is at least this long: over less time a rate means little.
const ROUND_MIN: Duration = Duration::from_millis(2);

/// Number of rounds over which the rate is taken, roughly.
const RATE_ROUNDS: u64 = 8;

/// The least round-trip time is measured anew after this time.
const LEAST_KEPT: Duration = Duration::from_secs(10);

/// For this many rounds half of the window is used before the least round-trip time is taken anew:
/// what is under way in the first one was sent before.
const DRAIN_ROUNDS: u8 = 3;

/// The task of a link waits for no room, for room of ordinary events, or of urgent ones.
const AWAITS_NOTHING: u8 = 0;
const AWAITS_ROOM: u8 = 1;
const AWAITS_URGENT_ROOM: u8 = 2;

/// What a link's path takes, shared by QUIC and the link's port.
#[derive(Debug)]
pub(super) struct PathGauge {
    /// Bytes in flight.
    in_flight: AtomicU64,
    /// Bytes that were given to QUIC and have not been sent.
    given: AtomicU64,
    /// The bytes of both that there may be of ordinary events and bulk.
    window: AtomicU64,
    /// Bytes a second that were acknowledged of late.
    rate: AtomicU64,
    /// What the task waits for.
    awaited: AtomicU8,
    task: Mutex<Option<Waker>>,
}

impl PathGauge {
    fn new(window: u64) -> PathGauge {
        PathGauge {
            in_flight: AtomicU64::new(0),
            given: AtomicU64::new(0),
            window: AtomicU64::new(window),
            rate: AtomicU64::new(0),
            awaited: AtomicU8::new(AWAITS_NOTHING),
            task: Mutex::new(None),
        }
    }

    /// That of a connection's present path.
    pub(super) fn of(connection: &quinn::Connection) -> Arc<PathGauge> {
        let controller = connection.congestion_state().into_any().downcast::<Measured>();
        controller.map_or_else(|_| Arc::new(PathGauge::new(WINDOW_MAX)), |measured| measured.gauge.clone())
    }

    /// Bytes of ordinary events and bulk that QUIC may be given.
    pub(super) fn room(&self) -> usize {
        self.beyond(0)
    }

    /// Bytes a second that the path has carried of late, over about [`RATE_ROUNDS`] round trips:
    /// what it can carry, if output has waited for it meanwhile.
    pub(super) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Bytes of urgent events that QUIC may be given.
    pub(super) fn urgent_room(&self) -> usize {
        self.beyond(self.window.load(Ordering::Relaxed) / URGENT_ONE_IN + URGENT_MIN)
    }

    fn beyond(&self, more: u64) -> usize {
        let used = self.in_flight.load(Ordering::Relaxed) + self.given.load(Ordering::Relaxed);
        (self.window.load(Ordering::Relaxed) + more).saturating_sub(used) as usize
    }

    /// Records bytes that QUIC is about to be given.
    pub(super) fn give(&self, bytes: usize) {
        self.given.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records bytes that QUIC has not taken.
    pub(super) fn take_back(&self, bytes: usize) {
        less(&self.given, bytes as u64);
    }

    /// Has a task woken when there is room, or room for urgent events.
    pub(super) fn wake(&self, task: &Waker, is_urgent: bool) {
        let mut known = self.task.lock();
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
        self.awaited.store(if is_urgent { AWAITS_URGENT_ROOM } else { AWAITS_ROOM }, Ordering::SeqCst);
        // What was acknowledged before is seen by the caller, or the store by who acknowledges.
        fence(Ordering::SeqCst);
    }

    /// Wakes the task if there is the room that it waits for.
    fn tell_room(&self) {
        fence(Ordering::SeqCst);
        let room = match self.awaited.load(Ordering::SeqCst) {
            AWAITS_NOTHING => 0,
            AWAITS_ROOM => self.room(),
            _ => self.urgent_room(),
        };
        if room > 0 && self.awaited.swap(AWAITS_NOTHING, Ordering::SeqCst) != AWAITS_NOTHING {
            let task = self.task.lock().clone();
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}

/// Subtracts, down to zero.
fn less(count: &AtomicU64, by: u64) {
    let less = |value: u64| Some(value.saturating_sub(by));
    // The closure gives a value each time.
    let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// What is measured of a path, a round trip at a time.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    began: Instant,
    /// Bytes acknowledged in this round.
    acked: u64,
    /// The least round-trip time in this round.
    trip: Option<Duration>,
    /// The least round-trip time of the path, and when it was measured.
    least: Option<Duration>,
    least_at: Instant,
    /// Rounds for which half of the window is used.
    drains: u8,
    window: u64,
    /// See [`PathGauge::rate`].
    rate: u64,
}

impl Rounds {
    fn new(now: Instant) -> Rounds {
        Rounds { began: now, acked: 0, trip: None, least: None, least_at: now, drains: 0, window: u64::MAX, rate: 0 }
    }

    fn record(&mut self, trip: Duration, bytes: u64) {
        self.acked += bytes;
        self.trip = Some(self.trip.map_or(trip, |least| least.min(trip)));
    }

    /// Ends the round if it has lasted a round trip. `most`: the greatest window. Returns the
    /// window.
    fn end(&mut self, now: Instant, most: u64) -> u64 {
        let span = now.saturating_duration_since(self.began);
        if let Some(trip) = self.trip
            && span >= trip.max(ROUND_MIN)
        {
            let acked = std::mem::take(&mut self.acked);
            (self.began, self.trip) = (now, None);
            self.measure(now, trip);
            self.judge(trip, most, (acked, span));
            let rate = acked * 1_000_000 / (span.as_micros() as u64).max(1);
            self.rate = (self.rate * (RATE_ROUNDS - 1) + rate) / RATE_ROUNDS;
        }
        let window = self.window.min(most);
        if self.drains > 0 { (window / 2).max(WINDOW_MIN) } else { window }
    }

    /// Takes the round-trip time of a round.
    fn measure(&mut self, now: Instant, trip: Duration) {
        if self.drains > 0 {
            self.drains -= 1;
            if self.drains == 0 {
                self.least = None;
            }
        }
        if self.least.is_none_or(|least| trip <= least) {
            (self.least, self.least_at, self.drains) = (Some(trip), now, 0);
        } else if self.drains == 0 && now.saturating_duration_since(self.least_at) > LEAST_KEPT {
            self.drains = DRAIN_ROUNDS;
        }
    }

    /// Adapts the window to what was acknowledged within a time.
    fn judge(&mut self, trip: Duration, most: u64, (acked, span): (u64, Duration)) {
        let micros = |span: Duration| (span.as_micros() as u64).max(1);
        let least = self.least.unwrap_or(trip);
        let (window, wanted) = (self.window.min(most), least + QUEUE);
        let is_used = acked >= window / 2;
        let scaled = match trip {
            trip if trip <= least + QUEUE / 2 => window + window / 8,
            trip if trip <= wanted || is_used => (window * micros(wanted) / micros(trip)).min(2 * window),
            // It takes longer for another reason than what this broker sends.
            _ => window,
        };
        let carried = acked * micros(wanted) / micros(span);
        self.window = scaled.max(carried).clamp(WINDOW_MIN, most.max(WINDOW_MIN));
    }
}

/// A congestion controller that tells of its path.
struct Measured {
    inner: Box<dyn Controller>,
    rounds: Rounds,
    gauge: Arc<PathGauge>,
    faults: LinkFaults,
}

impl Measured {
    fn most(&self) -> u64 {
        let window = self.inner.window();
        (window + window / BEYOND_ONE_IN + BEYOND_MIN).min(WINDOW_MAX)
    }
}

impl Controller for Measured {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
        // Packets that only acknowledge are reported too, and are never in flight.
        let moved = bytes.min(self.gauge.given.load(Ordering::Relaxed));
        self.gauge.in_flight.fetch_add(moved, Ordering::Relaxed);
        less(&self.gauge.given, moved);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
        self.rounds.record(now.saturating_duration_since(sent), bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
        let most = self.most();
        let measured = self.rounds.end(now, most);
        let window = if self.faults.bulk_fills_window() { WINDOW_MAX } else { measured };
        self.gauge.in_flight.store(in_flight, Ordering::Relaxed);
        self.gauge.window.store(window, Ordering::Relaxed);
        self.gauge.rate.store(self.rounds.rate, Ordering::Relaxed);
        self.gauge.tell_room();
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent, lost);
        less(&self.gauge.in_flight, lost);
        self.gauge.tell_room();
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.inner.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let Measured { rounds, faults, .. } = *self;
        Box::new(Measured { inner: self.inner.clone_box(), rounds, gauge: self.gauge.clone(), faults })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Makes a [`Controller`] for each path: QUIC's default one, which tells of its path.
#[derive(Debug)]
pub(in crate::overlay) struct MeasuredPaths {
    inner: Arc<CubicConfig>,
    faults: LinkFaults,
}

impl MeasuredPaths {
    pub(in crate::overlay) fn new(faults: LinkFaults) -> MeasuredPaths {
        MeasuredPaths { inner: Arc::default(), faults }
    }
}

impl ControllerFactory for MeasuredPaths {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let inner = self.inner.clone().build(now, mtu);
        let (rounds, gauge) = (Rounds::new(now), Arc::new(PathGauge::new(0)));
        let mut measured = Measured { inner, rounds, gauge, faults: self.faults };
        let most = measured.most();
        measured.gauge = Arc::new(PathGauge::new(most));
        Box::new(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// A path of this rate (bytes a millisecond) and least round-trip time, over which the window
    /// is always used. Returns the longest round trip of the last half.
    fn run(rounds: &mut Rounds, now: &mut Instant, (rate, least): (u64, Duration), times: u32) -> Duration {
        let mut longest = Duration::ZERO;
        for time in 0..times {
            let window = rounds.end(*now, WINDOW_MAX);
            let trip = least.max(Duration::from_micros(window * 1_000 / rate));
            *now += trip.max(ROUND_MIN);
            let carried = window.min(rate * trip.as_micros() as u64 / 1_000);
            rounds.record(trip, carried);
            // While it is measured anew less is under way.
            if time >= times / 2 && rounds.drains == 0 {
                longest = longest.max(trip);
            }
        }
        longest
    }

    #[test]
    fn a_narrow_path_has_little_that_waits_on_it_and_a_wide_one_is_filled() {
        for (rate, least) in [(1_250, 1), (1_250, 20), (1_250, 100), (12_500, 40), (125_000, 10)] {
            let mut now = Instant::now();
            let mut rounds = Rounds::new(now);
            // Measured once without anything that waits.
            rounds.record(MILLI * least, 1_200);
            now += MILLI * least + ROUND_MIN;
            let longest = run(&mut rounds, &mut now, (rate, MILLI * least), 400);
            let waits = longest.saturating_sub(MILLI * least);
            assert!(waits <= QUEUE * 2 + MILLI * least / 7 + MILLI * 12, "{rate} {least}: {waits:?}");
            let product = rate * u64::from(least);
            assert!(rounds.window >= product.min(WINDOW_MAX), "{rate} {least}: {} of {product}", rounds.window);
        }
    }

    #[test]
    fn a_path_that_becomes_wider_is_filled_again() {
        let mut now = Instant::now();
        let mut rounds = Rounds::new(now);
        rounds.record(MILLI * 20, 1_200);
        now += MILLI * 22;
        run(&mut rounds, &mut now, (1_250, MILLI * 20), 100);
        assert!(rounds.window < 1_250 * 40);
        run(&mut rounds, &mut now, (12_500, MILLI * 20), 100);
        assert!(rounds.window >= 12_500 * 20, "{}", rounds.window);
    }

    #[test]
    fn round_trips_that_are_long_without_much_under_way_change_nothing() {
        let mut now = Instant::now();
        let mut rounds = Rounds::new(now);
        for trip in [1, 26, 26, 26, 26, 26] {
            now += MILLI * 30;
            rounds.record(MILLI * trip, 1_200);
            assert_eq!(rounds.end(now, 1 << 20), 1 << 20);
        }
    }

    #[test]
    fn urgent_events_have_room_beyond_the_window() {
        let gauge = PathGauge::new(100_000);
        gauge.give(100_000);
        assert_eq!((gauge.room(), gauge.urgent_room()), (0, 25_000 + URGENT_MIN as usize));
        gauge.take_back(10_000);
        assert_eq!(gauge.room(), 10_000);
    }
}
