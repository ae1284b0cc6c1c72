//! Requests and subscriptions in force that wait for other brokers.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{HostId, Reliability, Time};

use super::machine::{EndInForce, InForce};
use crate::cursor::Cursors;
use crate::overlay::HoldsReceived;
use crate::route::Router;
use crate::store::{BatchNo, Disk, Store, Wait};
use crate::stream::Sources;
use whimbrel_net::Net;

/// Most waiting SUBSCRIBEs; a further one is answered at once, and names all brokers. Likewise of
/// UNSUBSCRIBEs.
pub const WAITING_MAX: usize = 16_384;

/// Most subscriptions that have returned before their interest is in force; a further one is not
/// told what it misses.
const RETURNED_MAX: usize = 1 << 20;

/// The version for a SUBSCRIBE that adds nothing to the own interest.
pub(super) const NO_VERSION: u64 = 0;

/// A SUBSCRIBE that others have not confirmed.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    pub(super) what: InForce,
    /// One of the subscriptions is durable: other brokers' logs must count for it.
    pub(super) is_durable: bool,
    /// Once all brokers have confirmed: the batch with the positions from which their logs count.
    pub(super) batch: Option<BatchNo>,
    /// The version of the own interest that has the subscriptions; `None`: the next one.
    pub(super) version: Option<u64>,
    /// The version of the session that its replica must have.
    pub(super) copied: u64,
    pub(super) due: Time,
}

impl Unconfirmed {
    /// Whether a broker has confirmed `version`, which has the subscriptions.
    pub(super) fn is_confirmed(&self, streams: &Sources, received: &HoldsReceived, host: HostId, version: u64) -> bool {
        has_confirmed(streams, host, version) && (!self.is_durable || received.is_granted(host, version))
    }
}

/// A subscription that returned, and whose interest is not yet in force everywhere.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) subscription: u32,
    pub(super) cursor: u32,
    pub(super) version: Option<u64>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Awaiting {
    /// SUBSCRIBEs, in the order of their versions.
    pub(super) entries: VecDeque<Unconfirmed>,
    /// SUBSCRIBEs that wait only for homes of shared subscriptions.
    pub(super) sharing: Vec<Unconfirmed>,
    /// UNSUBSCRIBEs.
    pub(super) ended: Vec<EndInForce>,
    pub(super) returned: Vec<Returned>,
    /// A broker has confirmed a later version, or a version was named, since `returned` was last
    /// checked.
    is_told_more: bool,
    /// Brokers that did not confirm in time: no request waits for them until they do.
    late: BTreeSet<HostId>,
    /// A broker that the first entry still waited for when all brokers were last checked. The
    /// others need not be checked until it has confirmed: each confirms by itself, and that would
    /// cost the square of their number for each subscription.
    pub(super) lacking: Option<HostId>,
}

impl Awaiting {
    /// Whether no further SUBSCRIBE may wait.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() + self.sharing.len() >= WAITING_MAX
    }

    /// Whether no further UNSUBSCRIBE may wait.
    pub(super) fn is_full_of_ends(&self) -> bool {
        self.ended.len() >= WAITING_MAX
    }

    /// Whether no further returned subscription may wait.
    pub(super) fn is_full_of_returned(&self) -> bool {
        self.returned.len() >= RETURNED_MAX
    }

    /// Records whether a broker has confirmed a later version of the own interest.
    pub(crate) fn record_told_more(&mut self, is_more: bool) {
        self.is_told_more |= is_more;
    }

    /// Whether returned subscriptions are to be checked; they count as checked from now on.
    pub(super) fn has_to_check_returned(&mut self) -> bool {
        !self.returned.is_empty() && core::mem::take(&mut self.is_told_more)
    }

    /// Whether the positions from which other brokers' logs count for the first entry are durable.
    /// If not, the entry is checked again when they are.
    pub(super) fn is_first_written(&mut self, store: &mut Store) -> bool {
        let Some(first) = self.entries.front_mut().filter(|first| first.is_durable) else { return true };
        if store.disk == Disk::None || store.disk == Disk::Poisoned {
            return true;
        }
        let is_new = first.batch.is_none();
        let batch = *first.batch.get_or_insert(store.write_queue.last());
        let is_written = batch <= store.commit_queue.committed();
        if is_new && !is_written {
            store.commit_queue.push(batch, Wait::Covered);
        }
        is_written
    }

    /// Assigns this version of the own interest to the entries without one: it has their
    /// subscriptions.
    pub(super) fn name_version(&mut self, version: u64, router: &Router, cursors: &mut Cursors) {
        for entry in self.entries.iter_mut().filter(|entry| entry.version.is_none()) {
            entry.version = Some(version);
            let of = |text| router.cursor_of(entry.what.session(), text);
            let named = entry.what.made.iter().filter_map(|made| of(made.text()));
            named.for_each(|cursor| cursors.get_mut(cursor).began.in_force.name(version));
        }
        for one in self.returned.iter_mut().filter(|one| one.version.is_none()) {
            one.version = Some(version);
            if cursors.is_of(one.cursor, one.subscription) {
                cursors.get_mut(one.cursor).began.in_force.name(version);
            }
        }
        self.is_told_more = true;
    }

    /// All that was announced is void: the next version has all entries. Returns when each entry
    /// and UNSUBSCRIBE is due.
    pub(crate) fn begin_anew(&mut self) -> Vec<Time> {
        self.entries.iter_mut().for_each(|entry| entry.version = None);
        self.entries.iter().map(|entry| entry.due).chain(self.ended.iter().map(|end| end.due)).collect()
    }

    /// Removes a broker that is forgotten.
    pub(crate) fn forget_host(&mut self, host: HostId) {
        self.late.remove(&host);
    }

    /// Removes a returned subscription that has ended, or returns once more.
    pub(crate) fn forget(&mut self, cursor: u32) {
        self.returned.retain(|one| one.cursor != cursor);
    }

    /// Removes returned subscriptions that have ended, or wait for no broker any more.
    pub(crate) fn forget_settled(&mut self, cursors: &Cursors) {
        let waits = |one: &Returned| !cursors.get(one.cursor).unsettled.is_empty();
        self.returned.retain(|one| cursors.is_of(one.cursor, one.subscription) && waits(one));
    }

    /// New subscriptions of unanswered SUBSCRIBEs, each with the index of its session, as far as no
    /// start position was given.
    pub(crate) fn new_ones(&self) -> impl Iterator<Item = (u32, &str)> {
        let all = self.entries.iter().flat_map(|entry| entry.what.made.iter().map(|made| (entry.what.session(), made)));
        let begins = all.filter(|(_, made)| made.is_new && made.result.is_ok() && made.request.starts_at_own());
        begins.map(|(index, made)| (index, made.text()))
    }

    /// Whether the first entry still waits for the broker in `lacking`.
    pub(super) fn lacks(&self, net: &mut Net, received: &HoldsReceived, streams: &Sources) -> bool {
        net.ways();
        let (Some(host), Some(first)) = (self.lacking, self.entries.front()) else { return false };
        let is_awaited = |host: HostId| !self.late.contains(&host) && net.routes().is_reachable(host);
        let waits = |version| !first.is_confirmed(streams, received, host, version);
        host != net.host() && is_awaited(host) && first.version.is_some_and(waits)
    }

    /// Marks the brokers as late that have not confirmed an entry whose time is over.
    pub(super) fn record_late(
        &mut self,
        entry: &Unconfirmed,
        net: &mut Net,
        received: &HoldsReceived,
        streams: &Sources,
    ) {
        let Some(version) = entry.version else { return };
        let late = self.awaited(net, received, streams).into_iter();
        let late = late.filter(|host| !entry.is_confirmed(streams, received, *host, version));
        let late: Vec<HostId> = late.collect();
        self.late.extend(late);
    }

    /// Ends the lateness of a broker that has now confirmed all it should.
    pub(crate) fn record_told(&mut self, host: HostId, net: &Net, received: &HoldsReceived, streams: &Sources) {
        if self.late.contains(&host) && has_told(host, net, received, streams) {
            self.late.remove(&host);
        }
    }

    /// The brokers that requests wait for: those that can be reached and are not late.
    pub(super) fn awaited(&mut self, net: &mut Net, received: &HoldsReceived, streams: &Sources) -> Vec<HostId> {
        net.ways();
        self.late.retain(|host| !has_told(*host, net, received, streams) && net.topology().get(*host).is_some());
        let is_awaited =
            |other: &HostId| *other != net.host() && net.routes().is_reachable(*other) && !self.late.contains(other);
        net.topology().hosts().filter(is_awaited).collect()
    }
}

/// Whether a broker has confirmed a version in all of its streams, and its reliable ones have
/// passed here up to where the version is in force.
pub(crate) fn has_confirmed(streams: &Sources, host: HostId, version: u64) -> bool {
    let mut known = streams.of_host(host).peekable();
    // A broker whose streams are not followed will never confirm.
    known.peek().is_some()
        && known.all(|remote| {
            let is_passed = remote.passed >= remote.since || remote.pubend.reliability() == Reliability::BestEffort;
            remote.told >= version && is_passed
        })
}

/// Whether a broker has confirmed the own interest.
fn has_told(host: HostId, net: &Net, received: &HoldsReceived, streams: &Sources) -> bool {
    let version = net.own_interest().version();
    let is_granted = !net.own_interest().has_durable() || received.is_granted(host, version);
    is_granted && has_confirmed(streams, host, version)
}
