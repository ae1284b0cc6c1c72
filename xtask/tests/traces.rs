//! Two lists of digests are compared world by world.

use xtask::traces::compare;

#[test]
fn equal_worlds_are_equal() {
    let list = "overlay 1 12 aaaa\noverlay 2 13 bbbb\n";
    let comparison = compare(list, list).expect("both are lists");
    assert_eq!((comparison.compared, comparison.different.len()), (2, 0));
    assert_eq!(comparison.report(), "traces: 2 worlds compared, 0 differ");
}

#[test]
fn a_digest_or_a_number_of_streams_that_differs_is_told() {
    let known = "overlay 1 12 aaaa\noverlay 2 13 bbbb\nroam 1 5 cccc\n";
    let now = "overlay 1 12 aaaa\noverlay 2 14 bbbb\nroam 1 5 dddd\nroam 2 5 eeee\n";
    let comparison = compare(known, now).expect("both are lists");
    assert_eq!(comparison.compared, 3);
    assert_eq!(comparison.different["overlay"], [2]);
    assert_eq!(comparison.different["roam"], [1]);
    assert!(comparison.report().contains("roam: 1 worlds differ, of seeds 1"), "{}", comparison.report());
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    assert!(compare("overlay 1 12 aaaa\n", "roam 1 12 aaaa\n").is_err(), "no world in common");
    assert!(compare("overlay one 12 aaaa\n", "overlay 1 12 aaaa\n").is_err(), "no seed");
    assert!(compare("overlay\n", "overlay 1 12 aaaa\n").is_err(), "no digest");
}
