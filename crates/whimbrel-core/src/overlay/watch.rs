//! What follows when the topology or the own subscriptions have changed.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_net::Io;

use super::{Due, Overlay};
use crate::api::Output;
use crate::broker::Broker;

/// The pause between two changes of the brokers that sessions depend on, per broker beyond
/// [`FEW_BROKERS`](whimbrel_net::topology::FEW_BROKERS): each broker tells each other one of such a
/// change.
pub const MAP_PAUSE: Duration = Duration::from_millis(1);

impl Broker {
    /// Handles a change of the topology, if there is one. A broker that can be reached again is
    /// told at once what it may have missed.
    pub(super) fn check_ways(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        if !overlay.net.check_ways(now) {
            return;
        }
        let Overlay { destinations, net, timers, .. } = overlay;
        let mut back = Vec::new();
        for number in destinations.numbers() {
            let destination = destinations.get_mut(number).expect("it has a number");
            let is_reachable = net.routes().is_reachable(destination.host);
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
        if self.overlay.net.check_joined(now) {
            self.confirm_ready(now, out);
        }
    }

    /// Handles a change of the brokers that can be reached for sessions, if there is one; not
    /// within the pause after the last change.
    pub(super) fn watch_map(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        if now < overlay.map_at {
            return overlay.set_once(overlay.map_at, Due::Map);
        }
        if self.check_map(now, out) {
            self.overlay.map_at = now + MAP_PAUSE * self.overlay.net.many();
        }
    }

    /// Collects which subscriptions were added and removed; other brokers are told soon.
    pub(crate) fn collect_own_interest(&mut self, now: Time) {
        let overlay = &mut self.overlay;
        let changes = self.router.take_changes();
        if changes.is_empty() {
            return;
        }
        for change in changes {
            overlay.net.want(change);
        }
        overlay.net.tell_interest_soon(now);
    }

    /// Announces the own interest, if it has changed.
    pub(super) fn tell_interest(&mut self, now: Time, out: &mut dyn Output) {
        // Subscriptions that were made in this step, and wait for a version that has them, belong
        // to this version.
        self.collect_own_interest(now);
        let Broker { overlay, retained, .. } = self;
        if overlay.net.tell_interest(&mut Io { now, out: &mut *out, maps: &[&*retained] }) {
            overlay.report_soon(now);
        }
        self.name_version(now, out);
    }
}
