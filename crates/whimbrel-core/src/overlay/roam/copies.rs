//! Copies of other brokers' sessions, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_event::{HostId, PubendId, Time};

use super::turn;
use crate::store::{Moving, join};

/// Copies that a broker has at most; more are refused and counted.
pub const COPIES_MAX: usize = 1 << 22;

/// Bytes of them.
pub const COPIES_BYTES_MAX: usize = 1 << 30;

/// Former owners of a session that are remembered with its copy.
const BEFORE_MAX: usize = 4;

/// A copy of a session.
#[derive(Debug)]
pub(super) struct SessionCopy {
    /// Whose session it is.
    pub(super) owner: HostId,
    /// Who had it before, as far as there were copies of that here: the last ones, at most
    /// [`BEFORE_MAX`].
    pub(super) before: Vec<HostId>,
    pub(super) epoch: u64,
    pub(super) version: u64,
    /// The version with which its structure has changed last.
    pub(super) since: u64,
    pub(super) structure: Box<[u8]>,
    /// Whose it is, if that is known.
    pub(super) principal: Option<Box<str>>,
    pub(super) moving: Box<[u8]>,
    /// The streams that its owner did not name, as it and this broker knew of the same ones; held
    /// once for all copies.
    pub(super) among: Option<Arc<[PubendId]>>,
    /// When the last of it came.
    pub(super) came: Time,
    /// Who has taken it over last, and who asked for it: host, incarnation and number.
    pub(super) given: Option<HostId>,
    pub(super) asker: Option<(HostId, u64, u64)>,
    /// Who has the session by now, and under which epoch.
    pub(super) void: Option<(HostId, u64)>,
}

impl SessionCopy {
    fn weight(&self) -> usize {
        let principal = self.principal.as_deref().map_or(0, str::len);
        size_of::<SessionCopy>() + size_of_val(&*self.before) + self.structure.len() + self.moving.len() + principal
    }

    /// Who has the session, as far as is known here and has not ended, and under which epoch.
    pub(super) fn holder(&self, has_ended: impl Fn(HostId) -> bool) -> Option<(HostId, u64)> {
        self.void.into_iter().chain([(self.owner, self.epoch)]).find(|(host, _)| !has_ended(*host))
    }

    /// Both parts in one, with all streams named.
    pub(super) fn whole(&self) -> Vec<u8> {
        self.whole_with(None)
    }

    /// As [`SessionCopy::whole`], with another first part if there is one.
    pub(super) fn whole_with(&self, structure: Option<&[u8]>) -> Vec<u8> {
        let structure = structure.unwrap_or(&self.structure);
        let named = self.among.as_deref().and_then(|streams| Moving::read_among(&self.moving, streams));
        match named {
            Some(named) => {
                let mut moving = Vec::new();
                named.put(&mut moving);
                join(structure, &moving)
            }
            None => join(structure, &self.moving),
        }
    }
}

/// All copies.
#[derive(Debug, Default)]
pub(super) struct SessionCopies {
    all: BTreeMap<Box<str>, SessionCopy>,
    bytes: usize,
}

impl SessionCopies {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, client: &str) -> Option<&SessionCopy> {
        self.all.get(client)
    }

    /// What is written into it must not change how much it weighs.
    pub(super) fn get_mut(&mut self, client: &str) -> Option<&mut SessionCopy> {
        self.all.get_mut(client)
    }

    /// Takes a copy, instead of an older one; whether there was room.
    pub(super) fn put(&mut self, client: &str, copy: SessionCopy) -> bool {
        let before = self.all.get(client).map_or(0, SessionCopy::weight);
        let weight = copy.weight();
        if self.bytes - before + weight > COPIES_BYTES_MAX || before == 0 && self.all.len() >= COPIES_MAX {
            return false;
        }
        self.bytes = self.bytes - before + weight;
        match self.all.get_mut(client) {
            Some(known) => *known = copy,
            None => drop(self.all.insert(client.into(), copy)),
        }
        true
    }

    /// Only what moves has changed; whether it builds on what there is.
    pub(super) fn change(
        &mut self,
        now: Time,
        client: &str,
        (owner, epoch, since): (HostId, u64, u64),
        (version, moving, among): (u64, &[u8], Option<&Arc<[PubendId]>>),
    ) -> bool {
        let Some(copy) = self.all.get_mut(client) else { return false };
        if (copy.owner, copy.epoch, copy.since) != (owner, epoch, since) {
            return false;
        }
        if version > copy.version {
            self.bytes = self.bytes - copy.moving.len() + moving.len();
            if copy.moving.len() == moving.len() {
                copy.moving.copy_from_slice(moving);
            } else {
                copy.moving = moving.into();
            }
            (copy.version, copy.came, copy.among) = (version, now, among.cloned());
        }
        true
    }

    pub(super) fn remove(&mut self, client: &str) -> Option<SessionCopy> {
        let copy = self.all.remove(client)?;
        self.bytes -= copy.weight();
        Some(copy)
    }

    /// The clients of whose sessions that broker was the owner.
    pub(super) fn of_owner(&self, owner: HostId) -> impl Iterator<Item = Box<str>> {
        self.all.iter().filter(move |(_, copy)| copy.owner == owner).map(|(client, _)| client.clone())
    }

    /// The clients whose sessions were that broker's before they were their owners'.
    pub(super) fn formerly_of(&self, owner: HostId) -> impl Iterator<Item = Box<str>> {
        self.all.iter().filter(move |(_, copy)| copy.before.contains(&owner)).map(|(client, _)| client.clone())
    }

    /// Who had a session before that broker, of whose session there is a copy.
    pub(super) fn owners_before(&self, client: &str, owner: HostId) -> Vec<HostId> {
        let Some(copy) = self.all.get(client) else { return Vec::new() };
        let mut before: Vec<HostId> =
            copy.before.iter().copied().chain([copy.owner]).filter(|one| *one != owner).collect();
        before.drain(..before.len().saturating_sub(BEFORE_MAX));
        before
    }

    /// Some of the clients of whose sessions others have newer ones, beginning behind one.
    pub(super) fn void_ones(&self, after: &str, most: usize) -> Vec<Box<str>> {
        let void = turn(&self.all, after).filter(|(_, copy)| copy.void.is_some());
        void.take(most).map(|(client, _)| client.clone()).collect()
    }

    /// Clients after one, in order.
    pub(super) fn clients_after(&self, after: &str, most: usize) -> Vec<Box<str>> {
        use core::ops::Bound;
        let all = self.all.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        all.take(most).map(|(client, _)| client.clone()).collect()
    }
}
