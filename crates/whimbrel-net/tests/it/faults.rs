//! Each fault that can be built into the network layer is noticed by the checks of the fabric.

use whimbrel_net::link::watch::LinkCondition;
use whimbrel_net::{Net, NetMutant, Routing};

use crate::copies;
use crate::fabric::Trouble;
use crate::queueing;
use crate::repeats::{self, Repeated};
use crate::scenarios::{self, MILLI, SECOND};
use crate::watching::{REACTION, SILENT, Watched, slower};

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

/// Whether node 3 knows in time that a direction is silent, just after another one has become so.
fn is_known_in_time(change: fn(&mut Net)) -> bool {
    let mut world = Watched::new(change, Routing::Reactive);
    world.flow(&[2], SECOND * 5);
    world.fabric.trouble(1, 2, SILENT);
    world.flow(&[2], MILLI * 30);
    world.fabric.trouble(2, 2, SILENT);
    world.flow(&[2], REACTION + MILLI * 20);
    world.known(3, 2, 1).is_some_and(|(_, loss)| loss == whimbrel_wire::LOSS_MAX)
}

#[test]
fn a_direction_that_is_believed_good_or_not_told_of_is_noticed() {
    assert!(is_known_in_time(|_| {}));
    assert!(!is_known_in_time(|net| net.build_in(NetMutant::MissingReportsAreGood)));
    assert!(!is_known_in_time(|net| net.build_in(NetMutant::FlashNotFlooded)));
}

/// Whether node 3 knows of a direction whose connection loses a tenth of its packets, and on which
/// all events and reports arrive.
fn is_known_to_be_lossy(change: fn(&mut Net)) -> bool {
    let mut world = Watched::new(change, Routing::Reactive);
    world.flow(&[0], SECOND);
    for _ in 0..4 {
        world.flow(&[0], MILLI * 500);
        world.fabric.packets(0, 0, 60, 6);
    }
    world.known(3, 0, 1).is_some_and(|(_, loss)| loss == 100)
}

#[test]
fn a_direction_that_is_believed_good_while_it_loses_packets_is_noticed() {
    assert!(is_known_to_be_lossy(|_| {}));
    assert!(!is_known_to_be_lossy(|net| net.build_in(NetMutant::LossBelievedGood)));
}

/// By how much ages are off the truth after ten minutes, and when a link becomes slow.
fn ages_off_us(change: fn(&mut Net)) -> u64 {
    let mut world = Watched::new(change, Routing::Direct);
    // The clock of node 1 is slower: the differences grow.
    world.flow(&[1], SECOND * 600);
    world.fabric.trouble(0, 1, slower(40));
    world.flow(&[1], SECOND);
    world.fabric.run(SECOND);
    world.age_off_us(0)
}

#[test]
fn ages_without_slope_or_excess_are_noticed() {
    assert!(ages_off_us(|_| {}) <= 3_000);
    assert!(ages_off_us(|net| net.build_in(NetMutant::HullWithoutSlope)) > 10_000);
    assert!(ages_off_us(|net| net.build_in(NetMutant::AgeWithoutExcess)) > 10_000);
}

#[test]
fn a_margin_that_one_link_may_use_up_is_noticed() {
    let late = |change: fn(&mut Net)| {
        let mut world = Watched::with_little_margin(change);
        world.flow(&[3], SECOND * 20);
        world.fabric.trouble(1, 2, slower(18));
        world.fabric.trouble(2, 1, slower(18));
        world.flow(&[3], SECOND * 2);
        world.late(3, 4).len()
    };
    assert!(late(|_| {}) <= 15);
    assert!(late(|net| net.build_in(NetMutant::BudgetNotSplit)) > 100);
}

#[test]
fn a_direction_that_is_good_again_at_once_is_noticed() {
    let changes = |change: fn(&mut Net)| {
        let mut world = Watched::new(change, Routing::Reactive);
        for _ in 0..30 {
            world.flow(&[0], MILLI * 700);
            world.fabric.trouble(0, 0, SILENT);
            world.flow(&[0], MILLI * 300);
            world.fabric.trouble(0, 0, Trouble::default());
        }
        world.fabric.node(0).net.stats().conditions_changed
    };
    let (good, bad) = (changes(|_| {}), changes(|net| net.build_in(NetMutant::NoHysteresis)));
    assert!(good <= 20 && bad >= 3 * good, "{good} and {bad}");
}

#[test]
fn copies_that_take_one_path_or_end_where_their_event_is_known_are_noticed() {
    let late = copies::late_behind_a_silent_link;
    let good = late(|_| {});
    let [same, ended] =
        [late(|net| net.build_in(NetMutant::SamePathTwice)), late(|net| net.build_in(NetMutant::KnownCopyEnds))];
    assert!(same > good + 20 && ended > good, "{good}, {same} and {ended}");
}

#[test]
fn urgent_events_that_leave_in_the_wrong_order_are_noticed() {
    let found = queueing::bursts(|net| net.build_in(NetMutant::SlackInverted));
    assert!(found.in_time[0] == 0, "{found:?}");
}

#[test]
fn events_that_are_not_repeated_are_noticed() {
    let share = |change: fn(&mut Net)| {
        let mut world = Repeated::line(2, change);
        world.lose(&[[0, 1]]);
        world.flow(SECOND * 60, MILLI * 10);
        world.fabric.run(SECOND);
        world.share_in_time()
    };
    let (good, bad) = (share(|_| {}), share(|net| net.build_in(NetMutant::NoRepeats)));
    assert!(good >= 0.95 && (0.78..0.82).contains(&bad), "{good} and {bad}");
    let of = repeats::share_of_two_paths;
    let (good, bad) = (of(|_| {}), of(|net| net.build_in(NetMutant::NoRepeats)));
    assert!(good >= 0.99 && (0.83..0.91).contains(&bad), "{good} and {bad}");
}

#[test]
fn an_event_that_is_passed_on_by_itself_and_as_a_repeat_is_noticed() {
    assert_eq!(repeats::overtaken(|_| {}).most_over_a_link(), 1);
    assert!(repeats::overtaken(|net| net.build_in(NetMutant::RepeatsNotKnown)).most_over_a_link() > 1);
}

#[test]
fn a_loss_that_repeats_hide_is_noticed() {
    let is_lossy = |change: fn(&mut Net)| {
        let mut world = Repeated::line(2, change);
        world.lose(&[[0, 1]]);
        world.flow(SECOND * 5, MILLI * 10);
        matches!(world.condition(), LinkCondition::Lossy(200..))
    };
    assert!(is_lossy(|_| {}));
    assert!(!is_lossy(|net| net.build_in(NetMutant::RepeatsReported)));
}
