//! Each fault that can be built into the network layer is noticed by the checks of the fabric.

use whimbrel_net::NetMutant;

use crate::scenarios;

#[test]
fn an_interest_that_is_not_passed_on_is_noticed() {
    let found = scenarios::interest_from_afar(|net| net.build_in(NetMutant::InterestStays));
    assert!(found.is_err_and(|found| found.ends_with("is lacking at 2")));
}

#[test]
fn an_answer_with_the_silence_of_another_interest_is_noticed() {
    let found = scenarios::failure_behind_a_relay(|net| net.build_in(NetMutant::SilenceOfOtherInterest));
    assert!(found.is_err_and(|found| found.ends_with("(`y`) is lacking at 3")));
}

#[test]
fn one_answer_to_nacks_for_different_ranges_is_noticed() {
    let found = scenarios::failure_before_a_relay(|net| net.build_in(NetMutant::MergedRangeNacks));
    assert!(found.is_err_and(|found| found.ends_with("(`y`) is lacking at 3")));
}

#[test]
fn an_event_that_goes_in_circles_is_noticed() {
    let found = scenarios::isolation(|net| net.build_in(NetMutant::RepairLoop));
    assert!(found.is_err_and(|found| found.contains(" times to ")));
}

#[test]
fn a_map_that_is_not_compared_is_noticed() {
    let found = scenarios::change_while_away(|net| net.build_in(NetMutant::RetainedNotCompared));
    assert_eq!(found, Err("the maps differ".into()));
}
