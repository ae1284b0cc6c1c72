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
use serde::de::DeserializeOwned;
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
    /// A server answers, and has no JetStream: it keeps no copy.
    #[error(
        "the engine's server at {address} has no JetStream: unless it has just started, add `jetstream {{}}` to its \
         configuration"
    )]
    NoJetStream {
        /// Its monitoring address.
        address: String,
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
    /// It has no JetStream, or not yet: monitoring answers before JetStream is there.
    #[serde(rename = "no_jetstream")]
    NoJetStream {
        /// Its random name.
        id: String,
    },
    /// It does not answer.
    Silent {
        /// Why.
        why: String,
    },
}

/// A server's answer to `/varz`, as far as it matters. The settings of JetStream there are those of
/// the moment of its first answer: none, if that came before JetStream was there.
#[derive(Debug, Deserialize)]
struct Varz {
    server_id: String,
    #[serde(default)]
    server_name: String,
    version: String,
    max_payload: u64,
}

/// A server's answer to `/jsz`, as far as it matters: JetStream as it is now.
#[derive(Debug, Deserialize)]
struct Jsz {
    server_id: String,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    config: JetStreamConfig,
}

#[derive(Debug, Default, Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
}

impl Varz {
    fn seen(self, jetstream: &Jsz) -> SeenSettings {
        if self.server_id != jetstream.server_id {
            return SeenSettings::Silent { why: "another server answers there each time".to_owned() };
        }
        let wrong = self.wrong(&jetstream.config);
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
    /// One is set up wrongly, or has no JetStream, or most do not answer.
    pub(crate) async fn check(&self) -> Result<(), ServersError> {
        let (mut found, mut names) = (BTreeSet::new(), BTreeSet::new());
        let (mut silent, mut wrong, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for SeenServer { address, seen } in self.look().await {
            match seen {
                SeenSettings::Settings { id, name, wrong: fault, .. } => {
                    wrong.extend(fault.map(|wrong| ServersError::Wrong { address, wrong }));
                    found.insert(id);
                    names.insert(name);
                }
                SeenSettings::NoJetStream { .. } => without.push(ServersError::NoJetStream { address }),
                SeenSettings::Silent { why } => silent.push(format!("{address}: {why}")),
            }
        }
        let untold = silent.len() + without.len();
        *self.account.lock() = MonitorAccount { wrong: wrong.len() as u64, silent: untold as u64 };
        *self.names.lock() = names;
        if let Some(error) = wrong.into_iter().chain(without).next() {
            return Err(error);
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

    /// Looks at all servers until most have told their settings, and none that answers is without
    /// JetStream, at most for [`REACHED_WITHIN`].
    ///
    /// # Errors
    /// As [`Monitor::check`].
    pub(crate) async fn check_at_start(&self) -> Result<(), ServersError> {
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            match self.check().await {
                Err(error) if error.may_pass() && begun.elapsed() < REACHED_WITHIN => {
                    if !is_told {
                        tracing::info!(%error, within = ?REACHED_WITHIN, "the engine's servers are not ready yet");
                    }
                    is_told = true;
                    sleep(TRIES_EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Asks all servers for their settings.
    pub(super) async fn look(&self) -> Vec<SeenServer> {
        let ask = |address: &String| {
            let address = address.clone();
            async move {
                let seen = settings(&address).await.unwrap_or_else(|why| SeenSettings::Silent { why });
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
                Err(error) if error.may_pass() && last.as_ref() != Err(error) => tracing::error!(
                    %error,
                    "settings of the engine's servers are not known (`whimbrel_engine_servers_silent`)"
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

impl ServersError {
    /// Whether it may be over in a moment: servers that start do not answer, or have no JetStream.
    fn may_pass(&self) -> bool {
        matches!(self, ServersError::NoJetStream { .. } | ServersError::Silent { .. })
    }
}

/// Asks a server for its settings: first for JetStream, as `/varz` would not tell its settings ever
/// after if it were asked before JetStream is there.
async fn settings(address: &str) -> Result<SeenSettings, String> {
    let jetstream: Jsz = ask(address, "/jsz").await?;
    if jetstream.disabled {
        return Ok(SeenSettings::NoJetStream { id: jetstream.server_id });
    }
    Ok(ask::<Varz>(address, "/varz").await?.seen(&jetstream))
}

async fn ask<T: DeserializeOwned>(address: &str, path: &str) -> Result<T, String> {
    let body = timeout(ANSWER_WITHIN, get(address, path))
        .await
        .map_err(|_| format!("no answer within {ANSWER_WITHIN:?}"))??;
    serde_json::from_slice(&body).map_err(|error| format!("no answer of a NATS server: {error}"))
}

async fn get(address: &str, path: &str) -> Result<Vec<u8>, String> {
    let uri: Uri = address.parse().map_err(|error| format!("{error}"))?;
    let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(PORT));
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = Request::get(path).header(HOST, format!("{host}:{port}")).body(Body::empty());
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn wrong(version: &str, max_payload: u64, jetstream: &str) -> Option<String> {
        let varz = format!(r#"{{"server_id":"N1","version":"{version}","max_payload":{max_payload}}}"#);
        let jsz = format!(r#"{{"server_id":"N1","config":{jetstream}}}"#);
        let varz: Varz = serde_json::from_str(&varz).expect("it is JSON");
        let seen = varz.seen(&serde_json::from_str(&jsz).expect("it is JSON"));
        let SeenSettings::Settings { wrong, .. } = seen else { panic!("it tells no settings: {seen:?}") };
        wrong
    }

    #[test]
    fn each_setting_that_loses_records_is_noticed() {
        let (always, later) = (r#"{"sync_always":true}"#, r#"{"sync_interval":120}"#);
        assert_eq!(wrong("2.15.3", 8 << 20, always), None);
        assert_eq!(wrong("2.16.0", PAYLOAD_MIN, always), None);
        let tells = |wrong: Option<String>, what: &str| {
            let wrong = wrong.expect("it is wrong");
            assert!(wrong.contains(what), "{wrong}");
        };
        tells(wrong("2.15.2", 8 << 20, always), "2.15.3");
        tells(wrong("2.15.3-RC.1", 8 << 20, always), "2.15.3");
        tells(wrong("new", 8 << 20, always), "version new");
        tells(wrong("2.15.3", 8 << 20, later), "sync_interval: always");
        tells(wrong("2.15.3", 1 << 20, always), "max_payload: 8MB");
    }

    /// A server whose JetStream is there at the second look, as one that starts.
    #[tokio::test]
    async fn a_server_that_has_no_jetstream_yet_is_waited_for_and_not_asked_for_more() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", server.local_addr().expect("it is bound"));
        let answers = tokio::spawn(async move {
            let id = r#""server_id":"N1""#;
            let plain = [("jsz", format!(r#"{{{id},"disabled":true,"config":{{}}}}"#))];
            let ready = [
                ("jsz", format!(r#"{{{id},"config":{{"sync_always":true}}}}"#)),
                ("varz", format!(r#"{{{id},"server_name":"n1","version":"2.15.3","max_payload":8388608}}"#)),
            ];
            for (path, body) in plain.into_iter().chain(ready) {
                let (mut stream, _) = server.accept().await.expect("it is asked");
                let mut asked = [0; 1024];
                let length = stream.read(&mut asked).await.expect("it is asked");
                let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
                assert!(asked.starts_with(&format!("GET /{path} ")), "{asked}");
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.expect("it is read");
            }
        });
        let monitor = Monitor::new(vec![address.clone()]);
        let error = monitor.check().await.expect_err("it has no JetStream");
        assert_eq!((&error, error.may_pass()), (&ServersError::NoJetStream { address: address.clone() }, true));
        assert_eq!(monitor.account(), MonitorAccount { wrong: 0, silent: 1 });
        let [SeenServer { seen, .. }] = &monitor.look().await[..] else { panic!("one server") };
        let (id, name, version) = ("N1".to_owned(), "n1".to_owned(), "2.15.3".to_owned());
        assert_eq!(*seen, SeenSettings::Settings { id, name, version, wrong: None });
        answers.await.expect("it was asked for nothing else");
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
