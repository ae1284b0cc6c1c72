//! What an earlier version has left in its data directory is gone on with by this one: sessions, positions, what is in flight, retained messages, numbers of
//! publishers. The directories in `recorded/` were written by the version that they are named after, and stay as they are; `WHIMBREL_RECORD=1 cargo
//! test --profile quick -p whimbrel --test it upgrade` makes the one of this version, before it is released.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use whimbrel_client::{Client, Event, Events, Message, Options, Publish, QoS, Subscription};

use crate::common::{Ends, ready, whimbrel};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(30);

/// Sessions last longer than recorded directories are used, s.
const EXPIRY: u32 = 300_000_000;

/// How many messages wait for each session.
const MESSAGES: u64 = 5;

/// The number that the publisher gave last.
const NUMBER: u64 = 41;

/// Files of a directory, and how long each was: their ends, which are zeros, are not kept.
#[derive(serde::Serialize, serde::Deserialize)]
struct Index {
    files: Vec<(String, u64)>,
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

fn broker(place: &Path) -> (Ends, String) {
    let configuration = place.join("whimbrel.toml");
    fs::write(
        &configuration,
        "[limits]\nmax_session = \"3650days\"\n[journal]\nsegment = \"1 MiB\"\nmax_log = \"32 MiB\"\n",
    )
    .expect("written");
    // Recorded long ago: the clock is far ahead of what the journal has seen.
    let mut serve: Command = whimbrel(&["serve", "--dev", "--accept-clock", "--listen-mqtt=127.0.0.1:0", "--config"]);
    serve.arg(configuration).arg("--data").arg(place.join("data"));
    serve.args(["tls", "ws", "wss", "http", "overlay"].map(|listener| format!("--listen-{listener}=off")));
    serve.stdin(Stdio::null());
    ready(serve)
}

async fn client(url: &str, name: &str) -> (Client, Events) {
    let options = Options::new(url).client_id(name).clean_start(false).session_expiry(EXPIRY);
    Client::connect(options).await.expect("the broker is there")
}

async fn message(events: &mut Events) -> Message {
    match tokio::time::timeout(DEADLINE, events.next()).await.expect("in time") {
        Some(Event::Message(message)) => message,
        other => panic!("no message: {other:?}"),
    }
}

const SESSIONS: [(&str, QoS); 2] = [("reader", QoS::AtLeastOnce), ("exact", QoS::ExactlyOnce)];

/// Makes the directory of this version.
async fn record() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (mut serve, url) = broker(place.path());
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
    let asked = Command::new("kill").args(["-TERM", &serve.0.id().to_string()]).status();
    assert!(asked.is_ok_and(|status| status.success()) && serve.0.wait().is_ok_and(|status| status.success()));
    let target = recorded().join(env!("CARGO_PKG_VERSION"));
    let mut index = Index { files: Vec::new() };
    keep(&place.path().join("data"), &target, "", &mut index);
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

#[tokio::test]
async fn what_earlier_versions_have_left_is_gone_on_with() {
    if std::env::var_os("WHIMBREL_RECORD").is_some() {
        record().await;
    }
    let mut versions = 0;
    for version in fs::read_dir(recorded()).expect("recorded directories") {
        let version = version.expect("read").path();
        let place = tempfile::tempdir().expect("a temporary directory");
        lay_out(&version, &place.path().join("data"));
        let (_serve, url) = broker(place.path());
        let of_version = version.display();
        for (name, qos) in SESSIONS {
            let (reader, mut events) = client(&url, name).await;
            assert!(reader.session_present(), "{of_version}: the session of {name}");
            for number in NUMBER + 1 - MESSAGES..=NUMBER {
                let message = message(&mut events).await;
                assert_eq!(message.payload, number.to_string().into_bytes(), "{of_version}: {name}");
                assert_eq!(message.qos, qos, "{of_version}: {name}");
            }
        }
        let (late, mut events) = client(&url, "late").await;
        late.subscribe_to(&Subscription::to("depot/#").qos(QoS::AtLeastOnce)).await.expect("granted");
        let retained = message(&mut events).await;
        assert_eq!((&retained.payload[..], retained.retain), (&b"41"[..], true), "{of_version}: the retained message");
        let (writer, _events) = client(&url, "writer").await;
        for (number, payload) in [(NUMBER, "again"), (NUMBER + 1, "next")] {
            let publish =
                Publish::new("depot/1", payload).qos(QoS::AtLeastOnce).sequence(number).property("level", "9");
            writer.publish(publish).await.expect("acknowledged");
        }
        assert_eq!(&message(&mut events).await.payload[..], b"next", "{of_version}: what was numbered before is known");
        versions += 1;
    }
    assert!(versions > 0, "there is at least one");
}
