//! `whimbrel sub`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use tokio::time::Instant;
use whimbrel_client::{
    Answer, Client, Durability, Error, Events, Filter, Message, Notice, QoS, RetainHandling, Subscription,
};
use whimbrel_selector::Selector;

use crate::connection::{self, Connection};
use crate::failure::{Failure, tell};
use crate::follow::{Follow, Returning};
use crate::output::{reader_gone, written};
use crate::print::{self, Printer};
use crate::steady::{Happened, Steady, Subscribes};

/// Output is written when it has this many bytes, or when no message waits.
pub const OUTPUT_BYTES: usize = 64 << 10;

/// Messages for a connection that is up again.
const BACK_IN_SESSION: &str = "connected again, and going on with the session";
const BACK_ANEW: &str =
    "connected again; what was published meanwhile was not kept (--session and --durability have it kept)";

pub const EXAMPLES: &str = "\
Examples:
  whimbrel sub 'fleet/+/position' -v                    topics and payloads as they come
  whimbrel sub 'fleet/#' --json | jq .payload           everything about each message, a line of JSON each
  whimbrel sub fleet/7/state --count 1 --within 5       the retained message, or an error after 5 s
  whimbrel sub 'fleet/#' --selector 'speed > 50'        only messages whose property speed is a number above 50
  whimbrel sub 'fleet/#' -q 1 --id board --session 3600  a session that waits an hour for this client to return
  whimbrel sub 'fleet/#' -q 1 --token-file fleet.token  goes on where it stopped, and tells what it missed
  whimbrel sub 'fleet/#' -q 1 --from earliest           first all that the broker still has
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
    /// Topic filters: + stands for one level, # for all that follow; $share/GROUP/FILTER shares the
    /// work
    #[arg(required = true, value_name = "FILTER")]
    filters: Vec<String>,
    /// The highest QoS: 0: at most once, 1: at least once, 2: exactly once
    #[arg(long, short, default_value = "0", value_name = "QOS", value_parser = connection::qos)]
    qos: QoS,
    /// Only messages for which this condition on their user properties and JSON payload is true;
    /// see the examples
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
    #[arg(long, short, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    within: Option<u64>,
    /// Leave out retained messages
    #[arg(long, conflicts_with = "retained_only")]
    no_retained: bool,
    /// Print only retained messages
    #[arg(long)]
    retained_only: bool,
    /// Go on with the session of this --id, and let it outlive the connection by this long, seconds
    #[arg(long, requires = "id", value_name = "SECONDS", conflicts_with_all = ["token_file", "from", "ack_by_token"])]
    session: Option<u32>,
    /// A user property of the subscription; repeatable
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = connection::property)]
    property: Vec<(String, String)>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    returning: Returning,
}

impl Subscribe {
    /// Subscribes and prints messages.
    pub fn run(mut self) -> Result<(), Failure> {
        if let Some(text) = &self.selector {
            Selector::parse(text).map_err(|error| Failure::Selector(text.clone(), error))?;
        }
        let subscribed = async {
            self.connection.find().await?;
            self.subscribe_and_print().await
        };
        Ok(connection::block_on(subscribed)?)
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
        ensure!(
            self.connection.has_properties() || !self.returning.is_used(),
            "MQTT 3.1.1 carries no positions; leave out -V 3.1.1, or what is about coming back"
        );
        if self.returning.keeps_position(self.session.is_some()) {
            return self.follow().await;
        }
        let options = self.connection.options(self.session.is_none(), self.session.unwrap_or(0))?;
        let options = if self.asks_names() { options.has_names() } else { options };
        let mut steady = Steady::start(self, options, self.session.is_some()).await?;
        let end = self.within.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let printed = self.print_all(&mut steady, end).await;
        steady.close().await;
        printed
    }

    /// Prints until the count is reached, the time is over, the reader has gone, or the user
    /// interrupts.
    async fn print_all(&self, steady: &mut Steady<&Subscribe>, end: Option<Instant>) -> Result<()> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let over = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        let (interrupt, unread) = (tokio::signal::ctrl_c(), reader_gone());
        tokio::pin!(over, interrupt, unread);
        let mut output = Vec::new();
        while left > 0 {
            let happened = tokio::select! {
                happened = steady.next() => happened?,
                () = &mut over => return self.time_is_over(left),
                () = &mut unread => return Ok(()),
                result = &mut interrupt => return result.context("cannot wait for an interrupt"),
            };
            let mut next = match happened {
                Happened::Message(message) => Some(message),
                Happened::Lost(reason, pause) => {
                    tell(format_args!("no connection: {reason}; the next attempt is in {pause:?}"));
                    None
                }
                Happened::Back(is_kept) => {
                    tell(if is_kept { BACK_IN_SESSION } else { BACK_ANEW });
                    None
                }
            };
            while let Some(message) = next {
                left -= u64::from(self.put(&message, &mut output));
                next = if left > 0 && output.len() < OUTPUT_BYTES { steady.try_next() } else { None };
            }
            if !written(&output)? {
                return Ok(());
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

    /// Appends a message as it is printed. Returns whether it counts.
    fn put(&self, message: &Message, output: &mut Vec<u8>) -> bool {
        let notice = message.notice();
        if let Some(Notice::Gap(gap)) = &notice {
            print::words(std::slice::from_ref(gap)).iter().for_each(tell);
        }
        self.printer().put(message, output) && notice.is_none()
    }

    fn printer(&self) -> Printer {
        Printer { json: self.json, verbose: self.verbose, retained_only: self.retained_only }
    }

    /// Subscribes to the one filter, and follows it over as many connections as needed.
    async fn follow(&self) -> Result<()> {
        ensure!(
            self.returning.durability != Some(Durability::Durable),
            "a position that is kept here goes with a semi-durable subscription; a durable one outlives its connection in a session, where the \
             broker keeps the position: give --id and --session SECONDS, and leave out --token-file, --from and --ack-by-token"
        );
        let [filter] = &self.filters[..] else {
            bail!("a position belongs to one subscription: give one FILTER, or start a process for each")
        };
        let mut subscription = Subscription::to(filter).qos(self.qos).retained(self.retain_handling());
        if let Some(selector) = &self.selector {
            subscription = subscription.selector(selector);
        }
        for (name, value) in &self.property {
            subscription = subscription.property(name, value);
        }
        let follow = Follow {
            connection: &self.connection,
            options: self.connection.options(true, 0)?,
            subscription,
            returning: &self.returning,
            printer: self.printer(),
            end: self.within.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        };
        let left = follow.run(self.count.unwrap_or(u64::MAX)).await?;
        if left > 0 { self.time_is_over(left) } else { Ok(()) }
    }

    /// Whether the subscription asks for the names of events: `--json` prints them, now or when it
    /// goes on with the session.
    fn asks_names(&self) -> bool {
        self.connection.has_properties() && (self.json || self.session.is_some())
    }

    fn retain_handling(&self) -> RetainHandling {
        if self.no_retained { RetainHandling::DoNotSend } else { RetainHandling::Send }
    }
}

impl Subscribes for &Subscribe {
    async fn subscribe(&self, client: &Client, events: &mut Events) -> Result<()> {
        let retain_handling = self.retain_handling();
        let filters: Vec<_> =
            self.filters.iter().map(|filter| Filter { retain_handling, ..Filter::new(filter, self.qos) }).collect();
        let mut properties: Vec<_> =
            self.property.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        properties.extend(self.selector.as_deref().map(|selector| ("w-selector", selector)));
        properties.extend(self.returning.durability.map(|durability| ("w-durability", durability.name())));
        properties.extend(self.returning.notices.then_some(("w-notices", "on")));
        if self.asks_names() && !properties.iter().any(|(name, _)| *name == "w-notices") {
            // With this property, whatever its value, the broker names events.
            properties.push(("w-notices", "off"));
        }
        let answer = events.during(client.subscribe_with(&filters, None, &properties)).await;
        let Answer { reasons, text, .. } = answer.context("cannot subscribe")?;
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

    fn explained(&self, error: Error) -> anyhow::Error {
        self.connection.explained(error)
    }
}
