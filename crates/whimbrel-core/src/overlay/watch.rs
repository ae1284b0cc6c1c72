//! Reactions to changes of the topology; where there are many brokers, changes are handled in
//! batches.
//!
//! Among many links some delay changes all the time. Paths take n log n to compute, and n brokers
//! make n times as many changes: a computation at each would cost more than n². So the first change
//! after a pause is handled at once, and the next ones together, after a pause that grows with the
//! number of brokers. An event whose next link has gone down meanwhile is repaired on its path, as
//! always.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_net::topology::FEW_BROKERS;

use super::Due;
use super::Overlay;
use super::net::Net;
use crate::api::Output;
use crate::broker::Broker;

/// The pause between two computations of paths, per broker beyond [`FEW_BROKERS`]: they take some
/// hundredth of a processor at most.
pub const WAYS_PAUSE: Duration = Duration::from_micros(50);

/// The pause between two changes of the brokers that sessions depend on, per broker beyond
/// [`FEW_BROKERS`]: each broker tells each other one of such a change.
pub const MAP_PAUSE: Duration = Duration::from_millis(1);

/// The version of the topology that was handled last, and the earliest times of the next changes.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The version of the topology.
    version: u64,
    ways_at: Time,
    map_at: Time,
}

impl Net {
    /// Lets paths be computed again if the pause is over at this moment.
    pub(super) fn look_again_at(&mut self, now: Time) {
        self.routes.hold(now < self.watch.ways_at);
    }

    /// The number of brokers beyond [`FEW_BROKERS`].
    fn many(&self) -> u32 {
        self.topology.len().saturating_sub(FEW_BROKERS) as u32
    }
}

impl Broker {
    /// Handles a change of the topology, if there is one. A broker that can be reached again is
    /// told at once what it may have missed.
    pub(super) fn check_topology(&mut self, now: Time, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if overlay.net.watch.version == overlay.net.topology.version() {
            return;
        }
        if now < overlay.net.watch.ways_at {
            return overlay.net.set_once(overlay.net.watch.ways_at, Due::Watch);
        }
        overlay.net.watch.version = overlay.net.topology.version();
        overlay.net.routes.update(&overlay.net.topology);
        overlay.net.stats.ways_computed += 1;
        overlay.net.watch.ways_at = now + WAYS_PAUSE * overlay.net.many();
        overlay.net.look_again_at(now);
        let Overlay { destinations, net: Net { routes, timers, .. }, .. } = overlay;
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
        // Retention holds for it could not be told while there was no path.
        back.into_iter().for_each(|host| self.hold_for(now, host, out));
        self.check_stalled(now, out);
        self.watch_map(now, out);
        self.check_candidates(now, out);
        self.confirm_ready(now, out);
        self.check_joining(now, |_| (), out);
    }

    /// Handles a change of the brokers that can be reached for sessions, if there is one; not
    /// within the pause after the last change.
    pub(super) fn watch_map(&mut self, now: Time, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if now < overlay.net.watch.map_at {
            return overlay.net.set_once(overlay.net.watch.map_at, Due::Map);
        }
        if self.check_map(now, out)
            && let Some(overlay) = self.overlay.as_deref_mut()
        {
            overlay.net.watch.map_at = now + MAP_PAUSE * overlay.net.many();
        }
    }
}
