//! Hashing for which an attacker cannot choose collisions.

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
    /// A hasher with a seed: the same seed gives the same hashes. Where an outside party chooses
    /// the hashed values, the seed has to be secret.
    pub fn new(seed: u64) -> Seeded {
        Seeded { start: seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15, shared: SharedSeed::from_u64(seed) }
    }

    /// The hash of one value. For finding things in tables only: it is fast, and not cryptographic.
    #[inline]
    pub fn hash_one(&self, value: impl Hash) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.start, &self.shared);
        value.hash(&mut hasher);
        hasher.finish()
    }
}
