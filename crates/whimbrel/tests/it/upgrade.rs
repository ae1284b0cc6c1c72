//! What an earlier version has left in its data directory is gone on with by this one: sessions,
//! positions, what is in flight, retained messages, numbers of publishers; and what brokers know of
//! each other's. The directories in `recorded/` and `recorded_overlay/` were written by the version
//! that they are named after, and stay as they are; `WHIMBREL_RECORD=PATH cargo test --profile
//! quick -p whimbrel --test it upgrade` makes those of the version of that program, before it is
//! released.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use whimbrel_client::{Client, Event, Events, Message, Options, Publish, QoS, Subscription};

use crate::common::{Ends, ready, ready_with, text, url_of};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(30);

/// The program that is tried.
const THIS: &str = env!("CARGO_BIN_EXE_whimbrel");

/// Sessions last longer than recorded directories are used, s.
const EXPIRY: u32 = 300_000_000;

/// How long a probe is waited for before another one is sent.
const LOOK: Duration = Duration::from_millis(200);

/// How many messages wait for each session.
const MESSAGES: u64 = 5;

/// The number that the publisher gave last.
const NUMBER: u64 = 41;

/// Files of a directory, and how long each was: their ends, which are zeros, are not kept.
#[derive(serde::Serialize, serde::Deserialize)]
struct Index {
    files: Vec<(String, u64)>,
}

/// What versions have left: one broker, or several.
fn recorded(what: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(what)
}

/// The program that a directory is to be made of, if one is.
fn to_record() -> Option<OsString> {
    std::env::var_os("WHIMBREL_RECORD")
}

/// Which version a program is.
fn version(program: &OsStr) -> String {
    let said = Command::new(program).arg("--version").output().expect("it runs");
    let said = text(&said.stdout);
    said.split(' ').nth(1).expect("its name, then its version").trim().to_owned()
}

fn serving(program: &OsStr, place: &Path) -> Command {
    let configuration = place.join("whimbrel.toml");
    fs::write(
        &configuration,
        "[limits]\nmax_session = \"3650days\"\n[journal]\nsegment = \"1 MiB\"\nmax_log = \"32 MiB\"\n",
    )
    .expect("written");
    // Recorded long ago: the clock is far ahead of what the journal has seen.
    let mut serve = Command::new(program);
    serve.args(["serve", "--dev", "--accept-clock", "--listen-mqtt=127.0.0.1:0", "--config"]);
    serve.arg(configuration).arg("--data").arg(place.join("data"));
    serve.args(["tls", "ws", "wss", "http"].map(|listener| format!("--listen-{listener}=off")));
    serve.stdin(Stdio::null());
    serve
}

fn broker(program: &OsStr, place: &Path) -> (Ends, String) {
    let mut serve = serving(program, place);
    serve.arg("--listen-overlay=off");
    ready(serve)
}

/// A broker ends as an operator ends it.
fn end((mut serve, _): (Ends, String)) {
    let asked = Command::new("kill").args(["-TERM", &serve.0.id().to_string()]).status();
    assert!(asked.is_ok_and(|status| status.success()) && serve.0.wait().is_ok_and(|status| status.success()));
}

async fn client(url: &str, name: &str) -> (Client, Events) {
    let options = Options::new(url).client_id(name).clean_start(false).session_expiry(EXPIRY);
    Client::connect(options).await.expect("the broker is there")
}

/// A client that leaves no session behind.
async fn visitor(url: &str, name: &str) -> (Client, Events) {
    Client::connect(Options::new(url).client_id(name)).await.expect("the broker is there")
}

async fn message(events: &mut Events) -> Message {
    match tokio::time::timeout(DEADLINE, events.next()).await.expect("in time") {
        Some(Event::Message(message)) => message,
        other => panic!("no message: {other:?}"),
    }
}

const SESSIONS: [(&str, QoS); 2] = [("reader", QoS::AtLeastOnce), ("exact", QoS::ExactlyOnce)];

/// Makes the directory of a version.
async fn record(program: &OsStr) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (serve, url) = broker(program, place.path());
    for (name, qos) in SESSIONS {
        let (client, _events) = client(&url, name).await;
        let wanted = Subscription::to("depot/+").qos(qos).selector("level > 2");
        client.subscribe_to(&wanted).await.expect("granted");
        client.disconnect().await;
    }
    let (writer, _events) = client(&url, "writer").await;
    for number in NUMBER + 1 - MESSAGES..=NUMBER {
        let publish = Publish::new("depot/1", number.to_string()).qos(QoS::ExactlyOnce).sequence(number);
        writer.publish(publish.retain(number == NUMBER).property("level", "3")).await.expect("accepted");
        writer
            .publish(Publish::new("depot/1", "unwanted").qos(QoS::AtLeastOnce).property("level", "1"))
            .await
            .expect("accepted");
    }
    writer.disconnect().await;
    end((serve, url));
    keep_all(place.path(), &recorded("recorded").join(version(program)));
}

/// Keeps what a broker has left at a place.
fn keep_all(place: &Path, target: &Path) {
    let mut index = Index { files: Vec::new() };
    keep(&place.join("data"), target, "", &mut index);
    fs::write(target.join("index.json"), serde_json::to_string_pretty(&index).expect("JSON")).expect("written");
}

/// Keeps the files of a directory without the zeros at their ends.
fn keep(from: &Path, to: &Path, below: &str, index: &mut Index) {
    fs::create_dir_all(to.join(below)).expect("a directory");
    let mut entries: Vec<_> =
        fs::read_dir(from.join(below)).expect("it is there").map(|entry| entry.expect("read")).collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = Path::new(below).join(entry.file_name()).display().to_string();
        let kind = entry.file_type().expect("it has one");
        if kind.is_dir() {
            keep(from, to, &name, index);
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).expect("read");
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            fs::write(to.join(&name), &bytes[..used]).expect("written");
            index.files.push((name, bytes.len() as u64));
        }
    }
}

/// Lays a recorded directory out as it was.
fn lay_out(from: &Path, to: &Path) {
    let text = fs::read_to_string(from.join("index.json")).expect("its index");
    let index: Index = serde_json::from_str(&text).expect("JSON");
    for (name, length) in index.files {
        let path = to.join(&name);
        fs::create_dir_all(path.parent().expect("it is in the directory")).expect("made");
        fs::copy(from.join(&name), &path).expect("copied");
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(length))
            .expect("as long as it was");
    }
}

/// A session is there, and gets what has waited for it, in order.
async fn has_waited(url: &str, (name, qos): (&str, QoS), of_version: &impl Display) -> (Client, Events) {
    let (reader, mut events) = client(url, name).await;
    assert!(reader.session_present(), "{of_version}: the session of {name}");
    for number in NUMBER + 1 - MESSAGES..=NUMBER {
        let message = message(&mut events).await;
        assert_eq!(message.payload, number.to_string().into_bytes(), "{of_version}: {name}");
        assert_eq!(message.qos, qos, "{of_version}: {name}");
    }
    (reader, events)
}

/// A new client gets what is retained.
async fn comes_late(url: &str, of_version: &impl Display) -> (Client, Events) {
    let (late, mut events) = client(url, "late").await;
    late.subscribe_to(&Subscription::to("depot/#").qos(QoS::AtLeastOnce)).await.expect("granted");
    let retained = message(&mut events).await;
    assert_eq!((&retained.payload[..], retained.retain), (&b"41"[..], true), "{of_version}: the retained message");
    (late, events)
}

/// The publisher repeats its last number, and goes on with the next.
async fn goes_on_publishing(url: &str) {
    let (writer, _events) = client(url, "writer").await;
    for (number, payload) in [(NUMBER, "again"), (NUMBER + 1, "next")] {
        let publish = Publish::new("depot/1", payload).qos(QoS::AtLeastOnce).sequence(number).property("level", "9");
        writer.publish(publish).await.expect("acknowledged");
    }
}

/// The repeat does not come.
async fn is_next((_, events): &mut (Client, Events), of_version: &impl Display) {
    assert_eq!(&message(events).await.payload[..], b"next", "{of_version}: what was numbered before is known");
}

#[tokio::test]
async fn what_earlier_versions_have_left_is_gone_on_with() {
    if let Some(program) = to_record() {
        record(&program).await;
    }
    let mut versions = 0;
    for version in fs::read_dir(recorded("recorded")).expect("recorded directories") {
        let version = version.expect("read").path();
        let place = tempfile::tempdir().expect("a temporary directory");
        lay_out(&version, &place.path().join("data"));
        let (_serve, url) = broker(THIS.as_ref(), place.path());
        let of_version = version.display();
        for session in SESSIONS {
            has_waited(&url, session, &of_version).await;
        }
        let mut late = comes_late(&url, &of_version).await;
        goes_on_publishing(&url).await;
        is_next(&mut late, &of_version).await;
        versions += 1;
    }
    assert!(versions > 0, "there is at least one");
}

/// Three brokers, each of which dials those before it: where their data are, and their clients'
/// URLs.
struct Three {
    places: [TempDir; 3],
    running: Vec<(Ends, String)>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Three {
    fn new() -> Three {
        Three { places: NAMES.map(|_| tempfile::tempdir().expect("a temporary directory")), running: Vec::new() }
    }

    /// Starts them, and waits until what is published at the last one comes to clients of all.
    async fn start(&mut self, program: &OsStr) {
        let mut peers: Vec<String> = Vec::new();
        for (place, name) in self.places.iter().zip(NAMES) {
            let mut serve = serving(program, place.path());
            serve.args(["--name", name, "--overlay-links", "0", "--listen-overlay=127.0.0.1:0"]);
            peers.iter().for_each(|peer| {
                serve.args(["--peer", peer]);
            });
            let (serve, said) = ready_with(serve);
            peers.push(said["overlay"].as_str().expect("it listens").to_owned());
            self.running.push((serve, url_of(&said)));
        }
        let mut heard = Vec::new();
        for (number, (_, url)) in self.running.iter().enumerate() {
            let (client, events) = visitor(url, &format!("probe-{number}")).await;
            client.subscribe_to(&Subscription::to("probe")).await.expect("granted");
            heard.push((client, events));
        }
        for (_, events) in &mut heard {
            let (prober, _events) = visitor(self.url(2), "prober").await;
            let mut tries = 0;
            loop {
                prober.publish(Publish::new("probe", "")).await.expect("accepted");
                if tokio::time::timeout(LOOK, events.next()).await.is_ok() {
                    break;
                }
                tries += 1;
                assert!(LOOK * tries < DEADLINE, "the brokers are linked");
            }
            prober.disconnect().await;
        }
        for (client, _) in heard {
            client.disconnect().await;
        }
    }

    fn url(&self, number: usize) -> &str {
        &self.running[number].1
    }

    fn end(&mut self) {
        self.running.drain(..).for_each(end);
    }
}

/// Makes the directories of three brokers of a version.
async fn record_three(program: &OsStr) {
    let mut three = Three::new();
    three.start(program).await;
    for ((name, qos), at) in OF_THREE.into_iter().zip(BEFORE) {
        let (client, _events) = client(three.url(at), name).await;
        client.subscribe_to(&Subscription::to("depot/+").qos(qos).selector("level > 2")).await.expect("granted");
        client.disconnect().await;
    }
    // The last one has moved.
    let (moved, _events) = client(three.url(1), OF_THREE[2].0).await;
    assert!(moved.session_present(), "it has moved");
    moved.disconnect().await;
    for number in NUMBER + 1 - MESSAGES..=NUMBER {
        // The publisher moves at its last one.
        let (writer, _events) = client(three.url(if number == NUMBER { 1 } else { 2 }), "writer").await;
        let publish = Publish::new("depot/1", number.to_string()).qos(QoS::ExactlyOnce).sequence(number);
        writer.publish(publish.retain(number == NUMBER).property("level", "3")).await.expect("accepted");
        writer.disconnect().await;
    }
    three.end();
    for (place, name) in three.places.iter().zip(NAMES) {
        keep_all(place.path(), &recorded("recorded_overlay").join(version(program)).join(name));
    }
}

/// Sessions of three brokers, where they began, and where they go on.
const OF_THREE: [(&str, QoS); 3] =
    [("reader", QoS::AtLeastOnce), ("exact", QoS::ExactlyOnce), ("moved", QoS::AtLeastOnce)];
const BEFORE: [usize; 3] = [0, 1, 0];
const AFTER: [usize; 3] = [1, 1, 2];

#[tokio::test]
async fn what_three_brokers_of_earlier_versions_have_left_is_gone_on_with_at_any_of_them() {
    if let Some(program) = to_record() {
        record_three(&program).await;
    }
    let mut versions = 0;
    for version in fs::read_dir(recorded("recorded_overlay")).expect("recorded directories") {
        let version = version.expect("read").path();
        let mut three = Three::new();
        for (place, name) in three.places.iter().zip(NAMES) {
            lay_out(&version.join(name), &place.path().join("data"));
        }
        three.start(THIS.as_ref()).await;
        let of_version = version.display();
        let mut readers = Vec::new();
        for (session, at) in OF_THREE.into_iter().zip(AFTER) {
            readers.push(has_waited(three.url(at), session, &of_version).await);
        }
        readers.push(comes_late(three.url(0), &of_version).await);
        // Its number is known where it has never been.
        goes_on_publishing(three.url(0)).await;
        for reader in &mut readers {
            is_next(reader, &of_version).await;
        }
        versions += 1;
    }
    assert!(versions > 0, "there is at least one");
}
