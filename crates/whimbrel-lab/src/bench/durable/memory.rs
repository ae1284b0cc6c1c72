//! The memory of absent sessions: the growth of a broker's resident memory from one number of
//! durable subscriptions to a greater one. What the broker takes once does not count. The broker is
//! restarted on its stored sessions before each reading, so that connections do not count either.
//! The figure varies little, and is measured once.

use core::ops::Range;

use anyhow::{Result, ensure};

use super::super::link::Link;
use super::super::peers::{Peer, Running};
use super::super::process;
use super::super::target::Target;
use super::super::wire::{Protocol, QoS};
use super::{DurableArgs, Row};
use crate::progress;

/// The memory that a durable subscription of an absent session may take, bytes.
const GOAL: f64 = 800.0;

/// The numbers of durable subscriptions at which memory is read.
const SUBSCRIPTIONS: [usize; 2] = [20_000, 80_000];

/// The subscriptions of a session, in each measurement.
const PER_SESSION: [usize; 2] = [1, 10];

/// Leaves sessions behind, each subscription with its own topic, and measures the broker after its
/// next start, at both numbers of subscriptions.
pub(super) fn rows(args: &DurableArgs) -> Result<Vec<Row>> {
    let [few, many] = SUBSCRIPTIONS;
    let mut rows = Vec::new();
    for per_session in PER_SESSION {
        let broker = args.start(Peer::Whimbrel, args.bound(""))?;
        leave_behind(&broker, 0..few, per_session)?;
        let broker = restarted(args, broker)?;
        let before = process::resident_bytes(broker.pid())?;
        leave_behind(&broker, few..many, per_session)?;
        let broker = restarted(args, broker)?;
        let after = process::resident_bytes(broker.pid())?;
        ensure!(after > before, "the broker has forgotten the sessions: {after} bytes after {before}");
        let each = (after - before) as f64 / (many - few) as f64;
        let what = format!("an absent durable subscription, {per_session} in a session: resident memory");
        rows.push(Row::plain("memory", what, "B", each).at_most(GOAL));
    }
    Ok(rows)
}

fn restarted(args: &DurableArgs, broker: Running) -> Result<Running> {
    broker.kill_and_start(Peer::Whimbrel, &args.programs(), args.bound(""), |_| Ok(()))
}

/// Leaves the sessions behind that have the durable subscriptions of these numbers.
fn leave_behind(broker: &Running, subscriptions: Range<usize>, per_session: usize) -> Result<()> {
    let target = Target { protocol: Protocol::Mqtt311, ..broker.target };
    let progress = progress::bar(subscriptions.len() as u64);
    progress.set_message("leaving sessions behind");
    for first in subscriptions.step_by(per_session) {
        let mut link = Link::open_lasting(target, &format!("absent-{first}"))?;
        for topic in first..first + per_session {
            link.subscribe(topic, QoS::AtLeastOnce, "absent")?;
        }
        link.leave()?;
        progress.inc(per_session as u64);
    }
    progress.finish_and_clear();
    Ok(())
}
