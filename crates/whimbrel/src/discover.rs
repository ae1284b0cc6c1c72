//! `whimbrel discover`: the brokers in the local network.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::json;
use whimbrel_client::discovery::{self, FoundBroker};

use crate::connection;
use crate::failure::{self, Failure};
use crate::sessions::print_json;
use crate::table::{Cell, Table, is_coloured};

/// The longest search.
const LONGEST: Duration = Duration::from_secs(60);

/// Characters of a broker's and of a deployment's name on a terminal: with an IPv4 address and a
/// version a row has at most 80.
const NAME_SHOWN: usize = 22;
const DEPLOYMENT_SHOWN: usize = 18;

const DETAILS: &str = "\
Brokers that run with --dev and --discover announce where they take MQTT, by multicast DNS on loopback and in private
networks. Nothing proves that they are what they say. At most 64 are shown, those on this machine first.
`--url mqtt+discover://` of pub, sub and bench takes the first of them, `--url mqtt+discover://DEPLOYMENT` the first
one of that deployment.

Examples:
  whimbrel discover
  whimbrel discover --for 10s --deployment city
  whimbrel discover --json | jq -r '.brokers[0].url'
  whimbrel sub 'fleet/#' --url mqtt+discover://city";

/// Arguments of `whimbrel discover`.
#[derive(clap::Args)]
#[command(after_help = DETAILS)]
pub struct Discover {
    /// How long to look, up to 60s
    #[arg(long = "for", value_name = "DURATION", default_value = "2s", value_parser = time)]
    time: Duration,
    /// Only brokers of this deployment
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > LONGEST { Err(format!("at most {} s", LONGEST.as_secs())) } else { Ok(time) }
}

impl Discover {
    /// Looks for brokers and prints them.
    pub fn run(&self) -> Result<(), Failure> {
        let search = async { discovery::search(self.time).await.context("cannot look for brokers") };
        let mut found = connection::block_on(search)?;
        if let Some(wanted) = &self.deployment {
            found.retain(|broker| broker.deployment == *wanted);
        }
        if self.json {
            return print_json(&json!({ "brokers": found.iter().map(object).collect::<Vec<_>>() }));
        }
        if found.is_empty() {
            return Err(anyhow!(
                "no broker was found within {}\nA broker is found if it runs with --dev and --discover in a network of this \
                 machine that lets multicast through; --for 10s looks longer",
                humantime::format_duration(self.time)
            )
            .into());
        }
        failure::print(text(&found, std::io::stdout().is_terminal(), is_coloured()).as_bytes())
    }
}

fn object(broker: &FoundBroker) -> serde_json::Value {
    json!({
        "name": broker.name,
        "address": broker.address,
        "url": broker.url(),
        "deployment": broker.deployment,
        "version": broker.version,
    })
}

fn text(found: &[FoundBroker], is_cut: bool, coloured: bool) -> String {
    let cut = |text: &str, shown: usize| -> Cell {
        // Names of brokers are ASCII.
        if is_cut && text.len() > shown { format!("{}…", &text[..shown - 1]).into() } else { text.into() }
    };
    let mut table = Table::new(&["NAME", "ADDRESS", "DEPLOYMENT", "VERSION"]);
    for broker in found {
        let version = broker.version.split(' ').next().unwrap_or_default();
        let (name, deployment) = (cut(&broker.name, NAME_SHOWN), cut(&broker.deployment, DEPLOYMENT_SHOWN));
        table.row(vec![name, broker.address.to_string().into(), deployment, version.into()]);
    }
    table.text(coloured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(name: &str, deployment: &str) -> FoundBroker {
        FoundBroker {
            deployment: deployment.into(),
            name: name.into(),
            address: "192.168.100.100:51883".parse().expect("an address"),
            version: "0.2.0 (abc)".into(),
        }
    }

    #[test]
    fn a_row_fits_a_terminal() {
        let found = [broker("north", "city"), broker(&"n".repeat(64), &"d".repeat(64))];
        let shown = text(&found, true, false);
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        let whole = text(&found[..1], true, false);
        assert_eq!(
            whole,
            "NAME   ADDRESS                DEPLOYMENT  VERSION\nnorth  192.168.100.100:51883  city        0.2.0\n"
        );
        assert!(text(&found, false, false).contains(&"n".repeat(64)));
    }

    #[test]
    fn a_search_is_bounded() {
        assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
        assert!(time("61s").is_err() && time("soon").is_err());
    }
}
