//! CPU time of the broker per delivery: caught-up durable subscriptions, compared with nondurable
//! ones.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::super::closed_loop::{self, Load, Timing};
use super::super::peers::Peer;
use super::super::process::CpuClock;
use super::super::wire::{Protocol, QoS};
use super::publish::PERSISTENT;
use super::publishers::Publishers;
use super::{DurableArgs, Grouping, Row};
use crate::progress;

/// The greatest ratio of the costs of a durable and a nondurable delivery.
const TIMES: f64 = 1.3;

/// What a durable delivery may cost more than a nondurable one where deliveries are most of the
/// cost, µs. A bound on the ratio would be broken by making nondurable deliveries cheaper.
const BEYOND: f64 = 0.05;

/// From this many subscribers on, publishing is the lesser part of the cost: see [`BEYOND`].
const MANY: usize = 100;

/// The loads: name and subscribers.
const LOADS: [(&str, usize); 3] = [("1→1", 1), ("1→10", 10), ("1→100", 100)];

/// The subscriptions. Everything is logged in each case, so that publishing costs the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// No subscription: the cost of publishing, which the subscribers share.
    Nothing,
    Nondurable,
    Durable,
}

/// Compares durable with nondurable subscriptions.
pub(super) fn rows(args: &DurableArgs) -> Result<Vec<Row>> {
    let mut all = vec![(0, Side::Nothing)];
    all.extend((0..LOADS.len()).flat_map(|load| [(load, Side::Nondurable), (load, Side::Durable)]));
    let plan = args.start.shuffled(args.rounds, &all);
    let progress = progress::bar(plan.len() as u64);
    let mut measured: BTreeMap<(usize, Side), Vec<f64>> = BTreeMap::new();
    for (round, (load, side)) in plan {
        progress.set_message(format!("round {}: {}, {side:?}", round + 1, LOADS[load].0));
        let micros = micros(args, load, side);
        let micros = micros.with_context(|| format!("round {}, {}, {side:?}", round + 1, LOADS[load].0))?;
        measured.entry((load, side)).or_default().push(micros);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let row = |text: String, unit, of: &[f64]| Row::median("delivery", text, unit, of, args.start.seed);
    let publishing = &measured[&(0, Side::Nothing)];
    let mut rows = vec![row("publishing alone, per message".to_owned(), "µs", publishing)];
    for (load, (name, subscribers)) in LOADS.iter().enumerate() {
        let [plain, durable] = [Side::Nondurable, Side::Durable].map(|side| &measured[&(load, side)]);
        rows.push(row(format!("QoS 1 {name}: nondurable"), "µs", plain).drawn(*name, "nondurable"));
        rows.push(row(format!("QoS 1 {name}: durable"), "µs", durable).drawn(*name, "durable"));
        let pairs = || plain.iter().zip(durable);
        rows.push(if *subscribers < MANY {
            let ratios: Vec<f64> = pairs().map(|(plain, durable)| durable / plain).collect();
            row(format!("QoS 1 {name}: durable / nondurable"), "", &ratios).at_most(TIMES)
        } else {
            let beyond: Vec<f64> = pairs().map(|(plain, durable)| durable - plain).collect();
            row(format!("QoS 1 {name}: durable less nondurable"), "µs", &beyond).at_most(BEYOND)
        });
    }
    Ok(rows)
}

/// The broker's CPU microseconds per delivery, or per published message without subscribers.
fn micros(args: &DurableArgs, load: usize, side: Side) -> Result<f64> {
    let mut broker = args.start(Peer::Whimbrel, args.bound(PERSISTENT))?;
    broker.target.protocol = Protocol::Mqtt5;
    let clock = CpuClock::of(broker.pid())?;
    let bounds = args.load.settings().bounds;
    let user: &[(&str, &str)] = match side {
        Side::Nothing => {
            let grouping = Grouping { publishers: 1, window: bounds.unacknowledged as usize };
            let mut publishers = Publishers::connect(broker.target, grouping, bounds.body)?;
            let rate = publishers.measure(args.timing(), Some(clock))?;
            return rate.cpu.context("the broker's process is known");
        }
        Side::Nondurable => &[("w-durability", "nondurable")],
        Side::Durable => &[("w-durability", "durable")],
    };
    let load = Load {
        publishers: 1,
        subscribers: LOADS[load].1,
        qos: QoS::AtLeastOnce,
        body: bounds.body,
        window: bounds.window,
        unacknowledged: bounds.unacknowledged,
        user,
        lasting: true,
    };
    let (warm_up, measure) = args.timing();
    let outcome = closed_loop::run(broker.target, &load, &Timing { warm_up, measure }, Some(clock))?;
    ensure!(outcome.lost == 0 && outcome.repeated == 0, "{} lost, {} repeated", outcome.lost, outcome.repeated);
    outcome.broker_micros().context("the broker's process is known")
}
