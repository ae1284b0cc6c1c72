//! Measures a journal on its own disk, on an engine, and on both, in turns on one machine, and then
//! one on an engine from which records are removed: `NATS_SERVER=nats-server commit_rate SECONDS`.

#[path = "../tests/cluster/mod.rs"]
mod cluster;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::Cluster;
use whimbrel_engine::{Acknowledgement, DirectoryMark, Replicated, StartOptions};
use whimbrel_journal::file::Directory;
use whimbrel_journal::{Fault, Journal, Log, Options, Storage, StreamId, Ticket};

/// Bytes of a record, as in the trial of the design.
const RECORD_BYTES: usize = 418;

/// Appenders, and how many records of each may wait for their commit.
const LOADS: [(u64, usize); 4] = [(1, 1), (1, 64), (16, 1), (16, 64)];

/// Rounds; the median of each figure is shown.
const ROUNDS: usize = 3;

type AnyStorage = Arc<dyn Storage + Send + Sync>;

/// Nothing is started again.
struct NoMark;

impl DirectoryMark for NoMark {
    fn load(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }

    fn store(&self, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
}

/// Records a second, and the times of commits.
struct Measured {
    rate: f64,
    median: Duration,
    p99: Duration,
}

fn append_for(journal: &Journal<AnyStorage>, stream: u64, window: usize, time: Duration) -> Vec<Duration> {
    let (stream, _) = journal.open_stream(StreamId { kind: 1, id: stream }).expect("it is taken");
    let record = [7; RECORD_BYTES];
    let mut waiting: VecDeque<(Ticket, Instant)> = VecDeque::new();
    let (mut took, begun) = (Vec::new(), Instant::now());
    let mut finish = |(ticket, since): (Ticket, Instant)| {
        journal.wait(ticket).expect("it becomes durable");
        took.push(since.elapsed());
    };
    for tick in 1.. {
        if begun.elapsed() > time {
            break;
        }
        let since = Instant::now();
        waiting.push_back((journal.append(stream, tick, &[&record]).expect("it is taken"), since));
        if waiting.len() >= window {
            finish(waiting.pop_front().expect("there are some"));
        }
        // What is logged is released at once, so that the log stays small.
        if tick.is_multiple_of(4_096) {
            journal.chop(stream, tick - 2_048).expect("it is taken");
        }
    }
    waiting.into_iter().for_each(finish);
    took
}

fn open(storage: AnyStorage, options: Options) -> Journal<AnyStorage> {
    let (log, _) = Log::open(&storage, options, 1).expect("the journal opens");
    Journal::start(storage, log, |_| {}).expect("threads start")
}

/// The streams of one measurement have numbers of their own, from `first` on.
fn measure(journal: &Journal<AnyStorage>, first: u64, (appenders, window): (u64, usize), time: Duration) -> Measured {
    let begun = Instant::now();
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        let threads =
            (first..first + appenders).map(|stream| scope.spawn(move || append_for(journal, stream, window, time)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    });
    let rate = took.len() as f64 / begun.elapsed().as_secs_f64();
    took.sort_unstable();
    Measured { rate, median: took[took.len() / 2], p99: took[took.len() * 99 / 100] }
}

/// The journal has small segments, so that many are used again while it is measured.
const SMALL: Options = Options { segment_bytes: 1 << 20, batch_bytes: 64 << 10, max_bytes: 64 << 20 };

/// Commits while records are removed, and while none are, in turns.
fn measure_cutting(cluster: &Cluster, time: Duration) -> [Measured; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Directory::open(folder.path()).expect("it opens");
    let acknowledgement = Acknowledgement::Both;
    let options = StartOptions { owner: 1, acknowledgement, discards_local: false, imports: false };
    let started = Replicated::start(disk, cluster.connect("cut"), NoMark, options);
    let replicated = Arc::new(started.expect("it is taken").0);
    let journal = open(Arc::clone(&replicated) as AnyStorage, SMALL);
    let still = measure(&journal, 0, (1, 1), 10 * time);
    let ends = AtomicBool::new(false);
    let cutting = std::thread::scope(|scope| {
        let cutter = scope.spawn(|| {
            let mut took = Vec::new();
            while !ends.load(Ordering::SeqCst) {
                let begun = Instant::now();
                if replicated.cut().expect("the engine answers") {
                    took.push(begun.elapsed());
                }
                std::thread::sleep(CUT_PAUSE);
            }
            took
        });
        let cutting = measure(&journal, 1, (1, 1), time);
        ends.store(true, Ordering::SeqCst);
        let steps = cutter.join().expect("it ends");
        println!(
            "{} times up to 1,000 records were removed, which took {:.2?} at most",
            steps.len(),
            steps.iter().max()
        );
        cutting
    });
    [still, cutting]
}

/// Pause between two removals: that of a broker.
const CUT_PAUSE: Duration = Duration::from_millis(100);

fn main() {
    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(5);
    let time = Duration::from_secs(seconds);
    let Some(cluster) = Cluster::start() else { return };
    for (what, told) in ["none removed", "while removed"].iter().zip(measure_cutting(&cluster, time)) {
        println!("{what:<14} {:>7.0} commits/s, p50 {:.2?}, p99 {:.2?}", told.rate, told.median, told.p99);
    }
    let kinds = [("own disk", None), ("engine", Some(Acknowledgement::Engine)), ("both", Some(Acknowledgement::Both))];
    println!("{:<10} {:>9} {:>7} {:>12} {:>9} {:>9}", "log", "appenders", "window", "records/s", "p50 ms", "p99 ms");
    for load in LOADS {
        let mut all: Vec<Vec<Measured>> = kinds.iter().map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            for (number, (_, acknowledgement)) in kinds.iter().enumerate() {
                let folder = tempfile::tempdir().expect("a folder");
                let disk = Directory::open(folder.path()).expect("it opens");
                let storage: AnyStorage = match acknowledgement {
                    None => Arc::new(disk),
                    Some(acknowledgement) => {
                        let engine = cluster.connect(&format!("b{number}-{}-{}-{round}", load.0, load.1));
                        let acknowledgement = *acknowledgement;
                        let options = StartOptions { owner: 1, acknowledgement, discards_local: false, imports: false };
                        Arc::new(Replicated::start(disk, engine, NoMark, options).expect("it is taken").0)
                    }
                };
                all[number].push(measure(&open(storage, Options::default()), 0, load, time));
            }
        }
        for ((name, _), mut measured) in kinds.iter().zip(all) {
            measured.sort_by(|one, other| one.rate.total_cmp(&other.rate));
            let Measured { rate, median, p99 } = &measured[ROUNDS / 2];
            let millis = |time: &Duration| time.as_secs_f64() * 1_000.0;
            let (appenders, window) = load;
            println!("{name:<10} {appenders:>9} {window:>7} {rate:>12.0} {:>9.2} {:>9.2}", millis(median), millis(p99));
        }
    }
}
