//! Link states: what a broker tells all others of itself.

use core::fmt;
use core::time::Duration;

use whimbrel_event::{Domains, HostId, Tick};
use whimbrel_wire::{LinkEnd, LinkStateFrame, PreviousIdentity, Protocol};

/// Most neighbours of one broker.
pub const NEIGHBOURS_MAX: usize = 1_024;

/// Most addresses under which one broker can be reached.
pub const ADDRESSES_MAX: usize = 16;

/// Longest name and longest address of a broker, bytes.
pub const TEXT_MAX: usize = 255;

/// The link state of a broker: its identity and its links. At most 21 KiB; with 8 neighbours and
/// one address some 300 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// The broker's host.
    pub host: HostId,
    /// Greater at each start of the broker.
    pub incarnation: u64,
    /// Greater at each change, and at each repetition.
    pub sequence: u64,
    /// The name in its certificate: 1 to [`TEXT_MAX`] bytes, different for each broker.
    pub name: Box<str>,
    /// Number of its streams from index 0 on.
    pub reliable: u8,
    /// Number of its further streams, see [`whimbrel_wire::Hello`].
    pub further: u8,
    /// First tick of its streams.
    pub birth: Tick,
    /// Addresses for connections of other brokers: at most [`ADDRESSES_MAX`] of at most
    /// [`TEXT_MAX`] bytes.
    pub addresses: Vec<Box<str>>,
    /// Its links: at most [`NEIGHBOURS_MAX`], no host and no port twice. [`super::Topology`] keeps
    /// them sorted by host.
    pub neighbours: Vec<Neighbour>,
    /// Ended hosts that had its name before; the wire bounds their number.
    pub previous: Vec<PreviousIdentity>,
    /// The domains that the broker is in.
    pub domains: Domains,
    /// The protocol of the broker.
    pub protocol: Protocol,
    /// Fields of a later version, passed on as they came; the wire bounds their length.
    pub later: Box<[u8]>,
}

/// One end of a link, as its broker sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The broker at the other end.
    pub host: HostId,
    /// This broker's number of the link.
    pub port: u16,
    /// The delay of one way, microseconds.
    pub delay_us: u32,
    /// Share of packets that is lost, thousandths.
    pub loss: u16,
    /// Cost beside both, microseconds: the link is metered.
    pub surcharge_us: u32,
}

/// Why a link state is not taken: a fault of the broker that made it, except for
/// [`LinkStateError::Expired`] and [`LinkStateError::Full`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkStateError {
    /// Another host had the name first: the one given.
    NameTaken(HostId),
    /// It is as old as [`super::STATE_LIFETIME`].
    Expired,
    /// There are [`super::BROKERS_MAX`] brokers.
    Full,
    /// Its name is empty, or a text is longer than [`TEXT_MAX`], or there are more than
    /// [`ADDRESSES_MAX`] addresses.
    BadText,
    /// There are more than [`NEIGHBOURS_MAX`] neighbours, a host or a port occurs twice, or the
    /// broker is its own neighbour.
    BadNeighbours,
}

impl fmt::Display for LinkStateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkStateError::NameTaken(host) => {
                return write!(f, "its name belongs to host {host}; give each broker a name of its own");
            }
            LinkStateError::Expired => "it is too old",
            LinkStateError::Full => "there are as many brokers as there can be",
            LinkStateError::BadText => "its name is empty, or its name or addresses are too long or too many",
            LinkStateError::BadNeighbours => "its neighbours are too many, or one of them, or a port, is there twice",
        })
    }
}

impl core::error::Error for LinkStateError {}

impl LinkState {
    /// The link state in a frame.
    pub(crate) fn of_frame(frame: &LinkStateFrame<'_>) -> LinkState {
        let neighbour = |end: &LinkEnd| {
            let LinkEnd { host, port, delay_us, loss, surcharge_us } = *end;
            Neighbour { host, port, delay_us, loss, surcharge_us }
        };
        LinkState {
            host: frame.host,
            incarnation: frame.incarnation,
            sequence: frame.sequence,
            name: frame.name.into(),
            reliable: frame.reliable,
            further: frame.further,
            birth: frame.birth,
            addresses: frame.addresses.iter().map(|address| Box::from(*address)).collect(),
            neighbours: frame.neighbours.iter().map(neighbour).collect(),
            previous: frame.previous.clone(),
            domains: frame.domains.clone(),
            protocol: frame.protocol,
            later: frame.later.into(),
        }
    }

    /// The frame with this link state, which has this age.
    pub(crate) fn frame(&self, age: Duration) -> LinkStateFrame<'_> {
        let neighbour = |end: &Neighbour| {
            let Neighbour { host, port, delay_us, loss, surcharge_us } = *end;
            LinkEnd { host, port, delay_us, loss, surcharge_us }
        };
        LinkStateFrame {
            host: self.host,
            incarnation: self.incarnation,
            sequence: self.sequence,
            name: &self.name,
            reliable: self.reliable,
            further: self.further,
            birth: self.birth,
            age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
            addresses: self.addresses.iter().map(|address| &**address).collect(),
            neighbours: self.neighbours.iter().map(neighbour).collect(),
            previous: self.previous.clone(),
            domains: self.domains.clone(),
            protocol: self.protocol,
            later: &self.later,
        }
    }

    /// Whether another state of the host has the same links, protocol and domains, whatever the
    /// links cost.
    /// The neighbours of both must be sorted.
    pub(super) fn has_same_links(&self, other: &LinkState) -> bool {
        let link = |end: &Neighbour| (end.host, end.port);
        let is_same = self.neighbours.iter().map(link).eq(other.neighbours.iter().map(link));
        is_same && self.protocol == other.protocol && self.domains == other.domains
    }

    /// Order of two states of one host: the greater is the newer.
    pub fn age_order(&self) -> (u64, u64) {
        (self.incarnation, self.sequence)
    }

    /// Sorts the neighbours by host.
    ///
    /// # Errors
    /// When a bound or a rule of the fields is broken.
    pub(super) fn check(&mut self) -> Result<(), LinkStateError> {
        let is_bad = |text: &str| text.len() > TEXT_MAX;
        let addresses = &self.addresses;
        if self.name.is_empty() || is_bad(&self.name) || addresses.len() > ADDRESSES_MAX {
            return Err(LinkStateError::BadText);
        }
        if addresses.iter().any(|address| is_bad(address)) {
            return Err(LinkStateError::BadText);
        }
        if self.neighbours.len() > NEIGHBOURS_MAX || self.neighbours.iter().any(|end| end.host == self.host) {
            return Err(LinkStateError::BadNeighbours);
        }
        self.neighbours.sort_unstable_by_key(|end| end.host);
        let mut ports: Vec<u16> = self.neighbours.iter().map(|end| end.port).collect();
        ports.sort_unstable();
        let is_twice = self.neighbours.windows(2).any(|pair| pair[0].host == pair[1].host);
        if is_twice || ports.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(LinkStateError::BadNeighbours);
        }
        Ok(())
    }
}
