//! The interest of this broker is announced to the other brokers.

use whimbrel_event::Time;

use super::Due;
use super::net::Net;
use crate::api::Output;
use crate::broker::Broker;

impl Broker {
    /// Collects which subscriptions were added and removed; other brokers are told soon.
    pub(crate) fn collect_own_interest(&mut self, now: Time) {
        let Some(overlay) = &mut self.overlay else { return };
        let changes = self.router.take_changes();
        if changes.is_empty() {
            return;
        }
        for change in changes {
            overlay.net.own_interest.apply(change);
        }
        overlay.net.tell_interest_soon(now);
    }

    /// Announces the own interest, if it has changed.
    pub(super) fn tell_interest(&mut self, now: Time, out: &mut dyn Output) {
        // Subscriptions that were made in this step, and wait for a version that has them, belong
        // to this version.
        self.collect_own_interest(now);
        let Some(overlay) = &mut self.overlay else { return };
        let bound = overlay.net.config.interest_max;
        if let Some(delta) = overlay.net.own_interest.renew(now, bound) {
            overlay.net.stats.interest_versions += 1;
            overlay.report_soon(now);
            self.flood_own_interest(now, delta, out);
        }
        self.name_version(now, out);
    }
}

impl Net {
    pub(super) fn tell_interest_soon(&mut self, now: Time) {
        if self.timers.first_of(Due::Interest).is_none() {
            let at = self.own_interest.next_version_at(now, self.topology.len(), &mut self.interests.recent);
            self.set_timer(at, Due::Interest);
        }
    }
}
