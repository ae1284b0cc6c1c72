//! Custom loads against a running broker: connections, publishers and subscribers with given topics
//! and rates, over all transports of the client library.

pub mod conn;
mod latencies;
pub mod publish;
mod stamp;
pub mod subscribe;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use whimbrel_client::{Client, Error, Events, Options, QoS};

use crate::dial::Dial;
use latencies::Latencies;

/// The placeholder in topics for the client's number.
const NUMBER: &str = "{client}";

/// The kinds of failures that are distinguished; the others are counted together.
const FAILURES_MAX: usize = 16;

/// What all of them have in common.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    #[command(flatten)]
    dial: Dial,

    /// Clients, each with a connection
    #[arg(long, short = 'n', default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: u32,

    /// Clients that begin to connect in a second
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connect_rate: u32,

    /// What client ids begin with; `-` and the client's number follow [default: bench-MODE-PROCESS]
    #[arg(long, short, value_name = "TEXT")]
    id: Option<String>,

    /// Print one object of JSON instead of text
    #[arg(long)]
    json: bool,
}

/// A client that is connected.
struct Connected {
    number: u32,
    client: Client,
    events: Events,
}

/// How the clients got in.
#[derive(Default)]
struct Arrivals {
    connected: Vec<Connected>,
    latencies: Latencies,
    failures: Failures,
    /// The time from the first attempt to the last answer.
    elapsed: Duration,
}

/// Failures, counted by their words.
#[derive(Default)]
struct Failures(BTreeMap<String, u64>);

impl Failures {
    fn note(&mut self, error: &Error) {
        let is_new = self.0.len() < FAILURES_MAX;
        let words = error.to_string();
        let words = if is_new || self.0.contains_key(&words) { words } else { "others".to_owned() };
        *self.0.entry(words).or_default() += 1;
    }

    fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// A line for each kind.
    fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(words, count)| format!("failed: {count} × {words}"))
    }
}

impl ClientArgs {
    fn options(&self, shared: &Options, mode: &str, number: u32) -> Options {
        let prefix = self.id.clone().unwrap_or_else(|| format!("bench-{mode}-{}", std::process::id()));
        shared.clone().client_id(format!("{prefix}-{number}")).session(whimbrel_client::Session::new())
    }

    /// Connects all clients at their pace, whether or not the broker keeps up.
    ///
    /// # Errors
    /// When a file of certificates cannot be used, or not one client could connect.
    async fn connect(&self, mode: &str) -> Result<Arrivals> {
        let mut dial = self.dial.clone();
        dial.find().await?;
        let shared = dial.options_for_many()?;
        let (start, pace) = (Instant::now(), Duration::from_secs(1) / self.connect_rate);
        let mut tasks = JoinSet::new();
        for number in 0..self.clients {
            let (options, due) = (self.options(&shared, mode, number), start + pace * number);
            tasks.spawn(async move {
                sleep_until(due).await;
                let begun = Instant::now();
                (number, Client::connect(options).await, begun.elapsed())
            });
        }
        let mut arrivals = Arrivals::default();
        let mut first = None;
        while let Some(joined) = tasks.join_next().await {
            let (number, connected, took) = joined.context("a client's task has failed")?;
            match connected {
                Ok((client, events)) => {
                    arrivals.latencies.note(took);
                    arrivals.connected.push(Connected { number, client, events });
                }
                Err(error) => {
                    arrivals.failures.note(&error);
                    first.get_or_insert(error);
                }
            }
        }
        arrivals.elapsed = start.elapsed();
        match first {
            Some(error) if arrivals.connected.is_empty() => Err(dial.explained(error)),
            _ => Ok(arrivals),
        }
    }
}

/// A topic or filter of a client.
fn numbered(template: &str, number: u32) -> String {
    template.replace(NUMBER, &number.to_string())
}

/// Runs `work` to its end, on as many threads as there are CPUs.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?.block_on(work)
}

fn qos(text: &str) -> Result<QoS, &'static str> {
    match text {
        "0" => Ok(QoS::AtMostOnce),
        "1" => Ok(QoS::AtLeastOnce),
        "2" => Ok(QoS::ExactlyOnce),
        _ => Err("it is 0, 1 or 2"),
    }
}

/// The rate per second.
fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}
