//! Retained messages: the latest of each topic.

use core::time::Duration;
use std::collections::BTreeMap;
use std::ops::Bound;

use whimbrel_event::{Event, Time};
use whimbrel_selector::{TopicFilter, TopicName};

/// How long nothing is swept after a sweep.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// The latest retained message of each topic, in topic order: a filter looks only at topics that begin with its part
/// before the first wildcard.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    topics: BTreeMap<Box<str>, Event>,
    bytes: usize,
    /// Before this moment a sweep is not worth its cost.
    sweep_at: Time,
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

    /// Whether one more message fits in the bounds; a message of a known topic may replace the old one if its bytes fit.
    pub(crate) fn has_room(&self, topic: &str, bytes: usize, max: usize, bytes_max: usize) -> bool {
        let old = self.topics.get(topic).map(|e| e.weight());
        let count = self.topics.len() + usize::from(old.is_none());
        count <= max && self.bytes - old.unwrap_or(0) + bytes <= bytes_max
    }

    pub(crate) fn set(&mut self, event: Event) {
        self.bytes += event.weight();
        if let Some(slot) = self.topics.get_mut(event.topic()) {
            self.bytes -= slot.weight();
            *slot = event;
        } else {
            self.topics.insert(event.topic().into(), event);
        }
    }

    pub(crate) fn clear(&mut self, topic: &str) {
        if let Some(old) = self.topics.remove(topic) {
            self.bytes -= old.weight();
        }
    }

    /// Forgets what has expired, and tells the topics. Cost: one look at every retained message, at most once per [`SWEEP_PAUSE`], so that publishers
    /// that are refused for want of room cannot keep the broker busy with it.
    pub(crate) fn sweep(&mut self, now: Time) -> Vec<Box<str>> {
        let mut swept = Vec::new();
        if now < self.sweep_at {
            return swept;
        }
        self.sweep_at = now.after(SWEEP_PAUSE);
        let bytes = &mut self.bytes;
        self.topics.retain(|topic, event| {
            let keep = !event.is_expired(now);
            if !keep {
                *bytes -= event.weight();
                swept.push(topic.clone());
            }
            keep
        });
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
