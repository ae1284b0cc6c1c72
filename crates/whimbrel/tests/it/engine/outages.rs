//! An engine that does not answer for a while.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use whimbrel_client::{Error, Publish, QoS};
use whimbrel_lab::engine_servers::{EngineServers, EngineServersOptions, SERVERS};

use super::rig::{DEADLINE, broker, client, expect, publish, refused, serve, servers, signal_servers, subscribe};
use crate::common::{text, whimbrel};

/// The reason code of a broker whose log is full (quota exceeded).
const QUOTA_EXCEEDED: u8 = 0x97;

#[tokio::test]
async fn publishes_are_refused_while_the_engine_has_no_quorum_and_taken_again_by_itself() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = serve(&servers, "north", &folder.path().join("north"));
    command.arg("--engine-patience=2s");
    let north = broker(command);
    let (desk, mut events) = client(&north.url, "desk").await;
    subscribe(&desk).await;
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 0..10).await;
    expect(&mut events, 0..10).await;

    let (other, _events) = client(&north.url, "other").await;

    signal_servers(&servers, 0..SERVERS - 1, "STOP");
    // This one is on its way to the engine: it waits, and is taken when the engine answers.
    let waiting = tokio::spawn(async move {
        publish(&writer, 10..11).await;
        writer
    });
    let begun = std::time::Instant::now();
    while north.metric("whimbrel_engine_overdue_total").await < 1.0 {
        assert!(begun.elapsed() < DEADLINE, "the engine may take 2 s");
    }
    // One that waits for nothing else is refused at once.
    let order = Publish::new("orders/refused", "late").qos(QoS::AtLeastOnce);
    let answer = tokio::time::timeout(DEADLINE, other.publish(order)).await.expect("in time");
    let Err(Error::Refused { reason: refused, .. }) = answer else { panic!("it is not refused: {answer:?}") };
    assert_eq!(refused.0, QUOTA_EXCEEDED);
    // The publish waits since it was submitted; the commit since it was sent, a little later.
    while north.metric("whimbrel_engine_waiting_seconds").await < 2.0 {
        assert!(begun.elapsed() < DEADLINE, "a commit is in flight");
    }
    assert_eq!(north.metric("whimbrel_journal_full").await, 0.0, "there is room");
    // Operators see which servers are away; the one that is left tells of the stream while it
    // thinks that it leads.
    let mut status = whimbrel(&["engine", "status", "--name", "north"]);
    status.args(servers.arguments());
    let output = status.output().expect("it starts");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("most servers do not ") && said.matches("does not tell settings").count() == SERVERS - 1,
        "{said}"
    );

    signal_servers(&servers, 0..SERVERS - 1, "CONT");
    let writer = tokio::time::timeout(DEADLINE, waiting).await.expect("in time").expect("it is acknowledged");
    expect(&mut events, 10..11).await;
    publish(&writer, 11..20).await;
    expect(&mut events, 11..20).await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_all_servers_are_killed_and_the_disk_too() {
    let Some(mut servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let north = broker(serve(&servers, "north", &folders.path().join("first")));
    let (desk, _events) = client(&north.url, "desk").await;
    subscribe(&desk).await;
    desk.disconnect().await;
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 0..100).await;
    for number in 0..SERVERS {
        servers.kill(number).expect("it is killed");
    }
    drop(north);
    for number in 0..SERVERS {
        servers.run(number).expect("it runs");
    }
    let north = broker(serve(&servers, "north", &folders.path().join("second")));
    let (_desk, mut events) = client(&north.url, "desk").await;
    expect(&mut events, 0..100).await;
}

/// Deletes a broker's stream, as an operator could by mistake.
async fn delete_stream(servers: &EngineServers, broker: &str) {
    let [engine, _] = servers.arguments();
    let address = engine.trim_start_matches("--engine=nats://").split(',').next().expect("there are some").to_owned();
    let mut connection = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let request = format!(
        "CONNECT {{\"verbose\":false,\"protocol\":1}}\r\nSUB answer 1\r\nPUB $JS.API.STREAM.DELETE.WJ-{broker} answer 0\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.expect("it is asked");
    let mut said = String::new();
    while !said.contains("\"success\":true") {
        let mut piece = [0; 4096];
        let length =
            tokio::time::timeout(DEADLINE, connection.read(&mut piece)).await.expect("in time").expect("it answers");
        assert!(length > 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
}

#[tokio::test]
async fn a_broker_whose_stream_is_deleted_says_so_and_is_not_begun_anew() {
    let Some(servers) = servers(&EngineServersOptions::default()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let mut north = broker(serve(&servers, "north", &folders.path().join("north")));
    let (desk, _events) = client(&north.url, "desk").await;
    subscribe(&desk).await;
    let (writer, _events) = client(&north.url, "writer").await;
    publish(&writer, 0..10).await;
    delete_stream(&servers, "north").await;
    assert_eq!(north.ended().code(), Some(1));
    let (status, said) = refused(serve(&servers, "north", &folders.path().join("elsewhere")));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("does not have any more") && said.contains("whimbrel engine import"), "{said}");
    // What the directory has is the way back.
    let mut import = whimbrel(&["engine", "import", "--name", "north", "--data"]);
    import.arg(folders.path().join("north")).args(servers.arguments());
    let output = import.output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let north = broker(serve(&servers, "north", &folders.path().join("anew")));
    let (_desk, mut events) = client(&north.url, "desk").await;
    expect(&mut events, 0..10).await;
}
