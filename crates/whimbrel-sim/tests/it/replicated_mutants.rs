//! The book of worlds with engines is checked: engines with a fault, and processes that do not look
//! whether they own their logs, are caught by a rule that forbids it, within few worlds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use whimbrel_engine::EngineMutant;
use whimbrel_sim::overlay::Rule;
use whimbrel_sim::overlay::roam::{Report, run_replicated, run_replicated_blind, run_replicated_mutant};

/// Worlds in which a mutant may show itself: those in which no promise is broken.
const SEEDS: u64 = 500;

/// What a world shows of a fault by one of these rules.
fn shown(report: &Report, rules: &[Rule]) -> Option<String> {
    report.violations.iter().find(|violation| rules.contains(&violation.rule)).map(ToString::to_string)
}

/// Looks for the first world that shows the fault, and shows nothing without it.
fn caught(what: &str, run: impl Fn(u64) -> Option<String>) {
    for seed in 0..SEEDS {
        if let Some(shown) = run(seed) {
            println!("{what}: seed {seed}, {shown}");
            assert!(run_replicated(seed).violations.is_empty(), "the world of seed {seed} breaks rules by itself");
            return;
        }
    }
    panic!("{what} lives through {SEEDS} worlds");
}

fn mutant_is_caught(mutant: EngineMutant, rules: &[Rule]) {
    // A log that cannot be opened shows a fault, too.
    caught(&format!("{mutant:?}"), |seed| {
        match catch_unwind(AssertUnwindSafe(|| run_replicated_mutant(seed, mutant))) {
            Ok(report) => shown(&report, rules),
            Err(text) => Some(text.downcast_ref::<String>().cloned().unwrap_or_default()),
        }
    });
}

#[test]
fn a_start_takes_the_epoch_first() {
    mutant_is_caught(EngineMutant::ServesBeforeEpoch, &[Rule::Takeover, Rule::Lost]);
}

#[test]
fn a_refusal_ends_all_writing() {
    mutant_is_caught(EngineMutant::RefusalIgnored, &[Rule::Lost]);
}

#[test]
fn a_record_without_an_answer_does_not_count() {
    mutant_is_caught(EngineMutant::CountAhead, &[Rule::Lost, Rule::Takeover]);
}

#[test]
fn an_owner_of_a_lower_epoch_does_not_count() {
    mutant_is_caught(EngineMutant::OldEpochCounts, &[Rule::Lost]);
}

#[test]
fn a_hole_is_not_believed() {
    mutant_is_caught(EngineMutant::HoleBelieved, &[Rule::Lost]);
}

#[test]
fn what_is_read_last_is_not_the_end() {
    mutant_is_caught(EngineMutant::EndBelieved, &[Rule::Lost]);
}

#[test]
fn a_former_owner_that_has_nothing_to_write_stops() {
    caught("no beat", |seed| shown(&run_replicated_blind(seed), &[Rule::Takeover]));
}
