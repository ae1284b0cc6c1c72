//! Retained messages: the latest of each topic. The greatest (tick, pubend) wins, wherever it comes from; one that was deleted is remembered
//! for a while, so that it does not come back from a broker that was away.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use whimbrel_event::{Event, PubendId, Tick, Time};
use whimbrel_selector::{TopicFilter, TopicName};
use whimbrel_wire::REGISTRY_RANGES;

use crate::overlay::{entry_hash, range_of};
use crate::stream::AHEAD_MAX;

/// How long nothing is swept after a sweep.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// How long it is remembered that a message was deleted.
pub(crate) const TOMBSTONE_LIFE: Duration = Duration::from_secs(24 * 3_600);

/// Deleted messages that are remembered; beyond that the oldest are forgotten.
pub(crate) const TOMBSTONES_MAX: usize = 65_536;

/// When a retained message was published, and where: of two the greater is right.
pub(crate) type Version = (Tick, PubendId);

/// The latest retained message of each topic, in topic order: a filter looks only at topics that begin with its part
/// before the first wildcard.
#[derive(Debug)]
pub(crate) struct Retained {
    topics: BTreeMap<Box<str>, Event>,
    bytes: usize,
    /// Topics whose message was deleted, by which version, and until when that is remembered.
    gone: BTreeMap<Box<str>, (Version, Time)>,
    /// The same in the order in which they are forgotten.
    forgets: BTreeSet<(Time, Box<str>)>,
    /// What each part of all topics with their versions amounts to.
    hashes: Box<[u64; REGISTRY_RANGES]>,
    /// Before this moment a sweep is not worth its cost.
    sweep_at: Time,
    /// The greatest tick that an own event was given which is to be retained.
    newest: Tick,
}

impl Default for Retained {
    fn default() -> Self {
        Retained {
            topics: BTreeMap::new(),
            bytes: 0,
            gone: BTreeMap::new(),
            forgets: BTreeSet::new(),
            hashes: Box::new([0; REGISTRY_RANGES]),
            sweep_at: Time::ZERO,
            newest: Tick(0),
        }
    }
}

fn version_of(event: &Event) -> Version {
    let id = event.id();
    (id.tick, id.pubend)
}

impl Retained {
    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The message of a topic.
    pub(crate) fn get(&self, topic: &str) -> Option<&Event> {
        self.topics.get(topic)
    }

    /// The version of a topic's message, or of its deletion.
    pub(crate) fn version(&self, topic: &str) -> Option<Version> {
        let gone = || self.gone.get(topic).map(|(version, _)| *version);
        self.topics.get(topic).map(version_of).or_else(gone)
    }

    /// What each part of all topics with their versions amounts to.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.hashes.iter().copied()
    }

    /// All topics that have a message, or whose message was deleted.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().chain(self.gone.keys()).map(|topic| &**topic)
    }

    /// The moment for which an own event that is to be retained is given its tick: now, or later if others that came before it have greater ticks,
    /// as their streams ran ahead, or the clocks of their brokers do. Ones that are further ahead than a stream may be stay the greater ones.
    pub(crate) fn moment(&self, topic: &str, now: Time) -> Time {
        let known = self.version(topic).map_or(Tick(0), |(tick, _)| tick).max(self.newest);
        let after = Time::from_nanos(known.0.saturating_add(1));
        if after.since(now) < AHEAD_MAX { after.max(now) } else { now }
    }

    /// An own event that is to be retained was given that tick.
    pub(crate) fn note_assigned(&mut self, tick: Tick) {
        self.newest = self.newest.max(tick);
    }

    /// Whether one more message fits in the bounds; a message of a known topic may replace the old one if its bytes fit.
    pub(crate) fn has_room(&self, topic: &str, bytes: usize, max: usize, bytes_max: usize) -> bool {
        let old = self.topics.get(topic).map(|e| e.weight());
        let count = self.topics.len() + usize::from(old.is_none());
        count <= max && self.bytes - old.unwrap_or(0) + bytes <= bytes_max
    }

    /// Adds or removes what a topic with that version amounts to.
    fn toggle(&mut self, topic: &str, version: Version) {
        if !topic.starts_with('$') {
            self.hashes[range_of(topic)] ^= entry_hash(topic, version);
        }
    }

    /// Forgets what is known of a topic.
    fn take(&mut self, topic: &str) {
        if let Some(old) = self.topics.remove(topic) {
            self.bytes -= old.weight();
            self.toggle(topic, version_of(&old));
        }
        if let Some((version, until)) = self.gone.remove(topic) {
            self.forgets.remove(&(until, topic.into()));
            self.toggle(topic, version);
        }
    }

    /// A topic has a message; whether it is the latest.
    pub(crate) fn set(&mut self, event: Event) -> bool {
        let version = version_of(&event);
        if self.version(event.topic()).is_some_and(|known| known >= version) {
            return false;
        }
        self.take(event.topic());
        self.toggle(event.topic(), version);
        self.bytes += event.weight();
        self.topics.insert(event.topic().into(), event);
        true
    }

    /// A topic has no message any more; whether that is news.
    pub(crate) fn bury(&mut self, now: Time, topic: &str, version: Version) -> bool {
        if self.version(topic).is_some_and(|known| known >= version) {
            return false;
        }
        self.take(topic);
        while let Some((until, oldest)) = self.forgets.first().cloned()
            && (until <= now || self.gone.len() >= TOMBSTONES_MAX)
        {
            self.take(&oldest);
        }
        let until = now + TOMBSTONE_LIFE;
        self.toggle(topic, version);
        self.gone.insert(topic.into(), (version, until));
        self.forgets.insert((until, topic.into()));
        true
    }

    /// Forgets what has expired, and tells the topics. Cost: one look at every retained message, at most once per [`SWEEP_PAUSE`], so that publishers
    /// that are refused for want of room cannot keep the broker busy with it.
    pub(crate) fn sweep(&mut self, now: Time) -> Vec<Box<str>> {
        if now < self.sweep_at {
            return Vec::new();
        }
        self.sweep_at = now.after(SWEEP_PAUSE);
        let expired = self.topics.iter().filter(|(_, event)| event.is_expired(now));
        let swept: Vec<Box<str>> = expired.map(|(topic, _)| topic.clone()).collect();
        for topic in &swept {
            self.take(topic);
        }
        swept
    }

    /// All that match and have not expired, in topic order.
    pub(crate) fn matching<'a>(&'a self, filter: TopicFilter<'a>, now: Time) -> impl Iterator<Item = &'a Event> {
        let prefix = filter.literal_prefix();
        // `a/#` also matches `a`, which does not begin with `a/`.
        let parent = prefix.strip_suffix('/').and_then(|parent| self.topics.get_key_value(parent));
        let below = self.topics.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let below = below.take_while(move |(topic, _)| topic.starts_with(prefix));
        parent
            .into_iter()
            .chain(below)
            .filter(move |(topic, event)| {
                !event.is_expired(now) && TopicName::new(topic).is_ok_and(|name| filter.matches(name))
            })
            .map(|(_, event)| event)
    }
}
