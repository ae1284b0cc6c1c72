//! One process at a time is a broker.

use whimbrel_lab::engine_servers::EngineServersOptions;

use super::rig::{broker, client, expect, publish, refused, serve, serve_at, servers, subscribe};

#[tokio::test]
async fn a_name_is_taken_from_a_living_broker_only_on_demand() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| folders.path().join(name);
    let mut former = broker(serve(&servers, "north", &folder("former")));
    let (desk, _events) = client(&former.url, "desk").await;
    subscribe(&desk).await;
    desk.disconnect().await;
    let (writer, _events) = client(&former.url, "writer").await;
    publish(&writer, 0..10).await;
    let (status, said) = refused(serve(&servers, "north", &folder("refused")));
    assert_eq!(status, Some(1), "{said}");
    let lives = format!("north lives: process {}", former.process.0.id());
    assert!(said.contains(&lives) && said.contains("--take"), "{said}");
    // It goes on as if nothing had been.
    publish(&writer, 10..20).await;

    let mut take = serve(&servers, "north", &folder("successor"));
    take.arg("--take");
    let successor = broker(take);
    // Idle as it is, it learns of it by its beat.
    assert_eq!(former.ended().code(), Some(3));
    let (desk, mut events) = client(&successor.url, "desk").await;
    assert!(desk.session_present());
    expect(&mut events, 0..20).await;
}

#[tokio::test]
async fn a_broker_that_was_stopped_for_long_ends_when_it_goes_on() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let mut former = broker(serve(&servers, "north", &folders.path().join("former")));
    let (writer, _events) = client(&former.url, "writer").await;
    publish(&writer, 0..10).await;
    former.signal("STOP");
    // It is on this machine and there, so it may live: its lease is looked at until it is old.
    let successor = broker(serve(&servers, "north", &folders.path().join("successor")));
    let (desk, mut events) = client(&successor.url, "desk").await;
    subscribe(&desk).await;
    former.signal("CONT");
    assert_eq!(former.ended().code(), Some(3));
    let (writer, _events) = client(&successor.url, "writer").await;
    publish(&writer, 10..20).await;
    expect(&mut events, 10..20).await;
}

#[tokio::test]
async fn a_broker_that_has_ended_in_good_order_is_succeeded_at_once() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let mut former = broker(serve(&servers, "north", &folders.path().join("former")));
    former.signal("TERM");
    assert_eq!(former.ended().code(), Some(0));
    let begun = std::time::Instant::now();
    let successor = broker(serve(&servers, "north", &folders.path().join("successor")));
    assert!(begun.elapsed() < whimbrel_engine::LEASE_OBSERVED_FOR, "the lease was released");
    assert_eq!(successor.metric("whimbrel_engine_epoch").await, 4.0);
}

#[tokio::test]
async fn a_name_is_taken_together_with_its_addresses() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let mut former = broker(serve(&servers, "north", &folders.path().join("former")));
    let (writer, _events) = client(&former.url, "writer").await;
    publish(&writer, 0..10).await;
    let address = former.url.trim_start_matches("mqtt://").to_owned();
    let mut take = serve_at(&servers, &address, "north", &folders.path().join("successor"));
    take.arg("--take");
    let successor = broker(take);
    assert_eq!((former.ended().code(), &successor.url), (Some(3), &former.url));
    let (writer, _events) = client(&successor.url, "writer").await;
    assert!(writer.session_present());
}
