//! A full disk: refusals are honest, nothing that was accepted is lost, and it ends when there is
//! room again.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

use crate::broker::{Plan, Store};
use crate::calm::{Calm, one_by_each_rule};
use crate::judge::{demand, judge};
use crate::weather::Weather;

/// Bytes of the small disk, and of a bounded journal.
const ROOM: u64 = 64 << 20;

/// Bytes of a segment of the bounded journal. On a small disk the broker finds by itself what there
/// is room for.
const SEGMENT: u32 = 4 << 20;

/// Bytes of an event.
const EVENT: usize = 64 << 10;

/// More than this is never accepted in that room, though segments are used again.
const EVENTS_MAX: u32 = 4 * (ROOM / EVENT as u64) as u32;

/// After this number of refusals in a row it is full.
const REFUSALS: u32 = 20;

/// A file system in memory that only its own processes see. It goes with its value.
struct SmallDisk {
    keeper: Child,
    directory: TempDir,
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

impl SmallDisk {
    /// Makes one.
    ///
    /// # Errors
    /// What this machine does not allow.
    fn new() -> Result<SmallDisk, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let script = format!(r#"mount -t tmpfs -o size={ROOM} none "$0" && echo ready && exec cat"#);
        let mut keeper = Command::new("unshare");
        keeper.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(directory.path());
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let keeper = keeper.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut disk = SmallDisk { keeper, directory };
        let mut line = String::new();
        BufReader::new(disk.keeper.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        if line.trim() == "ready" {
            return Ok(disk);
        }
        let mut why = String::new();
        BufReader::new(disk.keeper.stderr.take().expect("piped")).read_line(&mut why).expect("text");
        Err(format!("no file system can be mounted here: {}", why.trim()))
    }

    /// A command that runs the words behind it where the disk is.
    fn within(&self) -> Vec<String> {
        let id = self.keeper.id().to_string();
        ["nsenter", "--preserve-credentials", "--user", "--mount", "--target", &id, "--"].map(str::to_owned).to_vec()
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Where there is little room: on a small disk, or else within a bound.
enum Room {
    Disk(SmallDisk),
    Bound(TempDir),
}

impl Room {
    fn plan(&self) -> Plan {
        let store = |directory: PathBuf, segment, max_log| Store::Data { directory, segment, max_log };
        match self {
            Room::Disk(disk) => {
                let within = disk.within();
                let within: Vec<&str> = within.iter().map(String::as_str).collect();
                Plan::new(store(disk.path().join("data"), None, None)).before(&within)
            }
            Room::Bound(directory) => Plan::new(store(directory.path().join("data"), Some(SEGMENT), Some(ROOM))),
        }
    }
}

async fn fill_and_drain(room: &Room) {
    let weather = Weather::new(Duration::from_secs(300));
    let mut calm = Calm::begin(room.plan(), weather, &one_by_each_rule()).await;
    let mut refused = 0;
    while refused < REFUSALS {
        refused = if calm.publish(EVENT).await { 0 } else { refused + 1 };
        assert!(calm.number() < EVENTS_MAX, "it never gets full");
    }
    assert!(calm.number() > REFUSALS + 100, "{} events are not what {ROOM} bytes hold", calm.number());
    // It comes up again although there is no room, and answers honestly.
    calm.kill();
    calm.start().await.unwrap_or_else(|log| panic!("it does not start on a full disk: {log}"));
    for _ in 0..REFUSALS {
        calm.publish(EVENT).await;
    }
    // Subscribers that come back make room.
    let subscribers = calm.release();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !calm.publish(EVENT).await {
        assert!(Instant::now() < deadline, "there is no room, although everything is acknowledged");
    }
    for more in 1..=REFUSALS {
        assert!(calm.publish(1024).await, "there is room, but event {more} after that is refused");
    }
    let book = calm.end(subscribers).await;
    demand(&judge(&book), |_| false);
}

#[test]
fn a_small_disk_takes_no_more_than_it_has_room_for() {
    let disk = match SmallDisk::new() {
        Ok(disk) => disk,
        Err(missing) => return println!("not run: {missing}"),
    };
    let fill = |bytes: u64| {
        let words = disk.within();
        let script = format!(r#"head -c {bytes} /dev/zero > "$0/file""#);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["sh", "-c", &script]).arg(disk.path()).stderr(Stdio::null());
        command.status().expect("it runs").success()
    };
    assert!(fill(ROOM / 2) && !fill(ROOM * 2));
    assert_eq!(std::fs::read_dir(disk.path()).expect("a directory").count(), 0, "nobody else sees it");
    let within = disk.within();
    let within: Vec<&str> = within.iter().map(String::as_str).collect();
    let started = Plan::new(Store::Memory).before(&within).start();
    assert!(started.is_ok(), "a broker runs there: {started:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_loses_nothing_and_recovers() {
    match SmallDisk::new() {
        Ok(disk) => fill_and_drain(&Room::Disk(disk)).await,
        Err(missing) => println!("not run: {missing}; the bound of the journal is tested all the same"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_journal_refuses_loses_nothing_and_recovers() {
    fill_and_drain(&Room::Bound(tempfile::tempdir().expect("a temporary directory"))).await;
}
