//! Digests of what brokers send in worlds drawn from seeds, a line for each: family, seed, how many
//! streams there were, digest.
//!
//! `cargo run --profile quick -p whimbrel-sim --example traces [FAMILY [SEED]]`; with a seed, a
//! line for each stream of that world. `WHIMBREL_SEEDS` says how many seeds are played (200),
//! `WHIMBREL_SEED` which is the first (1). With `WHIMBREL_PLAIN_WAYS=0` all messages take the
//! general way. `cargo xtask traces` compares two such lists.

#[path = "../tests/families/mod.rs"]
mod families;
#[path = "../tests/seeds/mod.rs"]
mod seeds;

use families::FAMILIES;
use whimbrel_sim::digests::Digests;
use whimbrel_sim::plain_ways;

/// Seeds that are played unless told otherwise.
const SEEDS: u64 = 200;

fn main() {
    let has_plain_ways = seeds::number("WHIMBREL_PLAIN_WAYS") != Some(0);
    let digest = |play: fn(u64) -> Digests, seed| {
        if has_plain_ways { play(seed) } else { plain_ways::without(|| play(seed)) }
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first();
    let families = FAMILIES.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
    if let Some(seed) = arguments.get(1) {
        let seed = seed.parse().unwrap_or_else(|_| panic!("a seed is a whole number, not {seed:?}"));
        families.for_each(|(_, play)| print!("{}", digest(*play, seed)));
        return;
    }
    let (first, count) =
        (seeds::number("WHIMBREL_SEED").unwrap_or(1), seeds::number("WHIMBREL_SEEDS").unwrap_or(SEEDS));
    for (name, play) in families {
        let all = seeds::play(first, count, |seed| (seed, digest(*play, seed)), |_| false);
        for (seed, streams) in all {
            println!("{name} {seed} {} {:016x}", streams.len(), streams.total());
        }
    }
}
