//! Memory of the overlay by kind of content, to show how it grows with the number of brokers.

use whimbrel_event::HostId;
use whimbrel_net::interest::others::InterestValue;
use whimbrel_net::topology::{LinkState, Neighbour};

use super::destinations::Destination;
use super::{Due, Overlay};
use crate::broker::Broker;

/// Estimate of the bytes that a map or a set needs for each entry beside the entry itself.
const OF_MAP: usize = 16;

/// The size of one kind of content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverlaySize {
    /// The kind.
    pub what: &'static str,
    /// The number of entries.
    pub entries: usize,
    /// Bytes of the entries: what their types and lengths tell, without the overhead of the
    /// allocator.
    pub bytes: usize,
}

fn of_entry(entry: &InterestValue) -> usize {
    size_of::<InterestValue>() + entry.filter.len() + entry.selector.as_ref().map_or(0, |selector| selector.len())
}

fn of_state(state: &LinkState) -> usize {
    let addresses: usize = state.addresses.iter().map(|address| size_of::<Box<str>>() + address.len()).sum();
    let previous = state.previous.len() * size_of::<whimbrel_wire::PreviousIdentity>();
    size_of::<LinkState>()
        + state.name.len()
        + addresses
        + state.neighbours.len() * size_of::<Neighbour>()
        + previous
        + state.later.len()
}

impl Broker {
    /// The sizes of the overlay's contents by kind; empty if there is no overlay. The index of
    /// other brokers' interests is not included: it is part of the index of subscriptions.
    pub fn overlay_sizes(&self) -> Vec<OverlaySize> {
        if !self.overlay.is_open() {
            return Vec::new();
        }
        let overlay = &self.overlay;
        let mut sizes = overlay.sizes();
        let (entries, bytes) = self.streams.size();
        sizes.push(OverlaySize { what: "streams", entries, bytes });
        let (entries, bytes) = self.cursors.size(self.store.bases.all());
        sizes.push(OverlaySize { what: "positions of subscriptions", entries, bytes });
        sizes
    }

    /// The number of brokers that can be reached, this one included.
    pub fn brokers_reached(&self) -> usize {
        if !self.overlay.is_open() {
            return 0;
        }
        let overlay = &self.overlay;
        overlay
            .net
            .topology()
            .hosts()
            .filter(|host| *host == overlay.net.host() || overlay.net.routes().is_reachable(*host))
            .count()
    }

    /// The cost of the best path to a broker, microseconds, if there is one.
    pub fn way_us(&self, host: HostId) -> Option<u64> {
        self.overlay.net.routes().cost_us(host)
    }

    /// Whether the topology has a link between two brokers.
    pub fn are_linked(&self, one: HostId, other: HostId) -> bool {
        self.overlay.net.topology().link(one, other).is_some()
    }
}

impl Overlay {
    fn sizes(&self) -> Vec<OverlaySize> {
        let size = |what, entries, bytes| OverlaySize { what, entries, bytes };
        let states = self.net.topology().states().map(|state| of_state(state) + 4 * OF_MAP).sum();
        let known = self.net.interests();
        let entries: usize = known.clone().map(|known| known.entries.len()).sum();
        let told = known.flat_map(|known| known.entries.values()).map(|entry| of_entry(entry) + OF_MAP).sum::<usize>();
        let served: usize = self.destinations.iter().map(|one| one.entries().count()).sum();
        let of_one = |one: &Destination| one.entries().map(|entry| of_entry(entry) + 2 * OF_MAP).sum::<usize>();
        let destinations = self.destinations.iter().map(|one| size_of::<Destination>() + of_one(one)).sum();
        let pending = self.net.neighbours().map(|peer| peer.pending.len());
        let pending: usize = pending.sum();
        let (ways, of_ways) = self.net.routes().size();
        let (sessions, of_sessions) = self.roam.size();
        let timers = self.timers.len() + self.net.deadlines();
        vec![
            size("link states", self.net.topology().len(), states),
            size("ways", ways, of_ways),
            size("interests", entries, told),
            size("destinations", served, destinations),
            size("told to neighbours", pending, pending * (size_of::<(HostId, u64, u64)>() + OF_MAP)),
            size("sessions elsewhere", sessions, of_sessions),
            size("deadlines", timers, timers * 2 * (size_of::<(u64, Due)>() + OF_MAP)),
        ]
    }
}
