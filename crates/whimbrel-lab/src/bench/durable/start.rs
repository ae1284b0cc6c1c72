//! How long the broker takes to be ready on a long log, and how much of the log it reads.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::super::link::Link;
use super::super::peers::{Peer, Setup};
use super::super::wire::{Protocol, QoS};
use super::publishers::Publishers;
use super::{DurableArgs, Grouping, Row};
use crate::progress;

/// The goal for the time until the broker is ready, milliseconds.
const READY: f64 = 1_000.0;

/// Bytes of a body of the log.
const BODY: usize = 4_000;

/// The number of messages between two checks of the log's size.
const STEP: u64 = 2_000;

const GROUPING: Grouping = Grouping { publishers: 4, window: 500 };

const SETTINGS: &str = "[journal]\nmax_log = \"64 GiB\"\n";

/// Fills a log for a session that is away, and starts the broker on it once per round, each time
/// after it was killed.
pub(super) fn rows(args: &DurableArgs) -> Result<Vec<Row>> {
    let setup = Setup { core: None, ..args.bound(SETTINGS) };
    let mut broker = args.start(Peer::Whimbrel, setup)?;
    fill(args, broker.target)?;
    let (mut ready, mut read, mut length) = (Vec::new(), Vec::new(), (0, 0));
    for _ in 0..args.rounds {
        let mut begin = Instant::now();
        broker = broker.kill_and_start(Peer::Whimbrel, &args.programs(), setup, |folder| {
            length = forget(&folder.join("data/journal"))?;
            begin = Instant::now();
            Ok(())
        })?;
        ready.push(begin.elapsed().as_secs_f64() * 1e3);
        read.push(bytes_read(broker.pid())? as f64 / f64::from(1 << 20));
    }
    let (files, bytes) = length;
    let log = format!("{:.2} GB in {files} files", bytes as f64 / 1e9);
    Ok(vec![
        Row::median(
            "start",
            format!("{log}: from the start of the process to the first connection"),
            "ms",
            &ready,
            args.start.seed,
        )
        .at_most(READY),
        Row::median("start", format!("{log}: read by the process"), "MiB", &read, args.start.seed),
    ])
}

/// Publishes messages that the absent session wants.
fn fill(args: &DurableArgs, mut target: super::super::target::Target) -> Result<()> {
    target.protocol = Protocol::Mqtt311;
    let mut absent = Link::open_lasting(target, "absent")?;
    for topic in 0..GROUPING.publishers {
        absent.subscribe(topic, QoS::AtLeastOnce, "absent")?;
    }
    absent.leave()?;
    let each = (args.gigabytes * 1e9) as u64 / (BODY * GROUPING.publishers) as u64;
    let progress = progress::bar(each);
    progress.set_message("writing the log");
    let mut publishers = Publishers::connect(target, GROUPING, BODY)?;
    let mut sent = 0;
    while sent < each {
        sent = (sent + STEP).min(each);
        publishers.send(sent)?;
        progress.set_position(sent);
    }
    progress.finish_and_clear();
    Ok(())
}

/// Drops the log's files from the page cache, as far as they are on the disk; returns their number
/// and their bytes.
fn forget(folder: &Path) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).context("emptying the page cache")?;
        files += 1;
        bytes += file.metadata()?.len();
    }
    ensure!(files > 0, "the log is not in {}", folder.display());
    Ok((files, bytes))
}

/// Bytes that a process has read so far, from files and sockets.
fn bytes_read(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/io");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let value = text.lines().find_map(|line| line.strip_prefix("rchar: ")).context("no rchar")?;
    value.trim().parse().with_context(|| format!("rchar is no number: {value}"))
}
