//! The map of brokers is looked at whenever it has changed; where there are many brokers, many
//! changes are taken together.
//!
//! Some link of many brokers always has another delay than before. Ways take n log n to compute,
//! and with n brokers there are n times as many changes: at each of them that would be more than
//! n². So the first change after a while counts at once, and what comes soon after it together,
//! after a pause that grows with the brokers. An event whose next link has gone meanwhile is
//! repaired on its way, as ever.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_net::topology::FEW_BROKERS;

use super::{Due, Overlay};
use crate::api::Output;
use crate::broker::Broker;

/// For each broker beyond [`FEW_BROKERS`] ways are computed so much less often: that takes some
/// hundredth of a processor at most.
pub const WAYS_PAUSE: Duration = Duration::from_micros(50);

/// The same of which brokers there are for sessions: each change of that is told by each broker to
/// each other one.
pub const MAP_PAUSE: Duration = Duration::from_millis(1);

/// What was looked at last, and when something may be looked at again.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The topology.
    version: u64,
    ways_at: Time,
    map_at: Time,
}

impl Overlay {
    /// Something happens at that moment: perhaps ways may be computed again.
    pub(super) fn look_again_at(&mut self, now: Time) {
        self.routes.hold(now < self.watch.ways_at);
    }

    /// How many brokers there are beyond few.
    fn many(&self) -> u32 {
        self.topology.len().saturating_sub(FEW_BROKERS) as u32
    }
}

impl Broker {
    /// Where other brokers can be reached has changed, perhaps: who can be reached again is told at
    /// once what it may have missed.
    pub(super) fn check_topology(&mut self, now: Time, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if overlay.watch.version == overlay.topology.version() {
            return;
        }
        if now < overlay.watch.ways_at {
            return overlay.set_once(overlay.watch.ways_at, Due::Watch);
        }
        overlay.watch.version = overlay.topology.version();
        overlay.routes.update(&overlay.topology);
        overlay.stats.ways_computed += 1;
        overlay.watch.ways_at = now + WAYS_PAUSE * overlay.many();
        overlay.look_again_at(now);
        let Overlay { destinations, routes, timers, .. } = overlay;
        let mut back = Vec::new();
        for number in destinations.numbers() {
            let destination = destinations.get_mut(number).expect("it has a number");
            let is_reachable = routes.is_reachable(destination.host);
            if is_reachable && !core::mem::replace(&mut destination.is_reachable, is_reachable) {
                destination.pause = Duration::ZERO;
                destination.quiet_at = now;
                timers.insert(now, Due::Quiet(number));
                back.push(destination.host);
            }
            destination.is_reachable = is_reachable;
        }
        // What it is owed could not be told while there was no way.
        back.into_iter().for_each(|host| self.hold_for(now, host, out));
        self.check_stalled(now, out);
        self.watch_map(now, out);
        self.check_candidates(now, out);
        self.confirm_ready(now, out);
        self.check_joining(now, |_| (), out);
    }

    /// Who can be reached has changed, perhaps: for sessions that counts not too soon after the
    /// last time.
    pub(super) fn watch_map(&mut self, now: Time, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if now < overlay.watch.map_at {
            return overlay.set_once(overlay.watch.map_at, Due::Map);
        }
        if self.check_map(now, out)
            && let Some(overlay) = self.overlay.as_deref_mut()
        {
            overlay.watch.map_at = now + MAP_PAUSE * overlay.many();
        }
    }
}
