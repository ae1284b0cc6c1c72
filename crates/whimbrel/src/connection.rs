//! Options of `whimbrel pub` and `whimbrel sub` for their connection to a broker.

use anyhow::{Context, Result, ensure};
use clap::Args;
use whimbrel_client::{Client, Error, Events, Options, Publish, QoS, Version, Will};
use whimbrel_lab::dial::Dial;

/// Options that both commands have.
#[derive(Args)]
pub struct Connection {
    #[command(flatten)]
    dial: Dial,
    /// Name of this client [default: the broker chooses one]
    #[arg(long, short, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    will: WillArgs,
}

/// The message that the broker publishes if this client vanishes.
#[derive(Args)]
#[command(next_help_heading = "Will")]
struct WillArgs {
    /// Topic of a message that the broker publishes if this client vanishes
    #[arg(long, value_name = "TOPIC")]
    will_topic: Option<String>,
    /// Its payload
    #[arg(long, requires = "will_topic", default_value = "", hide_default_value = true, value_name = "MESSAGE")]
    will_message: String,
    /// Its QoS
    #[arg(long, requires = "will_topic", default_value = "0", value_name = "QOS", value_parser = qos)]
    will_qos: QoS,
    /// Retain it
    #[arg(long, requires = "will_topic")]
    will_retain: bool,
    /// Seconds that the broker waits for the client to come back
    #[arg(long, requires = "will_topic", value_name = "SECONDS")]
    will_delay: Option<u32>,
}

impl Connection {
    /// Finds the broker if it is to be found; before [`Connection::options`].
    pub async fn find(&mut self) -> Result<()> {
        self.dial.find().await
    }

    /// The options for the client library; `session_expiry` in seconds makes the session outlive
    /// the connection.
    pub fn options(&self, clean_start: bool, session_expiry: u32) -> Result<Options> {
        ensure!(clean_start || self.id.is_some(), "a session has a name: give --id");
        let mut options = self
            .dial
            .options()
            .client_id(self.id.as_deref().unwrap_or_default())
            .clean_start(clean_start)
            .session_expiry(session_expiry);
        if let Some(topic) = &self.will.will_topic {
            let message = Publish::new(topic, self.will.will_message.as_bytes()).qos(self.will.will_qos);
            let will = Will::new(message.retain(self.will.will_retain));
            options = options.will(match self.will.will_delay {
                Some(seconds) => will.delay(seconds),
                None => will,
            });
        }
        Ok(options)
    }

    /// Connects.
    pub async fn connect(&self, options: Options) -> Result<(Client, Events)> {
        self.dial.connect(options).await
    }

    /// A connection error, with what may help.
    pub fn explained(&self, error: Error) -> anyhow::Error {
        self.dial.explained(error)
    }

    /// Whether this version of MQTT has properties.
    pub fn has_properties(&self) -> bool {
        self.dial.mqtt == Version::V5
    }
}

/// Runs `work` on this thread, in a runtime of its own.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the asynchronous runtime")?.block_on(work)
}

/// Parses a QoS of the command line.
pub fn qos(text: &str) -> Result<QoS, &'static str> {
    match text {
        "0" => Ok(QoS::AtMostOnce),
        "1" => Ok(QoS::AtLeastOnce),
        "2" => Ok(QoS::ExactlyOnce),
        _ => Err("it is 0 (at most once), 1 (at least once) or 2 (exactly once)"),
    }
}

/// Parses a user property of the command line.
pub fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if let Some(long) = [name, value].into_iter().find(|part| part.len() > usize::from(u16::MAX)) {
        return Err(format!("a name or value has at most 65,535 bytes, not {}", long.len()));
    }
    Ok((name.to_owned(), value.to_owned()))
}
