//! The memory that absent sessions take: the growth of a broker's resident memory. The broker is
//! restarted on its stored sessions first, so that the memory of connections does not count. The
//! figure varies little, and is measured once.

use anyhow::{Result, ensure};

use super::super::link::Link;
use super::super::peers::{Peer, Running};
use super::super::process;
use super::super::target::Target;
use super::super::wire::{Protocol, QoS};
use super::{DurableArgs, Row};
use crate::progress;

/// The memory that a durable subscription of an absent session may take, bytes.
const GOAL: f64 = 400.0;

/// The number of durable subscriptions in all.
const SUBSCRIPTIONS: usize = 20_000;

/// The subscriptions of a session, in each measurement.
const PER_SESSION: [usize; 2] = [1, 10];

/// Leaves sessions behind, each subscription with its own topic, and measures the broker after its
/// next start.
pub(super) fn rows(args: &DurableArgs) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for per_session in PER_SESSION {
        let broker = restarted(args, args.start(Peer::Whimbrel, args.bound(""))?)?;
        let before = process::resident_bytes(broker.pid())?;
        leave_behind(&broker, per_session)?;
        let broker = restarted(args, broker)?;
        let after = process::resident_bytes(broker.pid())?;
        ensure!(after > before, "the broker has forgotten the sessions: {after} bytes after {before}");
        let each = (after - before) as f64 / SUBSCRIPTIONS as f64;
        let what = format!("an absent durable subscription, {per_session} in a session: resident memory");
        rows.push(Row::plain("memory", what, "B", each).at_most(GOAL));
    }
    Ok(rows)
}

fn restarted(args: &DurableArgs, broker: Running) -> Result<Running> {
    broker.kill_and_start(Peer::Whimbrel, &args.programs(), args.bound(""), |_| Ok(()))
}

fn leave_behind(broker: &Running, per_session: usize) -> Result<()> {
    let target = Target { protocol: Protocol::Mqtt311, ..broker.target };
    let progress = progress::bar(SUBSCRIPTIONS as u64);
    progress.set_message("leaving sessions behind");
    for session in 0..SUBSCRIPTIONS / per_session {
        let mut link = Link::open_lasting(target, &format!("absent-{session}"))?;
        for topic in 0..per_session {
            link.subscribe(session * per_session + topic, QoS::AtLeastOnce, "absent")?;
        }
        link.leave()?;
        progress.inc(per_session as u64);
    }
    progress.finish_and_clear();
    Ok(())
}
