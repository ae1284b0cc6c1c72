//! What an operator does with a broker and its data directory: `whimbrel sessions`, `streams`,
//! `journal check`, `backup` and `restore`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use whimbrel_client::{
    Client, Durability, Event, Events, Gap, GapReason, Notice, Options, Position, Publish, QoS, Start, Subscription,
    Will,
};

use crate::common::{Ends, ready, text, whimbrel};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(60);

/// A broker's configuration with a small journal.
const SMALL: &str = "dev = true\nlisten_mqtt = \"127.0.0.1:0\"\nlisten_tls = \"off\"\nlisten_ws = \"off\"\nlisten_wss = \"off\"\n\
                     listen_http = \"off\"\nlisten_overlay = \"off\"\n[journal]\nsegment = \"1 MiB\"\nmax_log = \"64 MiB\"\n";

/// A place for a broker: its configuration and its data.
struct Place {
    place: TempDir,
}

impl Place {
    fn new() -> Place {
        let place = tempfile::tempdir().expect("a temporary directory");
        let place = Place { place };
        place.configure(SMALL);
        place
    }

    fn configure(&self, settings: &str) {
        fs::write(self.path("whimbrel.toml"), settings).expect("written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A broker on that data directory, and its URL.
    fn broker(&self, data: &str) -> (Ends, String) {
        let mut serve = whimbrel(&["serve", "--config"]);
        serve.arg(self.path("whimbrel.toml")).arg("--data").arg(self.path(data)).stdin(Stdio::null());
        ready(serve)
    }

    /// A command that speaks to the broker on that data directory.
    fn ask(&self, data: &str, arguments: &[&str]) -> Output {
        let mut command = whimbrel(arguments);
        command.arg("--data").arg(self.path(data)).current_dir(self.place.path().join(".."));
        command.output().expect("the command runs")
    }

    fn json(&self, data: &str, arguments: &[&str]) -> Value {
        let answer = self.ask(data, arguments);
        assert!(answer.status.success(), "{arguments:?}: {}", text(&answer.stderr));
        serde_json::from_slice(&answer.stdout).expect("it is JSON")
    }
}

async fn connect(url: &str, name: &str) -> (Client, Events) {
    let options = Options::new(url).client_id(name).clean_start(false).session_expiry(3600);
    Client::connect(options).await.expect("the broker is there")
}

/// A session with a durable subscription that has left.
async fn leave_durable(url: &str, name: &str, subscription: &Subscription) {
    let (client, _events) = connect(url, name).await;
    let answer = client.subscribe_to(subscription).await.expect("granted");
    assert!(answer.reasons.iter().all(|reason| !reason.is_error()), "{answer:?}");
    client.disconnect().await;
}

async fn next(events: &mut Events) -> Event {
    tokio::time::timeout(DEADLINE, events.next()).await.expect("in time").expect("the connection has an end")
}

/// Tries until it is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "{what}");
        tokio::task::yield_now().await;
    }
}

fn wait_killed(mut broker: Ends) {
    broker.0.kill().expect("it runs");
    broker.0.wait().expect("it has ended");
}

/// Publishes numbers one after the other until it is stopped; how many were accepted.
struct Load {
    accepted: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    async fn start(url: &str, name: &str, topic: &'static str) -> Load {
        let (client, events) = connect(url, name).await;
        let (accepted, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (accepted.clone(), stop.clone());
        let task = tokio::spawn(async move {
            // Without it the connection would end.
            let _events = events;
            for number in 1_u64.. {
                if stopped.load(Ordering::SeqCst) {
                    return client.disconnect().await;
                }
                let publish = Publish::new(topic, format!("{number} {}", "x".repeat(400))).qos(QoS::AtLeastOnce);
                if client.publish(publish).await.is_err() {
                    return;
                }
                count.store(number, Ordering::SeqCst);
            }
        });
        Load { accepted, stop, task }
    }

    fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    async fn reach(&self, number: u64) {
        until("publishing goes on", || self.accepted() >= number).await;
    }

    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("it ends");
        self.accepted.load(Ordering::SeqCst)
    }
}

fn number(payload: &[u8]) -> u64 {
    let text = std::str::from_utf8(payload).expect("text");
    text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn every_command_says_when_there_is_no_broker() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).expect("made");
    for arguments in [
        &["sessions", "list"][..],
        &["sessions", "show", "a"],
        &["sessions", "drop", "a"],
        &["streams"],
        &["topology"],
        &["status"],
        &["interest"],
        &["trace", "10:7"],
        &["backup", "never"],
    ] {
        let answer = place.ask("empty", arguments);
        let said = text(&answer.stderr);
        assert_eq!(answer.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("no broker listens on") && said.contains("control.sock"), "{arguments:?}: {said}");
        assert_eq!(text(&answer.stdout), "");
    }
    let mut nowhere = whimbrel(&["streams"]);
    let answer = nowhere.current_dir(place.path("empty")).output().expect("it runs");
    assert!(text(&answer.stderr).contains("which broker?"), "{}", text(&answer.stderr));
    assert!(!place.path("never").exists() && !place.path("never.unfinished").exists());

    let check = whimbrel(&["journal", "check"]).arg(place.path("empty")).output().expect("it runs");
    assert_eq!(check.status.code(), Some(2));
    assert!(text(&check.stderr).contains("there is no journal in"), "{}", text(&check.stderr));
    let restore = place.ask("new", &["restore", "nothing-here"]);
    assert_eq!(restore.status.code(), Some(2), "{}", text(&restore.stderr));
    assert!(!place.path("new").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replier_is_shown_as_one_also_after_a_restart() {
    let place = Place::new();
    let (broker, url) = place.broker("data");
    let plain = Subscription::to("ask/#").qos(QoS::AtLeastOnce);
    leave_durable(&url, "plain", &plain).await;
    leave_durable(&url, "replier", &plain.replier()).await;
    let check = || {
        for (client, is_replier) in [("plain", false), ("replier", true)] {
            let shown = place.json("data", &["sessions", "show", client, "--json"]);
            assert_eq!(shown["subscriptions"][0]["replier"], is_replier, "{shown}");
            let words = text(&place.ask("data", &["sessions", "show", client]).stdout);
            assert_eq!(words.contains("REPLIER"), is_replier, "{words}");
        }
    };
    check();
    wait_killed(broker);
    let _broker = place.broker("data");
    check();
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_shown_and_ended_while_messages_flow() {
    let place = Place::new();
    let (broker, url) = place.broker("data");
    let all = Subscription::to("load/#").qos(QoS::AtLeastOnce);
    leave_durable(&url, "away/größe \u{1}", &all).await;
    let (live, mut live_events) = connect(&url, "live").await;
    live.subscribe_to(&Subscription::to("load/+").qos(QoS::ExactlyOnce).selector("level > 3")).await.expect("granted");
    let load = Load::start(&url, "load", "load/1").await;
    load.reach(50).await;

    let list = place.json("data", &["sessions", "list", "--own", "--json"]);
    let ids: Vec<_> =
        list["sessions"].as_array().expect("a list").iter().map(|session| &session["client_id"]).collect();
    assert_eq!(ids, ["away/größe \u{1}", "live", "load"], "in the order of client ids");
    let away = &list["sessions"][0];
    assert_eq!((&away["connected"], &away["durable"], &away["kept"]), (&false.into(), &1.into(), &true.into()));
    assert!(away["away_since_ms"].as_u64() < away["expires_ms"].as_u64(), "{away}");
    assert!(away["lag_ms"].is_u64(), "it lacks what was published: {away}");
    let table = text(&place.ask("data", &["sessions", "list"]).stdout);
    assert!(table.contains("away/größe \\u{1}") && table.contains("3 sessions, 2 connected"), "{table}");
    assert!(!table.contains('\u{1b}'), "colours are for terminals");
    let lagging = place.json("data", &["sessions", "list", "--own", "--json", "--lagging", "--away"]);
    assert_eq!(lagging["sessions"].as_array().map(Vec::len), Some(1));

    let shown = place.json("data", &["sessions", "show", "live", "--json"]);
    let subscription = &shown["subscriptions"][0];
    assert_eq!((&subscription["filter"], &subscription["qos"]), (&"load/+".into(), &2.into()));
    assert_eq!((&subscription["selector"], &subscription["durability"]), (&"level > 3".into(), &"durable".into()));
    assert_eq!(subscription["positions"].as_array().map(Vec::len), Some(8), "{subscription}");

    assert_eq!(shown["refused_publishes"], Value::Null);
    let refused = live.publish(Publish::new("$SYS/mine", "x").qos(QoS::AtLeastOnce)).await;
    assert!(refused.is_err(), "{refused:?}");
    let shown = place.json("data", &["sessions", "show", "live", "--json"]);
    let refused = &shown["refused_publishes"];
    assert_eq!((&refused["count"], &refused["code"]), (&1.into(), &0x87.into()), "{refused}");
    let words = text(&place.ask("data", &["sessions", "show", "live"]).stdout);
    assert!(words.contains("1 message since it connected, the last to $SYS/mine: "), "{words}");

    let unknown = place.ask("data", &["sessions", "drop", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("no session with the client id \"nobody\""));
    for client in ["away/größe \u{1}", "live"] {
        let dropped = place.json("data", &["sessions", "drop", client, "--json"]);
        assert_eq!(dropped["durable"], true, "{dropped}");
    }
    match next(&mut live_events).await {
        Event::Disconnected { reason } => assert!(reason.to_string().contains("operator"), "{reason}"),
        other => panic!("{other:?}"),
    }
    // No session wants what was kept: it is given up.
    load.end().await;
    until("the journal gives it up", || {
        let streams = place.json("data", &["streams", "--own", "--json"]);
        streams["streams"].as_array().expect("a list").iter().all(|stream| stream["oldest_ms"].is_null())
    })
    .await;

    // It was durable.
    wait_killed(broker);
    let (_broker, url) = place.broker("data");
    let list = place.json("data", &["sessions", "list", "--own", "--json"]);
    assert_eq!(list["sessions"].as_array().map(Vec::len), Some(1), "the publisher's: {list}");
    let (again, _events) = connect(&url, "live").await;
    assert!(!again.session_present());
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_name_who_holds_the_journal_back() {
    let place = Place::new();
    let (_broker, url) = place.broker("data");
    leave_durable(&url, "first", &Subscription::to("load/#").qos(QoS::AtLeastOnce)).await;
    let load = Load::start(&url, "load", "load/1").await;
    load.reach(20).await;
    leave_durable(&url, "second", &Subscription::to("load/1").qos(QoS::AtLeastOnce)).await;
    let published = load.accepted() + 20;
    load.reach(published).await;
    load.end().await;
    let held_of = |streams: &serde_json::Value| -> Vec<serde_json::Value> {
        let streams = streams["streams"].as_array().expect("a list");
        streams.iter().filter(|stream| !stream["holder"].is_null()).cloned().collect()
    };
    // Who holds what is counted now and then.
    until("both are counted", || {
        held_of(&place.json("data", &["streams", "--own", "--json"]))
            .iter()
            .any(|stream| stream["holder"]["holders"] == 2)
    })
    .await;
    let streams = place.json("data", &["streams", "--own", "--json"]);
    let held = held_of(&streams);
    let [held] = &held[..] else { panic!("one publisher has one stream: {streams}") };
    let holder = &held["holder"];
    assert_eq!((&holder["client_id"], &holder["filter"]), (&"first".into(), &"load/#".into()));
    assert_eq!(holder["connected"], false);
    assert!(held["bytes"].as_u64() > Some(published * 400), "{held}");
    assert_eq!(
        (&streams["journal"]["state"], &streams["journal"]["segment_bytes"]),
        (&"open".into(), &(1 << 20).into())
    );
    let table = text(&place.ask("data", &["streams"]).stdout);
    assert!(table.contains("first load/# (away)") && table.contains("of 64 MiB that it may have"), "{table}");
}

/// All files of a directory.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("it is read").path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else if path.is_file() {
            files.insert(path.clone(), fs::read(&path).expect("it is read"));
        }
    }
    files
}

fn check(path: &Path) -> (Option<i32>, String) {
    let output = whimbrel(&["journal", "check"]).arg(path).output().expect("it runs");
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_whole_from_torn_from_damaged_and_changes_nothing() {
    let place = Place::new();
    let (broker, url) = place.broker("data");
    let data = place.path("data");
    leave_durable(&url, "reader", &Subscription::to("load/#").qos(QoS::AtLeastOnce)).await;
    let load = Load::start(&url, "load", "load/1").await;
    load.reach(200).await;
    let (code, said) = check(&data);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("in use by the broker with process number {}", broker.0.id())), "{said}");
    load.end().await;
    wait_killed(broker);

    let before = contents(&data);
    let (code, said) = check(&data);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("all is whole") && said.contains("events 0") && said.contains("remembered"), "{said}");
    assert!(contents(&data) == before, "it only looks");

    // The last frame with an event, half written.
    let (file, bytes) = before
        .iter()
        .find(|(_, bytes)| bytes.len() > 8192 && bytes[4096..8192].iter().any(|b| *b != 0))
        .expect("a segment");
    // A run of them, since a single one may be part of a checksum.
    let end = bytes.windows(16).rposition(|window| window == [b'x'; 16]).expect("a payload");
    let mut torn = bytes.clone();
    torn[end - 100..].fill(0);
    fs::write(file, &torn).expect("written");
    let (code, said) = check(&data);
    assert_eq!(code, Some(0), "a torn end is no damage: {said}");
    assert!(said.contains("torn at"), "{said}");

    // One byte of an event.
    let at = bytes.windows(16).position(|window| window == [b'x'; 16]).expect("a payload");
    let mut flipped = bytes.clone();
    flipped[at] ^= 1;
    fs::write(file, &flipped).expect("written");
    let (code, said) = check(&data);
    assert_eq!(code, Some(1), "{said}");
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(
        said.contains(&format!("{name} at ")) && said.contains("durable subscribers that need it are told a gap"),
        "{said}"
    );
    let restored = place.ask("restored", &["restore", data.to_str().expect("text")]);
    assert_eq!(restored.status.code(), Some(1), "a damaged one is not restored: {}", text(&restored.stderr));
    assert!(!place.path("restored").exists());
}

/// A subscription whose client keeps the position.
struct Keeper {
    position: Position,
    got: Vec<u64>,
    gaps: Vec<Gap>,
}

impl Keeper {
    fn subscription() -> Subscription {
        Subscription::to("load/#")
            .qos(QoS::AtLeastOnce)
            .durability(Durability::Durable)
            .acknowledged_by_token()
            .notices()
    }

    async fn begin(url: &str, name: &str) -> (Keeper, Client, Events) {
        let (client, events) = connect(url, name).await;
        let answer = client.subscribe_to(&Keeper::subscription()).await.expect("granted");
        let token = answer.tokens().next().flatten().expect("a token");
        (Keeper { position: Position::at(token), got: Vec::new(), gaps: Vec::new() }, client, events)
    }

    async fn resume(&mut self, url: &str, name: &str) -> (Client, Events) {
        let (client, events) = connect(url, name).await;
        let from = Start::After(self.position.clone());
        let answer = client.subscribe_to(&Keeper::subscription().from(from)).await.expect("granted");
        assert!(answer.reasons.iter().all(|reason| !reason.is_error()), "{answer:?}");
        self.position.resumed(answer.tokens().next().flatten().expect("a token"));
        (client, events)
    }

    /// Takes what comes until it has got that number.
    async fn take_until(&mut self, events: &mut Events, last: u64) {
        while self.got.last().is_none_or(|got| *got < last) {
            let Event::Message(message) = next(events).await else { panic!("the connection has ended") };
            match message.notice() {
                Some(Notice::Gap(gap)) => self.gaps.push(gap),
                Some(Notice::Silence { .. } | Notice::Overdue { .. } | Notice::Stalled { .. }) => {}
                None => self.got.push(number(&message.payload)),
            }
            self.position.note(&message);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_is_restored_and_what_came_after_it_is_a_gap() {
    let place = Place::new();
    let (broker, url) = place.broker("data");
    let backup = place.path("backup");
    leave_durable(&url, "broker-kept", &Subscription::to("load/#").qos(QoS::ExactlyOnce)).await;
    let (mut early, early_client, mut early_events) = Keeper::begin(&url, "early").await;
    let (mut late, late_client, mut late_events) = Keeper::begin(&url, "late").await;
    let load = Load::start(&url, "load", "load/1").await;
    early.take_until(&mut early_events, 100).await;
    early_client.abandon();

    let before = load.accepted();
    let made = place.ask("data", &["backup", backup.to_str().expect("text")]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stdout).contains("; checked"), "{}", text(&made.stdout));
    assert_eq!(check(&backup).0, Some(0), "{}", check(&backup).1);
    let again = place.ask("data", &["backup", backup.to_str().expect("text")]);
    assert!(!again.status.success() && text(&again.stderr).contains("is not empty"), "{}", text(&again.stderr));

    // Published and delivered after the backup, and then the broker is lost with its disk.
    let after = load.accepted() + 200;
    load.reach(after).await;
    late.take_until(&mut late_events, after).await;
    late_client.abandon();
    wait_killed(broker);
    load.task.await.expect("it ends");
    fs::remove_dir_all(place.path("data")).expect("removed");

    let restored = place.ask("data", &["restore", backup.to_str().expect("text")]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    let once_more = place.ask("data", &["restore", backup.to_str().expect("text")]);
    assert!(!once_more.status.success() && text(&once_more.stderr).contains("is not empty"));
    let (broker, url) = place.broker("data");
    let (writer, _events) = connect(&url, "writer").await;
    writer.publish(Publish::new("load/2", "1000000 new").qos(QoS::AtLeastOnce)).await.expect("accepted");

    // Who was behind the backup gets everything that it holds, and then a gap.
    let (_client, mut events) = early.resume(&url, "early").await;
    early.take_until(&mut events, 1_000_000).await;
    assert_eq!(early.got.pop(), Some(1_000_000));
    assert!(early.got.iter().copied().eq(1..=early.got.len() as u64), "each once, in order: {:?}", early.got);
    assert!(early.got.len() as u64 >= before, "{} of {before} that were accepted before the backup", early.got.len());
    assert!(!early.gaps.is_empty() && early.gaps.iter().all(|gap| gap.reason == GapReason::Lost), "{:?}", early.gaps);

    // Who was ahead of the backup gets nothing twice, and is told that something may be missing.
    let had = late.got.len();
    let (_client, mut events) = late.resume(&url, "late").await;
    late.take_until(&mut events, 1_000_000).await;
    assert_eq!(late.got[had..], [1_000_000], "nothing of what it had");
    assert!(!late.gaps.is_empty() && late.gaps.iter().all(|gap| gap.reason == GapReason::Lost), "{:?}", late.gaps);

    // A session of the copy is new to its client, but its subscription is there.
    let (reader, mut events) = connect(&url, "broker-kept").await;
    assert!(!reader.session_present(), "its client is to forget its tags");
    for expected in 1..=early.got.len() as u64 {
        let Event::Message(message) = next(&mut events).await else { panic!("the connection has ended") };
        assert_eq!(number(&message.payload), expected);
    }
    // What is accepted now is on the disk behind the session as it is.
    writer.publish(Publish::new("load/2", "1500000 new").qos(QoS::AtLeastOnce)).await.expect("accepted");
    reader.abandon();

    // And all that outlives another end.
    wait_killed(broker);
    let (_broker, url) = place.broker("data");
    let (reader, _events) = connect(&url, "broker-kept").await;
    assert!(reader.session_present());
    let stream = late.gaps[0].pubend;
    let (_client, mut events) = late.resume(&url, "late").await;
    let (writer, _events) = connect(&url, "writer").await;
    writer.publish(Publish::new("load/2", "2000000 new").qos(QoS::AtLeastOnce)).await.expect("accepted");
    late.take_until(&mut events, 2_000_000).await;
    assert_eq!(late.got.last(), Some(&2_000_000));
    assert_eq!(late.gaps.iter().filter(|gap| gap.pubend == stream).count(), 1, "the gap is told once");
}

/// Publishes numbers in bodies of 30,000 bytes until one is refused, or there are that many; how
/// many were accepted.
async fn publish_large(url: &str, most: u64) -> u64 {
    let (writer, _events) = connect(url, "writer").await;
    let mut accepted = 0;
    while accepted < most {
        let body = format!("{} {}", accepted + 1, "x".repeat(30_000));
        if writer.publish(Publish::new("load/1", body).qos(QoS::AtLeastOnce)).await.is_err() {
            break;
        }
        accepted += 1;
    }
    writer.disconnect().await;
    accepted
}

/// The client that was away gets numbers from one to the last.
async fn take_large(url: &str, name: &str, last: u64) -> (Client, Events) {
    let (reader, mut events) = connect(url, name).await;
    for expected in 1..=last {
        let Event::Message(message) = next(&mut events).await else { panic!("the connection has ended") };
        assert_eq!(number(&message.payload), expected);
    }
    (reader, events)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_journal_starts_while_its_spare_files_are_being_made() {
    let place = Place::new();
    // The first segment is more than half full, and the others are of a size that takes a while.
    place.configure(SMALL.split("[journal]").next().expect("text"));
    let (broker, url) = place.broker("data");
    leave_durable(&url, "reader", &Subscription::to("load/#").qos(QoS::AtLeastOnce)).await;
    let accepted = publish_large(&url, 700).await;
    assert_eq!(accepted, 700);
    let backup = place.path("backup");
    let made = place.ask("data", &["backup", backup.to_str().expect("text")]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    wait_killed(broker);
    let restored = place.ask("new", &["restore", backup.to_str().expect("text")]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    let (_broker, url) = place.broker("new");
    take_large(&url, "reader", accepted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_whose_journal_is_full_in_every_way_starts_and_recovers() {
    let place = Place::new();
    let configure = |max_log| place.configure(&SMALL.replace("64 MiB", max_log));
    configure("8 MiB");
    let (mut broker, mut url) = place.broker("data");
    leave_durable(&url, "reader", &Subscription::to("load/#").qos(QoS::AtLeastOnce)).await;
    let accepted = publish_large(&url, 1_000).await;
    assert!((50..300).contains(&accepted), "{accepted} fit into 8 MiB");
    // Sessions with wills until nothing is left of what is kept for them either.
    for number in 0..1_200 {
        let will = Will::new(Publish::new("will/1", vec![0; 2_000]).qos(QoS::AtLeastOnce)).delay(3600);
        let options = Options::new(&url).client_id(format!("churn-{number}")).session_expiry(3600).will(will);
        let (client, _events) = Client::connect(options).await.expect("the broker is there");
        client.abandon();
    }
    // As often as may be, and also if there may be less than there is.
    for max_log in ["8 MiB", "8 MiB", "6 MiB", "8 MiB"] {
        wait_killed(broker);
        configure(max_log);
        (broker, url) = place.broker("data");
    }
    let (_reader, _events) = take_large(&url, "reader", accepted).await;
    let began = Instant::now();
    while publish_large(&url, 1).await == 0 {
        assert!(began.elapsed() < DEADLINE, "everything is acknowledged, and nothing is accepted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_off_backup_leaves_nothing_that_looks_whole() {
    let place = Place::new();
    let (broker, url) = place.broker("data");
    leave_durable(&url, "reader", &Subscription::to("load/#").qos(QoS::AtLeastOnce)).await;
    let load = Load::start(&url, "load", "load/1").await;
    load.reach(100).await;
    let backup = place.path("backup");
    // As one that was killed has left it.
    let unfinished = place.path("backup.unfinished");
    fs::create_dir_all(unfinished.join("journal")).expect("made");
    fs::write(unfinished.join("journal/00000000.segment"), "half").expect("written");
    let check = whimbrel(&["restore"]).arg(&unfinished).arg("--data").arg(place.path("new")).output().expect("it runs");
    assert!(!check.status.success(), "half a backup is none");
    let made = place.ask("data", &["backup", backup.to_str().expect("text")]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(!unfinished.exists() && backup.join("backup.json").exists());

    // The broker goes while it is read.
    let mut reading = whimbrel(&["backup"]);
    reading.arg(place.path("second")).arg("--data").arg(place.path("data")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut reading = reading.spawn().expect("it starts");
    wait_killed(broker);
    load.task.await.expect("it ends");
    let is_made = reading.wait().expect("it ends").success();
    assert_eq!(place.path("second").exists(), is_made, "whole or not there");
    assert!(!place.path("second.unfinished").exists());
}

#[test]
fn the_socket_of_a_killed_broker_is_replaced_and_only_its_owner_may_use_it() {
    let place = Place::new();
    let (broker, _) = place.broker("data");
    let socket = place.path("data").join("control.sock");
    assert_eq!(fs::metadata(&socket).expect("it is there").permissions().mode() & 0o777, 0o600);
    wait_killed(broker);
    assert!(socket.exists(), "a killed broker leaves it");
    let said = text(&place.ask("data", &["streams"]).stderr);
    assert!(said.contains("no broker listens on"), "{said}");
    let (_broker, _) = place.broker("data");
    assert!(place.ask("data", &["streams"]).status.success());
}

#[test]
fn a_broker_without_a_data_directory_is_asked_at_a_path() {
    let place = Place::new();
    let socket = place.path("my.sock");
    let serve = |socket: &Path| -> Command {
        let mut serve = whimbrel(&["serve", "--config"]);
        serve.arg(place.path("whimbrel.toml")).arg("--control").arg(socket).stdin(Stdio::null());
        serve
    };
    let (_broker, _) = ready(serve(&socket));
    let ask = |arguments: &[&str]| whimbrel(arguments).arg("--control").arg(&socket).output().expect("it runs");
    assert!(text(&ask(&["streams"]).stdout).contains("no data directory: nothing is logged"));
    assert!(text(&ask(&["sessions", "list"]).stdout).contains("0 sessions"));
    let backup = ask(&["backup", "nowhere"]);
    assert!(text(&backup.stderr).contains("there is nothing to back up"), "{}", text(&backup.stderr));
    let second = serve(&socket).output().expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another broker has its control socket there"), "{}", text(&second.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_read_again_on_sighup_and_the_log_says_what_has_changed() {
    let place = Place::new();
    let log = place.path("log");
    let profile = |filter: &str, what: &str| format!("[[topic]]\nfilter = \"{filter}\"\npersistence = \"{what}\"\n");
    let write = |topics: &str| fs::write(place.path("whimbrel.toml"), format!("{SMALL}{topics}")).expect("written");
    write(&(profile("a", "persistent") + &profile("b", "volatile")));
    let mut serve = whimbrel(&["serve", "--config"]);
    serve.arg(place.path("whimbrel.toml")).arg("--data").arg(place.path("data")).stdin(Stdio::null());
    let stderr = fs::File::create(&log).expect("made");
    let serve = serve.stdout(Stdio::null()).stderr(stderr).spawn().expect("the broker starts");
    let serve = Ends(serve);
    let said = |what: &str| fs::read_to_string(&log).is_ok_and(|log| log.contains(what));
    until("it starts", || said("listening")).await;
    let hang_up = || {
        let done = Command::new("kill").args(["-HUP", &serve.0.id().to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()));
    };
    write(&(profile("b", "persistent") + &profile("c", "volatile")));
    hang_up();
    until("the change is told", || said("topic profiles read again")).await;
    assert!(
        said("added=\"\\\"c\\\"\"") || said("added=\"c\"") || said("added=\\\"c"),
        "{:?}",
        fs::read_to_string(&log)
    );
    write("[[topic]]\nfilter = \"d/#/e\"\n");
    hang_up();
    until("the mistake is told", || said("those before stay in force") && said("d/#/e")).await;
}

/// What is in a directory, and it itself, with what others than its owner may do with it.
fn open_to_others(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let about = fs::symlink_metadata(&path).expect("it is there");
        if about.permissions().mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if about.is_dir() {
            left.extend(fs::read_dir(&path).expect("it can be listed").map(|entry| entry.expect("an entry").path()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_for_the_user_of_the_broker_alone_and_backups_lie_outside_of_journals() {
    let place = Place::new();
    let (broker, url) = place.broker("data");
    leave_durable(&url, "reader", &Subscription::to("t").qos(QoS::AtLeastOnce)).await;
    let at = |name: &str| place.path(name).to_str().expect("text").to_owned();
    for inside in ["data/journal/backup", "data/backup", "data/journal/new/backup"] {
        let answer = place.ask("data", &["backup", &at(inside)]);
        let said = text(&answer.stderr);
        assert!(!answer.status.success() && said.contains("where a journal is"), "{inside}: {said}");
        assert!(!place.path(inside).exists());
    }
    let made = place.ask("data", &["backup", &at("backup")]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let restored = place.ask("backup/new", &["restore", &at("backup")]);
    let said = text(&restored.stderr);
    assert!(!restored.status.success() && said.contains("where a journal is"), "{said}");
    let restored = place.ask("restored", &["restore", &at("backup")]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    for directory in ["data", "backup", "restored"] {
        assert_eq!(open_to_others(&place.path(directory)), Vec::<PathBuf>::new());
    }
    drop(broker);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_session_cannot_be_dropped_and_is_told_why() {
    let place = Place::new();
    let (_broker, url) = place.broker("data");
    leave_durable(&url, "worker", &Subscription::to("$share/desk/t").qos(QoS::AtLeastOnce)).await;
    for (client, says) in [
        ("", "the client id is empty"),
        ("nobody", "there is no session with the client id \"nobody\""),
        ("$share/desk/t", "is a shared subscription: it ends with the last of its members"),
    ] {
        let answer = place.ask("data", &["sessions", "drop", client]);
        assert!(!answer.status.success() && text(&answer.stderr).contains(says), "{client}: {}", text(&answer.stderr));
    }
    assert!(place.ask("data", &["sessions", "drop", "worker"]).status.success());
}
