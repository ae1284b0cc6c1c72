//! The cost of a message over TLS and WebSocket, beside plain TCP: QoS 0, one publisher to one
//! subscriber, as in the comparison with other brokers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::case::Case;
use super::load::{LoadArgs, StartArgs};
use super::measure::{self, Metric, Sample};
use super::peers::{Peer, Programs, Running, Setup};
use super::process;
use super::report::number;
use super::rows::{self, Row};
use super::transport::Transport;
use crate::output::say;
use crate::progress;

/// The measured quantities.
const METRICS: [Metric; 4] = [Metric::BrokerCpu, Metric::Rate, Metric::GeneratorCpu, Metric::PerRead];

/// Those that are also told relative to TCP's.
const RELATED: [Metric; 2] = [Metric::BrokerCpu, Metric::Rate];

/// What TLS and WebSocket cost.
#[derive(Debug, clap::Args)]
pub struct TransportsArgs {
    /// Rounds; each measures every transport once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    start: StartArgs,

    /// Folder for transports.json
    #[arg(long, default_value = "bench-out")]
    out: PathBuf,
}

/// The samples of each transport, by round.
type ByTransport = BTreeMap<Transport, Vec<Sample>>;

/// Measures, prints a table and writes JSON; returns whether every goal was met. There are none
/// yet.
///
/// # Errors
/// When a broker cannot be started, refuses, breaks the protocol, or loses a message.
pub fn run(args: &TransportsArgs) -> Result<bool> {
    args.start.check_cores()?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    process::pin_thread(args.start.generator_core)?;
    let measured = measure_all(args)?;
    let rows = rows_of(&measured, args.start.seed);
    say(table(&rows).trim_end())?;
    let text =
        rows::json("bench transports", (args.start.seed, args.rounds), &rows).context("writing the figures as JSON")?;
    let json = args.out.join("transports.json");
    std::fs::write(&json, text + "\n").with_context(|| format!("writing {}", json.display()))?;
    say(format_args!("written: {}", json.display()))?;
    Ok(rows.iter().all(|row| row.met != Some(false)))
}

/// Measures every transport in each round, in an order drawn from the seed.
fn measure_all(args: &TransportsArgs) -> Result<ByTransport> {
    let plan = args.start.shuffled(args.rounds, &Transport::ALL);
    let progress = progress::bar(plan.len() as u64);
    let mut measured = ByTransport::new();
    for (round, transport) in plan {
        let place = format!("round {} of {}: {}", round + 1, args.rounds, transport.title());
        progress.set_message(place.clone());
        measured.entry(transport).or_default().push(sample(args, transport).context(place)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(measured)
}

/// Measures one transport once, with a fresh broker that listens for nothing else.
fn sample(args: &TransportsArgs, transport: Transport) -> Result<Sample> {
    let programs = Programs { whimbrel: args.start.program(), peers: PathBuf::new() };
    let (core, own_core) = (Some(args.start.broker_core), Some(args.start.generator_core));
    let setup = Setup { core, own_core, transport, ..Setup::default() };
    let broker = Running::start_with(Peer::Whimbrel, &programs, setup)?;
    let sample = measure::measure(Case::A, broker.target, Some(broker.pid()), &args.load.settings())?;
    let lost = sample.get(&Metric::Lost).copied().unwrap_or_default();
    ensure!(lost == 0.0, "{lost} messages were lost");
    Ok(sample)
}

/// A figure of each sample.
fn column(samples: &[Sample], metric: Metric) -> Vec<f64> {
    samples.iter().filter_map(|sample| sample.get(&metric).copied()).collect()
}

/// The name of a metric's figures.
fn measure(metric: Metric) -> String {
    format!("QoS 0 1→1: {}", metric.title())
}

/// The name of a metric's ratios.
fn ratio(metric: Metric) -> String {
    format!("{} / TCP", measure(metric))
}

/// A metric's median with one transport.
fn plain(measured: &ByTransport, transport: Transport, metric: Metric, seed: u64) -> Row {
    let all = column(&measured[&transport], metric);
    Row::median(transport.id(), measure(metric), metric.unit(), &all, seed)
}

/// The median of a metric's ratios to TCP of the same round.
fn related(measured: &ByTransport, transport: Transport, metric: Metric, seed: u64) -> Row {
    let [tcp, this] = [Transport::Tcp, transport].map(|transport| column(&measured[&transport], metric));
    let ratios: Vec<f64> = this.iter().zip(&tcp).map(|(this, tcp)| this / tcp).collect();
    Row::median(transport.id(), ratio(metric), "", &ratios, seed)
}

fn rows_of(measured: &ByTransport, seed: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for transport in measured.keys() {
        for metric in METRICS {
            rows.push(plain(measured, *transport, metric, seed));
            if RELATED.contains(&metric) && *transport != Transport::Tcp {
                rows.push(related(measured, *transport, metric, seed));
            }
        }
    }
    rows
}

/// For each metric a line for each transport: the figure, and its ratio to TCP.
fn table(rows: &[Row]) -> String {
    let cell = |transport: Transport, measure: &str| {
        let found = rows.iter().find(|row| row.id == transport.id() && row.measure == measure);
        found.map_or(String::new(), figure)
    };
    let mut text = format!("{:<22}{:>36}{:>28}\n", "", "median (least to greatest)", "/ TCP of the same round");
    for metric in METRICS {
        let unit = if metric.unit().is_empty() { String::new() } else { format!(", {}", metric.unit()) };
        text += &format!("{}{unit}\n", measure(metric));
        for transport in Transport::ALL {
            let [own, ratio] = [measure(metric), ratio(metric)].map(|measure| cell(transport, &measure));
            text += format!("  {:<20}{own:>36}{ratio:>28}", transport.title()).trim_end();
            text.push('\n');
        }
    }
    text
}

/// A median, and the least and the greatest in brackets.
fn figure(row: &Row) -> String {
    let Some((median, [least, most])) = row.ours.zip(row.spread) else { return "-".to_owned() };
    format!("{} ({} to {})", number(median), number(least), number(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> ByTransport {
        let round = |cpu: f64, rate: f64| {
            let figures = [cpu, rate, 0.1, 50.0];
            Sample::from_iter(METRICS.into_iter().zip(figures))
        };
        let rounds = |factor: f64| vec![round(0.2 * factor, 4e6), round(0.4 * factor, 2e6), round(0.3 * factor, 3e6)];
        ByTransport::from_iter(Transport::ALL.into_iter().zip([1.0, 2.0, 1.5, 3.0].map(rounds)))
    }

    #[test]
    fn ratios_are_to_tcp_of_the_same_round() {
        let row = related(&measured(), Transport::Tls, Metric::BrokerCpu, 1);
        assert_eq!((row.ours, row.spread), (Some(2.0), Some([2.0, 2.0])));
    }

    #[test]
    fn the_table_has_each_transport_beside_the_others_and_json_has_the_same() {
        let rows = rows_of(&measured(), 1);
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| line.starts_with("WebSocket over")).collect();
        assert_eq!(lines.len(), METRICS.len(), "{text}");
        assert!(lines[0].contains("0.900 (0.600 to 1.20)") && lines[0].ends_with("3.00 (3.00 to 3.00)"), "{text}");
        let of_tcp = rows.iter().filter(|row| row.id == "tcp").count();
        assert_eq!((of_tcp, rows.len()), (METRICS.len(), 4 * METRICS.len() + 3 * RELATED.len()));
        let json = rows::json("bench transports", (1, 3), &rows).expect("JSON");
        assert!(json.contains(r#""measure": "QoS 0 1→1: delivered messages / TCP""#), "{json}");
    }
}
