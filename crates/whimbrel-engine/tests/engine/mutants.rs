//! Faults that are built in are noticed.

use whimbrel_engine::{EngineMutant, Replicated};

use crate::holes::{one_replica_lacks_some, the_end_is_hidden};
use crate::homes::{Place, RunningStart};
use crate::lives::first_wrong;
use crate::local::{a_start_ends_at_each_record, another_owner_was_there};
use crate::owners::{a_former_owner_has_appended, go_on_after_a_successor};
use crate::refused::a_disk_fails_at_a_checkpoint;

fn with(mutant: EngineMutant) -> Box<RunningStart> {
    Box::new(move |place: Place| {
        let Place { disk, engine, mark, options } = place;
        Replicated::start_mutant(disk, engine, mark, options, mutant)
    })
}

fn dies_in_some_life(mutant: EngineMutant) {
    let wrong = first_wrong(300, &with(mutant)).unwrap_or_else(|| panic!("{mutant:?} is not noticed"));
    println!("{mutant:?}: {wrong}");
}

fn dies_beside_a_successor(mutant: EngineMutant) {
    let wrong = (0..100).find_map(|seed| go_on_after_a_successor(&with(mutant), seed).err());
    println!("{mutant:?}: {}", wrong.unwrap_or_else(|| panic!("{mutant:?} is not noticed")));
}

#[test]
fn a_record_without_an_answer_does_not_count() {
    dies_in_some_life(EngineMutant::CountAhead);
}

#[test]
fn records_are_removed_only_below_one_that_is_acknowledged() {
    dies_in_some_life(EngineMutant::CutBeforeHeader);
}

#[test]
fn bytes_that_the_stream_does_not_have_do_not_stay() {
    dies_in_some_life(EngineMutant::TailKept);
}

#[test]
fn a_refusal_ends_all_writing() {
    dies_beside_a_successor(EngineMutant::RefusalIgnored);
}

#[test]
fn a_start_takes_the_epoch_first() {
    dies_beside_a_successor(EngineMutant::ServesBeforeEpoch);
}

#[test]
fn a_hole_is_not_believed() {
    let wrong = (0..50).find_map(|seed| one_replica_lacks_some(&with(EngineMutant::HoleBelieved), seed).err());
    println!("{}", wrong.expect("the mutant is noticed"));
}

#[test]
fn an_owner_of_a_lower_epoch_does_not_count() {
    let wrong = a_former_owner_has_appended(&with(EngineMutant::OldEpochCounts));
    println!("{}", wrong.expect_err("the mutant is noticed"));
}

#[test]
fn what_is_read_last_is_not_the_end() {
    let wrong = the_end_is_hidden(&with(EngineMutant::EndBelieved));
    println!("{}", wrong.expect_err("the mutant is noticed"));
}

#[test]
fn what_the_disk_alone_had_does_not_stay_after_another_owner() {
    dies_in_some_life(EngineMutant::TailAdopted);
}

#[test]
fn what_the_disk_alone_had_is_not_given_up() {
    dies_in_some_life(EngineMutant::TailDropped);
    let wrong = another_owner_was_there(&with(EngineMutant::TailDropped)).expect_err("the mutant is noticed");
    assert!(wrong.starts_with("the start is not refused"), "{wrong}");
}

#[test]
fn files_are_synced_before_their_mark_is_stored() {
    let wrong = a_disk_fails_at_a_checkpoint(&with(EngineMutant::MarkBeforeSync));
    assert_eq!(wrong, Err("the files lack what was committed".into()));
}

#[test]
fn what_a_start_has_not_finished_to_append_does_not_count() {
    let wrong = a_start_ends_at_each_record(&with(EngineMutant::UnfinishedCounts));
    let wrong = wrong.expect_err("the mutant is noticed");
    let is_noticed = wrong.starts_with("the stream alone is damaged") || wrong.ends_with("what no disk could have");
    assert!(is_noticed, "{wrong}");
}
