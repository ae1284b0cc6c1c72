//! Whole runs over a real network, against a broker that is right and against one that something is
//! wrong with.

use std::path::PathBuf;
use std::time::Duration;

use crate::fleet_broker::{Fate, Meddler};
use clap::Parser;
use whimbrel_lab::fleet::summary::Summary;
use whimbrel_lab::fleet::{Args, run};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// A short run of a small synthetic city.
async fn fly(meddler: Meddler, duration: &str) -> anyhow::Result<Summary> {
    fly_with(meddler, &["--duration", duration]).await
}

async fn fly_with(meddler: Meddler, more: &[&str]) -> anyhow::Result<Summary> {
    let (address, broker) = crate::fleet_broker::start(meddler).await?;
    let url = format!("mqtt://{address}");
    let line =
        ["demo", "--city", "--vehicles", "40", "--speed-up", "200", "--watchers", "4", "--consoles", "2", "--json"];
    let line = line.into_iter().chain(["--broker", &url]).chain(more.iter().copied());
    let args = Cli::try_parse_from(line).expect("the arguments are right").args;
    let result = run(args).await;
    broker.abort();
    result
}

/// A meddler that does one thing once, to the `count`-th live PUBLISH of one client.
fn once(client: &'static str, count: u32, fate: Fate) -> Meddler {
    let mut seen = 0;
    Box::new(move |id, publish| {
        if id != client || publish.retain {
            return Fate::Pass;
        }
        seen += 1;
        if seen == count { fate } else { Fate::Pass }
    })
}

async fn failure(client: &'static str, fate: Fate) -> String {
    let result = fly(once(client, 20, fate), "1s").await;
    result.map(|_| ()).expect_err("a fault has to be noticed").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_broker_passes() {
    let summary = fly(Box::new(|_, _| Fate::Pass), "2s").await.expect("nothing is wrong with this broker");
    let published = summary.published;
    assert!(published.sent > 500, "{published:?}");
    assert_eq!((published.confirmed, published.unconfirmed), (published.sent, 0));
    // Four lines serve forty vehicles, and each line has its watcher.
    assert_eq!(summary.reliable.expected, 3 * published.sent);
    assert_eq!(summary.reliable.delivered, summary.reliable.expected);
    assert_eq!(summary.best_effort.delivered, published.sent);
    assert_eq!(summary.connections.vehicles.connected, 40);
    assert_eq!(summary.faults, 0);
    assert!(summary.delay_ms.p50 > 0.0 && summary.delay_ms.p50 <= summary.delay_ms.max, "{:?}", summary.delay_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_lost_by_the_broker_fails_the_run() {
    assert_eq!(failure("console-1", Fate::Drop).await, "the broker broke its promises; deliveries: 1 lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn speeds_are_watched_at_any_broker_that_knows_selectors() {
    let summary = fly_with(Box::new(|_, _| Fate::Pass), &["--selectors", "--duration", "1s"]).await;
    let selected = summary.expect("nothing is wrong with this broker").selected;
    assert_eq!((selected.fences.watchers, selected.speeds.watchers), (0, 4));
    let speeds = selected.speeds;
    assert!(speeds.delivered > 20 && speeds.delivered == speeds.expected && speeds.wrong == 0, "{speeds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_lost_to_a_watcher_by_content_fails_the_run() {
    let result = fly_with(once("selector-1", 5, Fate::Drop), &["--selectors", "--duration", "1s"]).await;
    let error = result.map(|_| ()).expect_err("a fault has to be noticed").to_string();
    assert_eq!(error, "the broker broke its promises; deliveries: 1 lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_delivered_twice_fails_the_run() {
    assert_eq!(failure("watcher-2", Fate::Twice).await, "the broker broke its promises; deliveries: 1 repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_altered_message_fails_the_run() {
    assert_eq!(failure("console-2", Fate::Alter).await, "the broker broke its promises; deliveries: 1 altered");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_out_of_order_fail_the_run() {
    assert_eq!(failure("console-1", Fate::Later).await, "the broker broke its promises; deliveries: 1 out of order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_lost_to_the_qos_0_viewer_is_counted_and_no_failure() {
    let summary = fly(once("map-viewer", 20, Fate::Drop), "1s").await.expect("QoS 0 promises nothing");
    assert_eq!((summary.best_effort.lost, summary.faults), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_whose_connection_breaks_comes_back_and_misses_nothing() {
    let summary = fly(once("console-1", 20, Fate::Cut), "2s").await.expect("the broker keeps its session");
    assert_eq!((summary.connections.consoles.lost, summary.connections.consoles.connected), (1, 2));
    assert_eq!((summary.reliable.lost, summary.reliable.delivered), (0, summary.reliable.expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_again_after_a_broken_connection_is_no_failure() {
    let summary = fly(once("console-1", 20, Fate::CutAfter), "2s").await.expect("QoS 1 may repeat here");
    assert!(summary.reliable.redelivered > 0, "{:?}", summary.reliable);
    assert_eq!((summary.reliable.duplicated, summary.reliable.lost, summary.faults), (0, 0, 0));
}

/// Consoles that lose their signal and come back, four that go on where they were and two that do
/// not.
const ROAMING: [&str; 6] = ["--roaming", "4", "--forgetful", "2", "--duration", "3s"];

#[tokio::test(flavor = "multi_thread")]
async fn consoles_that_lose_their_signal_get_what_they_missed_if_they_are_semi_durable() {
    let summary = fly_with(Box::new(|_, _| Fate::Pass), &ROAMING).await.expect("nothing is wrong with this broker");
    let (semi_durable, nondurable) = (&summary.roaming.semi_durable, &summary.roaming.nondurable);
    assert!(semi_durable.outages > 0 && nondurable.outages > 0, "{:?}", summary.roaming);
    let tally = semi_durable.tally;
    assert!(tally.recovered > 0 && tally.recovered < tally.delivered, "{tally:?}");
    assert_eq!((tally.lost, tally.reported, tally.delivered), (0, 0, tally.expected));
    assert!(nondurable.tally.missed > 0, "{:?}", nondurable.tally);
    assert_eq!((nondurable.tally.lost, nondurable.tally.recovered, summary.faults), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_lost_to_a_roaming_console_without_a_word_fails_the_run() {
    for client in ["semi-durable-1", "nondurable-1"] {
        let result = fly_with(once(client, 20, Fate::Drop), &ROAMING).await;
        let error = result.map(|_| ()).expect_err("a fault has to be noticed").to_string();
        assert_eq!(error, "the broker broke its promises; deliveries: 1 lost", "{client}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_roaming_console_gets_twice_fails_the_run() {
    let result = fly_with(once("semi-durable-1", 20, Fate::Twice), &ROAMING).await;
    let error = result.map(|_| ()).expect_err("a fault has to be noticed").to_string();
    assert_eq!(error, "the broker broke its promises; deliveries: 1 repeated");
}

#[tokio::test]
async fn no_broker_is_an_error_that_says_where_it_was_looked_for() {
    let line = ["demo", "--city", "--vehicles", "1", "--plain", "--broker", "mqtt://127.0.0.1:1", "--duration", "1s"];
    let args = Cli::try_parse_from(line).expect("the arguments are right").args;
    let error = format!("{:#}", run(args).await.map(|_| ()).expect_err("nobody listens there"));
    assert!(error.contains("to the broker at 127.0.0.1:1"), "{error}");
}

#[tokio::test]
async fn a_broken_trace_is_an_error_before_anything_is_started() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path: PathBuf = directory.path().join("broken.csv");
    std::fs::write(&path, "vehicle,time\n").expect("the file is written");
    let path = path.to_str().expect("a UTF-8 path");
    let args = Cli::try_parse_from(["demo", "--trace", path]).expect("the arguments are right").args;
    let error = tokio::time::timeout(Duration::from_secs(20), run(args)).await.expect("it ends at once");
    let error = format!("{:#}", error.map(|_| ()).expect_err("there are no places in it"));
    assert!(error.contains("broken.csv:1: no column for the latitude"), "{error}");
}
