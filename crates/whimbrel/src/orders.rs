//! `whimbrel reload` and `whimbrel drain`: orders that signals can give, too.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use whimbrel_server::api::answers::{Draining, Reloaded, Status};

use crate::control::{Control, Reach};
use crate::failure::{self, Failure};
use crate::table::count;

const RELOAD: &str = "\
Fences, partitions, topic profiles, users, rules, quotas, and the files of certificates are read again; docs/operations.md lists what is not.
If anything is wrong, nothing of it comes into force.

Examples:
  whimbrel reload --data /var/lib/whimbrel
  whimbrel reload --api https://depot-north.example.org:8080 --ca ca.pem --cert ops.pem --key ops.key";

const DRAIN: &str = "\
The broker accepts no more connections, tells its clients to go (MQTT 5: DISCONNECT 0x8B), waits until they have what was sent to them (`--drain-timeout`), \
hands over to other brokers what they need, closes its journal and ends. Sessions stay, and clients go on at this broker once it is started again, \
or at another one that it is linked with. A service manager may start it again at once.

Examples:
  whimbrel drain --data /var/lib/whimbrel
  whimbrel drain --within 300";

/// Pause between two looks whether a broker has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `whimbrel reload`.
#[derive(Args)]
#[command(after_help = RELOAD)]
pub struct Reload {
    #[command(flatten)]
    reach: Reach,
}

/// Arguments of `whimbrel drain`.
#[derive(Args)]
#[command(after_help = DRAIN)]
pub struct Drain {
    #[command(flatten)]
    reach: Reach,
    /// How long to wait for the broker's end, seconds; 0: not at all
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    within: u64,
}

impl Reload {
    /// Makes the broker read its configuration again, and prints whether anything has changed.
    pub fn run(&self) -> Result<(), Failure> {
        let Reloaded { changed } = self.reach.find()?.ask("POST", "/api/v1/reload")?;
        failure::print(if changed { b"read again: in force\n" } else { b"read again: nothing has changed\n" })
    }
}

impl Drain {
    /// Makes the broker drain and end, and waits for that.
    pub fn run(&self) -> Result<(), Failure> {
        let control = self.reach.find()?;
        let process = control.process();
        // A principal that may drain may lack the right to look.
        let began = began(&control).ok();
        let Draining { connections } = control.ask("POST", "/api/v1/drain")?;
        let clients = count(connections, "connection", "connections");
        failure::print(format!("draining: {clients} are told to go\n").as_bytes())?;
        if self.within == 0 {
            return Ok(());
        }
        let end = Instant::now() + Duration::from_secs(self.within);
        let has_ended = match process {
            Some(process) => ends_by(&process, end)?,
            None => is_gone_by(&control, began, end),
        };
        if has_ended {
            return failure::print(b"the broker has ended\n");
        }
        Err(anyhow!("the broker has not ended within {} s; its log tells what it waits for", self.within).into())
    }
}

/// Whether a process of this machine ends in time.
fn ends_by(process: &OwnedFd, end: Instant) -> anyhow::Result<bool> {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).context("the time is too long")?;
        match poll(&mut watched, Some(&limit)) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the broker's process"),
        }
    }
}

/// Whether a broker reached over HTTP stops answering in time, or another process answers: a
/// service manager may have started it.
fn is_gone_by(control: &Control, began: Option<u64>, end: Instant) -> bool {
    while Instant::now() < end {
        if has_ended(control, began) {
            return true;
        }
        // tidy: poll — the broker's end
        std::thread::sleep(LOOK);
    }
    false
}

/// When the broker began, milliseconds since the Unix epoch.
fn began(control: &Control) -> anyhow::Result<u64> {
    Ok(control.ask::<Status>("GET", "/api/v1/status")?.started_ms)
}

/// Whether the broker that began `then` is gone.
fn has_ended(control: &Control, then: Option<u64>) -> bool {
    match began(control) {
        Ok(now) => then.is_some_and(|then| then != now),
        Err(_) => !control.listens(),
    }
}
