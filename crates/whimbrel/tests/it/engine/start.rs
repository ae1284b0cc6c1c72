//! Starts from the stream, and starts that are refused.

use std::fs;

use whimbrel_client::{Publish, QoS, Subscription};
use whimbrel_lab::engine_servers::EngineServersOptions;

use super::rig::{broker, client, expect, message, publish, refused, serve, servers, subscribe};

#[tokio::test]
async fn a_broker_whose_disk_is_gone_is_the_same() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let (first, second) = (folders.path().join("first"), folders.path().join("second"));
    let north = broker(serve(&servers, "north", &first));
    assert_eq!(north.metric("whimbrel_engine_epoch").await, 2.0);
    let (desk, _events) = client(&north.url, "desk").await;
    subscribe(&desk).await;
    desk.disconnect().await;
    // A topic of a durable subscription is logged, so its retained message is durable when it is
    // acknowledged.
    let (board, _events) = client(&north.url, "board").await;
    board.subscribe_to(&Subscription::to("status").qos(QoS::AtLeastOnce)).await.expect("granted");
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 0..50).await;
    let status = Publish::new("status", "open").qos(QoS::AtLeastOnce).retain(true);
    writer.publish(status).await.expect("acknowledged");
    assert!(north.metric("whimbrel_engine_append_seconds_count").await >= 1.0);
    // Without a word, and its disk with it.
    drop(north);
    fs::remove_dir_all(&first).expect("it is removed");

    let north = broker(serve(&servers, "north", &second));
    assert_eq!(north.metric("whimbrel_engine_epoch").await, 4.0);
    let (desk, mut events) = client(&north.url, "desk").await;
    assert!(desk.session_present(), "the session is there");
    expect(&mut events, 0..50).await;
    desk.subscribe_to(&Subscription::to("status").qos(QoS::AtLeastOnce)).await.expect("granted");
    let kept = message(&mut events, "the retained message").await;
    assert_eq!((&kept.payload[..], kept.retain), (&b"open"[..], true), "the retained message is there");
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 50..60).await;
    expect(&mut events, 50..60).await;

    // Another name is another broker.
    let south = broker(serve(&servers, "south", &folders.path().join("south")));
    let (desk, _events) = client(&south.url, "desk").await;
    assert!(!desk.session_present(), "south has never seen it");
}

#[test]
fn servers_that_lose_what_they_acknowledge_are_refused() {
    let options = EngineServersOptions { sync_interval: Some("2m".into()), ..EngineServersOptions::default() };
    let Some(servers) = servers(&options) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (status, said) = refused(serve(&servers, "north", folder.path()));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("sync_interval: always") && said.contains("127.0.0.1"), "{said}");
}

#[test]
fn a_broker_on_an_engine_needs_a_name() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let mut nameless = crate::common::whimbrel(&["serve", "--dev"]);
    nameless.args(servers.arguments());
    let (status, said) = refused(nameless);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("no `name`"), "{said}");
}
