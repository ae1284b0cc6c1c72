//! `whimbrel sub`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use serde_json::json;
use tokio::time::Instant;
use whimbrel_client::{Answer, Client, Event, Events, Filter, Message, QoS, RetainHandling};

use whimbrel_selector::Selector;

use crate::connection::{self, Connection};
use crate::failure::{self, Failure};

/// Output is written when it has grown this large, bytes, or when no message waits.
const OUTPUT_BYTES: usize = 64 << 10;

pub const EXAMPLES: &str = "\
Examples:
  whimbrel sub 'fleet/+/position' -v                    topics and payloads as they come
  whimbrel sub 'fleet/#' --json | jq .payload           everything about each message, a line of JSON each
  whimbrel sub fleet/7/state --count 1 --within 5       the retained message, or an error after 5 s
  whimbrel sub 'fleet/#' --selector 'speed > 50'        only messages whose property speed is a number above 50
  whimbrel sub 'fleet/#' -q 1 --id board --session 3600 a session that waits an hour for this client to return
Exit status: 0 ended as asked (count reached, time over, or interrupted), 1 a failure, 2 a wrong command line.";

const SELECTOR_HELP: &str = "\
Only messages for which this condition is true. The language is that of Jakarta Messaging selectors (SQL): names stand for user properties \
of the message, json('$.path') for values in a JSON payload, within('fence') for a position in a named fence.
Examples:
  --selector \"speed > 50 AND line IN ('N56', '175')\"
  --selector \"line LIKE 'N%' AND fuel IS NOT NULL\"
  --selector \"json('\\$.doors.front') = 'open'\"
  --selector '\"fuel.level\" * 2 < 15 OR JMSPriority >= 8'";

/// Arguments of `whimbrel sub`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Subscribe {
    /// Topic filters: + stands for one level, # for all that follow; $share/GROUP/FILTER shares the work
    #[arg(required = true, value_name = "FILTER")]
    filters: Vec<String>,
    /// The highest QoS: 0: at most once, 1: at least once, 2: exactly once
    #[arg(long, short, default_value = "0", value_name = "QOS", value_parser = connection::qos)]
    qos: QoS,
    /// Only messages for which this condition on their user properties and JSON payload is true; see the examples
    #[arg(long, value_name = "CONDITION", long_help = SELECTOR_HELP)]
    selector: Option<String>,
    /// Print the topic before each payload
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,
    /// Print each message as one line of JSON, with all that came with it
    #[arg(long, short)]
    json: bool,
    /// End after this many messages
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, seconds; with --count it is an error if fewer came
    #[arg(long, short, value_name = "SECONDS")]
    within: Option<u64>,
    /// Leave out retained messages
    #[arg(long, conflicts_with = "retained_only")]
    no_retained: bool,
    /// Print only retained messages
    #[arg(long)]
    retained_only: bool,
    /// Go on with the session of this --id, and let it outlive the connection by this long, seconds
    #[arg(long, requires = "id", value_name = "SECONDS")]
    session: Option<u32>,
    /// A user property of the subscription; repeatable
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = connection::property)]
    property: Vec<(String, String)>,
    #[command(flatten)]
    connection: Connection,
}

impl Subscribe {
    /// Subscribes and prints what comes.
    pub fn run(self) -> Result<(), Failure> {
        if let Some(text) = &self.selector {
            Selector::parse(text).map_err(|error| Failure::Selector(text.clone(), error))?;
        }
        Ok(connection::block_on(self.subscribe_and_print())?)
    }

    async fn subscribe_and_print(&self) -> Result<()> {
        ensure!(
            self.connection.has_properties() || (self.property.is_empty() && !self.no_retained),
            "MQTT 3.1.1 has neither --property nor --no-retained; use -V 5"
        );
        ensure!(
            self.connection.has_properties() || self.selector.is_none(),
            "MQTT 3.1.1 cannot carry a selector; leave out -V 3.1.1, or --selector"
        );
        let options = self.connection.options(self.session.is_none(), self.session.unwrap_or(0))?;
        let (client, mut events) = self.connection.connect(options).await?;
        self.subscribe(&client).await?;
        let end = self.within.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let printed = self.print_all(&mut events, end).await;
        client.disconnect().await;
        printed
    }

    async fn subscribe(&self, client: &Client) -> Result<()> {
        let retain_handling = if self.no_retained { RetainHandling::DoNotSend } else { RetainHandling::Send };
        let filters: Vec<_> =
            self.filters.iter().map(|filter| Filter { retain_handling, ..Filter::new(filter, self.qos) }).collect();
        let mut properties: Vec<_> =
            self.property.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        properties.extend(self.selector.as_deref().map(|selector| ("w-selector", selector)));
        let Answer { reasons, text } =
            client.subscribe_with(&filters, None, &properties).await.context("cannot subscribe")?;
        let refused: Vec<_> = self
            .filters
            .iter()
            .zip(&reasons)
            .filter(|(_, code)| code.is_error())
            .map(|(filter, code)| format!("{filter} ({code})"))
            .collect();
        if refused.is_empty() {
            return Ok(());
        }
        let words = text.map(|text| format!(": {text}")).unwrap_or_default();
        Err(anyhow!("refused by the broker: {}{words}", refused.join(", ")))
    }

    /// Prints until the count is reached, the time is over, or the user interrupts.
    async fn print_all(&self, events: &mut Events, end: Option<Instant>) -> Result<()> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let over = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        let interrupt = tokio::signal::ctrl_c();
        tokio::pin!(interrupt);
        let mut output = Vec::new();
        while left > 0 {
            let event = tokio::select! {
                event = events.next() => event,
                () = &mut over => return self.time_is_over(left),
                result = &mut interrupt => return result.context("cannot wait for an interrupt"),
            };
            let mut next = event;
            while let Some(event) = next {
                left -= u64::from(self.put(event, &mut output)?);
                next = if left > 0 && output.len() < OUTPUT_BYTES { events.try_next() } else { None };
            }
            if let Err(Failure::Runtime(error)) = failure::print(&output) {
                return Err(error);
            }
            output.clear();
        }
        Ok(())
    }

    fn time_is_over(&self, left: u64) -> Result<()> {
        match (self.count, self.within) {
            (Some(count), Some(seconds)) => {
                bail!("{} of {count} messages came within {seconds} s", count - left)
            }
            _ => Ok(()),
        }
    }

    /// Appends a message as it is to be printed; whether it counts.
    fn put(&self, event: Event, output: &mut Vec<u8>) -> Result<bool> {
        let message = match event {
            Event::Message(message) => message,
            Event::Disconnected { reason } => return Err(anyhow::Error::new(reason).context("the connection is over")),
        };
        if self.retained_only && !message.retain {
            return Ok(false);
        }
        if self.json {
            output.extend_from_slice(json_line(&message, unix_millis()).as_bytes());
        } else {
            if self.verbose {
                output.extend_from_slice(message.topic.as_bytes());
                output.push(b' ');
            }
            output.extend_from_slice(&message.payload);
        }
        output.push(b'\n');
        Ok(true)
    }
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Everything about a message. A payload that is no text comes in hexadecimal under another name.
fn json_line(message: &Message, received_ms: u64) -> String {
    let mut line = json!({
        "topic": message.topic,
        "qos": message.qos as u8,
        "retain": message.retain,
        "dup": message.dup,
        "received_ms": received_ms,
    });
    match std::str::from_utf8(&message.payload) {
        Ok(text) => line["payload"] = json!(text),
        Err(_) => line["payload_hex"] = json!(hex(&message.payload)),
    }
    if !message.properties.is_empty() {
        line["properties"] = json!(message.properties);
    }
    if !message.subscription_ids.is_empty() {
        line["subscription_ids"] = json!(message.subscription_ids);
    }
    if let Some(expiry) = message.expiry {
        line["expiry"] = json!(expiry);
    }
    if let Some(content_type) = &message.content_type {
        line["content_type"] = json!(content_type);
    }
    if let Some(topic) = &message.response_topic {
        line["response_topic"] = json!(topic);
    }
    if let Some(correlation) = &message.correlation {
        line["correlation_hex"] = json!(hex(correlation));
    }
    line.to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
