//! Selectors keep events off the links between brokers: less travels than the share of events that
//! is wanted, and a half more.
//!
//! The figures of more subscriptions:
//! `cargo run --profile quick -p whimbrel-sim --example link_traffic`, and `docs/experiments.md`.

use std::time::Duration;

use whimbrel_sim::overlay::traffic::{Figures, Load, measure};

/// Ten brokers with 200 subscriptions each.
const LOAD: Load = Load {
    seed: 1,
    brokers: 10,
    subscriptions: 200,
    interest_max: 256,
    events: 2_000,
    pause: Duration::from_millis(1),
    payload: 500,
    share: 0.001,
    alike: false,
    everything: false,
};

/// What travels with selectors, and, of a tenth as many events, with everything wanted.
fn both(load: Load) -> (Figures, Figures) {
    (measure(&load), measure(&Load { everything: true, events: load.events / 10, ..load }))
}

#[test]
fn a_hundredth_of_the_events_takes_little_more_than_a_hundredth_of_the_bytes() {
    let (some, all) = both(LOAD);
    assert_eq!(some.unwanted, 0, "an interest that has room for all of them is exact: {some:?}");
    assert!(some.received > 100, "{some:?}");
    // In thousandths: 15 of those of ten times as many events.
    assert!(some.bytes * 1_000 <= 15 * 10 * all.bytes, "{some:?}, {all:?}");
}

#[test]
fn what_all_brokers_want_crosses_each_link_once() {
    let (some, all) = both(Load { share: 0.01, alike: true, ..LOAD });
    assert!(some.received > 1_000 && some.unwanted == 0, "{some:?}");
    assert!(some.events * 1_000 <= 15 * 10 * all.events, "{some:?}, {all:?}");
}
