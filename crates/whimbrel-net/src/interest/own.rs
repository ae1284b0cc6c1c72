//! The interest of this broker, as it tells the other brokers.
//!
//! Every change makes a new *version*, and others say in which tick of each of their streams it
//! came into force. Versions go on over the incarnations of a broker: the first of an incarnation
//! is greater than all of earlier ones, so that a frame sent for an earlier version is never taken
//! for one of this incarnation.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, Time};
use whimbrel_selector::{Selector, TopicFilter};
use whimbrel_wire::REPLIER_NUMBER;

use super::others::{Delta, InterestValue, RecentCount};
use super::reduce::{Even, ReducedEntry, Reduction};
use crate::topology::FEW_BROKERS;

/// Least interval between two versions; with many brokers it is longer: see [`EVERY_BROKER`].
pub const INTEREST_EVERY: Duration = Duration::from_millis(50);

/// Added to [`INTEREST_EVERY`] for each broker, as each change goes to all of them. With more than
/// [`FEW_BROKERS`] it is added for each version that other brokers have announced recently instead,
/// so that a single broker with a change need not wait for brokers without one.
pub const EVERY_BROKER: Duration = Duration::from_millis(5);

/// Bytes of all filters and selectors of durable subscriptions together, and likewise of the
/// others; beyond that they become one entry for all topics and one for each first level with `$`,
/// of which there are few, see [`super::reduce::SYSTEM_ROOTS_MAX`]. Three such lists fit a frame.
pub const INTEREST_BYTES_MAX: usize = 512 << 10;

/// The lists of entries that are told, each reduced to a third of what a frame may have.
const LISTS: usize = 3;

/// Shift from an incarnation, nanoseconds, to its first version: there is room for one version per
/// 1.05 ms between the starts of two incarnations.
const VERSION_SHIFT: u32 = 20;

/// What this broker wants, and the interest that it has announced.
#[derive(Debug)]
pub struct OwnInterest {
    host: HostId,
    /// What is wanted.
    reduction: Reduction,
    /// What durable subscriptions want of that, reduced separately: other brokers keep their logs
    /// for it.
    durable: Reduction,
    /// What repliers want of both, reduced separately: other brokers are told which entries these
    /// are.
    repliers: Reduction,
    /// The log has failed: nothing is durable any more.
    is_forgetful: bool,
    /// The subscriptions that are counted, by their keys in the router and, under a key, in the
    /// order in which they were added. A key has two for a moment: the new one is added before the
    /// old one is removed.
    counted: BTreeMap<(u64, u64), CountedInterest>,
    /// The announced entries, by number.
    told: BTreeMap<u32, InterestValue>,
    numbers: BTreeMap<InterestValue, u32>,
    next_number: u32,
    version: u64,
    told_at: Time,
    /// The version with which the interest became nonempty.
    began: u64,
    /// When the first subscription of this interest was answered: from then on its client relies on
    /// its events.
    answered_at: Option<Time>,
    /// When the first subscription of the first version was answered, if that was before there was
    /// another broker: see [`OwnInterest::begin`].
    answered_before: Option<Time>,
}

/// A subscription that the reductions have.
#[derive(Debug)]
struct CountedInterest {
    /// Boxed: most have none.
    selector: Option<Box<Selector>>,
    durable: bool,
    replier: bool,
}

/// A subscription as other brokers are told of it.
#[derive(Debug)]
pub struct AddedInterest {
    /// Its topic filter.
    pub filter: Box<str>,
    /// Its selector.
    pub selector: Option<Selector>,
    /// The events that it selects are to be logged.
    pub durable: bool,
    /// It answers requests.
    pub replier: bool,
}

/// A subscription that was added to the router or removed from it.
#[derive(Debug)]
pub enum InterestChange {
    /// There is a subscription under this key now.
    Added(u64, AddedInterest),
    /// The subscription under this key was removed.
    Removed(u64, Box<str>),
}

impl OwnInterest {
    /// An empty interest. `answered_at`: when subscriptions of an earlier incarnation were
    /// answered, if there are any.
    pub fn new(host: HostId, incarnation: u64, answered_at: Option<Time>) -> OwnInterest {
        OwnInterest {
            host,
            reduction: Reduction::new(),
            durable: Reduction::new(),
            repliers: Reduction::new(),
            is_forgetful: false,
            counted: BTreeMap::new(),
            told: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next_number: 0,
            version: incarnation >> VERSION_SHIFT,
            told_at: Time::ZERO,
            began: 0,
            answered_at,
            answered_before: None,
        }
    }

    /// Whether an announced entry is of durable subscriptions.
    pub fn has_durable(&self) -> bool {
        self.told.values().any(|entry| entry.durable)
    }

    /// The present version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Records that a subscription was answered.
    pub fn record_answered(&mut self, now: Time) {
        self.answered_at.get_or_insert(now);
    }

    /// Begins with subscriptions that were answered since the first call of
    /// [`OwnInterest::record_answered`] after [`OwnInterest::forget_answers`], before there was
    /// another broker.
    pub fn begin(&mut self) {
        self.answered_before = self.answered_at;
    }

    /// Records that no subscription has been answered that still exists.
    pub fn forget_answers(&mut self) {
        self.answered_at = None;
    }

    /// For how long the subscribers have relied on this interest; zero: no subscription is answered
    /// yet. Otherwise at least one millisecond.
    pub fn age(&self, now: Time) -> Duration {
        self.answered_at.map_or(Duration::ZERO, |at| now.since(at).max(Duration::from_millis(1)))
    }

    /// The announced entries.
    pub fn entries(&self) -> impl Iterator<Item = &InterestValue> {
        self.told.values()
    }

    /// The version with which the interest became nonempty.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// The version that a tag names: the latest that is not beyond the present one.
    pub fn version_of(&self, tag: u16) -> u64 {
        let low = tag ^ tag_mask(self.host);
        let back = (self.version as u16).wrapping_sub(low);
        self.version.saturating_sub(u64::from(back))
    }

    /// Returns the whole interest, to be announced under another host.
    pub fn rehost(&mut self, host: HostId, incarnation: u64) -> Delta {
        self.host = host;
        self.is_forgetful = true;
        self.restart(incarnation)
    }

    /// Returns the whole interest, to be announced for another incarnation: all that was announced
    /// before is void.
    pub fn restart(&mut self, incarnation: u64) -> Delta {
        self.version = self.version.max(incarnation >> VERSION_SHIFT) + 1;
        Delta {
            base: 0,
            removed: Vec::new(),
            added: self.told.iter().map(|(id, entry)| (*id, entry.clone())).collect(),
        }
    }

    /// The earliest moment of the next version, where this many brokers are known, this one among
    /// them. `recent` counts the versions that other brokers have announced.
    pub fn next_version_at(&self, now: Time, brokers: usize, recent: &mut RecentCount) -> Time {
        let all = brokers as u32;
        let told = match brokers {
            ..=FEW_BROKERS => all,
            _ => recent.count(now, EVERY_BROKER * all).min(all),
        };
        now.max(self.told_at + INTEREST_EVERY + EVERY_BROKER * told)
    }

    /// Applies a change of the router.
    pub fn apply(&mut self, change: InterestChange) {
        match change {
            InterestChange::Added(key, AddedInterest { filter, selector, durable, replier }) => {
                if is_local(&filter) {
                    return;
                }
                // Fences are each broker's own: others could find that an event is outside where
                // this one finds it inside.
                let selector = selector.filter(|selector| selector.fences().next().is_none());
                let topics = TopicFilter::checked(&filter);
                let reduction = if durable { &mut self.durable } else { &mut self.reduction };
                if reduction.insert(topics, selector.as_ref()).is_ok() {
                    // Beyond its bound of roots with `$` there is no mark, as there is no interest
                    // beyond those of the others.
                    let replier = replier && self.repliers.insert(topics, selector.as_ref()).is_ok();
                    let last = self.counted.range(of_key(key)).next_back();
                    let place = (key, last.map_or(0, |((_, before), _)| before + 1));
                    let selector = selector.map(Box::new);
                    self.counted.insert(place, CountedInterest { selector, durable, replier });
                }
            }
            InterestChange::Removed(key, filter) => {
                let Some(place) = self.counted.range(of_key(key)).next().map(|(place, _)| *place) else { return };
                let Some(CountedInterest { selector, durable, replier }) = self.counted.remove(&place) else { return };
                let topics = TopicFilter::checked(&filter);
                let reduction = if durable { &mut self.durable } else { &mut self.reduction };
                reduction.remove(topics, selector.as_deref());
                if replier {
                    self.repliers.remove(topics, selector.as_deref());
                }
            }
        }
    }

    /// The entries that other brokers are to be told: those of what is wanted, those of what
    /// durable subscriptions want, and of the latter those once more that repliers want. Marks
    /// never widen anything: an entry is marked if something that repliers want may be under it.
    fn wanted(&mut self, bound: usize) -> Vec<InterestValue> {
        let bound = bound.min(whimbrel_wire::LIST_MAX / LISTS);
        let entry = |entry: &ReducedEntry, durable| InterestValue {
            filter: entry.filter.clone(),
            selector: entry.selector.as_ref().map(|selector| selector.to_string().into()),
            durable,
            replier: false,
        };
        let is_durable = !self.is_forgetful;
        let mut wanted = bounded(self.reduction.reduced(bound, &Even).iter().map(|one| entry(one, false)).collect());
        let durable = bounded(self.durable.reduced(bound, &Even).iter().map(|one| entry(one, is_durable)).collect());
        if !self.repliers.is_empty() {
            let repliers = self.repliers.reduced(bound, &Even);
            let is_of_replier = |entry: &InterestValue| {
                let topics = TopicFilter::checked(&entry.filter);
                repliers.iter().any(|one| TopicFilter::checked(&one.filter).intersects(topics))
            };
            wanted.iter_mut().for_each(|one| one.replier = is_of_replier(one));
            let beside = durable.iter().filter(|one| is_of_replier(one));
            wanted.extend(beside.map(|one| InterestValue { durable: false, replier: true, ..one.clone() }));
        }
        wanted.extend(durable);
        wanted
    }

    /// The next number of an entry; numbers in use are skipped.
    fn take_number(&mut self) -> u32 {
        loop {
            self.next_number = self.next_number.wrapping_add(1) & !REPLIER_NUMBER;
            let is_free = |number| !self.told.contains_key(&number);
            if is_free(self.next_number) && is_free(self.next_number | REPLIER_NUMBER) {
                return self.next_number;
            }
        }
    }

    /// Makes a new version of the changes, if other brokers have to know of them.
    pub fn renew(&mut self, now: Time, bound: usize) -> Option<Delta> {
        let mut wanted = self.wanted(bound);
        wanted.sort_unstable();
        wanted.dedup_by(|next, first| {
            let is_same =
                (&next.filter, &next.selector, next.durable) == (&first.filter, &first.selector, first.durable);
            first.replier |= is_same && next.replier;
            is_same
        });
        let mut gone: BTreeMap<u32, ()> = self.told.keys().map(|id| (*id, ())).collect();
        let mut delta = Delta { base: self.version, ..Delta::default() };
        for entry in wanted {
            match self.numbers.get(&entry) {
                Some(id) => {
                    gone.remove(id);
                }
                None => {
                    let mark = if entry.replier { REPLIER_NUMBER } else { 0 };
                    delta.added.push((self.take_number() | mark, entry));
                }
            }
        }
        delta.removed = gone.into_keys().collect();
        if delta.added.is_empty() && delta.removed.is_empty() {
            return None;
        }
        let was_empty = self.told.is_empty();
        for id in &delta.removed {
            let entry = self.told.remove(id).expect("what was told is known");
            self.numbers.remove(&entry);
        }
        for (id, entry) in &delta.added {
            self.numbers.insert(entry.clone(), *id);
            self.told.insert(*id, entry.clone());
        }
        self.version += 1;
        self.told_at = now;
        if was_empty {
            self.answered_at = self.answered_before.take();
            self.began = self.version;
        }
        Some(delta)
    }
}

/// The places of the subscriptions that are counted under a key.
fn of_key(key: u64) -> core::ops::RangeInclusive<(u64, u64)> {
    (key, 0)..=(key, u64::MAX)
}

/// Entries that together fit into a frame: if they do not, one entry for all topics, and one for
/// each first level with `$` that occurs.
fn bounded(wanted: Vec<InterestValue>) -> Vec<InterestValue> {
    let bytes =
        |entry: &InterestValue| entry.filter.len() + entry.selector.as_ref().map_or(0, |selector| selector.len());
    if wanted.iter().map(bytes).sum::<usize>() <= INTEREST_BYTES_MAX {
        return wanted;
    }
    let roots = wanted.iter().filter_map(|entry| {
        let root = entry.filter.split('/').next().expect("a text has a first part");
        root.starts_with('$').then(|| root.into())
    });
    let roots: BTreeSet<String> = roots.collect();
    let durable = wanted.iter().any(|entry| entry.durable);
    let replier = wanted.iter().any(|entry| entry.replier);
    let all = |filter: String| InterestValue { filter: filter.into(), selector: None, durable, replier };
    core::iter::once(all("#".into())).chain(roots.into_iter().map(|root| all(format!("{root}/#")))).collect()
}

/// Whether a topic is local to each broker: never announced to others, nor wanted of them.
pub fn is_local(topic: &str) -> bool {
    topic.starts_with("$SYS/") || topic.starts_with("$whimbrel/") || topic == "$SYS" || topic == "$whimbrel"
}

/// The mask of the tags for a broker, so that a frame that reaches the wrong broker is not believed
/// there.
fn tag_mask(host: HostId) -> u16 {
    let mut state = host.as_u64();
    (whimbrel_event::split_mix(&mut state) >> 48) as u16
}

/// The tag of a version in frames to that broker.
pub fn tag_of(host: HostId, version: u64) -> u16 {
    version as u16 ^ tag_mask(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interest::reduce::SYSTEM_ROOT_BYTES_MAX;

    fn added(filter: &str, durable: bool, replier: bool) -> AddedInterest {
        AddedInterest { filter: filter.into(), selector: None, durable, replier }
    }

    fn told(own: &OwnInterest) -> Vec<(&str, bool, bool)> {
        let mut told: Vec<_> = own.entries().map(|one| (&*one.filter, one.durable, one.replier)).collect();
        told.sort_unstable();
        told
    }

    fn own(changes: impl IntoIterator<Item = (u64, AddedInterest)>) -> OwnInterest {
        let mut own = OwnInterest::new(HostId::new(16), 1 << 40, None);
        changes.into_iter().for_each(|(key, added)| own.apply(InterestChange::Added(key, added)));
        own
    }

    #[test]
    fn a_mark_is_beside_a_durable_entry_and_on_the_same_other_one() {
        let wanted =
            [added("a", false, false), added("a", false, true), added("b", true, true), added("c", true, false)];
        let mut own = own((1..).zip(wanted));
        let delta = own.renew(Time::ZERO, 256).expect("it is new");
        assert_eq!(told(&own), [("a", false, true), ("b", false, true), ("b", true, false), ("c", true, false)]);
        let marked = delta.added.iter().filter(|(number, _)| number & REPLIER_NUMBER != 0);
        assert!(marked.map(|(_, entry)| (&*entry.filter, entry.replier)).eq([("a", true), ("b", true)]));
        own.apply(InterestChange::Removed(2, "a".into()));
        own.apply(InterestChange::Removed(3, "b".into()));
        own.renew(Time::ZERO, 256).expect("it has changed");
        assert_eq!(told(&own), [("a", false, false), ("c", true, false)]);
    }

    #[test]
    fn without_repliers_numbers_have_no_mark() {
        let mut own = own((1..).zip([added("a", false, false), added("b", true, false)]));
        let delta = own.renew(Time::ZERO, 256).expect("it is new");
        assert_eq!(delta.added.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
    }

    /// The bytes of the frame with the whole interest.
    fn frame_of(own: &OwnInterest) -> Vec<u8> {
        let entry = |(id, one): (&u32, &InterestValue)| (*id, one.clone());
        let told: Vec<(u32, InterestValue)> = own.told.iter().map(entry).collect();
        let added = told.iter().map(|(id, one)| whimbrel_wire::InterestEntry {
            id: *id,
            filter: &one.filter,
            selector: one.selector.as_deref(),
            durable: one.durable,
        });
        let (host, incarnation, version) = (HostId::new(16), 1, 1);
        let (base, removed, added, age_ms) = (None, Vec::new(), added.collect(), 0);
        let update = whimbrel_wire::InterestUpdate { host, incarnation, version, base, removed, added, age_ms };
        let mut frame = Vec::new();
        whimbrel_wire::Frame::Interest(update).encode(&mut frame);
        frame
    }

    #[test]
    fn the_longest_first_levels_fit_a_frame_with_marks_on_all_of_them() {
        let long = |at: usize, len: usize| format!("${at:02}{}", "x".repeat(len - 3));
        for len in [SYSTEM_ROOT_BYTES_MAX, whimbrel_wire::TOPIC_BYTES_MAX] {
            let roots: Vec<String> = (0..40).map(|at| long(at, len)).collect();
            let deeper: Vec<String> =
                roots.iter().map(|root| format!("{root}/a").chars().take(60_000).collect()).collect();
            let all = roots.iter().chain(&deeper).enumerate();
            let mut own = own(all.map(|(at, text)| (at as u64, added(text, at % 2 == 0, true))));
            own.renew(Time::ZERO, 256);
            let bytes = frame_of(&own).len();
            assert!(bytes <= whimbrel_wire::FRAME_BYTES_MAX, "{len}: {bytes}");
        }
    }

    /// Plain and durable entries are exact, and all repliers together would not be.
    #[test]
    fn marks_make_a_broker_want_nothing_more() {
        let texts: Vec<String> = (0..300).map(|at| format!("{}/{at}", if at < 150 { "p" } else { "d" })).collect();
        let changes = texts.iter().enumerate().map(|(at, text)| (at as u64, added(text, at >= 150, true)));
        let mut own = own(changes);
        own.renew(Time::ZERO, 256).expect("it is new");
        assert!(own.entries().all(|entry| texts.iter().any(|text| **text == *entry.filter)), "none is widened");
        assert_eq!(own.entries().filter(|entry| entry.replier).count(), 300);
        assert_eq!(own.entries().filter(|entry| entry.durable).count(), 150);
    }

    #[test]
    fn a_number_in_use_is_not_given_again() {
        let mut own = own([(1, added("a", false, false))]);
        own.renew(Time::ZERO, 256).expect("it is new");
        own.next_number = 0;
        own.apply(InterestChange::Added(2, added("b", false, false)));
        let delta = own.renew(Time::ZERO, 256).expect("it has changed");
        assert_eq!(delta.added.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2]);
        assert_eq!(own.entries().count(), 2);
    }

    #[test]
    fn entries_of_many_repliers_fit_a_frame_together_with_the_others() {
        let texts: Vec<String> = (0..3 * whimbrel_wire::LIST_MAX).map(|at| format!("t/{at}")).collect();
        let wanted = texts.iter().enumerate().map(|(at, text)| (at as u64, added(text, at % 2 == 0, true)));
        let mut own = own(wanted);
        let delta = own.renew(Time::ZERO, usize::MAX).expect("it is new");
        assert!(delta.added.len() <= whimbrel_wire::LIST_MAX, "{}", delta.added.len());
    }
}
