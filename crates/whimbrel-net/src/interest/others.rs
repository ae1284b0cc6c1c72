//! The known interests of all brokers: each as a whole, and its last change, so that a neighbour
//! that has the version before gets only the change.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{InterestEntry, InterestUpdate, LIST_MAX};

/// An interest whose first subscription was not yet answered when it was announced still counts as
/// unanswered for this time while it is passed on.
const ANSWERED_AFTER: Duration = Duration::from_millis(50);

/// The known interest of one broker.
#[derive(Debug, Default)]
pub struct KnownInterest {
    /// Incarnation of the broker.
    pub incarnation: u64,
    /// Version of the interest in that incarnation.
    pub version: u64,
    /// The entries, by their numbers.
    pub entries: BTreeMap<u32, InterestValue>,
    /// The change that led to this version, if it followed another.
    pub delta: Option<Delta>,
    /// For how long that broker had relied on its interest at `at`, when this version was received;
    /// zero: its first subscription was not yet answered.
    pub age: Duration,
    at: Time,
}

/// One topic filter with its selector, as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterestValue {
    /// Topic filter.
    pub filter: Box<str>,
    /// Selector, in canonical form; `None`: every event under the filter.
    pub selector: Option<Box<str>>,
    /// Wanted by durable subscriptions: such events are logged.
    pub durable: bool,
    /// Wanted by a subscription that answers requests. Never together with `durable`.
    pub replier: bool,
}

/// A version as a change of the version before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The version that it is applied to.
    pub base: u64,
    /// Numbers of entries that go.
    pub removed: Vec<u32>,
    /// Entries that come, by their numbers.
    pub added: Vec<(u32, InterestValue)>,
}

/// The interests of all brokers, this one's included.
#[derive(Debug, Default)]
pub struct Interests {
    /// The interest of each broker.
    pub of: BTreeMap<HostId, KnownInterest>,
    /// Versions that other brokers have announced lately.
    pub recent: RecentCount,
}

/// The number of recent versions, counted in two spans, of which the present one has not ended.
#[derive(Debug, Default)]
pub struct RecentCount {
    since: Time,
    count: u32,
    before: u32,
}

impl RecentCount {
    /// Counts one more.
    pub fn record(&mut self, now: Time, span: Duration) {
        self.turn(now, span);
        self.count = self.count.saturating_add(1);
    }

    /// The approximate number in the last span.
    pub fn count(&mut self, now: Time, span: Duration) -> u32 {
        self.turn(now, span);
        let left = span.saturating_sub(now.since(self.since)).as_nanos();
        let before = u128::from(self.before) * left / span.as_nanos().max(1);
        self.count.saturating_add(before as u32)
    }

    fn turn(&mut self, now: Time, span: Duration) {
        let passed = now.since(self.since);
        if passed >= span * 2 {
            *self = RecentCount { since: now, count: 0, before: 0 };
        } else if passed >= span {
            *self = RecentCount { since: self.since + span, count: 0, before: self.count };
        }
    }
}

/// The result of taking a received interest.
#[derive(Debug, PartialEq, Eq)]
pub enum InterestOutcome {
    /// The version is new: it is passed on.
    News,
    /// This version, or a later one, was known.
    Known,
    /// The version that it builds on is not known.
    Lacking,
    /// It would have more entries than a frame, with which it could not be passed on.
    TooMany,
}

impl KnownInterest {
    /// For how long the subscriber's broker has relied on its interest; zero: the interest has just
    /// been announced, and its first subscription was not answered before. It was answered soon
    /// after, within 50 ms.
    pub fn age_at(&self, now: Time) -> Duration {
        let held = now.since(self.at);
        if self.age.is_zero() && held < ANSWERED_AFTER { self.age } else { self.age + held }
    }
}

impl Interests {
    /// Incarnation and version of the interest of a broker, if it is known.
    pub fn version_of(&self, host: HostId) -> Option<(u64, u64)> {
        self.of.get(&host).map(|known| (known.incarnation, known.version))
    }

    /// Records a change of the own interest.
    pub fn set_own(&mut self, host: HostId, incarnation: u64, version: u64, delta: Delta) {
        let known = self.of.entry(host).or_default();
        if known.incarnation != incarnation {
            known.entries.clear();
        }
        let is_next = known.incarnation == incarnation && known.version == delta.base && delta.base > 0;
        apply(&mut known.entries, &delta);
        (known.incarnation, known.version) = (incarnation, version);
        known.delta = is_next.then_some(delta);
    }

    /// Takes an update that has come over a link; `way` is how long it was on that link at most.
    pub fn take(&mut self, now: Time, way: Duration, update: &InterestUpdate<'_>) -> InterestOutcome {
        let known = self.of.entry(update.host).or_default();
        let version = (known.incarnation, known.version);
        if (update.incarnation, update.version) <= version {
            return InterestOutcome::Known;
        }
        let entry = |entry: &InterestEntry<'_>| {
            let (filter, selector) = (entry.filter.into(), entry.selector.map(Box::from));
            let replier = entry.is_of_replier();
            (entry.id, InterestValue { filter, selector, durable: entry.durable, replier })
        };
        let added = update.added.iter().map(entry).collect();
        match update.base {
            None => {
                known.entries.clear();
                known.delta = None;
                known.entries.extend::<Vec<_>>(added);
            }
            Some(base) if version == (update.incarnation, base) => {
                let delta = Delta { base, removed: update.removed.clone(), added };
                if known.entries.len() + delta.added.len() > LIST_MAX + delta.removed.len() {
                    return InterestOutcome::TooMany;
                }
                apply(&mut known.entries, &delta);
                known.delta = Some(delta);
            }
            Some(_) => {
                if version == (0, 0) {
                    self.of.remove(&update.host);
                }
                return InterestOutcome::Lacking;
            }
        }
        (known.incarnation, known.version) = (update.incarnation, update.version);
        let margin = if update.age_ms > 0 { way + Duration::from_millis(1) } else { Duration::ZERO };
        (known.age, known.at) = (Duration::from_millis(update.age_ms).saturating_add(margin), now);
        InterestOutcome::News
    }
}

fn apply(entries: &mut BTreeMap<u32, InterestValue>, delta: &Delta) {
    for id in &delta.removed {
        entries.remove(id);
    }
    for (id, entry) in &delta.added {
        entries.insert(*id, entry.clone());
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_wire::REPLIER_NUMBER;

    use super::*;

    /// As a broker of an earlier minor version passes an interest on: number, filter, selector, and
    /// whether it is durable.
    #[test]
    fn a_mark_passes_a_broker_that_does_not_know_it() {
        let entry = |id, filter| InterestEntry { id, filter, selector: None, durable: false };
        let added = vec![entry(1, "a"), entry(2 | REPLIER_NUMBER, "b")];
        let host = HostId::new(16);
        let update =
            InterestUpdate { host, incarnation: 1, version: 1, base: None, removed: Vec::new(), added, age_ms: 0 };
        let mut interests = Interests::default();
        assert_eq!(interests.take(Time::ZERO, Duration::ZERO, &update), InterestOutcome::News);
        let of = |interests: &Interests| -> Vec<(u32, bool)> {
            interests.of[&host].entries.iter().map(|(id, entry)| (*id, entry.replier)).collect()
        };
        assert_eq!(of(&interests), [(1, false), (2 | REPLIER_NUMBER, true)]);
        let removed = vec![2 | REPLIER_NUMBER];
        let update = InterestUpdate { version: 2, base: Some(1), removed, added: vec![entry(3, "b")], ..update };
        assert_eq!(interests.take(Time::ZERO, Duration::ZERO, &update), InterestOutcome::News);
        assert_eq!(of(&interests), [(1, false), (3, false)]);
    }

    #[test]
    fn what_was_told_of_late_is_forgotten_bit_by_bit() {
        let span = Duration::from_secs(1);
        let at = |millis: u64| Time::from_nanos(1_000_000_000_000 + millis * 1_000_000);
        let mut recent = RecentCount::default();
        (0..100).for_each(|step| recent.record(at(step * 10), span));
        assert_eq!(recent.count(at(999), span), 100);
        assert_eq!(recent.count(at(1_500), span), 50);
        (0..10).for_each(|_| recent.record(at(1_750), span));
        assert_eq!(recent.count(at(1_750), span), 35);
        assert_eq!(recent.count(at(2_500), span), 5);
        assert_eq!(recent.count(at(5_000), span), 0);
    }
}
