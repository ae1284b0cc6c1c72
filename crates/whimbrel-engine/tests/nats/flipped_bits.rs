//! Bits of one server's files are flipped, and it leads the stream then.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use whimbrel_engine::Acknowledgement;
use whimbrel_engine::nats::{NatsOptions, look};

use super::cluster::{Cluster, SERVERS};
use super::{append, journal_on, start, ticks_of};

/// One byte of this many is changed.
const FLIPPED_ONE_IN: usize = 150_000;

/// How long it may take until a server leads.
const LEADS_WITHIN: Duration = Duration::from_secs(60);

/// How long the answer to a request is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Flips bits in all blocks of messages of a server; returns how many.
fn flip(store: &Path) -> usize {
    let folder = store.join("jetstream/$G/streams/WJ-north/msgs");
    let (mut flipped, mut blocks) = (0, 0);
    for entry in fs::read_dir(&folder).expect("the server has a stream") {
        let path = entry.expect("it is listed").path();
        if path.extension().is_none_or(|kind| kind != "blk") {
            continue;
        }
        let mut bytes = fs::read(&path).expect("it is read");
        for byte in bytes.iter_mut().skip(FLIPPED_ONE_IN / 2).step_by(FLIPPED_ONE_IN) {
            *byte ^= 0x10;
            flipped += 1;
        }
        fs::write(&path, bytes).expect("it is written");
        blocks += 1;
    }
    assert!(blocks > 0, "there are no blocks in {}", folder.display());
    flipped
}

/// Makes a server lead the stream.
fn lead(cluster: &Cluster, number: usize) {
    let name = format!("n{number}");
    let servers = cluster.addresses();
    let options = NatsOptions {
        servers: servers.clone(),
        broker: "north".into(),
        replicas: SERVERS,
        credentials: None,
        authorities: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let begun = Instant::now();
    loop {
        let status = look(&options).ok().flatten();
        let leader = status.iter().flat_map(|status| &status.replicas).find(|replica| replica.leads);
        if leader.is_some_and(|leader| leader.server == name) {
            return;
        }
        assert!(begun.elapsed() < LEADS_WITHIN, "{name} does not lead: {status:?}");
        runtime.block_on(async {
            let client = async_nats::connect(servers.clone()).await.expect("a server answers");
            let wish = format!("{{\"placement\":{{\"preferred\":\"{name}\"}}}}");
            let asked = client.request("$JS.API.STREAM.LEADER.STEPDOWN.WJ-north", wish.into());
            // Without an answer it is asked for again.
            let _ = tokio::time::timeout(ANSWER_WITHIN, asked).await;
        });
    }
}

#[test]
fn what_one_server_has_damaged_comes_from_the_others() {
    let Some(mut cluster) = Cluster::start() else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| folders.path().join(name);
    let (storage, _) = start(&cluster, &folder("a"), 1, Acknowledgement::Both);
    let journal = journal_on(&storage);
    // Commits of some kilobytes, so that most records stay whole.
    (0..250).for_each(|commit| append(&journal, 1 + 16 * commit..17 + 16 * commit));
    cluster.kill(1);
    let flipped = flip(cluster.store(1));
    cluster.run(1);
    lead(&cluster, 1);
    // The owner goes on, also as one that starts again with its directory.
    append(&journal, 4_001..4_100);
    drop((journal, storage));
    let (storage, report) = start(&cluster, &folder("a"), 2, Acknowledgement::Both);
    println!("{flipped} bytes flipped; a start with a directory: {report:?}");
    let journal = journal_on(&storage);
    append(&journal, 4_100..4_200);
    drop((journal, storage));
    lead(&cluster, 1);
    let (storage, report) = start(&cluster, &folder("b"), 3, Acknowledgement::Both);
    println!("a start without one: {report:?}");
    assert_eq!(ticks_of(&journal_on(&storage)), (1..4_200).collect::<Vec<_>>());
}
