//! Events of the own streams go to the brokers that want them.

use whimbrel_event::{AcceptedEvent, EventId, HostId, Reliability, Time};
use whimbrel_net::forward::Sending;
use whimbrel_wire::{Dest, Repairers, compact};

use super::{Overlay, is_local};
use crate::api::Output;
use crate::broker::Broker;

impl Broker {
    /// Sends an event of an own stream to the brokers that want it; their numbers are in
    /// `self.brokers`.
    pub(crate) fn forward(&mut self, now: Time, event: &AcceptedEvent<'_>, retain: bool, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let mut wanted = core::mem::take(&mut self.brokers);
        if fault!(self, SentToAll) {
            wanted = overlay.destinations.numbers();
        }
        if !is_local(event.event.topic) {
            wanted.sort_unstable();
            wanted.dedup();
            let dests = overlay.matched(now, event.id, &wanted);
            let mut bytes = core::mem::take(&mut overlay.event);
            bytes.clear();
            compact::write(event, &mut bytes);
            let age_us = now.since(event.accepted).as_micros() as u64;
            let repairers = Repairers::NONE;
            let sending = Sending { id: event.id, age_us, answer: false, retain, repairers, event: &bytes };
            overlay.net.send_own(now, &sending, &dests, out);
            overlay.event = bytes;
            if fault!(self, PreviousNotMoved) {
                overlay.take_back(event.id, &dests);
            }
        }
        wanted.clear();
        self.brokers = wanted;
    }
}

impl Overlay {
    /// The destinations of an event, with the data for each. The event's tick is from now on the
    /// previous one for each of them, whether or not the event reaches it.
    fn matched(&mut self, now: Time, id: EventId, wanted: &[u32]) -> Vec<(HostId, Dest)> {
        let own = usize::from(id.pubend.index());
        let mut dests = Vec::with_capacity(wanted.len());
        for number in wanted {
            let destination = self.destinations.get_mut(*number).expect("who stands in the index is served");
            let previous = core::mem::replace(&mut destination.last[own], id.tick);
            destination.gets_best_effort |= id.pubend.reliability() == Reliability::BestEffort;
            dests.push((destination.host, Dest { tag: destination.tag, previous }));
            self.is_quiet_after(now, *number);
        }
        // Sets of destinations are known in this order.
        dests.sort_unstable_by_key(|(host, _)| *host);
        dests
    }
}
