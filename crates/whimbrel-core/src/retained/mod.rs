//! Retained messages: the latest of each topic. The greatest (tick, pubend) wins, wherever it comes
//! from; one that was deleted is remembered for a while, so that it does not come back from a
//! broker that was away.

mod readings;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_event::{Event, EventRef, Publisher, Tick, Time};
use whimbrel_selector::TopicFilter;
use whimbrel_wire::REGISTRY_RANGES;

use crate::api::Limits;
use crate::overlay::{entry_hash, is_local, range_of};
use crate::session::Publication;
use crate::stream::AHEAD_MAX;
use crate::topic::{TopicEntry, TopicIndex, TopicVersion, VisitOutcome, WalkCursor, WalkEnd};
pub(crate) use readings::{REPLAY_SLICE, Readings};

/// How long it is remembered that a message was deleted.
pub(crate) const TOMBSTONE_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// Deleted messages that are remembered; beyond that the oldest are forgotten.
pub(crate) const TOMBSTONES_MAX: usize = 65_536;

/// Expired messages, or old deletions, that make room in one turn for a new one.
const SWEEP_SLICE: usize = 64;

/// What is retained of one topic.
#[derive(Debug)]
struct RetainedEntry {
    /// The message; `None`: it was deleted.
    message: Option<Event>,
    /// When that is forgotten: the message's expiry, or the end of [`TOMBSTONE_LIFETIME`].
    until: Option<Time>,
    /// The number that the consolidated stream gave to the event when it passed here; 0: it has
    /// not.
    passed: u64,
}

/// The bounds of what is retained; see [`is_counted`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Messages.
    pub(crate) messages: usize,
    /// Bytes of all messages.
    pub(crate) bytes: usize,
    /// Bytes of one message, packed.
    pub(crate) packed: usize,
}

/// What is retained of one topic adds to what is known of all.
#[derive(Clone, Copy, Debug)]
struct RetainedCount {
    /// As of [`RetainedEntry::until`].
    until: Option<Time>,
    has_message: bool,
    /// Bytes, if it counts for the bounds.
    weight: Option<usize>,
}

impl RetainedCount {
    fn of(topic: &str, kept: &RetainedEntry) -> RetainedCount {
        let message = kept.message.as_ref();
        let weight = message.filter(|event| is_counted(topic, event.publisher())).map(Event::weight);
        RetainedCount { until: kept.until, has_message: message.is_some(), weight }
    }
}

impl Bounds {
    /// The bounds that an operator has set; `has_log`: what is retained is written, too.
    pub(crate) fn of(limits: &Limits, has_log: bool) -> Bounds {
        let packed = if has_log { limits.logged_event_bytes } else { usize::MAX };
        Bounds { messages: limits.retained_max, bytes: limits.retained_bytes, packed }
    }
}

/// Whether a retained message counts for the bounds: all but those that the broker publishes about
/// itself. Clients may publish below `$SYS`, too, as bridges do that tell their state.
fn is_counted(topic: &str, publisher: Publisher) -> bool {
    !(publisher == Publisher::UNKNOWN && is_local(topic))
}

/// What became of an event that is to be retained.
#[derive(Debug, Default)]
pub(crate) struct RetainOutcome {
    /// The topic's state is another one now.
    pub(crate) is_news: bool,
    /// It was the latest, and did not fit in the bounds. If the topic had an older message, that is
    /// deleted: `is_news`.
    pub(crate) is_refused: bool,
    /// Topics whose messages had expired and are gone.
    pub(crate) swept: Vec<Box<str>>,
}

/// The latest retained message of each topic.
#[derive(Debug)]
pub(crate) struct Retained {
    topics: TopicIndex<RetainedEntry>,
    /// Messages that count for the bounds, and their bytes.
    messages: usize,
    bytes: usize,
    /// When which messages expire.
    expiries: BTreeSet<(Time, Box<str>)>,
    /// When which deletions are forgotten.
    deletions: BTreeSet<(Time, Box<str>)>,
    /// What each part of all topics with their versions amounts to.
    hashes: Box<[u64; REGISTRY_RANGES]>,
    /// The greatest tick that an own event was given which is to be retained.
    newest: Tick,
    /// Which sessions are reading what is retained, and how far they are.
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
            hashes: Box::new([0; REGISTRY_RANGES]),
            newest: Tick(0),
            replays: Readings::default(),
        }
    }

    /// Messages, without those of the broker itself.
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

    /// What each part of all topics with their versions amounts to.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.hashes.iter().copied()
    }

    /// Topics that have a message, or whose message was deleted, in order, from that one on.
    pub(crate) fn topics_from(&self, topic: &str) -> impl Iterator<Item = &str> + use<'_> {
        self.topics.from(topic).map(|(topic, _)| topic)
    }

    /// The moment for which an own event that is to be retained is given its tick: now, or later if
    /// others that came before it have greater ticks, as their streams ran ahead, or the clocks of
    /// their brokers do. Ones that are further ahead than a stream may be stay the greater ones.
    pub(crate) fn assignment_time(&self, topic: &str, now: Time) -> Time {
        let known = self.version(topic).map_or(Tick(0), |(tick, _)| tick).max(self.newest);
        let after = Time::from_nanos(known.0.saturating_add(1));
        if after.since(now) < AHEAD_MAX { after.max(now) } else { now }
    }

    /// An own event that is to be retained was given that tick.
    pub(crate) fn record_assigned(&mut self, tick: Tick) {
        self.newest = self.newest.max(tick);
    }

    /// The consolidated stream passes an event that is to be retained: an empty one deletes its
    /// topic's message.
    pub(crate) fn pass(&mut self, now: Time, publication: &mut Publication<'_>, bounds: Bounds) -> RetainOutcome {
        let (topic, version) = (publication.event.topic, (publication.id.tick, publication.id.pubend));
        if let Some(known) = self.topics.get_mut(topic).filter(|known| known.version >= version) {
            if known.version == version {
                known.value.passed = publication.serial;
            }
            return RetainOutcome::default();
        }
        if publication.event.payload.is_empty() {
            return RetainOutcome { is_news: self.bury(now, topic, version), ..RetainOutcome::default() };
        }
        let swept = self.make_room(now, &publication.event, bounds);
        if !self.has_room(&publication.event, bounds) {
            // What the topic had is out of date.
            let is_news = self.get(topic).is_some() && self.bury(now, topic, version);
            return RetainOutcome { is_news, is_refused: true, swept };
        }
        let (event, passed) = (publication.keep(), publication.serial);
        let until = event.expires();
        self.put(topic, version, RetainedEntry { message: Some(event), until, passed });
        RetainOutcome { is_news: true, is_refused: false, swept }
    }

    /// Another broker has told an event that is retained. The caller has compared the versions. If
    /// there is no room for it, what the topic had is deleted as of just before it: the event
    /// itself may still come, when there is room.
    pub(crate) fn learn(&mut self, now: Time, event: Event, bounds: Bounds) -> RetainOutcome {
        let id = event.id();
        let swept = self.make_room(now, &event.view(), bounds);
        if !self.has_room(&event.view(), bounds) {
            let before = (Tick(id.tick.0.saturating_sub(1)), id.pubend);
            let is_news = self.get(event.topic()).is_some() && self.bury(now, event.topic(), before);
            return RetainOutcome { is_news, is_refused: true, swept };
        }
        let (topic, until) = (event.topic().to_owned(), event.expires());
        self.put(&topic, (id.tick, id.pubend), RetainedEntry { message: Some(event), until, passed: 0 });
        RetainOutcome { is_news: true, is_refused: false, swept }
    }

    /// Takes a message that was written before this process began.
    pub(crate) fn restore(&mut self, event: Event) {
        let id = event.id();
        let (topic, until) = (event.topic().to_owned(), event.expires());
        self.put(&topic, (id.tick, id.pubend), RetainedEntry { message: Some(event), until, passed: 0 });
    }

    /// A topic has no message any more; whether that is news.
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
        self.put(topic, version, RetainedEntry { message: None, until: Some(now + TOMBSTONE_LIFETIME), passed: 0 });
        true
    }

    /// Whether one more message fits in the bounds; a message of a known topic may replace the old
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

    /// Forgets messages that have expired, at most [`SWEEP_SLICE`], if there is no room without;
    /// tells their topics.
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

    /// Sets what is retained of a topic, whatever was before.
    fn put(&mut self, topic: &str, version: TopicVersion, kept: RetainedEntry) {
        let new = RetainedCount::of(topic, &kept);
        self.toggle(topic, version);
        if let Some(known) = self.topics.get_mut(topic) {
            let old = RetainedCount::of(topic, &known.value);
            let before = core::mem::replace(&mut known.version, version);
            known.value = kept;
            self.toggle(topic, before);
            // First: both may end at the same moment.
            self.count(topic, old, false);
        } else {
            self.topics.insert(topic, TopicEntry { version, value: kept });
        }
        self.count(topic, new, true);
    }

    /// Forgets what is known of a topic.
    fn forget(&mut self, topic: &str) {
        if let Some(TopicEntry { version, value }) = self.topics.remove(topic) {
            self.toggle(topic, version);
            self.count(topic, RetainedCount::of(topic, &value), false);
        }
    }

    /// Adds what is retained of a topic to what is known of all, or takes it away.
    fn count(&mut self, topic: &str, counted: RetainedCount, is_added: bool) {
        let RetainedCount { until, has_message, weight } = counted;
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

    /// Adds or removes what a topic with that version amounts to.
    fn toggle(&mut self, topic: &str, version: TopicVersion) {
        if !topic.starts_with('$') {
            self.hashes[range_of(topic)] ^= entry_hash(topic, version);
        }
    }

    /// Visits the messages that a filter matches and that have not expired, with the number under
    /// which each has passed here, in topic order, from the cursor on, as far as the budget goes.
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
