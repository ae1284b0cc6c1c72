//! Directories that have what their stream does not: journals of brokers that had no engine, and
//! what the disk alone has acknowledged.

use std::fs;
use std::path::Path;
use std::process::Command;

use whimbrel_lab::engine_servers::{EngineServers, EngineServersOptions, SERVERS};

use super::rig::{broker, client, expect, publish, refused, serve, servers, signal_servers, subscribe};
use crate::common::{text, whimbrel};

/// `whimbrel engine import` of a directory.
fn import(servers: &EngineServers, data: &Path, more: &[&str]) -> Command {
    let mut import = whimbrel(&["engine", "import", "--name", "north", "--data"]);
    import.arg(data).args(servers.arguments()).args(more);
    import
}

/// What a command that succeeds prints.
fn printed(mut command: Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Opens the session of a desk that subscribes to orders.
async fn open_desk(url: &str) {
    let (desk, _events) = client(url, "desk").await;
    subscribe(&desk).await;
    desk.disconnect().await;
}

#[tokio::test]
async fn the_journal_of_a_broker_without_an_engine_is_imported() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let data = folders.path().join("data");
    let mut alone =
        whimbrel(&["serve", "--dev", "--listen-mqtt=127.0.0.1:0", "--listen-http=127.0.0.1:0", "--name=north"]);
    alone.args(["tls", "ws", "wss", "overlay"].map(|listener| format!("--listen-{listener}=off")));
    alone.arg("--data").arg(&data);
    let north = broker(alone);
    open_desk(&north.url).await;
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 0..30).await;
    drop(north);

    let (status, said) = refused(serve(&servers, "north", &data));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("the stream is empty") && said.contains("whimbrel engine import"), "{said}");
    let (status, said) = refused(import(&servers, &folders.path().join("dta"), &[]));
    assert!(status == Some(1) && said.contains("there is no journal in"), "{said}");
    assert!(!folders.path().join("dta").exists(), "nothing is made");
    let said = printed(import(&servers, &data, &[]));
    assert!(said.contains("the stream got") && said.contains("both are equal now"), "{said}");
    let mut status = whimbrel(&["engine", "status", "--name", "north"]);
    status.args(servers.arguments());
    let said = printed(status);
    assert!(said.contains("released by process") && said.contains("leads") && said.contains("good"), "{said}");

    fs::remove_dir_all(&data).expect("it is removed");
    let north = broker(serve(&servers, "north", &folders.path().join("elsewhere")));
    let (_desk, mut events) = client(&north.url, "desk").await;
    expect(&mut events, 0..30).await;
}

#[tokio::test]
async fn what_the_disk_alone_has_acknowledged_is_appended_or_refused_with_its_number() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let (first, second) = (folders.path().join("first"), folders.path().join("second"));
    let local = |data: &Path| {
        let mut serve = serve(&servers, "north", data);
        serve.arg("--engine-ack=local");
        serve
    };
    let north = broker(local(&first));
    open_desk(&north.url).await;
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 0..10).await;
    // The disk goes on without the engine, and the broker ends before the engine is back.
    signal_servers(&servers, 0..SERVERS, "STOP");
    publish(&writer, 10..20).await;
    assert!(north.metric("whimbrel_engine_behind_commits").await >= 1.0);
    drop(north);
    signal_servers(&servers, 0..SERVERS, "CONT");
    let north = broker(local(&first));
    let (writer, _events) = client(&north.url, "writer").await;
    signal_servers(&servers, 0..SERVERS, "STOP");
    // One commit may be on its way, and arrive once the servers go on: it is that of no order.
    let (_other, _events) = client(&north.url, "other").await;
    publish(&writer, 20..30).await;
    drop(north);
    signal_servers(&servers, 0..SERVERS, "CONT");

    // Another process is the broker meanwhile: it has what the engine had.
    let north = broker(local(&second));
    let (_desk, mut events) = client(&north.url, "desk").await;
    expect(&mut events, 0..20).await;
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 40..41).await;
    expect(&mut events, 40..41).await;
    drop(north);
    let (status, said) = refused(local(&first));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("commits that the stream does not have"), "{said}");
    assert!(said.contains("engine import --discard-local"), "{said}");
    let said = printed(import(&servers, &first, &["--discard-local"]));
    assert!(said.contains("given up"), "{said}");
    let north = broker(local(&first));
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 41..42).await;
}
