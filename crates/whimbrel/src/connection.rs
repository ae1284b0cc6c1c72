//! How `whimbrel pub` and `whimbrel sub` reach a broker.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use whimbrel_client::{Client, Events, Options, Publish, QoS, Tls, Version, Will};

/// Options that both commands have.
#[derive(Args)]
pub struct Connection {
    /// The broker: mqtt://HOST or mqtt://HOST:PORT; mqtts://… for TLS
    #[arg(long, short, env = "WHIMBREL_URL", default_value = "mqtt://127.0.0.1:1883", value_name = "URL")]
    url: String,
    /// Name of this client [default: the broker chooses one]
    #[arg(long, short, value_name = "ID")]
    id: Option<String>,
    /// Version of MQTT: 5 or 3.1.1
    #[arg(long, short = 'V', default_value = "5", value_name = "VERSION", value_parser = version)]
    mqtt: Version,
    /// User name
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Password; better given in the variable, where other users of this machine do not see it
    #[arg(long, env = "WHIMBREL_PASSWORD", hide_env_values = true, requires = "user", value_name = "PASSWORD")]
    password: Option<String>,
    /// Trust certificates signed by the authority in this PEM file
    #[arg(long, value_name = "FILE")]
    ca: Option<String>,
    /// Trust any certificate; for development only
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Keep-alive, seconds; 0: none
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    keep_alive: u16,
    /// How long the broker may take to answer, seconds
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    patience: u16,
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
    /// What was given, for the client library; `session_expiry` in seconds makes the session outlive the connection.
    pub fn options(&self, clean_start: bool, session_expiry: u32) -> Result<Options> {
        ensure!(clean_start || self.id.is_some(), "a session has a name: give --id");
        let mut options = Options::new(&self.url)
            .version(self.mqtt)
            .client_id(self.id.as_deref().unwrap_or_default())
            .clean_start(clean_start)
            .session_expiry(session_expiry)
            .keep_alive(Duration::from_secs(self.keep_alive.into()))
            .timeout(Duration::from_secs(self.patience.into()));
        if let Some(user) = &self.user {
            options = options.user(user, self.password.as_deref().unwrap_or_default());
        }
        if self.insecure {
            options = options.tls(Tls::Insecure);
        } else if let Some(file) = &self.ca {
            options = options.tls(Tls::Authority(file.clone()));
        }
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
        Client::connect(options).await.with_context(|| format!("cannot connect to {}", self.url))
    }

    /// Whether there are properties in this version of MQTT.
    pub fn has_properties(&self) -> bool {
        self.mqtt == Version::V5
    }
}

/// A runtime on this thread; the command does one thing.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the asynchronous runtime")?.block_on(work)
}

fn version(text: &str) -> Result<Version, &'static str> {
    match text {
        "5" | "5.0" => Ok(Version::V5),
        "3.1.1" | "4" => Ok(Version::V4),
        _ => Err("it is 5 or 3.1.1"),
    }
}

/// A QoS on the command line.
pub fn qos(text: &str) -> Result<QoS, &'static str> {
    match text {
        "0" => Ok(QoS::AtMostOnce),
        "1" => Ok(QoS::AtLeastOnce),
        "2" => Ok(QoS::ExactlyOnce),
        _ => Err("it is 0 (at most once), 1 (at least once) or 2 (exactly once)"),
    }
}

/// A user property on the command line.
pub fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if let Some(long) = [name, value].into_iter().find(|part| part.len() > usize::from(u16::MAX)) {
        return Err(format!("a name or value has at most 65,535 bytes, not {}", long.len()));
    }
    Ok((name.to_owned(), value.to_owned()))
}
