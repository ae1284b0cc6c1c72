//! A resume storm: many semi-durable subscribers leave, miss events, and return at once with their
//! tokens, while others stay.
//!
//! One thread drives all connections. Events are numbered and their values known, so that every
//! delivery is checked: each wanted event must be delivered once and in order.

use std::time::Duration;

use anyhow::Result;

use super::super::process;
use super::super::wire::QoS;
use super::crowd::{Crowd, Plan};
use super::{Row, SemiArgs};

/// The goal for the time until all have caught up, seconds.
const CAUGHT_UP: f64 = 2.0;

/// The greatest ratio of the staying subscribers' 99th percentile of latency to that before.
const DISTURBANCE: f64 = 1.5;

/// Files that the process needs besides the connections.
const OTHER_FILES: u64 = 100;

/// Partitions of the cache, each with a tenth of the values, and the events that each holds.
const PARTITIONS: u8 = 10;
const PARTITION_EVENTS: u32 = 3_000;

/// What the storm is like.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct StormArgs {
    /// Subscribers that come back in the storm
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=19_000))]
    returning: u32,

    /// Subscribers that stay
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    staying: u32,

    /// Events per second of the storm's publisher
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    event_rate: u32,

    /// Seconds for which the subscribers are away
    #[arg(long, default_value = "12", value_parser = super::super::load::seconds)]
    away: Duration,

    /// Quality of service of the storm's subscriptions
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    storm_qos: u8,

    /// Keep the subscribers' sessions instead of resuming by token
    #[arg(long)]
    keep_sessions: bool,

    /// Leave the cache in one piece instead of in ten partitions
    #[arg(long)]
    one_partition: bool,
}

/// Runs the storm once.
pub(super) fn rows(args: &SemiArgs) -> Result<Vec<Row>> {
    let storm = &args.storm;
    process::allow_open_files(u64::from(storm.returning + storm.staying) + OTHER_FILES)?;
    let settings = if storm.one_partition { String::new() } else { partitions() };
    let broker = args.start(&args.start.program(), &settings)?;
    let plan = Plan {
        target: broker.target,
        pid: broker.pid(),
        returning: storm.returning as usize,
        staying: storm.staying as usize,
        event_rate: u64::from(storm.event_rate),
        away: storm.away,
        qos: if storm.storm_qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce },
        keep_sessions: storm.keep_sessions,
        seed: args.start.seed,
    };
    let outcome = Crowd::connect(&plan)?.run()?;
    let seconds = |time: Duration| time.as_secs_f64();
    let plain = |measure: &str, unit, value| Row::plain("storm", measure, unit, value);
    let wrong = outcome.missed + outcome.wrong;
    let ratio = seconds(outcome.during.p99) / seconds(outcome.before.p99);
    let caught_up = plain("until the last had caught up with all it missed", "s", seconds(outcome.caught_up));
    let disturbance = plain("latency p99 of those who stayed, during / before", "", ratio);
    Ok(vec![
        plain("connections and subscriptions of all, until the last was confirmed", "s", seconds(outcome.connected)),
        caught_up.at_most(CAUGHT_UP),
        plain("broker's CPU time until then", "s", seconds(outcome.broker_cpu)),
        plain("events recovered", "", outcome.recovered as f64),
        plain("events missed, repeated, unwanted or out of order", "", wrong as f64).at_most(0.0),
        plain("latency p99 of those who stayed, all being there", "ms", seconds(outcome.all_there.p99) * 1e3),
        plain("latency p50 of those who stayed, all being there", "ms", seconds(outcome.all_there.p50) * 1e3),
        plain("latency p99 of those who stayed, before", "ms", seconds(outcome.before.p99) * 1e3),
        plain("latency p99 of those who stayed, during", "ms", seconds(outcome.during.p99) * 1e3),
        plain("latency p50 of those who stayed, before", "ms", seconds(outcome.before.p50) * 1e3),
        plain("latency p50 of those who stayed, during", "ms", seconds(outcome.during.p50) * 1e3),
        plain("latency p99 of those who stayed, after, all being there", "ms", seconds(outcome.after.p99) * 1e3),
        plain("lateness p99 of the publisher during", "ms", seconds(outcome.lateness) * 1e3),
        disturbance.at_most(DISTURBANCE),
        plain("longest token of a SUBACK, bytes", "B", outcome.token_bytes as f64).at_most(64.0),
    ])
}

/// The partitions in the broker's configuration.
fn partitions() -> String {
    let width = super::wanted::VALUES / PARTITIONS;
    let attribute = super::wanted::ATTRIBUTE;
    let partition = |number| {
        let (first, last) = (number * width, number * width + width - 1);
        format!(
            "[[partition]]\nfilter = \"storm/#\"\nselector = \"{attribute} BETWEEN {first} AND {last}\"\n\
             capacity = \"{PARTITION_EVENTS} events\"\n"
        )
    };
    (0..PARTITIONS).map(partition).collect()
}
