//! Bytes and events on the links between ten brokers with 10,000 subscriptions, as a share of those
//! with everything wanted: by how many entries an interest may have, and by how large events are.
//!
//! `cargo run --profile quick -p whimbrel-sim --example link_traffic [seed]`

use std::time::Duration;

use whimbrel_sim::overlay::traffic::{Load, measure};

/// What the subscriptions let through: a name, the share at each broker, and whether it is the same
/// everywhere.
const KINDS: [(&str, f64, bool); 3] = [("apart", 0.001, false), ("alike", 0.01, true), ("each", 0.01, false)];

/// How many times as many events are published when few are wanted.
const MORE: u64 = 10;

fn main() {
    let seed = std::env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let base = Load {
        seed,
        brokers: 10,
        subscriptions: 1_000,
        interest_max: 256,
        events: 1_000 * MORE,
        pause: Duration::from_millis(1),
        payload: 500,
        share: 0.0,
        alike: false,
        everything: false,
    };
    println!(
        "| kind | payload | pause, ms | bound | bytes, % | events, % | wanted, % | came in vain, % | told before, kB |"
    );
    for (kind, share, alike) in KINDS {
        for (payload, pause) in [(500, 10), (500, 1), (2_000, 1)] {
            let load = Load { payload, share, alike, pause: Duration::from_millis(pause), ..base };
            let all = measure(&Load { everything: true, events: load.events / MORE, ..load });
            for interest_max in [64, 256, 1_024] {
                let some = measure(&Load { interest_max, ..load });
                let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
                let pairs = load.events * (load.brokers * (load.brokers - 1)) as u64;
                println!(
                    "| {kind} | {payload} | {pause} | {interest_max} | {:.2} | {:.2} | {:.3} | {:.3} | {:.0} |",
                    percent(some.bytes, all.bytes * MORE),
                    percent(some.events, all.events * MORE),
                    percent(some.received - some.unwanted, pairs),
                    percent(some.unwanted, pairs),
                    some.before as f64 / 1e3,
                );
            }
        }
    }
}
