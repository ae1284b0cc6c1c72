//! `bench pub`: the rate at which a broker takes messages, and how soon it acknowledges them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use whimbrel_client::{Error, Publish, QoS, Receipt};

use super::latencies::Latencies;
use super::stamp::{self, Stamp};
use super::{ClientArgs, Connected, Failures, block_on, qos, rate};
use crate::bench::load::seconds;
use crate::output::say;

/// The golden ratio's fraction: any number of its multiples are spread evenly between whole
/// numbers.
const GOLDEN: f64 = 0.618_034;

/// Publish to a running broker at a rate, and measure how soon it acknowledges
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to publish; {client} stands for the client's number
    topic: String,

    #[command(flatten)]
    clients: ClientArgs,

    /// Messages per second of all clients together; 0: as many as the broker takes
    #[arg(long, short, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    rate: u32,

    /// 0: at most once, 1: at least once, 2: exactly once
    #[arg(long, short, default_value = "1", value_parser = qos, value_name = "QOS")]
    qos: QoS,

    /// Bytes of a message; the first 28 tell `bench sub` who has sent it when
    #[arg(long, default_value_t = 100, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(28..=16_777_216))]
    body: u32,

    /// Messages of a client that the broker has not acknowledged yet, at most (QoS 1 and 2)
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16_384))]
    unacked: u16,

    /// How long to publish, seconds
    #[arg(long, default_value = "10", value_parser = seconds, value_name = "SECONDS")]
    seconds: Duration,
}

/// The account of one client.
#[derive(Default)]
struct Account {
    sent: u64,
    acknowledged: u64,
    latencies: Latencies,
    failures: Failures,
}

/// Measures and prints; whether everything was taken.
///
/// # Errors
/// No client can connect.
pub fn run(args: &Args) -> Result<bool> {
    block_on(async {
        let mut arrivals = args.clients.connect("pub").await?;
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        let pace = args.pace(arrivals.connected.len());
        for client in arrivals.connected.drain(..) {
            tasks.spawn(publish(client, Course::new(args, start, pace)));
        }
        let mut total = Account { failures: arrivals.failures, ..Account::default() };
        while let Some(account) = tasks.join_next().await {
            let Account { sent, acknowledged, latencies, failures } = account?;
            total.sent += sent;
            total.acknowledged += acknowledged;
            total.latencies.add(&latencies);
            failures.0.into_iter().for_each(|(words, count)| *total.failures.0.entry(words).or_default() += count);
        }
        total.tell(args, start.elapsed())?;
        Ok(total.failures.total() == 0)
    })
}

impl Args {
    /// The time between two messages of one of `clients`; `None`: there is none.
    fn pace(&self, clients: usize) -> Option<Duration> {
        (self.rate > 0).then(|| Duration::from_secs_f64(clients as f64 / f64::from(self.rate)))
    }
}

impl Account {
    fn tell(&self, args: &Args, elapsed: Duration) -> Result<()> {
        let Account { sent, acknowledged, latencies, failures } = self;
        let (per_second, failed) = (rate(*sent, elapsed), failures.total());
        if args.clients.json {
            return say(json!({
                "sent": sent, "acknowledged": acknowledged, "failed": failed, "sent_per_second": per_second,
                "acknowledge_us": latencies.json(),
            }));
        }
        let took = elapsed.as_secs_f64();
        say(format_args!(
            "{sent} sent in {took:.2} s ({per_second:.0}/s), {acknowledged} acknowledged, {failed} failed"
        ))?;
        failures.lines().try_for_each(say)?;
        // A message counts from when it was due, whether or not the broker let it be sent then.
        let what = if args.rate > 0 { "from due to acknowledged" } else { "from sending to acknowledged" };
        latencies.lines(what).iter().try_for_each(say)
    }
}

/// The parameters of one client.
struct Course {
    topic: String,
    qos: QoS,
    body: usize,
    unacked: usize,
    start: Instant,
    end: Instant,
    pace: Option<Duration>,
}

impl Course {
    fn new(args: &Args, start: Instant, pace: Option<Duration>) -> Course {
        Course {
            topic: args.topic.clone(),
            qos: args.qos,
            body: args.body as usize,
            unacked: usize::from(args.unacked),
            start,
            end: start + args.seconds,
            pace,
        }
    }

    /// Waits until a message is due, and returns when that was; `None`: after the end.
    async fn due(&self, sequence: u64, shift: f64) -> Option<Instant> {
        let Some(pace) = self.pace else {
            // No wait, not even for this moment: a timer counts whole milliseconds.
            return Some(Instant::now()).filter(|now| *now < self.end);
        };
        let due = self.start + pace.mul_f64(sequence as f64 + shift);
        if due >= self.end {
            return None;
        }
        sleep_until(due).await;
        Some(due)
    }
}

/// Publishes until its time is over, then waits for acknowledgements.
async fn publish(Connected { number, client, mut events }: Connected, course: Course) -> Account {
    let publisher = u64::from(std::process::id()) << 32 | u64::from(number);
    let topic = super::numbered(&course.topic, number);
    // Clients start at different phases, so that their messages do not come in bursts.
    let shift = (f64::from(number) * GOLDEN).fract();
    let (receipts, outcome) = mpsc::channel(course.unacked);
    let window = Arc::new(Semaphore::new(course.unacked));
    // There are no subscriptions: unacknowledged messages show the connection's end.
    let drained = tokio::spawn(async move { while events.next().await.is_some() {} });
    let answers = tokio::spawn(answers(outcome));
    let (mut sequence, mut stopped) = (0, None);
    loop {
        let place = match course.qos {
            QoS::AtMostOnce => None,
            _ => Some(Arc::clone(&window).acquire_owned().await.expect("it stays open")),
        };
        let Some(due) = course.due(sequence, shift).await else { break };
        let payload = Stamp { publisher, sequence, sent: stamp::now() }.payload(course.body);
        match client.send(Publish::new(&topic, payload).qos(course.qos)).await {
            Ok(receipt) => {
                if let Some(_place) = place {
                    _ = receipts.send(UnackedMessage { due, receipt, _place }).await;
                }
            }
            Err(error) => {
                stopped = Some(error);
                break;
            }
        }
        sequence += 1;
    }
    drop(receipts);
    let mut account = answers.await.unwrap_or_default();
    account.sent = sequence;
    if let Some(error) = stopped {
        account.failures.note(&error);
    }
    client.disconnect().await;
    drained.abort();
    account
}

/// A message that is not acknowledged yet.
struct UnackedMessage {
    due: Instant,
    receipt: Receipt,
    /// Its place among those that its client may have.
    _place: OwnedSemaphorePermit,
}

/// Waits for acknowledgements, in the order of sending.
async fn answers(mut receipts: mpsc::Receiver<UnackedMessage>) -> Account {
    let mut account = Account::default();
    while let Some(UnackedMessage { due, mut receipt, _place }) = receipts.recv().await {
        match receipt.acknowledged().await {
            Ok(_) => {
                account.acknowledged += 1;
                account.latencies.note(due.elapsed());
            }
            // The connection's end is one failure, whatever was in flight.
            Err(Error::Closed) if account.failures.0.contains_key(&Error::Closed.to_string()) => {}
            Err(error) => account.failures.note(&error),
        }
    }
    account
}
