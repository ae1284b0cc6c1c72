//! The ledger is checked: a broker with a fault about what survives is caught by a rule that
//! forbids it, within few worlds.

use whimbrel_core::Mutant;
use whimbrel_sim::check::Rule;
use whimbrel_sim::durable::{run, run_mutant};

/// Worlds in which a mutant may show itself.
const SEEDS: u64 = 500;

/// Looks for the first world that shows the fault by that rule, and shows nothing without it.
fn caught(mutant: Mutant, rule: Rule) {
    caught_by(mutant, &[rule]);
}

/// As [`caught`], for a fault that one of several rules forbids.
fn caught_by(mutant: Mutant, rules: &[Rule]) {
    for seed in 0..SEEDS {
        let report = run_mutant(seed, mutant);
        if let Some(violation) = report.violations.iter().find(|violation| rules.contains(&violation.rule)) {
            println!("{mutant:?}: seed {seed}, {violation}");
            assert!(run(seed).violations.is_empty(), "the world of seed {seed} breaks rules by itself");
            return;
        }
        assert!(report.violations.is_empty(), "seed {seed} breaks another rule than {rules:?}: {report}");
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

#[test]
fn what_somebody_has_not_acknowledged_is_not_given_up() {
    caught(Mutant::ReleasesInFlight, Rule::Delivery);
}

#[test]
fn who_is_absent_holds_the_log() {
    caught(Mutant::ForgetsAbsent, Rule::Delivery);
}

#[test]
fn positions_survive_a_restart() {
    caught(Mutant::HoldLost, Rule::Delivery);
}

#[test]
fn what_came_before_another_selector_stays_under_the_old_one() {
    // An event that only one of both selectors wants is missing, or delivered.
    caught_by(Mutant::SelectorAtOnce, &[Rule::Delivery, Rule::Selector]);
}

#[test]
fn a_delivery_exactly_once_is_remembered_before_it_is_sent() {
    caught(Mutant::PublishBeforePut, Rule::Duplicate);
}

#[test]
fn a_client_forgets_a_tag_after_the_broker_remembers_that_it_has_the_event() {
    caught(Mutant::ReleaseBeforePut, Rule::Duplicate);
}

#[test]
fn a_chain_that_breaks_is_no_end() {
    caught(Mutant::ChainBelieved, Rule::Delivery);
}

#[test]
fn a_number_is_durable_with_its_event() {
    // The event is there after a crash, the number is not, and the repetition is another event.
    caught(Mutant::SeqApart, Rule::Duplicate);
}

#[test]
fn repeats_are_acknowledged_when_the_first_is_durable() {
    caught(Mutant::RepeatAnswered, Rule::Durable);
}

#[test]
fn ticks_are_not_used_again_after_a_restart() {
    caught(Mutant::TickReused, Rule::EventId);
}

#[test]
fn an_old_session_does_not_come_back() {
    caught(Mutant::OldSessionBack, Rule::Invented);
}
