//! Hashing that strangers cannot aim at.

use core::hash::{Hash, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

/// Hashes for hash tables, all of whose constants come from a seed. foldhash's own `FixedState`
/// seeds only the start of each hash and leaves the other constants public, so that values can be
/// found that collide under every seed.
#[derive(Clone, Debug)]
pub struct Seeded {
    start: u64,
    shared: SharedSeed,
}

impl Seeded {
    /// The same seed gives the same hashes. Where strangers choose what is hashed, the seed is to
    /// be a secret.
    pub fn new(seed: u64) -> Seeded {
        Seeded { start: seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15, shared: SharedSeed::from_u64(seed) }
    }

    /// The hash of one value. Not for more than finding things in tables: it is fast, and no
    /// cipher.
    #[inline]
    pub fn hash_one(&self, value: impl Hash) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.start, &self.shared);
        value.hash(&mut hasher);
        hasher.finish()
    }
}
