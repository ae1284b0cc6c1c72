//! Brokers come to be known, end, and are forgotten.

use whimbrel_event::{HostId, Tick, Time};

use super::topology::LinkState;
use crate::api::Output;
use crate::broker::Core;

impl Core {
    /// There is a broker whose streams are followed from now on: from where, it tells when it has adopted the interest of this one.
    pub(super) fn follow_host(
        &mut self,
        now: Time,
        host: HostId,
        (pubends, birth): ((u8, u8), Tick),
        out: &mut impl Output,
    ) {
        let is_known = self.streams.knows(host.pubend(0));
        let is_new = self.streams.add_host(host, pubends, birth, true);
        if is_new {
            self.wait_for_host(now, host, out);
        } else if !is_known && let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.stats.hosts_refused += 1;
        }
    }

    /// A broker is there that was not. Subscriptions that have been answered did not wait for it, nor was it named to them: what it tells counts from a version
    /// on that has them all.
    pub(super) fn wait_for_host(&mut self, now: Time, host: HostId, out: &mut impl Output) {
        self.tell_interest(now, out);
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        self.streams.follow_from(host, overlay.wants.version());
    }

    /// A broker came back without what it had, under its name: that which had it, and is out of reach, has ended.
    pub(super) fn end_namesake(&mut self, state: &LinkState) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(holder) = overlay.topology.by_name(&state.name) else { return };
        if holder != state.host && holder != overlay.host && !overlay.is_reachable(holder) {
            overlay.topology.forget(holder);
            self.forget_broker(holder);
        }
    }

    /// Brokers that were not heard of for long are forgotten. What was followed of their streams stays known: they may come back.
    pub(super) fn expire_brokers(&mut self, now: Time) {
        let Some(overlay) = &mut self.overlay else { return };
        let gone: Vec<HostId> = overlay.topology.expire(now);
        overlay.stats.brokers_expired += gone.len() as u64;
        overlay.watch_expiry();
        for host in gone {
            self.forget_broker(host);
        }
    }

    /// A broker is gone from the topology: nothing of it is kept.
    pub(super) fn forget_broker(&mut self, host: HostId) {
        let Some(overlay) = &mut self.overlay else { return };
        overlay.interests.of.remove(&host);
        overlay.note_all(None, |pending| {
            pending.states.remove(&host);
            pending.interests.remove(&host);
            pending.has.remove(&host);
        });
        self.serve_no_more(host);
    }
}
