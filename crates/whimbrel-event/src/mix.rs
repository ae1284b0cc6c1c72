//! Numbers that are mixed well, and are the same on every machine and in every version.

/// SplitMix64 (Steele, Lea, Flood 2014): turns one seed into a sequence of well-mixed numbers.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The state of [`fnv1a`] before the first byte.
pub const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a of 64 bits (Fowler, Noll and Vo): the state of the hash after further bytes. It begins
/// with [`FNV_OFFSET`].
pub fn fnv1a(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::{FNV_OFFSET, fnv1a, split_mix};

    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let mut state = 1_234_567;
        let numbers = [(); 3].map(|()| split_mix(&mut state));
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn the_hash_is_that_of_its_authors() {
        // Two of their published test vectors.
        assert_eq!(
            (fnv1a(FNV_OFFSET, b"a"), fnv1a(FNV_OFFSET, b"foobar")),
            (0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8)
        );
    }
}
