//! Retirement: an operator declares that a broker will never come back. Its streams end at all
//! brokers, and the retention holds given to it are dropped.
//!
//! The broker at which that is declared announces it with its link state, like the previous hosts
//! of its own name. The log has a record of it.

use core::fmt;
use std::collections::BTreeMap;

use whimbrel_event::{HostId, Tick, Time};
use whimbrel_wire::{PREVIOUS_IDENTITIES_MAX, PreviousIdentity};

use crate::api::Output;
use crate::broker::Broker;
use crate::store::{EndedHostRecord, Key, MapValue};
use crate::stream::Streams;

/// The reason why a broker is not retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotForgotten {
    /// This broker has no overlay.
    Alone,
    /// No broker of that name is known, and no retention hold is given to one.
    Unknown,
    /// The name is this broker's own.
    Itself,
    /// The broker can be reached.
    Reachable,
}

impl fmt::Display for NotForgotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotForgotten::Alone => "this broker has no overlay: it is not one of many",
            NotForgotten::Unknown => "no broker of that name is known here, or is owed anything",
            NotForgotten::Itself => "that is this broker: ask another one to forget it",
            NotForgotten::Reachable => "that broker can be reached: it is not gone. Stop it first",
        })
    }
}

impl Broker {
    /// Retires a broker for ever, under that name: its streams end at all brokers, and its
    /// retention holds are dropped. A broker that can be reached is retired with `force` only, and
    /// ends as soon as it can no longer be reached. Returns the number of hosts that had the name.
    ///
    /// # Errors
    /// When there is no such broker, or it can be reached.
    pub fn retire_broker(
        &mut self,
        now: Time,
        name: &str,
        force: bool,
        out: &mut dyn Output,
    ) -> Result<usize, NotForgotten> {
        if !self.overlay.is_open() {
            return Err(NotForgotten::Alone);
        }
        let overlay = &mut self.overlay;
        if overlay.net.name() == name {
            return Err(NotForgotten::Itself);
        }
        let hosts = self.hosts_of(now, name);
        let overlay = &mut self.overlay;
        if hosts.is_empty() {
            return Err(NotForgotten::Unknown);
        }
        if !force && hosts.iter().any(|previous| overlay.net.is_reachable(previous.host)) {
            return Err(NotForgotten::Reachable);
        }
        for previous in &hosts {
            let retired = &mut self.store.holds_given.retired;
            retired.retain(|known| known.host != previous.host);
            if retired.len() == PREVIOUS_IDENTITIES_MAX {
                retired.remove(0);
            }
            retired.push(*previous);
            self.write_ended(previous, name, true);
        }
        let overlay = &mut self.overlay;
        overlay.net.announce_soon(now);
        self.announce_ended();
        self.end_retired(now, out);
        Ok(hosts.len())
    }

    /// All hosts that have or had a name.
    fn hosts_of(&self, now: Time, name: &str) -> Vec<PreviousIdentity> {
        let followed = self.streams.of_name(name).filter(|(_, has_ended)| !has_ended).map(|(previous, _)| previous);
        let mut hosts: BTreeMap<HostId, PreviousIdentity> =
            followed.map(|previous| (previous.host, previous)).collect();
        let upto = Tick(now.as_nanos());
        let unfollowed = |host| PreviousIdentity {
            host,
            reliable: Streams::RELIABLE,
            best_effort: Streams::BEST_EFFORT,
            birth: upto,
            upto,
        };
        let present = self.overlay.net.topology().by_name(name);
        let holds_given = self
            .store
            .holds_given
            .of
            .iter()
            .filter(|(_, hold_given)| *hold_given.record.name == *name && !hold_given.is_forfeited());
        for host in present.into_iter().chain(holds_given.map(|(host, _)| *host)) {
            hosts.entry(host).or_insert_with(|| unfollowed(host));
        }
        hosts.into_values().collect()
    }

    /// Ends the hosts that were retired here and cannot be reached.
    pub(super) fn end_retired(&mut self, now: Time, out: &mut dyn Output) {
        for previous in self.store.holds_given.retired.clone() {
            self.end_if_gone(now, &previous, out);
        }
    }

    /// Ends a host that was retired at some broker, unless it can be reached.
    pub(super) fn end_if_gone(&mut self, now: Time, previous: &PreviousIdentity, out: &mut dyn Output) {
        let host = previous.host;
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let overlay = &mut self.overlay;
        if own.contains(&host) || overlay.net.is_reachable(host) {
            return;
        }
        if overlay.net.topology().get(host).is_some() {
            self.forget_broker(host);
        }
        self.held_host_ended(now, host, true);
        if self.streams.knows(host.pubend(0)) {
            self.end_host(now, *previous, true, out);
        } else if self.streams.ended_at(host).is_none() {
            let name: Box<str> = self.known_name(host).unwrap_or_default().into();
            self.streams.record_ended(*previous, &name);
            self.write_ended(previous, &name, false);
        }
    }

    /// The name of a host, if it is known; its streams need not be followed.
    pub(super) fn known_name(&self, host: HostId) -> Option<&str> {
        let present = self.overlay.net.state_of(host).map(|state| &*state.name);
        let of_hold = self.store.holds_given.of.get(&host).map(|hold_given| &*hold_given.record.name);
        present.or_else(|| self.streams.name_of(host)).or(of_hold)
    }

    /// Writes the record of an ended host; `is_retired`: this broker announces it.
    pub(super) fn write_ended(&mut self, previous: &PreviousIdentity, name: &str, is_retired: bool) {
        if !self.has_log() {
            return;
        }
        let is_retired = is_retired || self.store.holds_given.retired.iter().any(|known| known.host == previous.host);
        let PreviousIdentity { host, reliable, best_effort, birth, upto } = *previous;
        let ended = EndedHostRecord { reliable, best_effort, birth, upto, is_retired, name: name.into() };
        self.store.write_queue.put(|key| Key::Ended(host).put(key), |value| ended.put_versioned(value));
        self.store.write_queue.seal();
    }

    /// Restores ended hosts, so that they are not taken for new ones, and the announcement of those
    /// that were retired here.
    pub(crate) fn restore_ended(&mut self, ended: BTreeMap<HostId, EndedHostRecord>) {
        for (host, EndedHostRecord { reliable, best_effort, birth, upto, is_retired, name }) in ended {
            let previous = PreviousIdentity { host, reliable, best_effort, birth, upto };
            self.streams.record_ended(previous, &name);
            if is_retired && self.store.holds_given.retired.len() < PREVIOUS_IDENTITIES_MAX {
                self.store.holds_given.retired.push(previous);
            }
        }
    }

    /// Restores the previous hosts of this broker's name from the records. They are announced
    /// again, as brokers that had heard of them may have lost their disks since. If there are too
    /// many, the latest births count.
    pub(super) fn restore_previous(&mut self) {
        let overlay = &mut self.overlay;
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let mut previous: Vec<PreviousIdentity> =
            self.streams.ended_of(overlay.net.name()).filter(|known| !own.contains(&known.host)).collect();
        previous.sort_by_key(|known| (known.birth, known.host));
        overlay.previous = previous.split_off(previous.len().saturating_sub(PREVIOUS_IDENTITIES_MAX));
        self.announce_ended();
    }

    /// Has the link state name the ended hosts that this broker knows best: the previous hosts of
    /// its name, then the retired ones, the latest first.
    pub(super) fn announce_ended(&mut self) {
        let overlay = &mut self.overlay;
        let mut ended = overlay.previous.clone();
        ended.extend(self.store.holds_given.retired.iter().rev().take(PREVIOUS_IDENTITIES_MAX - ended.len()));
        overlay.net.set_previous(ended);
    }
}
