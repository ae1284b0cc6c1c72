//! `whimbrel pub`.

use std::collections::VecDeque;
use std::io::BufRead;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::sync::mpsc;
use whimbrel_client::{Client, Error, Event, Events, Publish as Message, QoS, Receipt};

use crate::connection::{self, Connection};

/// Messages that may be sent and unacknowledged at the same time.
const IN_FLIGHT_MAX: usize = 100;

/// Lines that are read ahead, at most.
const LINES_MAX: usize = 1_000;

/// Bytes of a topic or another text in MQTT, at most.
const TEXT_MAX: usize = u16::MAX as usize;

pub const EXAMPLES: &str = "\
Examples:
  whimbrel pub fleet/7/position 52.23,21.01                   one message
  whimbrel pub fleet/7/state '{\"doors\":\"open\"}' -q 1 -r       acknowledged, and retained
  tail -f positions.log | whimbrel pub fleet/7/position -     a message per line
  whimbrel pub fleet/7/photo --file photo.jpg -p line=N56     a file, with a user property
  whimbrel pub fleet/7/state --null -r                        forget the retained message
Exit status: 0 all accepted, 1 not, 2 a wrong command line.";

/// Arguments of `whimbrel pub`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Publish {
    /// Where to publish
    #[arg(value_parser = topic)]
    topic: String,
    /// What to publish; - publishes each line of standard input
    #[arg(required_unless_present_any = ["file", "null"], conflicts_with_all = ["file", "null"])]
    message: Option<String>,
    /// Publish the contents of this file; - is all of standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Publish an empty message
    #[arg(long, short, conflicts_with = "file")]
    null: bool,
    /// 0: at most once, 1: at least once, 2: exactly once
    #[arg(long, short, default_value = "0", value_name = "QOS", value_parser = connection::qos)]
    qos: QoS,
    /// Have the broker keep the message for later subscribers
    #[arg(long, short)]
    retain: bool,
    /// Publish each message this often
    #[arg(long, short, default_value_t = 1, value_name = "N")]
    count: u64,
    /// Pause between messages, milliseconds
    #[arg(long, default_value_t = 0, value_name = "MS")]
    interval: u64,
    /// A user property, an attribute for selectors; repeatable
    #[arg(long, short, visible_alias = "attribute", value_name = "NAME=VALUE", value_parser = connection::property)]
    property: Vec<(String, String)>,
    /// How important the message is, from 1 to 10: where a broker's cache has not room for all, it
    /// may keep what is more important
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=10))]
    importance: Option<u8>,
    /// Seconds for which the message is of use
    #[arg(long, value_name = "SECONDS")]
    expiry: Option<u32>,
    /// What the payload is, for instance application/json
    #[arg(long, value_name = "TYPE", value_parser = text)]
    content_type: Option<String>,
    /// Where a reply is wanted
    #[arg(long, value_name = "TOPIC", value_parser = topic)]
    response_topic: Option<String>,
    /// What a reply shall carry
    #[arg(long, requires = "response_topic", value_name = "DATA", value_parser = text)]
    correlation: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

fn text(text: &str) -> Result<String, &'static str> {
    if text.len() > TEXT_MAX {
        return Err("it has at most 65,535 bytes");
    }
    Ok(text.to_owned())
}

fn topic(name: &str) -> Result<String, &'static str> {
    if name.is_empty() {
        return Err("a topic has at least one character");
    }
    if name.contains(['+', '#']) {
        return Err("+ and # are for subscribing; messages go to one topic");
    }
    text(name)
}

/// Source of messages.
enum Source {
    /// This payload.
    One(Vec<u8>),
    /// Each line of standard input.
    Lines(mpsc::Receiver<std::io::Result<Vec<u8>>>),
}

impl Source {
    async fn next(&mut self) -> Option<std::io::Result<Vec<u8>>> {
        match self {
            Source::One(payload) => {
                let payload = std::mem::take(payload);
                *self = Source::Lines(mpsc::channel(1).1);
                Some(Ok(payload))
            }
            Source::Lines(lines) => lines.recv().await,
        }
    }
}

/// Reads lines on its own thread, because reading standard input blocks.
fn lines() -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        for mut line in std::io::stdin().lock().split(b'\n') {
            if let Ok(line) = &mut line
                && line.ends_with(b"\r")
            {
                line.pop();
            }
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Publish {
    /// Publishes.
    pub fn run(mut self) -> Result<()> {
        ensure!(
            self.connection.has_properties() || !self.uses_properties(),
            "MQTT 3.1.1 has no properties: leave out --property, --importance, --expiry, --content-type and --response-topic, or use -V 5"
        );
        let source = self.source()?;
        connection::block_on(async {
            self.connection.find().await?;
            let options = self.connection.options(true, 0)?;
            let (client, mut events) = self.connection.connect(options).await?;
            self.publish_all(&client, &mut events, source).await?;
            client.disconnect().await;
            Ok(())
        })
    }

    fn uses_properties(&self) -> bool {
        !self.property.is_empty()
            || self.importance.is_some()
            || self.expiry.is_some()
            || self.content_type.is_some()
            || self.response_topic.is_some()
    }

    fn source(&self) -> Result<Source> {
        Ok(match (&self.file, self.message.as_deref()) {
            (Some(file), _) if file.as_os_str() == "-" => {
                let mut payload = Vec::new();
                std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut payload)
                    .context("cannot read standard input")?;
                Source::One(payload)
            }
            (Some(file), _) => {
                Source::One(std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?)
            }
            (None, Some("-")) => Source::Lines(lines()),
            (None, message) => Source::One(message.unwrap_or_default().into()),
        })
    }

    fn message(&self, payload: Vec<u8>) -> Message {
        let mut message = Message::new(&self.topic, payload).qos(self.qos).retain(self.retain);
        for (name, value) in &self.property {
            message = message.property(name, value);
        }
        if let Some(importance) = self.importance {
            message = message.property("w-importance", importance.to_string());
        }
        if let Some(seconds) = self.expiry {
            message = message.expiry(seconds);
        }
        if let Some(content_type) = &self.content_type {
            message = message.content_type(content_type);
        }
        if let Some(topic) = &self.response_topic {
            message = message.respond_to(topic, self.correlation.clone().map(String::into_bytes));
        }
        message
    }

    /// Publishes all messages in order, up to [`IN_FLIGHT_MAX`] of them unacknowledged.
    async fn publish_all(&self, client: &Client, events: &mut Events, mut source: Source) -> Result<()> {
        let not_published = || format!("not published to {}", self.topic);
        let mut receipts = VecDeque::new();
        let mut first = true;
        loop {
            let payload = tokio::select! {
                payload = source.next() => payload,
                result = oldest(&mut receipts) => {
                    result.with_context(not_published)?;
                    continue;
                }
                // Nothing is subscribed to, so the only event of interest is the end of the
                // connection.
                event = events.next() => match event {
                    Some(Event::Disconnected { reason }) => return Err(reason).context("the connection is over"),
                    _ => continue,
                },
            };
            let Some(payload) = payload else { break };
            let payload = payload.context("cannot read standard input")?;
            for _ in 0..self.count {
                if self.interval > 0 && !std::mem::take(&mut first) {
                    tokio::time::sleep(Duration::from_millis(self.interval)).await;
                }
                if receipts.len() == IN_FLIGHT_MAX {
                    oldest(&mut receipts).await.with_context(not_published)?;
                }
                receipts.push_back(client.send(self.message(payload.clone())).await.with_context(not_published)?);
            }
        }
        while !receipts.is_empty() {
            oldest(&mut receipts).await.with_context(not_published)?;
        }
        Ok(())
    }
}

/// Waits for the acknowledgement of the oldest message; for ever if there is none. May be
/// cancelled.
async fn oldest(receipts: &mut VecDeque<Receipt>) -> Result<(), Error> {
    let Some(receipt) = receipts.front_mut() else { return std::future::pending().await };
    let result = receipt.acknowledged().await;
    receipts.pop_front();
    result.map(drop)
}
