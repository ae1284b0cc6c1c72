//! The book of worlds in which clients wander is checked: brokers with a fault about what moves and
//! what is owed are caught by a rule that forbids it, within few worlds.

use whimbrel_core::Mutant;
use whimbrel_sim::overlay::Rule;
use whimbrel_sim::overlay::roam::{Wander, run_overloaded, run_overloaded_mutant, run_wandering, run_wandering_mutant};

/// Worlds in which a mutant may show itself. The rarest of these faults show in one world of a
/// thousand.
const SEEDS: u64 = 3000;

/// Looks for the first world that shows the fault by one of these rules, and shows nothing without
/// it.
fn caught(wander: Wander, mutant: Mutant, rules: &[Rule]) {
    for seed in 0..SEEDS {
        let report = run_wandering_mutant(seed, wander, mutant);
        if let Some(violation) = report.violations.iter().find(|violation| rules.contains(&violation.rule))
            && run_wandering(seed, wander).violations.is_empty()
        {
            println!("{mutant:?}: seed {seed}, {violation}");
            return;
        }
    }
    panic!("{mutant:?} lives through {SEEDS} worlds");
}

#[test]
fn what_is_owed_is_logged() {
    caught(Wander::Bound, Mutant::OwedNotLogged, &[Rule::Lost]);
}

#[test]
fn holds_are_written() {
    caught(Wander::Bound, Mutant::HoldUnwritten, &[Rule::Lost]);
}

#[test]
fn holds_stay_where_they_were_reported() {
    caught(Wander::Bound, Mutant::HoldLifted, &[Rule::Lost]);
}

#[test]
fn gaps_are_not_taken_from_the_consolidated_stream() {
    caught(Wander::Bound, Mutant::GapTaken, &[Rule::Lost]);
}

#[test]
fn what_was_told_to_one_reader_is_not_what_another_one_asked_for() {
    caught(Wander::Bound, Mutant::KeptForAll, &[Rule::Lost]);
}

#[test]
fn what_another_broker_gave_up_early_is_told() {
    caught(Wander::Bound, Mutant::FarEarlyIsSilence, &[Rule::Lost]);
}

#[test]
fn a_session_moves_with_what_was_not_answered() {
    caught(Wander::Everywhere, Mutant::CarriedAhead, &[Rule::Lost]);
}

#[test]
fn a_client_forgets_the_tags_of_a_keeper_that_is_gone() {
    caught(Wander::Everywhere, Mutant::TagsTrusted, &[Rule::Lost]);
}

#[test]
fn a_session_moves_with_the_last_number() {
    caught(Wander::Everywhere, Mutant::CarriedWithoutNumber, &[Rule::Duplicate, Rule::Logged]);
}

#[test]
fn a_session_moves_with_what_is_in_flight() {
    caught(Wander::Everywhere, Mutant::CarriedWithoutFlights, &[Rule::Duplicate]);
}

#[test]
fn what_was_given_away_stays_until_it_is_safe() {
    caught(Wander::Everywhere, Mutant::SettledAtOnce, &[Rule::Lost, Rule::Session]);
}

#[test]
fn the_newer_session_counts() {
    caught(Wander::Everywhere, Mutant::NewerIgnored, &[Rule::Lost, Rule::Session, Rule::Duplicate, Rule::Takeover]);
}

#[test]
fn who_has_not_told_everything_is_asked() {
    caught(Wander::Everywhere, Mutant::UnsyncedBelieved, &[Rule::Session]);
}

#[test]
fn a_deputy_has_the_latest_copy() {
    caught(Wander::Everywhere, Mutant::CopyStale, &[Rule::Duplicate, Rule::Lost]);
}

#[test]
fn what_was_given_is_not_behind_what_is_written() {
    caught(Wander::Bound, Mutant::Unmarked, &[Rule::Duplicate]);
}

/// Worlds in which brokers stand still show what they conclude of the time in which they heard
/// no other broker.
#[test]
fn who_has_stood_still_knows_that_it_has() {
    for seed in 0..SEEDS {
        let mutated = run_overloaded_mutant(seed, Wander::Everywhere, Mutant::StandstillUnnoticed);
        let rules = [Rule::Session, Rule::Lost, Rule::Duplicate, Rule::Takeover];
        if let Some(violation) = mutated.violations.iter().find(|violation| rules.contains(&violation.rule))
            && run_overloaded(seed, Wander::Everywhere).violations.is_empty()
        {
            println!("seed {seed}, {violation}");
            return;
        }
    }
    panic!("it lives through {SEEDS} worlds");
}
