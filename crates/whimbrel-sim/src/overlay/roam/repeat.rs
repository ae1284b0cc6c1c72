//! The events that may be delivered again.

use whimbrel_event::Time;

use super::book::Name;
use super::client::Keeper;
use super::trouble::{COPY, GROUP, Troubles};
use crate::overlay::book::Process;

/// How a client received an event.
pub(super) struct Got {
    pub(super) at: Time,
    pub(super) last: Time,
    pub(super) process: Process,
    pub(super) connection: u32,
    pub(super) name: Name,
    pub(super) settled: Option<(Time, Process)>,
}

/// Whether an event may be delivered again under the same name, on another connection. `has_moved`:
/// its client has been at another broker meanwhile. `is_renewed`: the owner of its session is gone
/// with its disk. In both cases a replica may have taken over, which need not know of deliveries
/// and acknowledgements since its last copy.
pub(super) fn may_repeat(
    troubles: &Troubles,
    (keeper, (has_moved, is_renewed)): (Keeper, (bool, bool)),
    got: &Got,
    (now, at): (Time, Process),
) -> bool {
    // A copy may not arrive over a connection that stalls.
    let is_uncopied = |at: Time| troubles.any(at, at + COPY);
    let Some((settled, process)) = got.settled else {
        // An event that was not acknowledged is delivered again. At exactly once it has the same
        // packet id, which the client knows, unless a replica took over that does not know the id.
        let is_deputy = has_moved && troubles.any(got.at, now) || is_renewed && is_uncopied(got.at);
        return keeper == Keeper::AtLeast || keeper == Keeper::Exactly && is_deputy;
    };
    let is_deputy = (has_moved || is_renewed) && is_uncopied(settled);
    // The broker that knew of the acknowledgement has lost its disk, and the brokers that may have
    // had a copy were down too.
    let is_lost = troubles.lost_disk_of(process.0, settled) && troubles.gone(settled, now) > 1;
    let is_crash = process.0 == at.0 && process.1 != at.1 && troubles.ended_within(process, settled, GROUP);
    match keeper {
        Keeper::AtLeast => is_crash || is_deputy || is_lost,
        Keeper::Exactly => is_deputy || is_lost,
        Keeper::Client => false,
    }
}
