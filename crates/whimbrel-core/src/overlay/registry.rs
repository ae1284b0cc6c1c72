//! Retained messages are the same at every broker: changes are flooded, and neighbours compare
//! hashes of the ranges of the registry.

use core::time::Duration;

use whimbrel_event::{AcceptedEvent, Event, EventId, PubendId, Publisher, Tick, Time};
use whimbrel_net::link::peers::{CONTROL_HIGH, PeerBacklog, TOPICS_PENDING_MAX};
use whimbrel_net::{Channel, PeerLink};
use whimbrel_selector::TopicName;
use whimbrel_wire::{Frame, REGISTRY_RANGES, Registry, RegistryAsk, RegistryDigest, RegistryEntry, compact};

use super::net::Net;
use super::{Due, is_local};
use crate::api::Output;
use crate::broker::Broker;
use crate::retained::{Bounds, RetainOutcome};

/// Bytes of entries after which a frame ends.
const REGISTRY_BYTES: usize = 64 << 10;

/// Most entries of one frame.
const REGISTRY_ENTRIES: usize = 256;

/// Topics in one slice of a survey, and the pause between two slices.
const SURVEY_SLICE: usize = 1_024;
const SURVEY_EVERY: Duration = Duration::from_millis(1);

/// The range of the registry that a topic belongs to.
pub(crate) fn range_of(topic: &str) -> usize {
    (hash(topic) >> 56) as usize % REGISTRY_RANGES
}

/// A hash that is equal at every broker.
fn hash(topic: &str) -> u64 {
    let mut state = Publisher::named(topic).to_bits();
    whimbrel_event::split_mix(&mut state)
}

/// The part of a topic with its version in the hash of its range.
pub(crate) fn entry_hash(topic: &str, (tick, pubend): (Tick, PubendId)) -> u64 {
    let mut state = hash(topic) ^ tick.0.rotate_left(17) ^ pubend.0.rotate_left(41);
    whimbrel_event::split_mix(&mut state)
}

impl Net {
    /// Notes a changed retained message for all neighbours except the one that sent it.
    fn record_retained(&mut self, topic: &str, but: Option<PeerLink>) {
        for link in self.peers.links_up() {
            if Some(link) != but {
                self.peers.get_mut(link).expect("it is up").pending.record_topic(topic);
            }
        }
    }
}

impl Broker {
    /// Tells all neighbours that the retained message of a topic has changed here.
    pub(crate) fn tell_retained(&mut self, now: Time, topic: &str, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if is_local(topic) {
            return;
        }
        overlay.net.record_retained(topic, None);
        for link in overlay.net.peers.links_up() {
            self.pump_retained(now, link, out);
        }
    }

    /// Sends a neighbour as many of the noted retained messages as there is room for.
    pub(super) fn pump_retained(&mut self, now: Time, link: PeerLink, out: &mut dyn Output) {
        loop {
            let Broker { overlay, retained, .. } = self;
            let Some(overlay) = overlay.as_deref_mut() else { return };
            let Some(peer) = overlay.net.peers.get_mut(link) else { return };
            let is_full = peer.unsent[Channel::Control as usize] >= CONTROL_HIGH;
            if is_full || peer.who.is_none() || !peer.pending.is_compared || peer.pending.topics.is_empty() {
                break;
            }
            let (mut bytes, mut places) = (Vec::new(), Vec::new());
            while places.len() < REGISTRY_ENTRIES
                && bytes.len() < REGISTRY_BYTES
                && let Some(topic) = peer.pending.topics.pop_first()
            {
                let Some(version) = retained.version(&topic) else { continue };
                let begins = bytes.len();
                let event = retained.get(&topic).map(|event| event.packed().unpack());
                if let Some(event) = &event {
                    compact::write(event, &mut bytes);
                }
                let age_ms = match &event {
                    Some(event) => now.since(event.accepted).as_millis() as u64,
                    None => 0,
                };
                places.push((topic, version, event.is_some().then_some((begins, bytes.len())), age_ms));
            }
            let entries = places.iter().map(|(topic, version, place, age_ms)| RegistryEntry {
                key: topic,
                version: *version,
                value: place.map(|(from, to)| &bytes[from..to]),
                age_ms: *age_ms,
            });
            let registry = Registry { entries: entries.collect() };
            if registry.entries.is_empty() {
                continue;
            }
            let mut frame = Vec::with_capacity(bytes.len() + 64);
            Frame::Registry(registry).encode(&mut frame);
            overlay.net.send(now, link, Channel::Control, &frame, out);
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(peer) = overlay.net.peers.get_mut(link) else { return };
        if peer.pending.topics.is_empty() && peer.pending.survey.is_some() {
            // If the link is full, this continues when it has room.
            overlay.net.set_once(now + SURVEY_EVERY, Due::Survey(link));
            return;
        }
        let is_told = peer.pending.topics.is_empty();
        if is_told && core::mem::take(&mut peer.pending.all_topics) {
            self.compare_retained(now, link, out);
        }
    }

    /// Sends a neighbour the hashes of the registry's ranges. A range without retained messages is
    /// omitted: the neighbour can lack nothing of it.
    pub(super) fn compare_retained(&mut self, now: Time, link: PeerLink, out: &mut dyn Output) {
        let Broker { overlay, retained, .. } = self;
        let Some(overlay) = overlay.as_deref_mut() else { return };
        let Some(peer) = overlay.net.peers.get(link) else { return };
        let is_telling = !peer.pending.topics.is_empty() || peer.pending.survey.is_some();
        if is_telling || !peer.has_room(Channel::Control) {
            return;
        }
        let ranges: Vec<(u16, u64)> = (0..).zip(retained.hashes()).filter(|(_, hash)| *hash != 0).collect();
        if ranges.is_empty() {
            return;
        }
        let mut frame = Vec::with_capacity(3 << 10);
        Frame::RegistryDigest(RegistryDigest { ranges }).encode(&mut frame);
        overlay.net.send(now, link, Channel::Control, &frame, out);
    }

    /// Handles a neighbour's hashes: asks for the ranges that differ.
    pub(super) fn retained_compared(
        &mut self,
        now: Time,
        link: PeerLink,
        digest: &RegistryDigest,
        out: &mut dyn Output,
    ) {
        if fault!(self, RetainedNotCompared) {
            return;
        }
        let Broker { overlay, retained, .. } = self;
        let Some(overlay) = overlay.as_deref_mut() else { return };
        let own: Vec<u64> = retained.hashes().collect();
        let differs = |(range, hash): &&(u16, u64)| own.get(usize::from(*range)).is_some_and(|own| own != hash);
        let ranges: Vec<u16> = digest.ranges.iter().filter(differs).map(|(range, _)| *range).collect();
        if ranges.is_empty() {
            return;
        }
        let mut frame = Vec::new();
        Frame::RegistryAsk(RegistryAsk { ranges }).encode(&mut frame);
        overlay.net.send(now, link, Channel::Control, &frame, out);
    }

    /// Handles a neighbour's request for ranges of the registry.
    pub(super) fn retained_asked(&mut self, now: Time, link: PeerLink, ask: &RegistryAsk, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(peer) = overlay.net.peers.get_mut(link) else { return };
        let survey = peer.pending.survey.get_or_insert_default();
        survey.ranges.extend(ask.ranges.iter().copied());
        // The topics passed so far were not checked for these ranges.
        survey.from.clear();
        self.survey_retained(now, link, out);
    }

    /// Continues a link's survey by one slice, if there is room to note its topics, and sends what
    /// was found.
    pub(super) fn survey_retained(&mut self, now: Time, link: PeerLink, out: &mut dyn Output) {
        self.find_retained(link);
        self.pump_retained(now, link, out);
    }

    fn find_retained(&mut self, link: PeerLink) {
        let Broker { overlay, retained, .. } = self;
        let Some(overlay) = overlay.as_deref_mut() else { return };
        let Some(peer) = overlay.net.peers.get_mut(link) else { return };
        let PeerBacklog { survey, topics, .. } = &mut peer.pending;
        let Some(mut open) = survey.take_if(|_| topics.len() <= TOPICS_PENDING_MAX - SURVEY_SLICE) else { return };
        let mut after = retained.topics_from(&open.from);
        for topic in after.by_ref().take(SURVEY_SLICE) {
            if !is_local(topic) && open.ranges.contains(&(range_of(topic) as u16)) {
                topics.insert(topic.into());
            }
        }
        if let Some(next) = after.next() {
            next.clone_into(&mut open.from);
            *survey = Some(open);
        }
    }

    /// Handles retained messages from a neighbour.
    pub(super) fn on_retained(&mut self, now: Time, link: PeerLink, registry: &Registry<'_>, out: &mut dyn Output) {
        for entry in &registry.entries {
            let Some(overlay) = self.overlay.as_deref_mut() else { return };
            if TopicName::new(entry.key).is_err() || is_local(entry.key) {
                overlay.net.stats.frames_invalid += 1;
                continue;
            }
            if self.retained.version(entry.key).is_some_and(|known| known >= entry.version) {
                continue;
            }
            if fault!(self, RetainedOlderWins) && self.retained.version(entry.key).is_some() {
                continue;
            }
            let outcome = self.take_retained(now, entry);
            let overlay = self.overlay.as_deref_mut().expect("it was there");
            overlay.net.stats.retained_refused += u64::from(outcome.is_refused);
            overlay.net.stats.retained_learned += u64::from(!outcome.is_refused);
            if outcome.is_news {
                self.record_unlogged_retained(true, entry.key);
                let overlay = self.overlay.as_deref_mut().expect("it was there");
                overlay.net.record_retained(entry.key, Some(link));
            }
        }
        let links = self.overlay.as_ref().map_or(Vec::new(), |overlay| overlay.net.peers.links_up());
        for link in links {
            self.pump_retained(now, link, out);
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
