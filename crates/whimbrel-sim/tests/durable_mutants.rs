//! The ledger is checked: a broker with a fault about what survives is caught by a rule that forbids it, within few worlds.

use whimbrel_core::Mutant;
use whimbrel_sim::check::Rule;
use whimbrel_sim::durable::{run, run_mutant};

/// Worlds in which a mutant may show itself.
const SEEDS: u64 = 40;

/// Looks for the first world that shows the fault by that rule, and shows nothing without it.
fn caught(mutant: Mutant, rule: Rule) {
    for seed in 0..SEEDS {
        let report = run_mutant(seed, mutant);
        if let Some(violation) = report.violations.iter().find(|violation| violation.rule == rule) {
            println!("{mutant:?}: seed {seed}, {violation}");
            assert!(run(seed).violations.is_empty(), "the world of seed {seed} breaks rules by itself");
            return;
        }
        assert!(report.violations.is_empty(), "seed {seed} breaks another rule than {rule:?}: {report}");
    }
    panic!("{mutant:?} lives through {SEEDS} worlds");
}

#[test]
fn publishers_are_not_answered_before_the_commit() {
    caught(Mutant::AnswersBeforeCommit, Rule::Durable);
}

#[test]
fn nobody_gets_an_event_before_the_commit() {
    caught(Mutant::PassesBeforeCommit, Rule::Durable);
}

#[test]
fn answers_keep_their_order() {
    caught(Mutant::AnswerOvertakes, Rule::Answers);
}
