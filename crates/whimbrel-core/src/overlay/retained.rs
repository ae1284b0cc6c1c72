//! Retained messages are the same at every broker: they are a replicated map of the network layer.

use core::ops::ControlFlow;
use core::time::Duration;

use whimbrel_event::{DomainLabel, Domains, EventId, Time};
use whimbrel_net::registry::{Replicated, Version};
use whimbrel_net::{Io, PeerLink};
use whimbrel_selector::TopicName;
use whimbrel_wire::{REGISTRY_RANGES, Registry, RegistryEntry, compact};

use super::{Overlay, is_local};
use crate::api::Output;
use crate::retained::{Bounds, RetainOutcome, Retained};

/// The number of the map of retained messages.
const RETAINED_MAP: u8 = 0;

impl Replicated for Retained {
    fn version(&self, topic: &str) -> Option<Version> {
        Retained::version(self, topic)
    }

    fn put_value(&self, now: Time, topic: &str, into: &mut Vec<u8>) -> Option<u64> {
        let Some(event) = self.get(topic) else {
            // Of a withheld message others are told no more than this broker was.
            return self.version(topic).filter(|version| self.is_withheld(topic, *version)).map(|_| 0);
        };
        let event = event.packed().unpack();
        compact::write(&event, into);
        Some(event.age(now).as_millis() as u64)
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

    fn label(&self, topic: &str) -> DomainLabel<'_> {
        Retained::label(self, topic)
    }

    fn visit_labelled<'a>(&'a self, visit: &mut dyn FnMut(&'a str, bool)) {
        self.labelled()
            .filter(|(topic, _)| !is_local(topic))
            .for_each(|(topic, is_withheld)| visit(topic, is_withheld));
    }
}

impl Overlay {
    /// Tells all neighbours that the retained message of a topic has changed here.
    pub(crate) fn tell_retained(&mut self, now: Time, topic: &str, retained: &Retained, out: &mut dyn Output) {
        if !is_local(topic) {
            self.net.tell_entry(&mut Io { now, out, maps: &[retained] }, RETAINED_MAP, topic);
        }
    }

    /// Takes retained messages of a neighbour that are news. Returns their topics, then those of
    /// messages that gave way.
    pub(super) fn on_retained(
        &mut self,
        now: Time,
        link: PeerLink,
        registry: &Registry<'_>,
        retained: &mut Retained,
        bounds: Bounds,
    ) -> TakenRetained {
        let delay = self.net.link_delay(link);
        let host = self.net.host();
        let domains = self.net.domains().of(host);
        let mut taken = TakenRetained::default();
        for entry in &registry.entries {
            if TopicName::new(entry.key).is_err() || is_local(entry.key) {
                self.net.refuse_event();
                continue;
            }
            let has_value = entry.value.is_some_and(|value| !value.is_empty());
            let comes_back = has_value && retained.is_withheld(entry.key, entry.version);
            if retained.version(entry.key).is_some_and(|known| known >= entry.version) && !comes_back {
                continue;
            }
            if fault!(self, RetainedOlderWins) && retained.version(entry.key).is_some() {
                continue;
            }
            let age = Duration::from_millis(entry.age_ms) + delay;
            let outcome = retained.import(now, age, entry, bounds, &domains);
            self.stats.retained_refused += u64::from(outcome.is_refused);
            self.stats.retained_learned += u64::from(!outcome.is_refused);
            taken.swept.extend(outcome.swept);
            if outcome.is_news {
                self.net.record_entry(RETAINED_MAP, entry.key, Some(link));
                taken.news.push(entry.key.into());
            }
        }
        taken
    }
}

/// The topics whose retained messages have changed with those of a neighbour.
#[derive(Debug, Default)]
pub(super) struct TakenRetained {
    /// Those of messages that were taken.
    pub(super) news: Vec<Box<str>>,
    /// Those of messages that gave way to them.
    pub(super) swept: Vec<Box<str>>,
}

impl Retained {
    /// Takes a retained message of another broker that is newer than the one here, and refuses one
    /// that is not valid. One that a broker in these domains may not carry is withheld: a neighbour
    /// may know them as they were before a restart.
    fn import(
        &mut self,
        now: Time,
        age: Duration,
        entry: &RegistryEntry<'_>,
        bounds: Bounds,
        domains: &Domains,
    ) -> RetainOutcome {
        let (tick, pubend) = entry.version;
        let senseless = RetainOutcome { is_refused: true, ..RetainOutcome::default() };
        let Some(value) = entry.value else {
            let is_news = self.bury(now, entry.key, entry.version);
            return RetainOutcome { is_news, ..RetainOutcome::default() };
        };
        if value.is_empty() {
            let is_news = self.withhold(entry.key, entry.version);
            return RetainOutcome { is_news, ..RetainOutcome::default() };
        }
        let Ok(mut event) = compact::read(value, EventId { pubend, tick }) else {
            return senseless;
        };
        if event.event.topic != entry.key {
            return senseless;
        }
        if !event.event.headers.domains.admits(domains) {
            let is_news = self.withhold(entry.key, entry.version);
            return RetainOutcome { is_news, ..RetainOutcome::default() };
        }
        event.arrive(now, age);
        event.event.headers.retain = true;
        self.learn(now, event.keep(), bounds)
    }
}
