//! `bench conn`: how fast a broker takes connections, and whether it keeps them.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use whimbrel_client::Event;

use super::{ClientArgs, Connected, block_on, rate};
use crate::bench::load::seconds;
use crate::output::say;

/// Open connections to a running broker at a pace, and hold them
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    clients: ClientArgs,

    /// How long to hold the connections once all are there, seconds
    #[arg(long, default_value = "5", value_parser = seconds, value_name = "SECONDS")]
    seconds: Duration,
}

/// Measures and prints; whether all clients got in and stayed.
///
/// # Errors
/// No client can connect.
pub fn run(args: &Args) -> Result<bool> {
    block_on(async {
        let mut arrivals = args.clients.connect("conn").await?;
        let until = Instant::now() + args.seconds;
        let connected = arrivals.connected.len() as u64;
        let mut held = JoinSet::new();
        for client in arrivals.connected.drain(..) {
            held.spawn(hold(client, until));
        }
        let mut lost = 0;
        while let Some(stayed) = held.join_next().await {
            lost += u64::from(!stayed?);
        }
        let failed = arrivals.failures.total();
        let per_second = rate(connected, arrivals.elapsed);
        if args.clients.json {
            say(json!({
                "connected": connected, "failed": failed, "lost": lost, "connects_per_second": per_second,
                "connect_us": arrivals.latencies.json(),
            }))?;
        } else {
            let took = arrivals.elapsed.as_secs_f64();
            say(format_args!("{connected} connected in {took:.2} s ({per_second:.0}/s), {failed} failed"))?;
            arrivals.failures.lines().try_for_each(say)?;
            arrivals.latencies.lines("from dialling to CONNACK").iter().try_for_each(say)?;
            say(format_args!("{lost} connections lost in {:?}", args.seconds))?;
        }
        Ok(failed == 0 && lost == 0)
    })
}

/// Keeps a connection; whether it is still there in the end.
async fn hold(Connected { client, mut events, .. }: Connected, until: Instant) -> bool {
    let ended = async {
        while let Some(event) = events.next().await {
            if let Event::Disconnected { .. } = event {
                break;
            }
        }
    };
    let stayed = timeout_at(until, ended).await.is_err();
    client.disconnect().await;
    stayed
}
