//! Retained messages: the latest of each topic. The greatest (tick, pubend) wins, from any broker.
//! A deletion is remembered for a while, so that the message does not come back from a broker that
//! was away.

mod readings;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_event::{DomainLabel, Domains, Event, EventRef, Publisher, Tick, Time};
use whimbrel_net::registry::{entry_hash, range_of, withheld_hash};
use whimbrel_selector::TopicFilter;
use whimbrel_wire::REGISTRY_RANGES;

use crate::api::Limits;
use crate::overlay::is_local;
use crate::session::Publication;
use crate::stream::AHEAD_MAX;
use crate::topic::{TopicEntry, TopicIndex, TopicVersion, VisitOutcome, WalkCursor, WalkEnd};
pub(crate) use readings::{REPLAY_SLICE, Readings};

/// How long a deletion is remembered.
pub(crate) const TOMBSTONE_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// Deletions that are remembered; beyond that the oldest are forgotten.
pub(crate) const TOMBSTONES_MAX: usize = 65_536;

/// Topics of which is known that their message is withheld; more are not taken, and neighbours tell
/// them again with each comparison.
pub(crate) const WITHHELD_MAX: usize = 1 << 18;

/// Expired messages, or old deletions, that are removed in one turn to make room for a new one.
const SWEEP_SLICE: usize = 64;

/// The retained state of one topic.
#[derive(Debug)]
struct RetainedEntry {
    /// The message; `None`: it was deleted, or is withheld.
    message: Option<Event>,
    /// There is a message that this broker may not carry.
    is_withheld: bool,
    /// When this state is forgotten: at the message's expiry, or the end of [`TOMBSTONE_LIFETIME`].
    until: Option<Time>,
    /// The event's number in the consolidated stream; 0: it has not passed here.
    passed: u64,
}

/// The bounds of retained messages; see [`is_counted`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Number of messages.
    pub(crate) messages: usize,
    /// Bytes of all messages.
    pub(crate) bytes: usize,
    /// Bytes of one message, packed.
    pub(crate) packed: usize,
}

/// The share of one topic in the totals.
#[derive(Clone, Copy, Debug)]
struct RetainedCount {
    /// See [`RetainedEntry::until`].
    until: Option<Time>,
    has_message: bool,
    /// Bytes, if it counts for the bounds.
    weight: Option<usize>,
    /// It is withheld, or not every broker may carry it.
    is_labelled: bool,
    is_withheld: bool,
}

impl RetainedCount {
    fn of(topic: &str, kept: &RetainedEntry) -> RetainedCount {
        let message = kept.message.as_ref();
        let weight = message.filter(|event| is_counted(topic, event.publisher())).map(Event::weight);
        let is_labelled = kept.is_withheld || message.is_some_and(|event| !event.packed().domains().is_any());
        let is_withheld = kept.is_withheld;
        RetainedCount { until: kept.until, has_message: message.is_some(), weight, is_labelled, is_withheld }
    }
}

impl Bounds {
    /// The bounds set by the operator; `has_log`: retained messages are written, too.
    pub(crate) fn of(limits: &Limits, has_log: bool) -> Bounds {
        let packed = if has_log { limits.logged_event_bytes } else { usize::MAX };
        Bounds { messages: limits.retained_max, bytes: limits.retained_bytes, packed }
    }
}

/// Whether a retained message counts for the bounds: all but those that the broker publishes about
/// itself. Clients may publish below `$SYS`, too, as bridges do to report their state.
fn is_counted(topic: &str, publisher: Publisher) -> bool {
    !(publisher == Publisher::UNKNOWN && is_local(topic))
}

/// The outcome of retaining an event.
#[derive(Debug, Default)]
pub(crate) struct RetainOutcome {
    /// The topic's state has changed.
    pub(crate) is_news: bool,
    /// It was the latest, and exceeded the bounds. If the topic had an older message, that is
    /// deleted: `is_news`.
    pub(crate) is_refused: bool,
    /// Topics whose expired messages were removed.
    pub(crate) swept: Vec<Box<str>>,
}

/// The latest retained message of each topic.
#[derive(Debug)]
pub(crate) struct Retained {
    topics: TopicIndex<RetainedEntry>,
    /// Messages that count for the bounds, and their bytes.
    messages: usize,
    bytes: usize,
    /// Expiry and topic of messages.
    expiries: BTreeSet<(Time, Box<str>)>,
    /// Deletions, by the time when they are forgotten.
    deletions: BTreeSet<(Time, Box<str>)>,
    /// The topics whose message is withheld, or not every broker may carry.
    labelled: BTreeSet<Box<str>>,
    /// Those of them whose message is withheld, at most [`WITHHELD_MAX`].
    withheld: usize,
    /// The hash of each range of topics with their versions.
    hashes: Box<[u64; REGISTRY_RANGES]>,
    /// The greatest tick of an own retained event.
    newest: Tick,
    /// The sessions that are reading retained messages, and how far they are.
    pub(crate) replays: Readings,
}

impl Retained {
    pub(crate) fn new(seed: u64) -> Self {
        Retained {
            topics: TopicIndex::new(seed),
            messages: 0,
            bytes: 0,
            expiries: BTreeSet::new(),
            deletions: BTreeSet::new(),
            labelled: BTreeSet::new(),
            withheld: 0,
            hashes: Box::new([0; REGISTRY_RANGES]),
            newest: Tick(0),
            replays: Readings::default(),
        }
    }

    /// The number of messages, without those of the broker itself.
    pub(crate) fn len(&self) -> usize {
        self.messages
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The message of a topic.
    pub(crate) fn get(&self, topic: &str) -> Option<&Event> {
        self.topics.get(topic)?.value.message.as_ref()
    }

    /// The version of a topic's message, or of its deletion.
    pub(crate) fn version(&self, topic: &str) -> Option<TopicVersion> {
        self.topics.get(topic).map(|entry| entry.version)
    }

    /// The hash of each range of topics with their versions.
    pub(crate) fn hashes(&self) -> &[u64; REGISTRY_RANGES] {
        &self.hashes
    }

    /// Topics with a message or a deletion, in order, from `topic` on.
    pub(crate) fn topics_from(&self, topic: &str) -> impl Iterator<Item = &str> + use<'_> {
        self.topics.from(topic).map(|(topic, _)| topic)
    }

    /// The time from which an own retained event's tick is assigned: now, or later if earlier
    /// events have greater ticks, as their streams or their brokers' clocks are ahead. Events that
    /// are further ahead than a stream may be remain the greater ones.
    pub(crate) fn assignment_time(&self, topic: &str, now: Time) -> Time {
        let known = self.version(topic).map_or(Tick(0), |(tick, _)| tick).max(self.newest);
        let after = Time::from_nanos(known.0.saturating_add(1));
        if after.since(now) < AHEAD_MAX { after.max(now) } else { now }
    }

    /// Records the tick of an own retained event.
    pub(crate) fn record_assigned(&mut self, tick: Tick) {
        self.newest = self.newest.max(tick);
    }

    /// Retains an event that the consolidated stream passes. An empty one deletes its topic's
    /// message.
    pub(crate) fn pass(&mut self, now: Time, publication: &mut Publication<'_>, bounds: Bounds) -> RetainOutcome {
        let (topic, version) =
            (publication.accepted.event.topic, (publication.accepted.id.tick, publication.accepted.id.pubend));
        let comes_later = |known: &TopicEntry<RetainedEntry>| {
            // A neighbour that may not carry the message has told of it first.
            known.version > version || (known.version == version && !known.value.is_withheld)
        };
        if let Some(known) = self.topics.get_mut(topic).filter(|known| comes_later(known)) {
            if known.version == version {
                known.value.passed = publication.serial;
            }
            return RetainOutcome::default();
        }
        if publication.accepted.event.payload.is_empty() {
            return RetainOutcome { is_news: self.bury(now, topic, version), ..RetainOutcome::default() };
        }
        let swept = self.make_room(now, &publication.accepted.event, bounds);
        if !self.has_room(&publication.accepted.event, bounds) {
            // The topic's older message is out of date.
            let is_news = self.get(topic).is_some() && self.bury(now, topic, version);
            return RetainOutcome { is_news, is_refused: true, swept };
        }
        let (event, passed) = (publication.keep(), publication.serial);
        let until = event.expires();
        self.put(topic, version, RetainedEntry { message: Some(event), is_withheld: false, until, passed });
        RetainOutcome { is_news: true, is_refused: false, swept }
    }

    /// Retains an event told by another broker. The caller has compared the versions. If there is
    /// no room for it, the topic's older message is deleted as of just before it: the event itself
    /// may still come, when there is room.
    pub(crate) fn learn(&mut self, now: Time, event: Event, bounds: Bounds) -> RetainOutcome {
        let id = event.id();
        let swept = self.make_room(now, &event.view(), bounds);
        if !self.has_room(&event.view(), bounds) {
            let before = (Tick(id.tick.0.saturating_sub(1)), id.pubend);
            let is_news = self.get(event.topic()).is_some() && self.bury(now, event.topic(), before);
            return RetainOutcome { is_news, is_refused: true, swept };
        }
        self.put_message(event);
        RetainOutcome { is_news: true, is_refused: false, swept }
    }

    /// Restores a message that was written before this process began.
    pub(crate) fn restore(&mut self, event: Event) {
        self.put_message(event);
    }

    fn put_message(&mut self, event: Event) {
        let id = event.id();
        let (topic, until) = (event.topic().to_owned(), event.expires());
        let kept = RetainedEntry { message: Some(event), is_withheld: false, until, passed: 0 };
        self.put(&topic, (id.tick, id.pubend), kept);
    }

    /// Records that there is a message which this broker may not carry, and forgets an earlier one.
    /// Tells whether that is news. It is remembered until there is a later version.
    pub(crate) fn withhold(&mut self, topic: &str, version: TopicVersion) -> bool {
        let is_new = self.version(topic).is_none_or(|known| known < version);
        if is_new && self.withheld < WITHHELD_MAX {
            self.put(topic, version, RetainedEntry { message: None, is_withheld: true, until: None, passed: 0 });
            return true;
        }
        false
    }

    /// Withholds the messages that a broker in these domains may not carry: it has retained them
    /// when it was in others. Returns their topics.
    pub(crate) fn withhold_outside(&mut self, domains: &Domains) -> Vec<Box<str>> {
        let outside = self.labelled.iter().filter(|topic| !self.label(topic).admits(domains));
        let outside: Vec<Box<str>> = outside.cloned().collect();
        for topic in &outside {
            let version = self.version(topic).expect("it has a message");
            self.forget(topic);
            self.withhold(topic, version);
        }
        outside
    }

    /// Whether a topic's message of this version is withheld.
    pub(crate) fn is_withheld(&self, topic: &str, version: TopicVersion) -> bool {
        self.topics.get(topic).is_some_and(|known| known.version == version && known.value.is_withheld)
    }

    /// Which brokers may carry the message of a topic.
    pub(crate) fn label(&self, topic: &str) -> DomainLabel<'_> {
        self.get(topic).map_or(DomainLabel::ANY, |event| event.packed().domains())
    }

    /// The topics whose message is withheld, or not every broker may carry, and whether it is
    /// withheld.
    pub(crate) fn labelled(&self) -> impl Iterator<Item = (&str, bool)> {
        let is_withheld = |topic: &str| self.topics.get(topic).is_some_and(|known| known.value.is_withheld);
        self.labelled.iter().map(move |topic| (&**topic, is_withheld(topic)))
    }

    /// Deletes the message of a topic; tells whether that is news.
    pub(crate) fn bury(&mut self, now: Time, topic: &str, version: TopicVersion) -> bool {
        if self.version(topic).is_some_and(|known| known >= version) {
            return false;
        }
        for _ in 0..SWEEP_SLICE {
            let oldest = self.deletions.first();
            let Some((_, oldest)) =
                oldest.filter(|(until, _)| *until <= now || self.deletions.len() >= TOMBSTONES_MAX).cloned()
            else {
                break;
            };
            self.forget(&oldest);
        }
        let until = Some(now + TOMBSTONE_LIFETIME);
        self.put(topic, version, RetainedEntry { message: None, is_withheld: false, until, passed: 0 });
        true
    }

    /// Whether one more message fits in the bounds. A message of a known topic may replace the old
    /// one if its bytes fit.
    fn has_room(&self, event: &EventRef<'_>, bounds: Bounds) -> bool {
        if !is_counted(event.topic, event.publisher) {
            return true;
        }
        let counted = |event: &&Event| is_counted(event.topic(), event.publisher());
        let old = self.get(event.topic).filter(counted).map(Event::weight);
        let messages = self.messages + usize::from(old.is_none());
        let bytes = self.bytes - old.unwrap_or(0) + Event::weight_of(event);
        messages <= bounds.messages && bytes <= bounds.bytes && event.packed_len() <= bounds.packed
    }

    /// Forgets expired messages, at most [`SWEEP_SLICE`], if there is no room without; returns
    /// their topics.
    fn make_room(&mut self, now: Time, event: &EventRef<'_>, bounds: Bounds) -> Vec<Box<str>> {
        let mut swept = Vec::new();
        while swept.len() < SWEEP_SLICE
            && !self.has_room(event, bounds)
            && let Some((_, topic)) = self.expiries.first().filter(|(until, _)| *until <= now).cloned()
        {
            self.forget(&topic);
            swept.push(topic);
        }
        swept
    }

    /// Sets the retained state of a topic, with or without a former one.
    fn put(&mut self, topic: &str, version: TopicVersion, kept: RetainedEntry) {
        let new = RetainedCount::of(topic, &kept);
        self.toggle(topic, version, kept.is_withheld);
        if let Some(known) = self.topics.get_mut(topic) {
            let old = RetainedCount::of(topic, &known.value);
            let was_withheld = known.value.is_withheld;
            let before = core::mem::replace(&mut known.version, version);
            known.value = kept;
            self.toggle(topic, before, was_withheld);
            // First: both may end at the same moment.
            self.count(topic, old, false);
        } else {
            self.topics.insert(topic, TopicEntry { version, value: kept });
        }
        self.count(topic, new, true);
    }

    /// Forgets the retained state of a topic.
    fn forget(&mut self, topic: &str) {
        if let Some(TopicEntry { version, value }) = self.topics.remove(topic) {
            self.toggle(topic, version, value.is_withheld);
            self.count(topic, RetainedCount::of(topic, &value), false);
        }
    }

    /// Adds the share of a topic to the totals, or removes it.
    fn count(&mut self, topic: &str, counted: RetainedCount, is_added: bool) {
        let RetainedCount { until, has_message, weight, is_labelled, is_withheld } = counted;
        self.withheld =
            if is_added { self.withheld + usize::from(is_withheld) } else { self.withheld - usize::from(is_withheld) };
        match is_labelled {
            true if is_added => drop(self.labelled.insert(topic.into())),
            true => drop(self.labelled.remove(topic)),
            false => {}
        }
        if let Some(until) = until {
            let order = if has_message { &mut self.expiries } else { &mut self.deletions };
            let entry = (until, topic.into());
            if is_added {
                order.insert(entry);
            } else {
                order.remove(&entry);
            }
        }
        let Some(weight) = weight else { return };
        if is_added {
            self.messages += 1;
            self.bytes += weight;
        } else {
            self.messages -= 1;
            self.bytes -= weight;
        }
    }

    /// Adds or removes the share of a topic with a version in its range's hash.
    fn toggle(&mut self, topic: &str, version: TopicVersion, is_withheld: bool) {
        if !topic.starts_with('$') {
            let hash = if is_withheld { withheld_hash(topic, version) } else { entry_hash(topic, version) };
            self.hashes[range_of(topic)] ^= hash;
        }
    }

    /// Visits the messages that a filter matches and that have not expired, with their numbers in
    /// the consolidated stream: in topic order, from the cursor on, as far as the budget goes.
    fn walk(
        &self,
        now: Time,
        (filter, cursor): (TopicFilter<'_>, &mut WalkCursor),
        budget: &mut usize,
        mut visit: impl FnMut(&Event, u64) -> VisitOutcome,
    ) -> WalkEnd {
        self.topics.walk(filter, cursor, budget, |_, entry| match &entry.value.message {
            Some(event) if !event.is_expired(now) => visit(event, entry.value.passed),
            _ => VisitOutcome::Passed(0),
        })
    }
}
