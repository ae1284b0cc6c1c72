//! The cache's partitions in a running server: set at the start, exchanged when the file is read
//! again, kept when that fails.

use std::time::Duration;

use crate::common::{get, metric};
use whimbrel_server::config::schema::KEYS;
use whimbrel_server::config::{Config, Given, Override};
use whimbrel_server::{Outcome, Server};

const FLEET: &str = "[[partition]]\nfilter = \"fleet/#\"\ncapacity = \"3000 events\"\n";
const ALARM: &str = "[[partition]]\nfilter = \"alarm/#\"\nselector = \"level > 3\"\ncapacity = \"30 s\"\n";

/// A server with a configuration file in a directory.
async fn start(text: &str, poll: Duration) -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("whimbrel.toml");
    std::fs::write(&file, text).expect("a file");
    let set = |key, text: &str| Override { key, given: Given::Flag, text: text.to_owned() };
    let listeners = KEYS.iter().filter(|key| key.name.starts_with("listen_") && !key.is_later());
    let mut overrides: Vec<Override> = listeners.map(|key| set(key, "127.0.0.1:0")).collect();
    overrides.push(set(KEYS.iter().find(|key| key.name == "dev").expect("a setting"), "true"));
    let mut config = Config::load(Some(&file), &overrides).unwrap_or_else(|problems| panic!("{problems:?}"));
    config.limits.fence_poll = poll;
    let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
    (directory, server)
}

/// The filters of the partitions, as metrics name them.
async fn filters(server: &Server) -> Vec<String> {
    let page = get(server, "/metrics").await.1;
    let rows = page.lines().filter_map(|line| line.strip_prefix("whimbrel_partition_events{"));
    rows.map(|row| row.split('}').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn partitions_are_exchanged_when_the_file_is_read_again() {
    let (directory, server) = start(FLEET, Duration::from_secs(100_000)).await;
    let write = |text: &str| std::fs::write(directory.path().join("whimbrel.toml"), text).expect("a file");
    let fleet = "partition=\"1\",filter=\"fleet/#\"";
    let rest = "partition=\"default\",filter=\"#\"";
    assert_eq!(filters(&server).await, [fleet, rest]);
    assert_eq!(server.reload().await, Some(Outcome::Unchanged));
    write(&format!("{ALARM}{FLEET}"));
    assert_eq!(server.reload().await, Some(Outcome::Changed));
    let both = ["partition=\"1\",filter=\"alarm/#\"", "partition=\"2\",filter=\"fleet/#\"", rest];
    assert_eq!(filters(&server).await, both);
    write(&format!("{ALARM}{FLEET}capacity = 5\n"));
    assert_eq!(server.reload().await, Some(Outcome::Refused));
    assert_eq!(filters(&server).await, both, "those before stay");
    write("");
    assert_eq!(server.reload().await, Some(Outcome::Changed));
    assert_eq!(filters(&server).await, [rest]);
    write("[buffer]\nsubscribe = [\"fleet/#\"]\n");
    assert_eq!(server.reload().await, Some(Outcome::Changed));
}

#[tokio::test]
async fn a_changed_file_is_noticed() {
    let (directory, server) = start("", Duration::from_millis(5)).await;
    std::fs::write(directory.path().join("whimbrel.toml"), FLEET).expect("a file");
    metric(&server, "whimbrel_partition_events{partition=\"1\",filter=\"fleet/#\"} 0").await;
}

#[tokio::test]
async fn gaps_have_all_reasons_from_the_start() {
    let (_directory, server) = start("", Duration::from_secs(100_000)).await;
    let page = get(&server, "/metrics").await.1;
    for reason in ["overwritten", "not-buffered", "lost", "slow", "assumed", "best-effort"] {
        assert!(page.contains(&format!("whimbrel_gaps_total{{reason=\"{reason}\"}} 0")), "{reason} in\n{page}");
    }
}
