//! The place of each key's last record, in 40 bytes per key for keys of any length.

use core::fmt;

use hashbrown::HashTable;
use siphasher::sip128::SipHasher13;

use crate::types::Tick;

/// Number of tables, which grow one at a time. A table doubles when it is full; the tables' shares
/// of the keys grow by the same factor from each to the next, so that at any number of keys they
/// are spread evenly between half full and full. They never all double together, and growing one
/// moves a fiftieth of all keys.
const SHARDS: usize = 64;

/// A key's digest: 96 bits of a keyed hash, and 6 more in the choice of the shard. The probability
/// that two of n keys have the same digest is n² / 2^103: 10^-17 for ten million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    bits: [u32; 3],
    shard: u8,
}

/// The place of a key's last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub tick: Tick,
    /// Bytes of the record.
    pub bytes: u32,
}

/// In pieces of 4 bytes, so that an entry takes 24 bytes and not 32.
#[derive(Clone, Copy)]
struct Entry {
    bits: [u32; 3],
    bytes: u32,
    tick: [u32; 2],
}

impl Entry {
    fn new(bits: [u32; 3], Place { tick, bytes }: Place) -> Entry {
        Entry { bits, bytes, tick: [tick as u32, (tick >> 32) as u32] }
    }

    fn place(&self) -> Place {
        Place { tick: u64::from(self.tick[0]) | u64::from(self.tick[1]) << 32, bytes: self.bytes }
    }
}

/// Last records by key.
pub(super) struct Index {
    hasher: SipHasher13,
    shards: Vec<HashTable<Entry>>,
}

impl Index {
    pub(super) fn new(seed: u128) -> Index {
        let hasher = SipHasher13::new_with_key(&seed.to_le_bytes());
        Index { hasher, shards: vec![HashTable::new(); SHARDS] }
    }

    pub(super) fn digest(&self, key: &[u8]) -> Digest {
        let hash = self.hasher.hash(key);
        let [a, b, c, d] = [hash.h1, hash.h1 >> 32, hash.h2, hash.h2 >> 32].map(|part| part as u32);
        Digest { bits: [a, b, c], shard: shard(d) }
    }

    pub(super) fn get(&self, key: Digest) -> Option<Place> {
        self.shards[usize::from(key.shard)].find(slot(&key.bits), |entry| entry.bits == key.bits).map(Entry::place)
    }

    /// Returns the key's previous place.
    pub(super) fn insert(&mut self, key: Digest, place: Place) -> Option<Place> {
        let table = &mut self.shards[usize::from(key.shard)];
        let new = Entry::new(key.bits, place);
        match table.find_mut(slot(&key.bits), |entry| entry.bits == key.bits) {
            Some(entry) => Some(std::mem::replace(entry, new).place()),
            None => {
                table.insert_unique(slot(&key.bits), new, |entry| slot(&entry.bits));
                None
            }
        }
    }

    pub(super) fn remove(&mut self, key: Digest) -> Option<Place> {
        let table = &mut self.shards[usize::from(key.shard)];
        let found = table.find_entry(slot(&key.bits), |entry| entry.bits == key.bits).ok()?;
        Some(found.remove().0.place())
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    /// The ticks of all last records, in no particular order.
    #[expect(clippy::disallowed_methods, reason = "they are put into a set, where their order does not show")]
    pub(super) fn ticks(&self) -> impl Iterator<Item = Tick> {
        self.shards.iter().flat_map(|table| table.iter().map(|entry| entry.place().tick))
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.shards.iter().map(|table| table.allocation_size() + size_of_val(table)).sum()
    }
}

/// The secret of the hasher is not shown.
impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("keys", &self.len()).finish_non_exhaustive()
    }
}

/// The hash of a key within its table.
fn slot(bits: &[u32; 3]) -> u64 {
    u64::from(bits[0]) | u64::from(bits[1]) << 32
}

/// Maps equal shares of the hash to the growing shares of the tables, by a logarithm.
fn shard(bits: u32) -> u8 {
    let even = 1.0 + f64::from(bits) / (f64::from(u32::MAX) + 1.0);
    (even.log2() * SHARDS as f64) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(tick: Tick) -> Place {
        Place { tick, bytes: tick as u32 ^ 0xffff }
    }

    #[test]
    fn it_is_a_map() {
        let mut index = Index::new(1);
        let mut model = std::collections::BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(1);
        for tick in 1..100_000u64 << 20 {
            if model.len() == 5000 || tick == 200_000 {
                break;
            }
            let key = rng.u32(0..20_000).to_le_bytes();
            let digest = index.digest(&key);
            let tick = tick << 30;
            if rng.u32(0..3) == 0 {
                assert_eq!(index.remove(digest), model.remove(&key));
            } else {
                assert_eq!(index.insert(digest, place(tick)), model.insert(key, place(tick)));
            }
            assert_eq!((index.get(digest), index.len()), (model.get(&key).copied(), model.len()));
        }
        for (key, place) in &model {
            assert_eq!(index.get(index.digest(key)), Some(*place));
        }
    }

    #[test]
    fn a_key_takes_forty_bytes_at_any_number_of_keys() {
        assert_eq!(size_of::<Entry>(), 24);
        let mut index = Index::new(2);
        for tick in 1..=100_000u64 {
            let digest = index.digest(&tick.to_le_bytes());
            assert_eq!(index.insert(digest, place(tick)), None);
            if tick >= 20_000 && tick.is_multiple_of(1000) {
                let each = index.memory() as f64 / tick as f64;
                assert!((36.0..43.0).contains(&each), "{each} at {tick}");
            }
        }
        let most = index.shards.iter().map(HashTable::len).max().unwrap();
        assert!(most < 100_000 / 40, "{most} keys in one shard");
    }

    #[test]
    fn each_part_of_a_digest_tells_keys_apart_and_spreads_them() {
        let index = Index::new(3);
        let digests: Vec<Digest> = (0..10_000u64).map(|key| index.digest(&key.to_le_bytes())).collect();
        let distinct =
            |part: &dyn Fn(&Digest) -> u64| digests.iter().map(part).collect::<std::collections::BTreeSet<u64>>().len();
        for word in 0..3 {
            assert!(distinct(&|digest| digest.bits[word].into()) > 9_990, "word {word}");
        }
        assert_eq!(distinct(&|digest| digest.shard.into()), SHARDS);
        // A table uses the lowest bits for the place and the highest for a first comparison.
        assert!(distinct(&|digest| slot(&digest.bits) & 0xffff_ffff) > 9_990);
        assert_eq!(distinct(&|digest| slot(&digest.bits) >> 57), 128);
    }

    #[test]
    fn the_shards_are_all_there_and_the_last_is_twice_as_likely_as_the_first() {
        assert_eq!((shard(0), shard(u32::MAX)), (0, SHARDS as u8 - 1));
        let begins: Vec<u32> = (0..=u32::MAX >> 12)
            .filter(|bits| shard(bits << 12) != shard((bits << 12).saturating_sub(1 << 12)))
            .collect();
        assert_eq!(begins.len(), SHARDS - 1);
        let (first, last) = (begins[0], (u32::MAX >> 12) - begins[SHARDS - 2]);
        assert!((19..21).contains(&(last * 10 / first)), "{first} and {last}");
    }

    #[test]
    fn keys_are_found_only_with_the_same_secret() {
        let (a, b) = (Index::new(1), Index::new(2));
        assert_ne!(a.digest(b"key"), b.digest(b"key"));
        assert_ne!(a.digest(b"key"), a.digest(b"kez"));
        assert_eq!(format!("{a:?}"), "Index { keys: 0, .. }");
    }
}
