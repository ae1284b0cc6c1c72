//! Replicated maps: each is the same at every broker. Changes are flooded, and neighbours compare
//! hashes of the ranges of a map. The greatest version of each key counts.
//!
//! The network layer keeps keys only; the values are those of the [`Replicated`] at the moment of
//! sending. A map has a number, which is the same at all brokers: 0 is that of the retained
//! messages.

mod map;

use core::time::Duration;

use whimbrel_wire::{
    FRAME_BYTES_MAX, Frame, OfMap, REGISTRY_RANGES, Registry, RegistryAsk, RegistryDigest, RegistryEntry,
};

use crate::domains::{DomainPlace, may_carry};
use crate::due::NetDue;
use crate::event::NetEvent;
use crate::io::Io;
use crate::link::queue::FrameClass;
use crate::{Channel, Net, PeerLink};

pub use map::{KEYS_PENDING_MAX, MAPS_MAX, MapBacklog, Replicated, Version, entry_hash, range_of, withheld_hash};

/// Bytes of entries after which a frame ends.
const REGISTRY_BYTES: usize = 64 << 10;

/// Bytes of the encoded entries of one frame: what else it has takes some ten.
const ENTRIES_BYTES_MAX: usize = FRAME_BYTES_MAX - 1_024;

/// Most entries of one frame.
const REGISTRY_ENTRIES: usize = 256;

/// Keys in one slice of a survey, and the pause between two slices.
const SURVEY_SLICE: usize = 1_024;
const SURVEY_EVERY: Duration = Duration::from_millis(1);

/// The hashes of a map's ranges as the neighbour must have them: of a value that it may not
/// carry it has the version alone.
fn hashes_for(net: &Net, map: &dyn Replicated, link: PeerLink) -> [u64; REGISTRY_RANGES] {
    let mut hashes = *map.hashes();
    let Some((peer, to)) = net.peers.get(link).and_then(|peer| Some((peer, peer.host()?))) else { return hashes };
    let knows_withheld = peer.knows_withheld();
    map.visit_labelled(&mut |key, is_withheld| {
        let Some(version) = map.version(key) else { return };
        let may_tell = may_carry(&net.topology, map.label(key), to) || fault!(net, RetainLeavesDomain);
        let has_value = !is_withheld && may_tell;
        // An earlier version of the protocol takes it for a key that was removed.
        let is_withheld_there = !has_value && knows_withheld;
        if is_withheld != is_withheld_there {
            hashes[range_of(key)] ^= entry_hash(key, version) ^ withheld_hash(key, version);
        }
    });
    hashes
}

impl Net {
    /// Notes a changed entry for all neighbours except the one that sent it; they are told when
    /// their backlog is sent the next time.
    pub fn record_entry(&mut self, map: u8, key: &str, but: Option<PeerLink>) {
        for link in self.peers.links_up().into_iter().filter(|link| Some(*link) != but) {
            let peer = self.peers.get_mut(link).expect("it is up");
            if peer.knows_map(map) {
                peer.pending.maps[usize::from(map)].record_key(key);
            }
        }
    }

    /// Tells all neighbours that an entry has changed here.
    pub fn tell_entry(&mut self, io: &mut Io<'_>, map: u8, key: &str) {
        self.record_entry(map, key, None);
        self.pump_map_all(io, map);
    }

    /// Sends all neighbours as many of the noted entries of a map as there is room for.
    pub(crate) fn pump_map_all(&mut self, io: &mut Io<'_>, map: u8) {
        for link in self.peers.links_up() {
            self.pump_map(io, link, map);
        }
    }

    /// Sends a neighbour as many of the noted entries of a map as there is room for.
    pub(crate) fn pump_map(&mut self, io: &mut Io<'_>, link: PeerLink, map: u8) {
        while self.send_entries(io, link, map) {}
        let Some(peer) = self.peers.get_mut(link) else { return };
        let has_room = peer.has_room(Channel::Control);
        let backlog = &mut peer.pending.maps[usize::from(map)];
        if backlog.keys.is_empty() && backlog.survey.is_some() {
            // If the link is full, this continues when it has room.
            self.timers.set_once(io.now + SURVEY_EVERY, NetDue::Survey(link, map));
            return;
        }
        let is_told = backlog.keys.is_empty();
        // Without room there is no comparison, and it is still to be made.
        if is_told && has_room && core::mem::take(&mut backlog.all) {
            self.compare_map(io, link, map);
        }
    }

    /// Sends one frame of the noted entries. Returns whether there may be more to send.
    fn send_entries(&mut self, io: &mut Io<'_>, link: PeerLink, map: u8) -> bool {
        let Some(peer) = self.peers.get_mut(link) else { return false };
        let is_full = !peer.has_room(Channel::Control);
        let is_ready = peer.knows_map(map) && peer.pending.is_compared;
        let knows_withheld = peer.knows_withheld();
        let Some(to) = peer.host() else { return false };
        let backlog = &mut peer.pending.maps[usize::from(map)];
        if is_full || !is_ready || backlog.keys.is_empty() {
            return false;
        }
        let Some(values) = io.maps.get(usize::from(map)) else { return false };
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        let mut encoded = 0;
        while places.len() < REGISTRY_ENTRIES
            && bytes.len() < REGISTRY_BYTES
            && let Some(key) = backlog.keys.pop_first()
        {
            let Some(version) = values.version(&key) else { continue };
            let begins = bytes.len();
            let label = values.label(&key);
            let is_told = may_carry(&self.topology, label, to) || fault!(self, RetainLeavesDomain);
            self.stats.domain_refusals[DomainPlace::Retained as usize] += u64::from(!is_told);
            let age = if is_told { values.put_value(io.now, &key, &mut bytes) } else { Some(0) };
            let age = age.filter(|_| bytes.len() > begins || knows_withheld);
            let (value, age_ms) = (age.map(|_| &bytes[begins..]), age.unwrap_or(0));
            encoded += RegistryEntry { key: &key, version, value, age_ms }.encoded_len();
            if encoded > ENTRIES_BYTES_MAX {
                bytes.truncate(begins);
                if !places.is_empty() {
                    backlog.keys.insert(key);
                    break;
                }
                // It fits no frame: no other broker gets it.
                encoded = 0;
                self.stats.entries_too_large += 1;
                continue;
            }
            places.push((key, version, age.map(|_| (begins, bytes.len())), age_ms));
        }
        let entries = places.iter().map(|(key, version, place, age_ms)| RegistryEntry {
            key,
            version: *version,
            value: place.map(|(from, to)| &bytes[from..to]),
            age_ms: *age_ms,
        });
        let registry = Registry { entries: entries.collect() };
        if !registry.entries.is_empty() {
            let mut frame = Vec::with_capacity(bytes.len() + 64);
            match map {
                0 => Frame::Registry(registry).encode(&mut frame),
                _ => Frame::MapEntries(OfMap { map, body: registry }).encode(&mut frame),
            }
            self.send(io.now, link, FrameClass::Control, &frame, io.out);
        }
        true
    }

    /// Compares all maps with a neighbour.
    pub(crate) fn compare_maps(&mut self, io: &mut Io<'_>, link: PeerLink) {
        for map in 0..io.maps.len() {
            self.compare_map(io, link, map as u8);
        }
    }

    /// Sends a neighbour the hashes of a map's ranges. An empty range is omitted: the neighbour can
    /// lack nothing of it.
    fn compare_map(&mut self, io: &mut Io<'_>, link: PeerLink, map: u8) {
        let Some(peer) = self.peers.get(link).filter(|peer| peer.knows_map(map)) else { return };
        let backlog = &peer.pending.maps[usize::from(map)];
        let is_telling = !backlog.keys.is_empty() || backlog.survey.is_some();
        if is_telling || !peer.has_room(Channel::Control) {
            return;
        }
        let Some(hashes) = io.maps.get(usize::from(map)).map(|map| hashes_for(self, *map, link)) else { return };
        let ranges: Vec<(u16, u64)> = (0..).zip(hashes.iter().copied()).filter(|(_, hash)| *hash != 0).collect();
        if ranges.is_empty() {
            return;
        }
        let mut frame = Vec::with_capacity(3 << 10);
        let digest = RegistryDigest { ranges };
        match map {
            0 => Frame::RegistryDigest(digest).encode(&mut frame),
            _ => Frame::MapDigest(OfMap { map, body: digest }).encode(&mut frame),
        }
        self.send(io.now, link, FrameClass::Control, &frame, io.out);
    }

    /// Handles a neighbour's hashes of a map: asks for the ranges that differ.
    pub(crate) fn on_map_digest(
        &mut self,
        io: &mut Io<'_>,
        link: PeerLink,
        map: u8,
        digest: &RegistryDigest,
    ) -> Option<NetEvent<'static>> {
        if fault!(self, RetainedNotCompared) {
            return None;
        }
        let own = hashes_for(self, *io.maps.get(usize::from(map))?, link);
        let differs = |(range, hash): &&(u16, u64)| own.get(usize::from(*range)).is_some_and(|own| own != hash);
        let ranges: Vec<u16> = digest.ranges.iter().filter(differs).map(|(range, _)| *range).collect();
        if ranges.is_empty() {
            return None;
        }
        let mut frame = Vec::new();
        let ask = RegistryAsk { ranges };
        match map {
            0 => Frame::RegistryAsk(ask).encode(&mut frame),
            _ => Frame::MapAsk(OfMap { map, body: ask }).encode(&mut frame),
        }
        self.send(io.now, link, FrameClass::Control, &frame, io.out);
        None
    }

    /// Handles a neighbour's request for ranges of a map.
    pub(crate) fn on_map_ask(
        &mut self,
        io: &mut Io<'_>,
        link: PeerLink,
        map: u8,
        ask: &RegistryAsk,
    ) -> Option<NetEvent<'static>> {
        io.maps.get(usize::from(map))?;
        let peer = self.peers.get_mut(link)?;
        let survey = peer.pending.maps[usize::from(map)].survey.get_or_insert_default();
        survey.ranges.extend(ask.ranges.iter().copied());
        // The keys passed so far were not checked for these ranges.
        survey.from.clear();
        self.survey(io, link, map);
        None
    }

    /// Continues a link's survey by one slice, if there is room to note its keys, and sends what
    /// was found.
    pub(crate) fn survey(&mut self, io: &mut Io<'_>, link: PeerLink, map: u8) {
        if let (Some(peer), Some(keys)) = (self.peers.get_mut(link), io.maps.get(usize::from(map))) {
            peer.pending.maps[usize::from(map)].find_keys(*keys, SURVEY_SLICE);
        }
        self.pump_map(io, link, map);
    }
}
