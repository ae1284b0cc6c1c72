//! Measures one case once against one broker.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::case::{Bounds, Case, Method};
use super::closed_loop::{self, Timing};
use super::idle;
use super::latency::{self, Latency};
use super::process::CpuClock;
use super::target::Target;

/// Bytes of a body in the case with a stuck subscriber: enough to fill its buffers within a second.
const DISTURBED_BODY: usize = 1000;

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Broker's CPU microseconds per delivered message.
    BrokerCpu,
    /// Delivered messages per second.
    Rate,
    /// Generator's CPU microseconds per delivered message.
    GeneratorCpu,
    /// Delivered messages per read call of a subscriber.
    PerRead,
    /// Median latency in microseconds.
    P50,
    /// 99th percentile of latency in microseconds.
    P99,
    /// 99th percentile of the generator's own lateness in microseconds.
    Lateness,
    /// 99th percentile of latency before another subscriber stops reading, in microseconds.
    P99Before,
    /// 99th percentile of latency after that, in microseconds.
    P99After,
    /// The ratio of these two.
    Disturbance,
    /// Growth of the broker's memory per connection, in bytes.
    ConnectionBytes,
    /// Connections opened and subscribed per second.
    Connects,
    /// Messages that were never delivered.
    Lost,
}

impl Metric {
    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Metric::BrokerCpu => "broker CPU per delivered message",
            Metric::Rate => "delivered messages",
            Metric::GeneratorCpu => "generator CPU per delivered message",
            Metric::PerRead => "messages per read",
            Metric::P50 => "latency p50",
            Metric::P99 => "latency p99",
            Metric::Lateness => "generator's lateness p99",
            Metric::P99Before => "latency p99 before",
            Metric::P99After => "latency p99 after",
            Metric::Disturbance => "latency p99 after / before",
            Metric::ConnectionBytes => "memory per idle connection",
            Metric::Connects => "connections opened and subscribed",
            Metric::Lost => "lost messages",
        }
    }

    /// Its title with the unit, short enough for a table.
    pub fn short(self) -> &'static str {
        match self {
            Metric::BrokerCpu => "CPU µs",
            Metric::Rate => "1/s",
            Metric::GeneratorCpu => "generator CPU µs",
            Metric::PerRead => "per read",
            Metric::P50 => "p50 µs",
            Metric::P99 => "p99 µs",
            Metric::Lateness => "lateness µs",
            Metric::P99Before => "p99 µs before",
            Metric::P99After => "p99 µs after",
            Metric::Disturbance => "p99 ×",
            Metric::ConnectionBytes => "bytes each",
            Metric::Connects => "opened per s",
            Metric::Lost => "lost",
        }
    }

    /// Its unit; the empty string for pure numbers.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::BrokerCpu | Metric::GeneratorCpu => "µs",
            Metric::Rate | Metric::Connects => "1/s",
            Metric::P50 | Metric::P99 | Metric::Lateness | Metric::P99Before | Metric::P99After => "µs",
            Metric::ConnectionBytes => "B",
            Metric::PerRead | Metric::Disturbance | Metric::Lost => "",
        }
    }
}

/// The parameters that are the same for every broker.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Sizes and windows.
    pub bounds: Bounds,
    /// Times.
    pub timing: Timing,
    /// The number of connections of [`Case::Idle`].
    pub connections: usize,
}

/// The figures of one measurement.
pub type Sample = BTreeMap<Metric, f64>;

/// Measures `case` against the broker at `target` whose process is `pid`.
///
/// # Errors
/// When the broker refuses or breaks a connection, breaks the protocol, or delivers nothing.
pub fn measure(case: Case, target: Target, pid: Option<u32>, settings: &Settings) -> Result<Sample> {
    let Settings { bounds, timing, connections } = *settings;
    match case.method(bounds) {
        Method::Throughput(load) => {
            let clock = pid.map(CpuClock::of).transpose()?;
            let outcome = closed_loop::run(target, &load, &timing, clock)?;
            let mut sample = Sample::from([
                (Metric::Rate, outcome.rate()),
                (Metric::GeneratorCpu, outcome.own_micros()),
                (Metric::PerRead, outcome.per_read()),
                (Metric::Lost, outcome.lost as f64),
            ]);
            sample.extend(outcome.broker_micros().map(|micros| (Metric::BrokerCpu, micros)));
            Ok(sample)
        }
        Method::Latency => {
            let latency = latency::run(target, bounds.body, timing.warm_up, timing.measure)?;
            let Latency { p50, p99, own_p99, lost } = latency;
            Ok(Sample::from([
                (Metric::P50, micros(p50)),
                (Metric::P99, micros(p99)),
                (Metric::Lateness, micros(own_p99)),
                (Metric::Lost, lost as f64),
            ]))
        }
        Method::Disturbed => {
            let (before, after) = latency::run_disturbed(target, DISTURBED_BODY, latency::FILL, timing.measure)?;
            Ok(Sample::from([
                (Metric::P99Before, micros(before.p99)),
                (Metric::P99After, micros(after.p99)),
                (Metric::Disturbance, micros(after.p99) / micros(before.p99)),
                (Metric::Lateness, micros(before.own_p99.max(after.own_p99))),
                (Metric::Lost, (before.lost + after.lost) as f64),
            ]))
        }
        Method::Idle => {
            let idle = idle::run(target, connections, pid)?;
            let mut sample = Sample::from([(Metric::Connects, idle.connects_per_second)]);
            sample.extend(idle.bytes_per_connection.map(|bytes| (Metric::ConnectionBytes, bytes)));
            Ok(sample)
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
