//! What may come again.

use whimbrel_event::Time;

use super::book::Name;
use super::client::Keeper;
use super::trouble::{COPY, GROUP, Troubles};
use crate::overlay::book::Process;

/// How an event came.
pub(super) struct Got {
    pub(super) at: Time,
    pub(super) last: Time,
    pub(super) process: Process,
    pub(super) connection: u32,
    pub(super) name: Name,
    pub(super) settled: Option<(Time, Process)>,
}

/// Whether an event may come again under the same name, on another connection; and whether its
/// client has been elsewhere meanwhile, or its keeper is gone with its disk: a deputy took over
/// then, which may know nothing of what came or was settled since its last copy.
pub(super) fn may_repeat(
    troubles: &Troubles,
    (keeper, (has_moved, is_renewed)): (Keeper, (bool, bool)),
    got: &Got,
    (now, at): (Time, Process),
) -> bool {
    // A copy may not come over a connection that stalls.
    let is_uncopied = |at: Time| troubles.any(at, at + COPY);
    let Some((settled, process)) = got.settled else {
        // Who has not said that it has it gets it again; at exactly once under the same tag, which
        // it knows, unless a deputy does not.
        let is_deputy = has_moved && troubles.any(got.at, now) || is_renewed && is_uncopied(got.at);
        return keeper == Keeper::AtLeast || keeper == Keeper::Exactly && is_deputy;
    };
    let is_deputy = (has_moved || is_renewed) && is_uncopied(settled);
    // The broker that knew it has lost its disk, and whoever may have had a copy was not there
    // either.
    let is_lost = troubles.lost_disk_of(process.0, settled) && troubles.gone(settled, now) > 1;
    let is_crash = process.0 == at.0 && process.1 != at.1 && troubles.ended_within(process, settled, GROUP);
    match keeper {
        Keeper::AtLeast => is_crash || is_deputy || is_lost,
        Keeper::Exactly => is_deputy || is_lost,
        Keeper::Client => false,
    }
}
