//! Bounds of the throughput of topics: the generic cell rate algorithm (ITU-T I.371, annex A).

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{EventRef, Qos, Time};

use super::profile::TopicRate;

/// A topic may be ahead of its rate by what it may have in this time; a single event always
/// conforms after a pause.
pub const RATE_BURST: Duration = Duration::from_millis(100);

/// Topics whose rate is followed at a time; beyond, the ones that conform are forgotten, and if
/// there are none, all: each may have one burst more then.
pub const RATE_TOPICS_MAX: usize = 65_536;

/// For each topic with a bound, the time at which it will have conformed with all its events.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    conforms_at: BTreeMap<Box<str>, Time>,
}

impl Rates {
    /// Counts an event of its topic; returns for how long the topic exceeds its rate with it, zero
    /// if it conforms. One of QoS 0 that exceeds the rate is not counted.
    pub(crate) fn count(&mut self, now: Time, event: &EventRef<'_>, rate: TopicRate) -> Duration {
        let cost = cost(rate, event);
        let topic = event.topic;
        let at = self.conforms_at.get(topic).copied().unwrap_or(now).max(now);
        let excess = (at.since(now) + cost).saturating_sub(RATE_BURST.max(cost));
        if !excess.is_zero() && event.qos == Qos::AtMostOnce {
            return excess;
        }
        if let Some(known) = self.conforms_at.get_mut(topic) {
            *known = at.after(cost);
            return excess;
        }
        if self.conforms_at.len() >= RATE_TOPICS_MAX {
            self.conforms_at.retain(|_, at| *at > now);
            if self.conforms_at.len() >= RATE_TOPICS_MAX {
                self.conforms_at.clear();
            }
        }
        self.conforms_at.insert(topic.into(), now.after(cost));
        excess
    }
}

/// The time in which a topic may have an event.
fn cost(rate: TopicRate, event: &EventRef<'_>) -> Duration {
    const SECOND: u64 = 1_000_000_000;
    Duration::from_nanos(match rate {
        TopicRate::Events(events) => SECOND / u64::from(events.get()),
        TopicRate::Bytes(per_second) => {
            (event.packed_len() as u64).saturating_mul(SECOND) / u64::from(per_second.get())
        }
    })
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use super::*;

    const NOW: Time = Time::from_nanos(1 << 60);

    fn event(topic: &str, qos: Qos) -> EventRef<'_> {
        EventRef::new(topic, b"x", qos)
    }

    fn events(per_second: u32) -> TopicRate {
        TopicRate::Events(NonZeroU32::new(per_second).expect("not zero"))
    }

    #[test]
    fn a_burst_conforms_and_what_is_beyond_exceeds_by_its_distance() {
        let mut rates = Rates::default();
        let millis = |of: &mut Rates, at: u64| {
            of.count(NOW.after(Duration::from_millis(at)), &event("t", Qos::AtLeastOnce), events(100)).as_millis()
        };
        assert_eq!((0..10).map(|_| millis(&mut rates, 0)).sum::<u128>(), 0, "ten events in 100 ms");
        assert_eq!([millis(&mut rates, 0), millis(&mut rates, 0)], [10, 20]);
        assert_eq!(millis(&mut rates, 20), 10, "time goes on");
        assert_eq!(millis(&mut rates, 1_000), 0);
        let other = rates.count(NOW, &event("other", Qos::AtLeastOnce), events(100));
        assert_eq!(other, Duration::ZERO, "each topic for itself");
    }

    #[test]
    fn what_is_dropped_is_not_counted() {
        let mut rates = Rates::default();
        let mut millis = |qos| rates.count(NOW, &event("t", qos), events(10)).as_millis();
        let [first, dropped, again, held, beyond] =
            [Qos::AtMostOnce, Qos::AtMostOnce, Qos::AtMostOnce, Qos::AtLeastOnce, Qos::AtLeastOnce].map(&mut millis);
        assert_eq!([first, dropped, again, held, beyond], [0, 100, 100, 100, 200]);
    }

    #[test]
    fn an_event_larger_than_a_burst_conforms_after_a_pause() {
        let mut rates = Rates::default();
        let large = event("t", Qos::AtMostOnce);
        let bytes = large.packed_len() as u32;
        let rate = TopicRate::Bytes(NonZeroU32::new(2 * bytes).expect("not zero"));
        assert_eq!(rates.count(NOW, &large, rate), Duration::ZERO);
        assert_eq!(rates.count(NOW, &large, rate), Duration::from_millis(500));
        assert_eq!(rates.count(NOW.after(Duration::from_millis(500)), &large, rate), Duration::ZERO);
    }

    #[test]
    fn the_number_of_topics_is_bounded() {
        let mut rates = Rates::default();
        for number in 0..RATE_TOPICS_MAX + 10 {
            rates.count(NOW, &event(&number.to_string(), Qos::AtMostOnce), events(1));
        }
        assert!(rates.conforms_at.len() <= RATE_TOPICS_MAX);
    }
}
