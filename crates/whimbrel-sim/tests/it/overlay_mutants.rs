//! The book of worlds of many brokers is checked: brokers with a fault about what travels between
//! them are caught by a rule that forbids it, within few worlds. Two of them need a scene of their
//! own: `src/overlay/scenes.rs`.

use whimbrel_core::{Mutant, NetMutant};
use whimbrel_sim::overlay::{Rule, run, run_mutant};

/// Worlds in which a mutant may show itself.
const SEEDS: u64 = 500;

/// Looks for the first world that shows the fault by one of these rules, and shows nothing without
/// it.
fn caught(mutant: Mutant, rules: &[Rule]) {
    caught_from(0, mutant, rules);
}

/// The same from that seed on, for what few worlds show.
fn caught_from(first: u64, mutant: Mutant, rules: &[Rule]) {
    for seed in first..first + SEEDS {
        let report = run_mutant(seed, mutant);
        if let Some(violation) = report.violations.iter().find(|violation| rules.contains(&violation.rule)) {
            println!("{mutant:?}: seed {seed}, {violation}");
            assert!(run(seed).violations.is_empty(), "the world of seed {seed} breaks rules by itself");
            return;
        }
    }
    panic!("{mutant:?} lives through {SEEDS} worlds from {first}");
}

#[test]
fn holes_are_asked_for() {
    caught(Mutant::SkipNack, &[Rule::Lost, Rule::Late]);
}

#[test]
fn silence_counts_under_the_version_in_force() {
    caught(Mutant::OldVersionBelieved, &[Rule::Lost, Rule::Late]);
}

#[test]
fn what_passed_before_the_first_version_that_was_told_is_asked_for() {
    caught(Mutant::FirstSilenceBelieved, &[Rule::Lost]);
}

#[test]
fn what_comes_twice_is_passed_on_once() {
    caught(Mutant::DeliverTwice, &[Rule::Duplicate, Rule::Order]);
}

#[test]
fn what_could_not_be_sent_is_no_silence() {
    caught(Mutant::PreviousNotMoved, &[Rule::Lost]);
}

#[test]
fn what_somebody_lacks_is_sent_again() {
    caught(Mutant::AnswersNothing, &[Rule::Lost, Rule::Late]);
}

#[test]
fn what_was_overwritten_is_told_to_be_lost() {
    caught(Mutant::AnswersFromHoles, &[Rule::Lost]);
}

#[test]
fn subscriptions_are_answered_when_others_know_of_them() {
    caught(Mutant::ConfirmEarly, &[Rule::Lost]);
}

#[test]
fn the_newer_retained_message_wins() {
    caught(Mutant::RetainedOlderWins, &[Rule::Retained]);
}

#[test]
fn retained_messages_are_compared() {
    caught(Mutant::Net(NetMutant::RetainedNotCompared), &[Rule::Retained]);
}

#[test]
fn a_retained_message_that_will_not_come_is_given() {
    caught(Mutant::RetainedWithheld, &[Rule::Retained]);
}

#[test]
fn silence_is_not_told_of_what_may_come() {
    caught(Mutant::SilenceAhead, &[Rule::Lost, Rule::Late]);
}

#[test]
fn interests_are_passed_on() {
    caught(Mutant::Net(NetMutant::InterestStays), &[Rule::Late, Rule::Lost]);
}

#[test]
fn events_travel_only_to_those_who_want_them() {
    caught(Mutant::SentToAll, &[Rule::Interest]);
}

#[test]
fn who_comes_back_is_told_what_it_missed() {
    caught(Mutant::ReturnsWithoutGap, &[Rule::Lost]);
}

#[test]
fn what_came_before_an_event_for_somebody_else_is_no_silence() {
    caught(Mutant::Net(NetMutant::SilenceOfOtherInterest), &[Rule::Lost, Rule::Late]);
}

#[test]
fn who_waits_for_an_answer_is_not_told_what_came_before_for_the_asker() {
    caught_from(500, Mutant::Net(NetMutant::MergedRangeNacks), &[Rule::Lost, Rule::Late]);
}

#[test]
fn a_process_that_starts_again_is_another_one() {
    caught_from(500, Mutant::IncarnationIgnored, &[Rule::Lost, Rule::Duplicate, Rule::Order]);
}
