//! A replicated map for tests: keys with text, and tombstones that stay.

use core::ops::ControlFlow;
use std::collections::BTreeMap;

use whimbrel_event::{HostId, Tick, Time};
use whimbrel_net::registry::{Replicated, Version, entry_hash, range_of};
use whimbrel_wire::{REGISTRY_RANGES, RegistryEntry};

/// One key.
struct Entry {
    version: Version,
    /// `None`: the key was removed.
    value: Option<Box<str>>,
    since: Time,
}

/// The map of one node.
pub struct Shelf {
    entries: BTreeMap<Box<str>, Entry>,
    hashes: Box<[u64; REGISTRY_RANGES]>,
}

impl Default for Shelf {
    fn default() -> Shelf {
        Shelf { entries: BTreeMap::new(), hashes: Box::new([0; REGISTRY_RANGES]) }
    }
}

impl Shelf {
    /// The keys with a value.
    pub fn values(&self) -> BTreeMap<&str, &str> {
        self.entries.iter().filter_map(|(key, entry)| Some((&**key, entry.value.as_deref()?))).collect()
    }

    /// The number of keys, tombstones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Changes a key at this node; without a value it is removed.
    pub fn put(&mut self, now: Time, host: HostId, key: &str, value: Option<&str>) {
        let last = self.entries.get(key).map_or(Tick(0), |entry| entry.version.0);
        let version = (Tick::next(last, now), host.pubend(0));
        self.store(key, Entry { version, value: value.map(Box::from), since: now });
    }

    /// Takes an entry of a neighbour. Returns whether it is news.
    pub fn take(&mut self, now: Time, entry: &RegistryEntry<'_>) -> bool {
        let is_known = self.entries.get(entry.key).is_some_and(|known| known.version >= entry.version);
        let value = entry.value.map(|value| core::str::from_utf8(value).expect("nodes store text").into());
        if !is_known {
            self.store(entry.key, Entry { version: entry.version, value, since: now });
        }
        !is_known
    }

    fn store(&mut self, key: &str, entry: Entry) {
        let hash = &mut self.hashes[range_of(key)];
        *hash ^= entry_hash(key, entry.version);
        if let Some(old) = self.entries.insert(key.into(), entry) {
            *hash ^= entry_hash(key, old.version);
        }
    }
}

impl Replicated for Shelf {
    fn version(&self, key: &str) -> Option<Version> {
        Some(self.entries.get(key)?.version)
    }

    fn put_value(&self, now: Time, key: &str, into: &mut Vec<u8>) -> Option<u64> {
        let entry = self.entries.get(key)?;
        into.extend_from_slice(entry.value.as_deref()?.as_bytes());
        Some(now.since(entry.since).as_millis() as u64)
    }

    fn hashes(&self) -> &[u64; REGISTRY_RANGES] {
        &self.hashes
    }

    fn visit_from<'a>(&'a self, from: &str, visit: &mut dyn FnMut(&'a str) -> ControlFlow<()>) {
        let from = (core::ops::Bound::Included(from), core::ops::Bound::Unbounded);
        let _ = self.entries.range::<str, _>(from).try_for_each(|(key, _)| visit(key));
    }

    fn is_shared(&self, _key: &str) -> bool {
        true
    }
}
