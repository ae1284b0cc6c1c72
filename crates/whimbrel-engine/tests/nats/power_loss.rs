//! The power of all servers fails at once, while records are appended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use whimbrel_engine::Acknowledgement;
use whimbrel_journal::Journal;

use super::cluster::{Cluster, SERVERS};
use super::loop_disks::LoopDisks;
use super::{STREAM, Storage, journal_on, payload, start, ticks_of};

/// Records of one commit that an appender waits for.
const IN_FLIGHT: u64 = 16;

/// Records that are acknowledged before the power fails.
const BEFORE: u64 = 1_600;

/// How long they may take.
const BEFORE_WITHIN: Duration = Duration::from_secs(60);

/// Appends records, until it has all or the journal ends; returns it. `acknowledged` is the tick of
/// the last one that is durable.
fn appender(
    journal: Journal<Storage>,
    ticks: std::ops::Range<u64>,
    acknowledged: Arc<AtomicU64>,
    enough: Sender<()>,
) -> JoinHandle<Journal<Storage>> {
    std::thread::spawn(move || {
        let (stream, _) = journal.open_stream(STREAM).expect("it is taken");
        let begin = ticks.start;
        for tick in ticks {
            let Ok(ticket) = journal.append(stream, tick, &[&payload(tick)]) else { break };
            if tick % IN_FLIGHT > 0 {
                continue;
            }
            if journal.wait(ticket).is_err() {
                break;
            }
            acknowledged.store(tick, Ordering::SeqCst);
            if tick - begin >= BEFORE {
                let _ = enough.send(());
            }
        }
        journal
    })
}

fn power_fails(cluster: &mut Cluster, disks: &LoopDisks) {
    (0..SERVERS).for_each(|number| cluster.kill(number));
    disks.lose_power();
}

#[test]
fn what_is_acknowledged_outlives_the_power_of_all_servers_and_the_brokers_disk() {
    let Some(disks) = LoopDisks::make(SERVERS) else { return };
    let Some(mut cluster) = Cluster::start_on(disks.places()) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| folders.path().join(name);
    let acknowledged = Arc::new(AtomicU64::new(0));

    // The owner goes on when the servers are back.
    let (storage, _) = start(&cluster, &folder("a"), 1, Acknowledgement::Engine);
    let (enough, is_enough) = channel();
    let appending = appender(journal_on(&storage), 1..4_001, Arc::clone(&acknowledged), enough);
    is_enough.recv_timeout(BEFORE_WITHIN).expect("records are acknowledged");
    power_fails(&mut cluster, &disks);
    assert!(acknowledged.load(Ordering::SeqCst) < 4_000, "the power failed too late");
    (0..SERVERS).for_each(|number| cluster.run(number));
    drop(appending.join().expect("it ends"));
    assert_eq!(acknowledged.load(Ordering::SeqCst), 4_000);

    // The owner ends with its disk at the same moment.
    let (storage, _) = start(&cluster, &folder("b"), 2, Acknowledgement::Both);
    let (enough, is_enough) = channel();
    let appending = appender(journal_on(&storage), 4_001..u64::MAX, Arc::clone(&acknowledged), enough);
    is_enough.recv_timeout(BEFORE_WITHIN).expect("records are acknowledged");
    power_fails(&mut cluster, &disks);
    storage.stop();
    drop(appending.join().expect("it ends"));
    let kept = acknowledged.load(Ordering::SeqCst);
    (0..SERVERS).for_each(|number| cluster.run(number));
    let (storage, report) = start(&cluster, &folder("c"), 3, Acknowledgement::Both);
    let found = ticks_of(&journal_on(&storage));
    let last = found.last().copied().unwrap_or_default();
    println!("{kept} acknowledged, {last} found, {} commits", report.records);
    assert!(last >= kept, "{kept} are acknowledged, and the last one is {last}");
    assert_eq!(found, (1..=last).collect::<Vec<_>>());
    drop(cluster);
}
