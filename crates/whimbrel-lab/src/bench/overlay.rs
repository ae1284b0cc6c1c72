//! The latency that a hop between brokers adds: a chain of three brokers on this machine, with one
//! publisher and one subscriber at the same broker, at neighbours, and with a broker between them.
//!
//! All are measured in one run, in turns, so that other work of the machine affects each of them
//! alike.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use super::latency::{self, Ends};
use super::load::own_program;
use super::process::CpuClock;
use super::target::Target;
use super::transport::Transport;
use super::wire::Protocol;
use crate::output::say;

/// The number of brokers of the chain.
const BROKERS: usize = 3;

/// The goal for what a hop adds to the median.
const GOAL_P50: Duration = Duration::from_micros(300);

/// The goal for what a hop adds to the 99th percentile.
const GOAL_P99: Duration = Duration::from_millis(1);

/// The goal for the cost of sending an event to another broker, relative to the cost of delivering
/// it to one client.
const GOAL_SEND: f64 = 0.2;

/// The goal for the cost of passing an event on between two brokers, relative to the same.
const GOAL_PASS: f64 = 0.5;

/// What a hop between brokers adds.
#[derive(Debug, clap::Args)]
pub struct OverlayArgs {
    /// Messages per second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,

    /// Bytes of a message's body
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(8..=65_536))]
    body: u32,

    /// Rounds; each measures all ways once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Seconds of each measurement
    #[arg(long, default_value = "2", value_parser = super::load::seconds)]
    seconds: Duration,
}

/// The brokers of publisher and subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// There is no interest in the events.
    Unwanted,
    /// At the same broker.
    Same,
    /// At neighbours.
    Hop,
    /// With a broker between them.
    Through,
}

impl Way {
    const ALL: [Way; 4] = [Way::Unwanted, Way::Same, Way::Hop, Way::Through];

    fn title(self) -> &'static str {
        match self {
            Way::Unwanted => "nobody wants it",
            Way::Same => "same broker",
            Way::Hop => "one hop",
            Way::Through => "two hops",
        }
    }

    /// The subscriber's broker.
    fn end(self) -> usize {
        match self {
            Way::Unwanted | Way::Same => 0,
            Way::Hop => 1,
            Way::Through => 2,
        }
    }
}

/// One measurement: latencies in microseconds, and CPU of each broker per message.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    p50: f64,
    p99: f64,
    lost: u64,
    cpu: [f64; BROKERS],
}

/// A broker of the chain; it ends when this is dropped.
struct Broker {
    child: Child,
    target: Target,
    overlay: SocketAddr,
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Broker {
    fn start(number: usize, peer: Option<SocketAddr>) -> Result<Broker> {
        let mut command = Command::new(own_program());
        command.args(["serve", "--dev", "--name", &format!("b{number}"), "--listen-mqtt", "127.0.0.1:0"]);
        command.args(["--listen-overlay", "127.0.0.1:0"]);
        command.args(["tls", "ws", "wss", "http"].map(|listener| format!("--listen-{listener}=off")));
        if let Some(peer) = peer {
            command.args(["--peer", &peer.to_string()]);
        }
        // A chain stays one: brokers do not link with others that they learn of.
        command.env("WHIMBREL_OVERLAY_LINKS", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("starting a broker")?;
        let stdout = child.stdout.take().context("its output is not connected")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("reading the ready line")?;
        let ready: serde_json::Value = serde_json::from_str(&line).with_context(|| format!("no ready line: {line}"))?;
        let address = |name: &str| -> Result<SocketAddr> {
            let text = ready[name].as_str().with_context(|| format!("no {name} listener in {line}"))?;
            text.parse().with_context(|| format!("{text} is no address"))
        };
        let target = Target { address: address("mqtt")?, protocol: Protocol::Mqtt5, transport: Transport::Tcp };
        Ok(Broker { target, overlay: address("overlay")?, child })
    }
}

fn chain() -> Result<Vec<Broker>> {
    let mut brokers: Vec<Broker> = Vec::new();
    for number in 0..BROKERS {
        let peer = brokers.last().map(|broker| broker.overlay);
        brokers.push(Broker::start(number, peer)?);
    }
    Ok(brokers)
}

/// Measures, prints a table, and returns whether all goals were met.
///
/// # Errors
/// When a broker cannot be started, or breaks a connection.
pub fn run(args: &OverlayArgs) -> Result<bool> {
    let brokers = chain()?;
    await_links(&brokers)?;
    let bar = ProgressBar::new(u64::from(args.rounds) * Way::ALL.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}").context("a template")?);
    let mut samples: [Vec<Sample>; Way::ALL.len()] = Default::default();
    for _ in 0..args.rounds {
        for (way, samples) in Way::ALL.into_iter().zip(&mut samples) {
            bar.set_message(way.title());
            samples.push(measure(&brokers, way, args)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    report(args, &samples)
}

/// Waits until events pass from the first broker to the last.
fn await_links(brokers: &[Broker]) -> Result<()> {
    let ends = Ends { publisher: brokers[0].target, subscriber: brokers[BROKERS - 1].target, rate: 1_000, wants: true };
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        // It waits for undelivered messages as long as a message may take.
        let spans = (Duration::from_millis(200), Duration::from_millis(200));
        if latency::run_between(&ends, 100, spans, || Ok(())).is_ok_and(|latency| latency.is_some_and(|l| l.lost == 0))
        {
            return Ok(());
        }
    }
    bail!("no event reached the last broker of the chain")
}

fn measure(brokers: &[Broker], way: Way, args: &OverlayArgs) -> Result<Sample> {
    let ends = Ends {
        publisher: brokers[0].target,
        subscriber: brokers[way.end()].target,
        rate: args.rate,
        wants: way != Way::Unwanted,
    };
    let clocks: Vec<CpuClock> = brokers.iter().map(|broker| CpuClock::of(broker.child.id())).collect::<Result<_>>()?;
    let mut marks: Vec<Vec<Duration>> = Vec::new();
    let spans = (Duration::from_millis(500), args.seconds);
    let latency = latency::run_between(&ends, args.body as usize, spans, || {
        marks.push(clocks.iter().map(|clock| clock.read()).collect::<Result<_>>()?);
        Ok(())
    })?;
    let messages = args.seconds.as_secs_f64() * args.rate as f64;
    let mut sample = Sample::default();
    for (cpu, (before, after)) in sample.cpu.iter_mut().zip(marks[0].iter().zip(&marks[1])) {
        *cpu = (*after - *before).as_secs_f64() * 1e6 / messages;
    }
    if let Some(latency) = latency {
        (sample.p50, sample.p99) = (latency.p50.as_secs_f64() * 1e6, latency.p99.as_secs_f64() * 1e6);
        sample.lost = latency.lost;
    }
    Ok(sample)
}

/// The median, the least and the greatest of a figure.
fn spread(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> (f64, f64, f64) {
    let mut all: Vec<f64> = samples.iter().map(figure).collect();
    all.sort_unstable_by(f64::total_cmp);
    (all[all.len() / 2], all[0], all[all.len() - 1])
}

fn report(args: &OverlayArgs, samples: &[Vec<Sample>; Way::ALL.len()]) -> Result<bool> {
    say(format_args!(
        "{} messages/s, {} bytes, {} rounds of {:?}; least and greatest in brackets",
        args.rate, args.body, args.rounds, args.seconds
    ))?;
    let head = format!("{:<16} {:>26} {:>26} {:>6}", "", "p50 µs", "p99 µs", "lost");
    say(format_args!("{head}   CPU of b0, b1, b2 in µs per message"))?;
    let figure = |(middle, least, most): (f64, f64, f64)| format!("{middle:.0} ({least:.0} to {most:.0})");
    for (way, samples) in Way::ALL.into_iter().zip(samples) {
        let lost: u64 = samples.iter().map(|sample| sample.lost).sum();
        let cpu: Vec<String> =
            (0..BROKERS).map(|broker| format!("{:.2}", spread(samples, |sample| sample.cpu[broker]).0)).collect();
        let (p50, p99) = match way {
            Way::Unwanted => (String::new(), String::new()),
            _ => (figure(spread(samples, |sample| sample.p50)), figure(spread(samples, |sample| sample.p99))),
        };
        say(format_args!("{:<16} {p50:>26} {p99:>26} {lost:>6}   {}", way.title(), cpu.join("  ")))?;
    }
    let [unwanted, same, hop, through] = samples;
    let median = |samples: &[Sample], figure: fn(&Sample) -> f64| spread(samples, figure).0;
    let mut met = true;
    let mut goal = |what: &str, value: f64, most: f64| {
        met &= value <= most;
        let outcome = if value <= most { "met" } else { "MISSED" };
        say(format_args!("{what:<58} {value:>8.2}   goal ≤ {most:<6} {outcome}"))
    };
    for (what, figure, most) in [
        ("a hop adds to the median, µs", (|s: &Sample| s.p50) as fn(&Sample) -> f64, GOAL_P50),
        ("a hop adds to the 99th percentile, µs", |s: &Sample| s.p99, GOAL_P99),
    ] {
        let most = most.as_secs_f64() * 1e6;
        goal(what, median(hop, figure) - median(same, figure), most)?;
        goal("… the second one", median(through, figure) - median(hop, figure), most)?;
    }
    let idle = median(unwanted, |s| s.cpu[0]);
    let deliver = median(same, |s| s.cpu[0]) - idle;
    let send = median(hop, |s| s.cpu[0]) - idle;
    say(format_args!("delivering to one client costs {deliver:.2} µs, sending to another broker {send:.2} µs"))?;
    goal("CPU of sending to another broker / delivering to a client", send / deliver, GOAL_SEND)?;
    goal("CPU of passing through / delivering to a client", median(through, |s| s.cpu[1]) / deliver, GOAL_PASS)?;
    Ok(met)
}
