//! Retained messages are the same at every broker: they are a replicated map of the network layer.

use core::ops::ControlFlow;
use core::time::Duration;

use whimbrel_event::{AcceptedEvent, Event, EventId, Time};
use whimbrel_net::registry::{Replicated, Version};
use whimbrel_net::{Io, PeerLink};
use whimbrel_selector::TopicName;
use whimbrel_wire::{REGISTRY_RANGES, Registry, RegistryEntry, compact};

use super::is_local;
use crate::api::Output;
use crate::broker::Broker;
use crate::retained::{Bounds, RetainOutcome, Retained};

/// The number of the map of retained messages.
const RETAINED_MAP: u8 = 0;

impl Replicated for Retained {
    fn version(&self, topic: &str) -> Option<Version> {
        Retained::version(self, topic)
    }

    fn put_value(&self, now: Time, topic: &str, into: &mut Vec<u8>) -> Option<u64> {
        let event = self.get(topic)?.packed().unpack();
        compact::write(&event, into);
        Some(now.since(event.accepted).as_millis() as u64)
    }

    fn hashes(&self) -> &[u64; REGISTRY_RANGES] {
        Retained::hashes(self)
    }

    fn visit_from<'a>(&'a self, from: &str, visit: &mut dyn FnMut(&'a str) -> ControlFlow<()>) {
        let _ = self.topics_from(from).try_for_each(visit);
    }

    fn is_shared(&self, topic: &str) -> bool {
        !is_local(topic)
    }
}

impl Broker {
    /// Tells all neighbours that the retained message of a topic has changed here.
    pub(crate) fn tell_retained(&mut self, now: Time, topic: &str, out: &mut dyn Output) {
        let Broker { overlay, retained, .. } = self;
        if !is_local(topic) {
            overlay.net.tell_entry(&mut Io { now, out, maps: &[&*retained] }, RETAINED_MAP, topic);
        }
    }

    /// Handles retained messages from a neighbour.
    pub(super) fn on_retained(&mut self, now: Time, link: PeerLink, registry: &Registry<'_>) {
        for entry in &registry.entries {
            let overlay = &mut self.overlay;
            if TopicName::new(entry.key).is_err() || is_local(entry.key) {
                overlay.net.refuse_event();
                continue;
            }
            if self.retained.version(entry.key).is_some_and(|known| known >= entry.version) {
                continue;
            }
            if fault!(self, RetainedOlderWins) && self.retained.version(entry.key).is_some() {
                continue;
            }
            let outcome = self.take_retained(now, entry);
            let overlay = &mut self.overlay;
            overlay.stats.retained_refused += u64::from(outcome.is_refused);
            overlay.stats.retained_learned += u64::from(!outcome.is_refused);
            if outcome.is_news {
                self.record_unlogged_retained(true, entry.key);
                let overlay = &mut self.overlay;
                overlay.net.record_entry(RETAINED_MAP, entry.key, Some(link));
            }
        }
    }

    /// Takes a retained message that is newer than the one here, and refuses one that is not valid.
    fn take_retained(&mut self, now: Time, entry: &RegistryEntry<'_>) -> RetainOutcome {
        let (tick, pubend) = entry.version;
        let senseless = RetainOutcome { is_refused: true, ..RetainOutcome::default() };
        let Some(value) = entry.value else {
            return RetainOutcome {
                is_news: self.retained.bury(now, entry.key, entry.version),
                ..RetainOutcome::default()
            };
        };
        let Ok(AcceptedEvent { id, accepted, mut event }) = compact::read(value, EventId { pubend, tick }) else {
            return senseless;
        };
        if event.topic != entry.key {
            return senseless;
        }
        let age = Duration::from_millis(entry.age_ms);
        event.expires = event.expires.map(|expires| now + expires.since(accepted).saturating_sub(age));
        event.headers.retain = true;
        let bounds = Bounds::of(&self.sessions.limits, self.has_log());
        let mut outcome = self.retained.learn(now, Event::keep(id, accepted, &event), bounds);
        let swept = core::mem::take(&mut outcome.swept);
        if self.has_log() {
            self.store.lazy_topics.extend(swept);
        }
        outcome
    }
}
