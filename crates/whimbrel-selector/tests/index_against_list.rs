//! The index against a list whose selectors the naive evaluator asks one by one.

mod naive;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use naive::generate::Choices;
use naive::operations::{Mix, operations, sliding_window};

/// How many cases per usual one: `WHIMBREL_SELECTOR_CASES` over 1,000, and 1 without.
fn runs(usual: u64) -> u64 {
    match std::env::var("WHIMBREL_SELECTOR_CASES") {
        Ok(number) => usual * number.parse::<u64>().expect("WHIMBREL_SELECTOR_CASES is a number").div_ceil(1000),
        Err(_) => usual,
    }
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
fn few_selectors_of_every_kind_under_several_filters() {
    let mix = Mix { operations: 200, most: 60, filters: 10, common: 4 };
    for_all_seeds(runs(120), |seed| drop(operations(&mut Choices::Seeded(seed), seed, mix)));
}

#[test]
fn hundreds_of_selectors_of_every_kind_under_one_filter() {
    let mix = Mix { operations: 1500, most: 600, filters: 1, common: 2 };
    for_all_seeds(runs(6), |seed| drop(operations(&mut Choices::Seeded(seed), seed, mix)));
}

#[test]
fn hundreds_of_selectors_of_few_shapes_under_two_filters() {
    let mix = Mix { operations: 3000, most: 1200, filters: 2, common: 15 };
    for_all_seeds(runs(4), |seed| drop(operations(&mut Choices::Seeded(seed), seed, mix)));
}

#[test]
fn thousands_of_boxes_of_one_to_three_ranges_come_and_go() {
    for_all_seeds(runs(3), |seed| {
        let ranges = 1 + seed as usize % 3;
        let found = sliding_window(&mut Choices::Seeded(seed), seed, ranges, 1800, 5000);
        assert!(found > 100, "hardly a test: {found} found");
    });
}

#[test]
fn the_same_operations_find_the_same_in_the_same_order() {
    let mix = Mix { operations: 800, most: 400, filters: 3, common: 12 };
    for_all_seeds(runs(3), |seed| {
        let twice = [0; 2].map(|_| operations(&mut Choices::Seeded(seed), seed, mix));
        assert!(twice[0].len() > 20, "hardly a test");
        assert_eq!(twice[0], twice[1]);
    });
}
