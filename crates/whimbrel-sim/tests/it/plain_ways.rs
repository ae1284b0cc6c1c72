//! Worlds of every family with and without the shorter ways for messages that need nothing special:
//! all brokers send the same bytes at the same times.

use whimbrel_sim::plain_ways;

use crate::families::FAMILIES;
use crate::seeds;

/// Seeds of each family, unless `WHIMBREL_SEEDS` says otherwise.
const SEEDS: u64 = 6;

#[test]
fn worlds_are_the_same_with_and_without_plain_ways() {
    let count = seeds::number("WHIMBREL_SEEDS").unwrap_or(SEEDS);
    for (family, play) in FAMILIES {
        let is_different = |seed| (seed, play(seed) != plain_ways::without(|| play(seed)));
        let all = seeds::play(1, count, is_different, |(_, is_different)| *is_different);
        let different: Vec<u64> = all.iter().filter(|(_, is_different)| *is_different).map(|(seed, _)| *seed).collect();
        assert!(different.is_empty(), "worlds of the family {family} with these seeds differ: {different:?}");
        assert_eq!(all.len() as u64, count);
    }
}
