//! Looks at the settings of an engine's servers, which decide whether they keep what they
//! acknowledge: at the start, at each new connection, and once a minute.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::HOST;
use axum::http::{Request, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use semver::Version;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::{REACHED_WITHIN, REPLICAS, TRIES_EVERY};

/// How often the servers are looked at.
const CHECKED_EVERY: Duration = Duration::from_secs(60);

/// How long one answer is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The longest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The oldest version of a server whose acknowledgements are believed.
const VERSION_MIN: Version = Version::new(2, 15, 3);

/// The least size of the longest message that a server takes, bytes.
const PAYLOAD_MIN: u64 = 4_000_000;

/// Why a server without JetStream tells no settings. Monitoring is there before JetStream is.
const NO_JETSTREAM: &str = "it has no JetStream: unless it has just started, add `jetstream {}` to its configuration";

/// The port of monitoring, unless an address has one.
const PORT: u16 = 8222;

/// The servers of an engine, as their monitoring shows them.
#[derive(Debug)]
pub(crate) struct Monitor {
    addresses: Vec<String>,
    account: Mutex<MonitorAccount>,
    /// The names of the servers that told their settings.
    names: Mutex<BTreeSet<String>>,
    /// Notified when the servers are to be looked at.
    asked: Notify,
}

/// What the last look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MonitorAccount {
    /// Servers that do not keep what they acknowledge, or cannot be told to.
    pub wrong: u64,
    /// Addresses that told no settings.
    pub silent: u64,
}

/// Why an engine's servers are not to be trusted with a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServersError {
    /// A server has a setting under which it may lose what it has acknowledged.
    #[error("the engine's server at {address} {}", wrong.as_str())]
    Wrong {
        /// Its monitoring address.
        address: String,
        /// What is wrong, and what to do.
        wrong: String,
    },
    /// Servers that have copies are not looked at.
    #[error(
        "servers of the engine have a copy of the stream whose settings are not looked at ({}): list the monitoring address of \
         each server in engine.monitor",
        others.join(", ")
    )]
    Unwatched {
        /// Their names.
        others: Vec<String>,
    },
    /// Too few servers tell their settings.
    #[error(
        "only {told} of at least {wanted} servers of the engine tell their settings ({}): list the monitoring address of each server in engine.monitor \
         (`http: 0.0.0.0:8222` in its configuration), and see that it can be reached",
        silent.join("; ")
    )]
    Silent {
        /// Servers that told them.
        told: usize,
        /// Servers that must: most of the copies.
        wanted: usize,
        /// The others, and why they did not.
        silent: Vec<String>,
    },
}

/// A server, as its monitoring shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeenServer {
    /// Its monitoring address.
    pub address: String,
    /// What it tells.
    #[serde(flatten)]
    pub seen: SeenSettings,
}

/// What a server's monitoring tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenSettings {
    /// Its settings.
    Settings {
        /// Its random name.
        id: String,
        /// The name that it was given.
        name: String,
        /// Its version.
        version: String,
        /// Why its acknowledgements cannot be relied on, and what to do.
        wrong: Option<String>,
    },
    /// It tells none: it does not answer, or has no JetStream, so that it acknowledges nothing.
    Silent {
        /// Why.
        why: String,
    },
}

/// A server's answer to `/varz`, as far as it matters.
#[derive(Debug, Deserialize)]
struct Varz {
    server_id: String,
    #[serde(default)]
    server_name: String,
    version: String,
    max_payload: u64,
    #[serde(default)]
    jetstream: JetStream,
}

#[derive(Debug, Default, Deserialize)]
struct JetStream {
    config: Option<JetStreamConfig>,
}

#[derive(Debug, Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
}

impl Varz {
    fn seen(self) -> SeenSettings {
        let Some(config) = &self.jetstream.config else { return SeenSettings::Silent { why: NO_JETSTREAM.to_owned() } };
        let wrong = self.wrong(config);
        SeenSettings::Settings { id: self.server_id, name: self.server_name, version: self.version, wrong }
    }

    /// What is wrong with a server.
    fn wrong(&self, config: &JetStreamConfig) -> Option<String> {
        let Varz { version, max_payload, .. } = self;
        if Version::parse(version).map_or(true, |version| version < VERSION_MIN) {
            return Some(format!(
                "is version {version}, which may lose what it has acknowledged: install {VERSION_MIN} or later"
            ));
        }
        if !config.sync_always {
            return Some(
                "acknowledges before it has synced, so a loss of power loses what it has acknowledged: write \
                 `sync_interval: always` into `jetstream {}` of its configuration"
                    .to_owned(),
            );
        }
        let is_short = *max_payload < PAYLOAD_MIN;
        is_short.then(|| {
            format!("takes messages of {max_payload} bytes at most: write `max_payload: 8MB` into its configuration")
        })
    }
}

impl Monitor {
    /// A monitor that has not looked yet.
    pub(crate) fn new(addresses: Vec<String>) -> Arc<Monitor> {
        Arc::new(Monitor { addresses, account: Mutex::default(), names: Mutex::default(), asked: Notify::new() })
    }

    /// What the last look found.
    pub(crate) fn account(&self) -> MonitorAccount {
        *self.account.lock()
    }

    /// Has the servers looked at soon.
    pub(super) fn ask(&self) {
        self.asked.notify_one();
    }

    /// Looks at all servers once.
    ///
    /// # Errors
    /// One is set up wrongly, or most tell no settings.
    pub(crate) async fn check(&self) -> Result<(), ServersError> {
        let (mut found, mut names) = (BTreeSet::new(), BTreeSet::new());
        let (mut silent, mut wrong) = (Vec::new(), Vec::new());
        for SeenServer { address, seen } in self.look().await {
            match seen {
                SeenSettings::Settings { id, name, wrong: fault, .. } => {
                    wrong.extend(fault.map(|wrong| ServersError::Wrong { address, wrong }));
                    found.insert(id);
                    names.insert(name);
                }
                SeenSettings::Silent { why } => silent.push(format!("{address}: {why}")),
            }
        }
        *self.account.lock() = MonitorAccount { wrong: wrong.len() as u64, silent: silent.len() as u64 };
        *self.names.lock() = names;
        if let Some(wrong) = wrong.into_iter().next() {
            return Err(wrong);
        }
        let (told, wanted) = (found.len(), REPLICAS / 2 + 1);
        if told < wanted { Err(ServersError::Silent { told, wanted, silent }) } else { Ok(()) }
    }

    /// Checks that the servers which have the copies of a stream are those that are looked at: as
    /// many others may have one as told no settings.
    ///
    /// # Errors
    /// Others have copies.
    pub(crate) fn check_copies(&self, servers: Vec<String>) -> Result<(), ServersError> {
        let names = self.names.lock();
        let others: Vec<String> = servers.into_iter().filter(|server| !names.contains(server)).collect();
        if others.len() as u64 <= self.account().silent { Ok(()) } else { Err(ServersError::Unwatched { others }) }
    }

    /// Looks at all servers until most have told their settings, at most for [`REACHED_WITHIN`].
    ///
    /// # Errors
    /// As [`Monitor::check`].
    pub(crate) async fn check_at_start(&self) -> Result<(), ServersError> {
        let begun = Instant::now();
        loop {
            match self.check().await {
                Err(ServersError::Silent { .. }) if begun.elapsed() < REACHED_WITHIN => sleep(TRIES_EVERY).await,
                outcome => return outcome,
            }
        }
    }

    /// Asks all servers for their settings.
    pub(super) async fn look(&self) -> Vec<SeenServer> {
        let ask = |address: &String| {
            let address = address.clone();
            async move {
                let seen = match varz(&address).await {
                    Ok(varz) => varz.seen(),
                    Err(why) => SeenSettings::Silent { why },
                };
                SeenServer { address, seen }
            }
        };
        futures_util::future::join_all(self.addresses.iter().map(ask)).await
    }

    /// Looks at the servers from time to time; what is wrong is an error in the log.
    pub(crate) async fn watch(self: Arc<Monitor>) {
        let mut last = Ok(());
        loop {
            // Whether it was asked or the time has come.
            let _ = timeout(CHECKED_EVERY, self.asked.notified()).await;
            let outcome = self.check().await;
            match &outcome {
                Ok(()) if last.is_err() => tracing::info!("the engine's servers are as they must be again"),
                Err(error @ ServersError::Silent { .. }) if last.as_ref() != Err(error) => tracing::error!(
                    %error,
                    "the settings of most of the engine's servers are not known (`whimbrel_engine_servers_silent`)"
                ),
                Err(error) if last.as_ref() != Err(error) => tracing::error!(
                    %error,
                    "what the engine acknowledges may be lost (`whimbrel_engine_servers_wrong`)"
                ),
                _ => {}
            }
            last = outcome;
        }
    }
}

/// Asks a server for its settings.
async fn varz(address: &str) -> Result<Varz, String> {
    let body =
        timeout(ANSWER_WITHIN, get(address)).await.map_err(|_| format!("no answer within {ANSWER_WITHIN:?}"))??;
    serde_json::from_slice(&body).map_err(|error| format!("no answer of a NATS server: {error}"))
}

async fn get(address: &str) -> Result<Vec<u8>, String> {
    let uri: Uri = address.parse().map_err(|error| format!("{error}"))?;
    let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(PORT));
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = Request::get("/varz").header(HOST, format!("{host}:{port}")).body(Body::empty());
    let request = request.map_err(|error| error.to_string())?;
    // It ends with the sender.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if !answer.status().is_success() {
        return Err(format!("it answers {}", answer.status()));
    }
    let body = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
    body.map(|body| body.to_vec()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(json: &str) -> SeenSettings {
        serde_json::from_str::<Varz>(json).expect("it is JSON").seen()
    }

    fn wrong(json: &str) -> Option<String> {
        let SeenSettings::Settings { wrong, .. } = seen(json) else { panic!("it tells no settings: {json}") };
        wrong
    }

    fn answer(version: &str, max_payload: u64, jetstream: &str) -> String {
        format!(r#"{{"server_id":"N1","version":"{version}","max_payload":{max_payload},"jetstream":{jetstream}}}"#)
    }

    #[test]
    fn each_setting_that_loses_records_is_noticed() {
        let (always, later) = (r#"{"config":{"sync_always":true}}"#, r#"{"config":{"sync_interval":120}}"#);
        assert_eq!(wrong(&answer("2.15.3", 8 << 20, always)), None);
        assert_eq!(wrong(&answer("2.16.0", PAYLOAD_MIN, always)), None);
        let tells = |json: &str, what: &str| {
            let wrong = wrong(json).expect("it is wrong");
            assert!(wrong.contains(what), "{wrong}");
        };
        tells(&answer("2.15.2", 8 << 20, always), "2.15.3");
        tells(&answer("2.15.3-RC.1", 8 << 20, always), "2.15.3");
        tells(&answer("new", 8 << 20, always), "version new");
        tells(&answer("2.15.3", 8 << 20, later), "sync_interval: always");
        tells(&answer("2.15.3", 1 << 20, always), "max_payload: 8MB");
    }

    #[test]
    fn a_server_that_has_no_jetstream_yet_is_waited_for() {
        let silent = SeenSettings::Silent { why: NO_JETSTREAM.to_owned() };
        assert_eq!(seen(&answer("2.15.3", 8 << 20, "{}")), silent);
    }

    #[tokio::test]
    async fn servers_that_do_not_answer_are_named() {
        // Nothing listens on the first; the second is no HTTP server.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let closed = silent.local_addr().expect("it is bound");
        drop(silent);
        let monitor = Monitor::new(vec![format!("http://{closed}")]);
        let error = monitor.check().await.expect_err("it does not answer");
        assert!(error.to_string().contains(&closed.to_string()), "{error}");
        assert!(error.to_string().contains("only 0 of at least 2"), "{error}");
        assert_eq!(monitor.account(), MonitorAccount { wrong: 0, silent: 1 });
    }
}
