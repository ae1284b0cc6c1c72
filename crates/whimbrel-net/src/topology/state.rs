//! What a broker tells all others of itself.

use core::fmt;

use whimbrel_event::{HostId, Tick};
use whimbrel_wire::{PreviousIdentity, Protocol};

/// Most neighbours of one broker.
pub const NEIGHBOURS_MAX: usize = 1_024;

/// Most addresses under which one broker can be reached.
pub const ADDRESSES_MAX: usize = 16;

/// Longest name and longest address of a broker, bytes.
pub const TEXT_MAX: usize = 255;

/// What a broker tells all others of itself: who it is and whom it is linked with. At most 21 KiB;
/// with 8 neighbours and one address some 300 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// Whose it is.
    pub host: HostId,
    /// Greater at each start of the broker.
    pub incarnation: u64,
    /// Greater at each change, and at each repetition.
    pub sequence: u64,
    /// What its certificate calls it: 1 to [`TEXT_MAX`] bytes, different for each broker.
    pub name: Box<str>,
    /// How many reliable streams it has.
    pub reliable: u8,
    /// How many best-effort streams it has.
    pub best_effort: u8,
    /// Where its streams begin.
    pub birth: Tick,
    /// Where others may connect: at most [`ADDRESSES_MAX`] of at most [`TEXT_MAX`] bytes.
    pub addresses: Vec<Box<str>>,
    /// Whom it is linked with: at most [`NEIGHBOURS_MAX`], no host and no port twice.
    /// [`super::Topology`] keeps them sorted by host.
    pub neighbours: Vec<Neighbour>,
    /// Who had its name before it and has ended; the wire bounds how many.
    pub previous: Vec<PreviousIdentity>,
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
    /// What this broker calls the link.
    pub port: u16,
    /// The delay of one way, microseconds.
    pub delay_us: u32,
    /// What gets lost, thousandths.
    pub loss: u16,
}

/// Why a link state is not taken: the fault of whoever made it, but for [`LinkStateError::Expired`]
/// and [`LinkStateError::Full`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkStateError {
    /// Another host, this one, had the name first.
    NameTaken(HostId),
    /// It is as old as [`super::STATE_LIFETIME`].
    Expired,
    /// There are [`super::BROKERS_MAX`] brokers.
    Full,
    /// Its name is empty, or a text is longer than [`TEXT_MAX`], or there are more than
    /// [`ADDRESSES_MAX`] addresses.
    BadText,
    /// There are more than [`NEIGHBOURS_MAX`] neighbours, or a host or a port stands there twice,
    /// or the broker is its own neighbour.
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
    /// Which of two states of one host is the newer: the greater.
    pub fn age_order(&self) -> (u64, u64) {
        (self.incarnation, self.sequence)
    }

    /// Sorts the neighbours by host.
    ///
    /// # Errors
    /// When a bound or a rule that the fields tell is broken.
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
