//! The known brokers and the links between them: a link-state database, as in OSPF (RFC 2328).

pub(crate) mod joining;
mod state;
pub(crate) mod watch;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashTable;
use whimbrel_event::{HostId, Seeded, Time};
use whimbrel_wire::{Flash, Frame};

pub use state::{ADDRESSES_MAX, LinkState, LinkStateError, NEIGHBOURS_MAX, Neighbour, TEXT_MAX};

/// With at most this number of brokers each change of the topology counts at once.
pub const FEW_BROKERS: usize = 32;

/// Most brokers that are known; one more is refused.
pub const BROKERS_MAX: usize = 10_000;

/// Interval at which each broker repeats an unchanged link state, with a new sequence.
pub const REFRESH_EVERY: Duration = Duration::from_secs(30);

/// A link state that was not repeated for this time is dropped.
pub const STATE_LIFETIME: Duration = Duration::from_secs(100);

/// The result of learning a received link state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// It is new: it is to be passed on to the other neighbours.
    New,
    /// There is a newer one ([`Topology::get`]), which the sender should have.
    Old,
    /// It is known already.
    Same,
    /// It is one of this broker's own, from before its start or made by a clock that ran ahead, and
    /// greater than the announced one: the broker has to [`Topology::announce`] a state beyond this
    /// incarnation and sequence.
    Outbid {
        /// Incarnation of the received state.
        incarnation: u64,
        /// Sequence of the received state.
        sequence: u64,
    },
    /// It is not taken, and is not to be passed on.
    Refused(LinkStateError),
}

/// The result of a change of a link that a broker tells of, see [`Topology::patch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patched {
    /// It is new: it is to be passed on to the other neighbours.
    New,
    /// It, or a later one, is known already.
    Known,
    /// Its broker or link is not known, or is known by a later link state.
    Refused,
}

/// A link state is at most this much older than a change that comes before it, in sequences.
const PATCH_AHEAD_MAX: u64 = 16;

/// One broker.
#[derive(Debug)]
pub(crate) struct KnownBroker {
    state: LinkState,
    expires: Time,
    /// Changes of its links since its link state, at most one for each neighbour.
    patches: Vec<Flash>,
}

impl KnownBroker {
    /// Its link state, without later changes of links.
    pub(crate) fn state(&self) -> &LinkState {
        &self.state
    }

    /// Its links as they are now, in the order of the neighbours' hosts.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = Neighbour> + Clone + '_ {
        self.state.neighbours.iter().map(|end| self.patched(end))
    }

    fn patched(&self, end: &Neighbour) -> Neighbour {
        match self.patches.iter().find(|patch| patch.neighbour == end.host) {
            Some(Flash { delay_us, loss, .. }) => Neighbour { delay_us: *delay_us, loss: *loss, ..*end },
            None => *end,
        }
    }
}

/// The link states of all brokers, this one's included.
///
/// Of two states of one host the greater (incarnation, sequence) wins, so the order in which they
/// are received does not matter, with three exceptions: of two hosts with one name the one known
/// first stays, and so do the [`BROKERS_MAX`] brokers known first; and of one state that came with
/// its later fields and without them, over a broker of an earlier version, the first stays until
/// the next sequence.
///
/// A broker takes as much memory as its state and some 100 bytes: 4 MB for [`BROKERS_MAX`] brokers
/// with 8 neighbours each, and 210 MB if each of them were at all its bounds.
#[derive(Debug)]
pub struct Topology {
    own: HostId,
    entries: BTreeMap<HostId, KnownBroker>,
    /// When the entries of others expire.
    expiries: BTreeSet<(Time, HostId)>,
    /// The host that has each name.
    holders: HashTable<HostId>,
    hasher: Seeded,
    version: u64,
    structure: u64,
}

impl Topology {
    /// The topology of this host: empty, until the host itself is announced.
    pub fn new(own: HostId) -> Topology {
        Topology {
            own,
            entries: BTreeMap::new(),
            expiries: BTreeSet::new(),
            holders: HashTable::new(),
            // The ids of hosts are random, and names are in the certificates of known brokers.
            hasher: Seeded::new(own.as_u64()),
            version: 0,
            structure: 0,
        }
    }

    /// The host whose view this is.
    pub fn own(&self) -> HostId {
        self.own
    }

    /// Takes this broker's own state, which is to be sent to all neighbours afterwards. It does not
    /// expire here; at other brokers it does unless it is repeated every [`REFRESH_EVERY`] with a
    /// new sequence.
    ///
    /// # Errors
    /// When another host has the name, or a bound is passed.
    ///
    /// # Panics
    /// When the state is not greater than the last one, or not of this host: both are defects of
    /// the caller.
    pub fn announce(&mut self, now: Time, mut state: LinkState) -> Result<(), LinkStateError> {
        assert_eq!(state.host, self.own, "a broker announces itself only");
        if let Some(last) = self.entries.get(&self.own) {
            assert!(state.age_order() > last.state.age_order(), "each announcement is greater than the last");
        }
        state.check()?;
        self.admit(&state)?;
        self.put(state, now + STATE_LIFETIME);
        Ok(())
    }

    /// Takes a state that was received from a neighbour. `age` is the time since its owner made it,
    /// as far as the brokers that passed it on know.
    pub fn learn(&mut self, now: Time, mut state: LinkState, age: Duration) -> Learned {
        let known = self.entries.get(&state.host).map(|entry| entry.state.age_order());
        let (incarnation, sequence) = state.age_order();
        match known {
            Some(known) if known == (incarnation, sequence) => return Learned::Same,
            Some(known) if known > (incarnation, sequence) => return Learned::Old,
            _ if state.host == self.own => return Learned::Outbid { incarnation, sequence },
            _ => {}
        }
        let Some(rest) = STATE_LIFETIME.checked_sub(age).filter(|rest| !rest.is_zero()) else {
            return Learned::Refused(LinkStateError::Expired);
        };
        if let Err(why) = state.check().and_then(|()| self.admit(&state)) {
            return Learned::Refused(why);
        }
        self.put(state, now + rest);
        Learned::New
    }

    /// Takes a change of a link that its broker tells of before its next link state. It holds until
    /// there is a link state of the broker with a greater sequence.
    pub fn patch(&mut self, flash: &Flash) -> Patched {
        let Some(known) = self.entries.get_mut(&flash.host) else { return Patched::Refused };
        let state = &known.state;
        let sequences = state.sequence..=state.sequence.saturating_add(PATCH_AHEAD_MAX);
        let has_link = state.neighbours.binary_search_by_key(&flash.neighbour, |end| end.host).is_ok();
        if flash.incarnation != state.incarnation || !sequences.contains(&flash.sequence) || !has_link {
            return Patched::Refused;
        }
        let at = known.patches.iter().position(|patch| patch.neighbour == flash.neighbour);
        if at.is_some_and(|at| known.patches[at].number >= flash.number) {
            return Patched::Known;
        }
        match at {
            Some(at) => known.patches[at] = *flash,
            None => known.patches.push(*flash),
        }
        self.version += 1;
        Patched::New
    }

    fn admit(&self, state: &LinkState) -> Result<(), LinkStateError> {
        match self.by_name(&state.name) {
            Some(holder) if holder != state.host => return Err(LinkStateError::NameTaken(holder)),
            _ => {}
        }
        if self.entries.len() >= BROKERS_MAX && !self.entries.contains_key(&state.host) {
            return Err(LinkStateError::Full);
        }
        Ok(())
    }

    fn put(&mut self, state: LinkState, expires: Time) {
        let host = state.host;
        let old = self.take(host);
        let is_later = |patch: &Flash| patch.incarnation == state.incarnation && patch.sequence >= state.sequence;
        let mut patches = old.as_ref().map_or(Vec::new(), |old| old.patches.clone());
        patches.retain(is_later);
        let new = KnownBroker { state, expires, patches };
        let has_same_links = |old: &KnownBroker| old.state.has_same_links(&new.state);
        let is_same = |old: &KnownBroker| has_same_links(old) && old.neighbours().eq(new.neighbours());
        self.version += u64::from(!old.as_ref().is_some_and(is_same));
        self.structure += u64::from(!old.as_ref().is_some_and(has_same_links));
        let Topology { entries, holders, hasher, .. } = self;
        let hash = hasher.hash_one(&*new.state.name);
        entries.insert(host, new);
        holders.insert_unique(hash, host, |host| hasher.hash_one(&*entries[host].state.name));
        if host != self.own {
            self.expiries.insert((expires, host));
        }
    }

    fn take(&mut self, host: HostId) -> Option<KnownBroker> {
        let hash = self.hasher.hash_one(&*self.entries.get(&host)?.state.name);
        let named = self.holders.find_entry(hash, |&other| other == host).expect("every broker is found by its name");
        named.remove();
        let entry = self.entries.remove(&host)?;
        self.expiries.remove(&(entry.expires, host));
        Some(entry)
    }

    /// Removes a broker, as another host has its name.
    ///
    /// # Panics
    /// When it is this broker.
    pub fn forget(&mut self, host: HostId) {
        assert_ne!(host, self.own, "a broker does not forget itself");
        let is_gone = u64::from(self.take(host).is_some());
        self.version += is_gone;
        self.structure += is_gone;
    }

    /// Removes the brokers whose state has expired. Returns them in the order in which they
    /// expired.
    pub fn expire(&mut self, now: Time) -> Vec<HostId> {
        let mut gone = Vec::new();
        while let Some(&(expires, host)) = self.expiries.first()
            && expires <= now
        {
            self.take(host);
            self.version += 1;
            self.structure += 1;
            gone.push(host);
        }
        gone
    }

    /// When the next state expires, for [`Topology::expire`].
    pub fn next_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|(expires, _)| *expires)
    }

    /// Age of a broker's state, which is to be sent along with it.
    pub fn age(&self, now: Time, host: HostId) -> Option<Duration> {
        let rest = self.entries.get(&host)?.expires.since(now);
        Some(STATE_LIFETIME.saturating_sub(rest))
    }

    /// A broker's state.
    pub fn get(&self, host: HostId) -> Option<&LinkState> {
        self.entries.get(&host).map(|entry| &entry.state)
    }

    /// The host that has a name.
    pub fn by_name(&self, name: &str) -> Option<HostId> {
        let is_it = |host: &HostId| *self.entries[host].state.name == *name;
        self.holders.find(self.hasher.hash_one(name), is_it).copied()
    }

    /// All hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.entries.keys().copied()
    }

    /// The links of a broker as they are now, changes since its link state included, in the order
    /// of the neighbours' hosts.
    pub fn neighbours(&self, host: HostId) -> impl Iterator<Item = Neighbour> + '_ {
        self.entries.get(&host).into_iter().flat_map(KnownBroker::neighbours)
    }

    /// All brokers, in order of hosts.
    pub(crate) fn brokers(&self) -> impl Iterator<Item = &KnownBroker> {
        self.entries.values()
    }

    /// All states, in order of hosts, without later changes of links.
    pub fn states(&self) -> impl Iterator<Item = &LinkState> {
        self.entries.values().map(|entry| &entry.state)
    }

    /// (host, incarnation, sequence) of all brokers in order of hosts; a new neighbour finds with
    /// it which states it lacks.
    pub fn digest(&self) -> impl Iterator<Item = (HostId, u64, u64)> + '_ {
        self.states().map(|state| (state.host, state.incarnation, state.sequence))
    }

    /// Whether a broker knows the pubends of the deadline class, as its link state tells.
    pub fn knows_deadlines(&self, host: HostId) -> bool {
        self.get(host).is_some_and(|state| state.protocol.knows_deadlines())
    }

    /// The number of brokers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no broker, not even this one, has been announced.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A link as one of its ends sees it, if both ends name each other: else it does not count.
    pub fn link(&self, from: HostId, to: HostId) -> Option<Neighbour> {
        self.end(to, from)?;
        self.end(from, to)
    }

    fn end(&self, from: HostId, to: HostId) -> Option<Neighbour> {
        let known = self.entries.get(&from)?;
        let ends = &known.state.neighbours;
        ends.binary_search_by_key(&to, |end| end.host).ok().map(|at| known.patched(&ends[at]))
    }

    /// The link by which a broker knows this port, see [`Topology::link`]'s ends.
    pub(crate) fn end_at(&self, from: HostId, port: u16) -> Option<Neighbour> {
        let known = self.entries.get(&from)?;
        known.state.neighbours.iter().find(|end| end.port == port).map(|end| known.patched(end))
    }

    /// Encodes the link state of a broker as a frame; nothing if it is not known.
    pub(crate) fn put_state(&self, now: Time, host: HostId, frame: &mut Vec<u8>) {
        let Some(state) = self.get(host) else { return };
        let age = self.age(now, host).unwrap_or_default();
        Frame::LinkState(state.frame(age)).encode(frame);
    }

    /// Version of the graph: greater whenever a broker, or one of its links, has changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Version of the graph without the costs of links: greater whenever a broker or a link is new
    /// or gone. It does not change without [`Topology::version`].
    pub fn structure(&self) -> u64 {
        self.structure
    }
}
