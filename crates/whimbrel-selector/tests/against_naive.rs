//! The crate against an evaluator that was written apart from it: single selectors.

mod naive;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use naive::checks::{Tally, any_bytes, any_text, covering, damaged, generated};
use naive::generate::Choices;

/// How many cases; `WHIMBREL_SELECTOR_CASES` asks for another number.
fn cases(usual: u64) -> u64 {
    match std::env::var("WHIMBREL_SELECTOR_CASES") {
        Ok(number) => number.parse().expect("WHIMBREL_SELECTOR_CASES is a number"),
        Err(_) => usual,
    }
}

/// Runs `check` on every seed below `runs` and names the seed that fails.
fn for_all_seeds(runs: u64, mut check: impl FnMut(u64)) {
    for seed in 0..runs {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("failed with seed {seed}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn a_selector_has_the_value_that_the_naive_evaluator_gives_it() {
    let mut tally = Tally::default();
    for_all_seeds(cases(12_000), |seed| generated(&mut Choices::Seeded(seed), &mut tally));
    let all = tally.yes + tally.no + tally.unknown;
    for share in [tally.yes, tally.no, tally.unknown] {
        assert!(share * 8 > all, "hardly a test: {tally:?}");
    }
}

#[test]
fn a_damaged_selector_is_refused_or_means_what_it_says() {
    let mut accepted = 0;
    let runs = cases(8_000);
    for_all_seeds(runs, |seed| {
        let c = &mut Choices::Seeded(seed);
        accepted += u64::from(any_text(&damaged(c), c));
    });
    assert!((runs / 50..runs * 9 / 10).contains(&accepted), "hardly a test: {accepted} of {runs} accepted");
}

#[test]
fn what_a_selector_covers_is_true_only_where_it_is() {
    let mut covered = 0;
    let runs = cases(12_000);
    for_all_seeds(runs, |seed| covered += u64::from(covering(&mut Choices::Seeded(seed))));
    assert!(covered > runs / 50, "hardly a test: {covered} of {runs} cover");
}

#[test]
fn what_the_fuzz_target_checks_holds_for_random_bytes() {
    for_all_seeds(cases(800), |seed| {
        let c = &mut Choices::Seeded(seed);
        let bytes: Vec<u8> = (0..c.below(8192)).map(|_| c.byte()).collect();
        any_bytes(&bytes);
    });
}
