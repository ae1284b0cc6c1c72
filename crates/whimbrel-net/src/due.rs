//! The deadlines of the network layer, by their purposes.

use whimbrel_event::Time;

use crate::PeerLink;
use crate::deadlines::Deadlines;

/// The purpose of a deadline, in the order in which deadlines of one moment are met.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NetDue {
    /// A link is probed, and checked for silence and for being stuck.
    Probe(PeerLink),
    /// The own link state is announced.
    Announce,
    /// The own interest is announced.
    Interest,
    /// The topology has changed, and is checked together with its later changes.
    Watch,
    /// Brokers that were not heard of for too long are forgotten.
    Expire,
    /// The survey of a replicated map for a link is continued.
    Survey(PeerLink, u8),
    /// The own link state is repeated, wanted links are asked for, maps are compared.
    Refresh,
    /// Events with a deadline that arrived over a link are reported to its other end.
    Report(PeerLink),
    /// A link is checked for events with a deadline that its other end should have reported.
    Judge(PeerLink),
}

/// The deadlines; none can be set in the null form.
#[derive(Debug, Default)]
pub(crate) struct NetTimers {
    is_open: bool,
    all: Deadlines<NetDue>,
}

impl NetTimers {
    /// None is set, and some can be.
    pub(crate) fn open() -> NetTimers {
        NetTimers { is_open: true, ..NetTimers::default() }
    }

    /// Sets a timer.
    pub(crate) fn set(&mut self, at: Time, due: NetDue) {
        if self.is_open {
            self.all.insert(at, due);
        }
    }

    /// Sets a timer unless an earlier one for the same purpose is set; a later one is replaced.
    pub(crate) fn set_once(&mut self, at: Time, due: NetDue) {
        if self.is_open {
            self.all.set_once(at, due);
        }
    }

    /// Removes all timers for a purpose.
    pub(crate) fn drop_all(&mut self, due: NetDue) {
        self.all.drop_all(due);
    }

    /// Whether a timer for this purpose is set.
    pub(crate) fn has(&self, due: NetDue) -> bool {
        self.all.first_of(due).is_some()
    }

    /// Takes the first timer, if its time has come.
    pub(crate) fn take(&mut self, now: Time) -> Option<(Time, NetDue)> {
        let (at, due) = self.all.first().filter(|(at, _)| *at <= now)?;
        self.all.remove(at, due);
        Some((at, due))
    }

    /// The first timer.
    pub(crate) fn first(&self) -> Option<(Time, NetDue)> {
        self.all.first()
    }

    /// The number of timers.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
