//! A broker that will never come back is forgotten, as an operator says: its streams end
//! everywhere, and what it is owed is given up.
//!
//! The broker at which that is said tells it with its link state, as it tells who had its own name
//! before it. That is remembered in the log.

use core::fmt;
use std::collections::BTreeMap;

use whimbrel_event::{HostId, Tick, Time};
use whimbrel_wire::{PREVIOUS_IDENTITIES_MAX, PreviousIdentity};

use super::Overlay;
use crate::api::Output;
use crate::broker::Broker;
use crate::store::{EndedHostRecord, Key, MapValue};
use crate::stream::Streams;

/// Why a broker is not forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotForgotten {
    /// This broker knows no others.
    Alone,
    /// Nobody of that name is known, nor owed anything.
    Unknown,
    /// It is this broker.
    Itself,
    /// It can be reached.
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
    /// Forgets a broker for ever, under that name: its streams end at all brokers, and what it is
    /// owed is given up. One that can be reached is not forgotten, unless by `force`: then it is as
    /// soon as it cannot be reached any more. Tells how many hosts had the name.
    ///
    /// # Errors
    /// When there is no such broker, or it is alive.
    pub fn retire_broker(
        &mut self,
        now: Time,
        name: &str,
        force: bool,
        out: &mut dyn Output,
    ) -> Result<usize, NotForgotten> {
        let Some(overlay) = self.overlay.as_deref_mut() else { return Err(NotForgotten::Alone) };
        if *overlay.config.name == *name {
            return Err(NotForgotten::Itself);
        }
        let hosts = self.hosts_of(now, name);
        let overlay = self.overlay.as_deref_mut().expect("it was there");
        if hosts.is_empty() {
            return Err(NotForgotten::Unknown);
        }
        if !force && hosts.iter().any(|previous| overlay.is_reachable(previous.host)) {
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
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.announce_soon(now);
        }
        self.end_retired(now, out);
        Ok(hosts.len())
    }

    /// All hosts that have, or had, a name.
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
        let present = self.overlay.as_deref().and_then(|overlay| overlay.topology.by_name(name));
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

    /// Those that were forgotten here have ended, as far as they cannot be reached.
    pub(super) fn end_retired(&mut self, now: Time, out: &mut dyn Output) {
        for previous in self.store.holds_given.retired.clone() {
            self.end_if_gone(now, &previous, out);
        }
    }

    /// A broker that was forgotten somewhere has ended, unless it can be reached.
    pub(super) fn end_if_gone(&mut self, now: Time, previous: &PreviousIdentity, out: &mut dyn Output) {
        let host = previous.host;
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if own.contains(&host) || overlay.is_reachable(host) {
            return;
        }
        if overlay.topology.get(host).is_some() {
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

    /// What a host is called, if that is known; its streams need not be followed.
    pub(super) fn known_name(&self, host: HostId) -> Option<&str> {
        let present = self.overlay.as_deref().and_then(|overlay| overlay.topology.get(host)).map(|state| &*state.name);
        let of_hold = self.store.holds_given.of.get(&host).map(|hold_given| &*hold_given.record.name);
        present.or_else(|| self.streams.name_of(host)).or(of_hold)
    }

    /// Remembers that a host of that name has ended; `is_retired`: others are told of it from here.
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

    /// Hosts that have ended are not taken for new ones after a restart, and those that were
    /// forgotten here are told of again.
    pub(crate) fn restore_ended(&mut self, ended: BTreeMap<HostId, EndedHostRecord>) {
        for (host, EndedHostRecord { reliable, best_effort, birth, upto, is_retired, name }) in ended {
            let previous = PreviousIdentity { host, reliable, best_effort, birth, upto };
            self.streams.record_ended(previous, &name);
            if is_retired && self.store.holds_given.retired.len() < PREVIOUS_IDENTITIES_MAX {
                self.store.holds_given.retired.push(previous);
            }
        }
    }

    /// Who had this broker's name before it, as it was written: that is told again, as those who
    /// were told it may have lost their disks since. The last to have been born count.
    pub(super) fn restore_previous(&mut self) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let mut previous: Vec<PreviousIdentity> =
            self.streams.ended_of(&overlay.config.name).filter(|known| !own.contains(&known.host)).collect();
        previous.sort_by_key(|known| (known.birth, known.host));
        overlay.previous = previous.split_off(previous.len().saturating_sub(PREVIOUS_IDENTITIES_MAX));
    }
}

impl Overlay {
    /// Who is told to have ended: who had this broker's name before it, and who was forgotten here.
    pub(super) fn told_previous(&self, retired: &[PreviousIdentity]) -> Vec<PreviousIdentity> {
        let mut previous = self.previous.clone();
        previous.extend(retired.iter().rev().take(PREVIOUS_IDENTITIES_MAX - previous.len()));
        previous
    }
}
