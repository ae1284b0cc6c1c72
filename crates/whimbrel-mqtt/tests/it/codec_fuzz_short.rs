//! What the fuzz targets check, on a bounded number of seeded inputs, for machines without a
//! fuzzer.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::codec_checks::generate::{Choices, mutated_packet, packet};
use crate::codec_checks::operations::operations;
use crate::codec_checks::{decode_any, oracle, publish_fast};

/// Inputs of each kind.
const RUNS: u64 = 20_000;

/// Choices per input, bytes.
const CHOICES: usize = 512;

/// Sequences of operations, and choices in each, bytes.
const SEQUENCES: u64 = 1_500;
const SEQUENCE_CHOICES: usize = 4_096;

/// SplitMix64: enough to spread seeds over inputs.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Runs `check` on every seed below `runs` and names the seed that fails.
fn for_all_seeds(runs: u64, check: impl Fn(u64)) {
    for seed in 0..runs {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("failed with seed {seed}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn decode() {
    for_all_seeds(RUNS, |seed| {
        let choices = bytes(seed, CHOICES);
        decode_any(&choices[..seed as usize % CHOICES]);
        decode_any(&mutated_packet(&mut Choices::new(&choices)).1);
        let (version, whole) = packet(&mut Choices::new(&choices));
        assert!(decode_any(&whole), "a well-formed packet is refused: {version:?} {whole:02x?}");
    });
}

#[test]
fn decode_differential() {
    for_all_seeds(RUNS, |seed| {
        let choices = bytes(seed, CHOICES);
        oracle::differential(&packet(&mut Choices::new(&choices)).1);
        oracle::differential(&mutated_packet(&mut Choices::new(&choices)).1);
    });
}

#[test]
fn the_listed_differences_exist() {
    oracle::check_list();
}

#[test]
fn the_fast_way_of_publish() {
    for_all_seeds(RUNS, |seed| {
        let choices = bytes(seed, CHOICES);
        publish_fast(&choices[..seed as usize % 40]);
        let (_, whole) = packet(&mut Choices::new(&choices));
        // The first byte gives the flags; a body follows that is often one of a PUBLISH.
        publish_fast(&[&whole[..1], &whole[2..]].concat());
    });
}

#[test]
fn operations_on_a_broker() {
    for_all_seeds(SEQUENCES, |seed| operations(&bytes(seed, SEQUENCE_CHOICES)));
}
