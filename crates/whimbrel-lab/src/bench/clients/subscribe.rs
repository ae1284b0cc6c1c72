//! `bench sub`: the rate at which messages arrive, and their age then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use whimbrel_client::{Event, QoS};

use super::latencies::Latencies;
use super::stamp::Stamp;
use super::{ClientArgs, Connected, Failures, block_on, qos, rate};
use crate::bench::accounts::Order;
use crate::bench::load::seconds;
use crate::output::{say, tell};

/// The number of publishers whose messages each subscriber follows one by one; messages of others
/// are only counted.
const PUBLISHERS_MAX: usize = 100_000;

/// Subscribe at a running broker, and measure how soon the messages of `bench pub` come
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to subscribe to; {client} stands for the client's number
    filter: String,

    #[command(flatten)]
    clients: ClientArgs,

    /// The highest QoS: 0: at most once, 1: at least once, 2: exactly once
    #[arg(long, short, default_value = "1", value_parser = qos, value_name = "QOS")]
    qos: QoS,

    /// End after this many messages of all clients together [default: after --seconds]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// How long to subscribe, seconds
    #[arg(long, default_value = "10", value_parser = seconds, value_name = "SECONDS")]
    seconds: Duration,
}

/// The account of clients' deliveries.
#[derive(Default)]
struct Account {
    received: u64,
    /// Messages of programs other than `bench pub`: their sending times are unknown.
    foreign: u64,
    lost: u64,
    repeated: u64,
    latencies: Latencies,
    failures: Failures,
    /// The time from the first message to the last.
    span: Option<(Instant, Instant)>,
}

impl Account {
    fn add(&mut self, other: Account) {
        self.received += other.received;
        self.foreign += other.foreign;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.latencies.add(&other.latencies);
        other.failures.0.into_iter().for_each(|(words, count)| *self.failures.0.entry(words).or_default() += count);
        self.span = match (self.span, other.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
    }

    fn tell(&self, as_json: bool) -> Result<()> {
        let Account { received, foreign, lost, repeated, latencies, failures, span } = self;
        let took = span.map_or(Duration::ZERO, |(first, last)| last - first);
        let per_second = if took.is_zero() { 0.0 } else { rate(*received, took) };
        let failed = failures.total();
        if as_json {
            return say(json!({
                "received": received, "received_per_second": per_second, "lost": lost, "repeated": repeated,
                "foreign": foreign, "failed": failed, "delivery_us": latencies.json(),
            }));
        }
        let rest = format!("{lost} lost, {repeated} repeated, {foreign} of other programs, {failed} failed");
        say(format_args!("{received} received in {:.2} s ({per_second:.0}/s), {rest}", took.as_secs_f64()))?;
        failures.lines().try_for_each(say)?;
        latencies.lines("from sending to receipt").iter().try_for_each(say)
    }
}

/// The number of messages that all clients together are to receive.
struct Goal {
    left: AtomicU64,
    reached: watch::Sender<bool>,
}

impl Goal {
    fn of(count: Option<u64>) -> Goal {
        Goal { left: AtomicU64::new(count.unwrap_or(u64::MAX)), reached: watch::Sender::new(false) }
    }

    /// Counts a received message.
    fn take_one(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.reached.send_replace(true);
        }
    }
}

/// Measures and prints; returns whether nothing was lost.
///
/// # Errors
/// When no client can connect, or a subscription is refused.
pub fn run(args: &Args) -> Result<bool> {
    block_on(async {
        let mut arrivals = args.clients.connect("sub").await?;
        let mut total = Account { failures: arrivals.failures, ..Account::default() };
        for client in &mut arrivals.connected {
            subscribe(client, args).await?;
        }
        tell(format_args!("{} subscribed to {}", arrivals.connected.len(), args.filter));
        let end = Instant::now() + args.seconds;
        let mut tasks = JoinSet::new();
        let goal = Arc::new(Goal::of(args.count));
        for client in arrivals.connected.drain(..) {
            tasks.spawn(receive(client, end, goal.clone()));
        }
        while let Some(account) = tasks.join_next().await {
            total.add(account?);
        }
        total.tell(args.clients.json)?;
        let has_all = args.count.is_none_or(|count| total.received >= count);
        Ok(has_all && total.lost == 0 && total.failures.total() == 0)
    })
}

async fn subscribe(Connected { number, client, events }: &mut Connected, args: &Args) -> Result<()> {
    let filter = super::numbered(&args.filter, *number);
    let codes = events.during(client.subscribe(&[(&filter, args.qos)])).await?;
    match codes.iter().find(|code| code.is_error()) {
        Some(code) => Err(anyhow!("refused by the broker: {filter} ({code})")),
        None => Ok(()),
    }
}

/// Counts messages until the time is over, or all clients together have enough.
async fn receive(Connected { client, mut events, .. }: Connected, end: Instant, goal: Arc<Goal>) -> Account {
    let (mut account, mut orders) = (Account::default(), HashMap::<u64, (u64, Order)>::new());
    let mut reached = goal.reached.subscribe();
    loop {
        let event = tokio::select! {
            event = timeout_at(end, events.next()) => event,
            _ = reached.wait_for(|reached| *reached) => break,
        };
        let message = match event {
            Ok(Some(Event::Message(message))) => message,
            Ok(Some(Event::Disconnected { reason })) => {
                account.failures.note(&reason);
                break;
            }
            Ok(None) | Err(_) => break,
        };
        account.received += 1;
        let now = Instant::now();
        account.span = Some((account.span.map_or(now, |(first, _)| first), now));
        match Stamp::of(&message.payload) {
            Some(stamp) => {
                account.latencies.note(stamp.age());
                if orders.len() < PUBLISHERS_MAX || orders.contains_key(&stamp.publisher) {
                    // A late subscriber has missed nothing of the messages before.
                    let (base, order) = orders.entry(stamp.publisher).or_insert((stamp.sequence, Order::default()));
                    match stamp.sequence.checked_sub(*base) {
                        Some(sequence) => _ = order.note(sequence),
                        None => order.repeated += 1,
                    }
                }
            }
            None => account.foreign += 1,
        }
        goal.take_one();
    }
    for (_, order) in orders.values() {
        account.lost += order.lost;
        account.repeated += order.repeated;
    }
    client.disconnect().await;
    account
}
