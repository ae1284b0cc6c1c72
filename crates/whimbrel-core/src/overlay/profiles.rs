//! Profiles of topics that were made at running brokers are a replicated map of the network layer:
//! the same at every broker, in effect as soon as a broker learns of them.
//!
//! Each broker also has an entry with a digest of the profiles of its own configuration, so that
//! all can tell whether these differ.

use core::ops::ControlFlow;
use std::collections::BTreeMap;

use whimbrel_event::{Seeded, Tick, Time};
use whimbrel_net::registry::{Replicated, Version, entry_hash, range_of};
use whimbrel_net::{Io, PeerLink};
use whimbrel_selector::TopicFilter;
use whimbrel_wire::{REGISTRY_RANGES, Registry};

use super::Overlay;
use crate::api::Output;
use crate::retained::{Retained, TOMBSTONE_LIFETIME};
use crate::route::Router;
use crate::store::{Key, MapValue, ProfileRecord, Store, put_bytes, put_profile, read_profile};
use crate::topic::{Profile, RankedProfile};

/// The number of the map of profiles.
pub(super) const PROFILES_MAP: u8 = 1;

/// With this the key of a broker's digest begins, before the broker's name; no filter has it.
const DIGEST: char = '\0';

/// The seed of digests: all brokers must agree on it.
const DIGEST_SEED: u64 = 0x7072_6f66_696c_6573;

/// One entry of the map.
#[derive(Debug)]
struct MapEntry {
    version: Version,
    /// The profile as it is written; `None`: it was removed.
    value: Option<Box<[u8]>>,
    /// When a removed one is forgotten.
    until: Time,
}

/// The map of profiles, and of digests of configurations.
#[derive(Debug)]
pub(crate) struct ProfileMap {
    entries: BTreeMap<Box<str>, MapEntry>,
    hashes: Box<[u64; REGISTRY_RANGES]>,
    /// The digest of the profiles of this broker's configuration.
    configured: u64,
}

impl Default for ProfileMap {
    fn default() -> ProfileMap {
        ProfileMap { entries: BTreeMap::new(), hashes: Box::new([0; REGISTRY_RANGES]), configured: NO_PROFILES }
    }
}

impl Replicated for ProfileMap {
    fn version(&self, key: &str) -> Option<Version> {
        self.entries.get(key).map(|entry| entry.version)
    }

    fn put_value(&self, _now: Time, key: &str, into: &mut Vec<u8>) -> Option<u64> {
        into.extend_from_slice(self.entries.get(key)?.value.as_deref()?);
        Some(0)
    }

    fn hashes(&self) -> &[u64; REGISTRY_RANGES] {
        &self.hashes
    }

    fn visit_from<'a>(&'a self, from: &str, visit: &mut dyn FnMut(&'a str) -> ControlFlow<()>) {
        let range = (core::ops::Bound::Included(from), core::ops::Bound::Unbounded);
        let _ = self.entries.range::<str, _>(range).map(|(key, _)| &**key).try_for_each(visit);
    }

    fn is_shared(&self, _key: &str) -> bool {
        true
    }
}

/// The parts of the broker that a change of a profile concerns.
pub(crate) struct ProfileSite<'a> {
    pub(crate) router: &'a mut Router,
    pub(crate) overlay: &'a mut Overlay,
    /// `None`: there is no log.
    pub(crate) store: Option<&'a mut Store>,
    pub(crate) retained: &'a Retained,
}

impl ProfileMap {
    /// Makes a profile at this broker, in place of one with the same filter, or removes it. All
    /// brokers are told.
    pub(crate) fn change(
        &mut self,
        now: Time,
        filter: &str,
        made: Option<&RankedProfile>,
        site: &mut ProfileSite<'_>,
        out: &mut dyn Output,
    ) {
        let value = made.map(|made| {
            let mut value = Vec::with_capacity(32);
            put_profile(made.rank, &made.profile, &mut value);
            value.into_boxed_slice()
        });
        let version = self.next_version(now, filter, site.overlay);
        self.put(now, filter, (version, value), site);
        site.overlay.net.tell_entry(&mut Io { now, out, maps: &[site.retained, self] }, PROFILES_MAP, filter);
    }

    /// Records the profiles of this broker's configuration, in their order.
    pub(crate) fn configure(&mut self, profiles: &[Profile]) {
        self.configured = digest_of(profiles);
    }

    /// Announces the digest of the profiles of this broker's configuration, if it has changed.
    pub(crate) fn tell_configured(&mut self, now: Time, site: &mut ProfileSite<'_>, out: &mut dyn Output) {
        if !site.overlay.is_open() {
            return;
        }
        let key = format!("{DIGEST}{}", site.overlay.net.name());
        if digest_in(self.entries.get(&*key)) == self.configured {
            return;
        }
        let digest = Box::from(self.configured.to_le_bytes());
        let version = self.next_version(now, &key, site.overlay);
        self.put(now, &key, (version, Some(digest)), site);
        site.overlay.net.tell_entry(&mut Io { now, out, maps: &[site.retained, self] }, PROFILES_MAP, &key);
    }

    /// Takes entries of a neighbour that are news. Returns whether a profile has changed.
    pub(super) fn take(
        &mut self,
        now: Time,
        link: PeerLink,
        registry: &Registry<'_>,
        site: &mut ProfileSite<'_>,
    ) -> bool {
        let mut has_changed = false;
        for entry in &registry.entries {
            let is_digest = entry.key.starts_with(DIGEST);
            if !is_digest && TopicFilter::new(entry.key).is_err() {
                site.overlay.net.refuse_event();
                continue;
            }
            if self.version(entry.key).is_some_and(|known| known >= entry.version) {
                continue;
            }
            self.put(now, entry.key, (entry.version, entry.value.map(Box::from)), site);
            site.overlay.net.record_entry(PROFILES_MAP, entry.key, Some(link));
            has_changed |= !is_digest;
        }
        has_changed
    }

    /// Restores an entry that was written before this process began.
    pub(crate) fn restore(&mut self, filter: &str, record: &ProfileRecord<'_>, router: &mut Router) {
        let entry = MapEntry { version: record.version, value: record.value.map(Box::from), until: record.until };
        self.apply(filter, entry.value.as_deref(), router);
        self.replace(filter, entry);
    }

    /// Forgets profiles that were removed long ago.
    pub(super) fn expire(&mut self, now: Time, mut store: Option<&mut Store>) {
        let is_over = |entry: &MapEntry| entry.value.is_none() && entry.until <= now;
        let over: Vec<Box<str>> =
            self.entries.iter().filter(|(_, entry)| is_over(entry)).map(|(key, _)| key.clone()).collect();
        for key in over {
            let gone = self.entries.remove(&key).expect("it was just found");
            self.hashes[range_of(&key)] ^= entry_hash(&key, gone.version);
            if let Some(store) = store.as_deref_mut() {
                store.write_queue.forget(|bytes| Key::Profile(&key).put(bytes));
                store.write_queue.seal();
            }
        }
    }

    /// The brokers, among those that are known, whose configurations have other profiles than this
    /// broker's, by name.
    pub(crate) fn differing(&self, overlay: &Overlay) -> Vec<Box<str>> {
        let others = overlay.net.topology().states().filter(|state| state.host != overlay.net.host());
        let digest = |name: &str| digest_in(self.entries.get(&*format!("{DIGEST}{name}")));
        others.filter(|state| digest(&state.name) != self.configured).map(|state| state.name.clone()).collect()
    }

    /// A version that is greater than the one that is known of a key.
    fn next_version(&self, now: Time, key: &str, overlay: &Overlay) -> Version {
        let known = self.version(key).map_or(Tick(0), |(tick, _)| tick);
        (Tick::next(known, now), overlay.net.host().pubend(0))
    }

    /// Sets an entry, and puts it in effect and on disk.
    fn put(
        &mut self,
        now: Time,
        key: &str,
        (version, value): (Version, Option<Box<[u8]>>),
        site: &mut ProfileSite<'_>,
    ) {
        let until = now.after(TOMBSTONE_LIFETIME);
        if !key.starts_with(DIGEST) {
            self.apply(key, value.as_deref(), site.router);
            if let Some(store) = site.store.as_deref_mut() {
                let record = ProfileRecord { version, value: value.as_deref(), until };
                store.write_queue.put(|bytes| Key::Profile(key).put(bytes), |bytes| record.put_versioned(bytes));
                store.write_queue.seal();
            }
        }
        self.replace(key, MapEntry { version, value, until });
    }

    /// Puts a profile in effect, or its removal. One that a later version has written, and this one
    /// cannot read, has no effect here.
    fn apply(&self, filter: &str, value: Option<&[u8]>, router: &mut Router) {
        match value.and_then(|value| read_profile(filter, value)) {
            Some(made) => router.make_profile(made),
            None => router.unmake_profile(filter),
        }
    }

    fn replace(&mut self, key: &str, entry: MapEntry) {
        self.hashes[range_of(key)] ^= entry_hash(key, entry.version);
        if let Some(old) = self.entries.insert(key.into(), entry) {
            self.hashes[range_of(key)] ^= entry_hash(key, old.version);
        }
    }
}

/// The digest of a configuration without profiles, which no broker announces.
const NO_PROFILES: u64 = 0;

/// The digest in an entry.
fn digest_in(entry: Option<&MapEntry>) -> u64 {
    let bytes = entry.and_then(|entry| entry.value.as_deref()?.try_into().ok());
    bytes.map_or(NO_PROFILES, u64::from_le_bytes)
}

/// A hash of the profiles of a configuration, in their order.
fn digest_of(profiles: &[Profile]) -> u64 {
    if profiles.is_empty() {
        return NO_PROFILES;
    }
    let mut bytes = Vec::new();
    for profile in profiles {
        put_bytes(&mut bytes, profile.filter.as_bytes());
        put_profile(0, profile, &mut bytes);
    }
    Seeded::new(DIGEST_SEED).hash_one(&*bytes)
}
