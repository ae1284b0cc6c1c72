//! Brokers and their links, and the versions of what a broker knows of others.

use whimbrel_event::{Domains, HostId, LABEL_BYTES_MAX, Tick};

use crate::body::Body;
use crate::bytes::{Put, Reader, text};
use crate::link::{put_pubends, read_pubends};
use crate::{
    ADDRESS_BYTES_MAX, ADDRESSES_MAX, Invalid, LATER_BYTES_MAX, LIST_MAX, LOSS_MAX, NEIGHBOURS_MAX,
    PREVIOUS_IDENTITIES_MAX, SURCHARGES_MAX,
};

/// A broker and its links, as it announces them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStateFrame<'a> {
    /// The broker's host id.
    pub host: HostId,
    /// Greater at each start.
    pub incarnation: u64,
    /// Greater with each change in an incarnation.
    pub sequence: u64,
    /// The broker's name, see [`crate::is_name`].
    pub name: &'a str,
    /// Number of its pubends from index 0 on, bounded as in [`crate::Hello`].
    pub reliable: u8,
    /// Number of its further pubends, as in [`crate::Hello`].
    pub further: u8,
    /// The tick before the first one that its pubends can have used.
    pub birth: Tick,
    /// Age of the link state, ms; grows on the way.
    pub age_ms: u32,
    /// Addresses of the broker, `ADDR:PORT`, at most [`ADDRESSES_MAX`]; visible ASCII, 1 to
    /// [`ADDRESS_BYTES_MAX`] bytes each.
    pub addresses: Vec<&'a str>,
    /// Links of the broker, at most [`NEIGHBOURS_MAX`].
    pub neighbours: Vec<LinkEnd>,
    /// Ended hosts that had its name before it, at most [`PREVIOUS_IDENTITIES_MAX`].
    pub previous: Vec<PreviousIdentity>,
    /// The domains that the broker is in.
    pub domains: Domains,
    /// The protocol of the broker, as far as all brokers that passed this state on know of it.
    pub protocol: Protocol,
    /// Fields that a later minor version has behind the protocol, as they came: at most
    /// [`LATER_BYTES_MAX`] bytes.
    pub later: &'a [u8],
}

/// The parts of the protocol that a broker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Protocol {
    /// [`crate::MINOR`] of its program.
    pub minor: u8,
    /// A bit for each optional part of the protocol; the version that brings a part names its bit.
    pub features: u64,
}

impl Protocol {
    /// A broker whose link state does not tell its protocol: it is of minor version 1, or a broker
    /// of that version passed its link state on.
    pub const UNTOLD: Protocol = Protocol { minor: 1, features: 0 };

    /// The protocol of this program.
    pub const OWN: Protocol = Protocol { minor: crate::MINOR, features: crate::FEATURES };

    /// The first minor version whose link states tell it.
    const TOLD_SINCE: u8 = 2;

    /// The first minor version whose link states tell surcharges, if a link has one.
    const SURCHARGES_SINCE: u8 = 3;

    /// The first minor version with pubends of the deadline class.
    const DEADLINES_SINCE: u8 = 3;

    /// The part of the protocol that a broker in domains speaks: its link state names them.
    pub const DOMAINS: u64 = 1 << 1;

    /// Whether the broker knows the pubends of the deadline class.
    pub fn knows_deadlines(self) -> bool {
        self.minor >= Protocol::DEADLINES_SINCE
    }

    /// The parts that both of two brokers speak.
    pub fn common(self, other: Protocol) -> Protocol {
        Protocol { minor: self.minor.min(other.minor), features: self.features & other.features }
    }

    fn read(input: &mut Reader<'_>) -> Result<Protocol, Invalid> {
        if input.0.is_empty() {
            return Ok(Protocol::UNTOLD);
        }
        let minor = input.byte()?;
        if minor < Protocol::TOLD_SINCE {
            return Err(Invalid::Range("a minor version"));
        }
        Ok(Protocol { minor, features: input.varint()? })
    }

    /// Appends the protocol, and what is behind it. There is one form only: a protocol that is not
    /// told has nothing behind it.
    fn put(self, neighbours: &[LinkEnd], domains: &Domains, later: &[u8], out: &mut Vec<u8>) {
        let is_followed = !later.is_empty() || !domains.is_empty();
        if self == Protocol::UNTOLD {
            return assert!(!is_followed, "only a version that tells itself has fields behind it");
        }
        assert!(self.minor >= Protocol::TOLD_SINCE, "no earlier version tells itself");
        assert!(later.len() <= LATER_BYTES_MAX, "no version adds more than {LATER_BYTES_MAX} bytes");
        let features = self.features & !Protocol::DOMAINS;
        out.push(self.minor);
        out.put_varint(features | if domains.is_empty() { 0 } else { Protocol::DOMAINS });
        if self.minor >= Protocol::SURCHARGES_SINCE {
            put_surcharges(neighbours, is_followed, out);
        }
        if !domains.is_empty() {
            out.put_bytes(domains.as_str().as_bytes(), LABEL_BYTES_MAX, "domains");
        }
        out.extend_from_slice(later);
    }
}

/// An ended host that had a broker's name before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousIdentity {
    /// The host's id.
    pub host: HostId,
    /// Number of its pubends from index 0 on.
    pub reliable: u8,
    /// Number of its further pubends, as in [`crate::Hello`].
    pub further: u8,
    /// The tick before the first one that its pubends can have used.
    pub birth: Tick,
    /// The tick up to which they have ended.
    pub upto: Tick,
}

impl PreviousIdentity {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let host = input.host()?;
        let (reliable, further) = read_pubends(input)?;
        Ok(PreviousIdentity { host, reliable, further, birth: input.tick()?, upto: input.tick()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.host.as_u64());
        put_pubends(self.reliable, self.further, out);
        out.put_u64(self.birth.0);
        out.put_u64(self.upto.0);
    }
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnd {
    /// The broker at the other end.
    pub host: HostId,
    /// The number by which a tree names it.
    pub port: u16,
    /// Delay of a frame, µs.
    pub delay_us: u32,
    /// Lost frames of 1000, at most [`LOSS_MAX`].
    pub loss: u16,
    /// Cost of the link beside its delay and loss, as its broker is configured, µs. Told since
    /// minor version 3; at most [`SURCHARGES_MAX`] links of a broker have one.
    pub surcharge_us: u32,
}

impl LinkEnd {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let host = input.host()?;
        let port = input.small("a port")?;
        let delay_us = input.small("a delay")?;
        let loss = input.small("a loss")?;
        if loss > LOSS_MAX {
            return Err(Invalid::Range("a loss"));
        }
        Ok(LinkEnd { host, port, delay_us, loss, surcharge_us: 0 })
    }

    fn put(&self, out: &mut Vec<u8>) {
        assert!(self.loss <= LOSS_MAX, "no more can be lost than all");
        out.put_u64(self.host.as_u64());
        out.put_varint(u64::from(self.port));
        out.put_varint(u64::from(self.delay_us));
        out.put_varint(u64::from(self.loss));
    }
}

/// Reads the surcharges of links: pairs of a link's place in the list, ascending, and µs.
fn read_surcharges(input: &mut Reader<'_>, neighbours: &mut [LinkEnd]) -> Result<(), Invalid> {
    let read = |input: &mut Reader<'_>| Ok((input.small::<u16>("the place of a link")?, input.small("a surcharge")?));
    let mut from = 0;
    for (place, surcharge_us) in input.list(SURCHARGES_MAX, "surcharges", read)? {
        let place = usize::from(place);
        let end = neighbours.get_mut(place).filter(|_| place >= from && surcharge_us > 0);
        end.ok_or(Invalid::Range("a surcharge"))?.surcharge_us = surcharge_us;
        from = place + 1;
    }
    Ok(())
}

/// Appends the surcharges of links; nothing where no link has one and nothing is behind them.
fn put_surcharges(neighbours: &[LinkEnd], is_followed: bool, out: &mut Vec<u8>) {
    let places = (0..).zip(neighbours).map(|(place, end): (u64, _)| (place, end.surcharge_us));
    let surcharges: Vec<(u64, u32)> = places.filter(|(_, surcharge_us)| *surcharge_us > 0).collect();
    if !surcharges.is_empty() || is_followed {
        out.put_list(&surcharges, SURCHARGES_MAX, "surcharges", |out, (place, surcharge_us)| {
            out.put_varint(*place);
            out.put_varint(u64::from(*surcharge_us));
        });
    }
}

/// Reads the domains of a broker, if its protocol says that it names some. That part of the
/// protocol is told by the domains themselves from then on.
fn read_domains(input: &mut Reader<'_>, protocol: &mut Protocol) -> Result<Domains, Invalid> {
    if protocol.features & Protocol::DOMAINS == 0 {
        return Ok(Domains::default());
    }
    protocol.features &= !Protocol::DOMAINS;
    let list = text(input.bytes(LABEL_BYTES_MAX, "domains")?, "domains")?;
    Domains::read(list).filter(|domains| !domains.is_empty()).ok_or(Invalid::Text("domains"))
}

fn is_address(address: &str) -> bool {
    !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_graphic())
}

fn read_address<'a>(input: &mut Reader<'a>) -> Result<&'a str, Invalid> {
    let address = input.text(ADDRESS_BYTES_MAX, "an address")?;
    if is_address(address) { Ok(address) } else { Err(Invalid::Text("an address")) }
}

impl<'a> Body<'a> for LinkStateFrame<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let host = input.host()?;
        let incarnation = input.u64()?;
        let sequence = input.varint()?;
        let name = input.name()?;
        let (reliable, further) = read_pubends(input)?;
        let birth = input.tick()?;
        let age_ms = input.small("an age")?;
        let addresses = input.list(ADDRESSES_MAX, "addresses", read_address)?;
        let mut neighbours = input.list(NEIGHBOURS_MAX, "neighbours", LinkEnd::read)?;
        let previous = input.list(PREVIOUS_IDENTITIES_MAX, "former hosts", PreviousIdentity::read)?;
        let mut protocol = Protocol::read(input)?;
        if protocol.minor >= Protocol::SURCHARGES_SINCE && !input.0.is_empty() {
            read_surcharges(input, &mut neighbours)?;
        }
        if input.0.len() > LATER_BYTES_MAX {
            return Err(Invalid::Range("the fields of a later version"));
        }
        let domains = read_domains(input, &mut protocol)?;
        let later = core::mem::take(&mut input.0);
        Ok(LinkStateFrame {
            host,
            incarnation,
            sequence,
            name,
            reliable,
            further,
            birth,
            age_ms,
            addresses,
            neighbours,
            previous,
            domains,
            protocol,
            later,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.host.as_u64());
        out.put_u64(self.incarnation);
        out.put_varint(self.sequence);
        out.put_name(self.name);
        put_pubends(self.reliable, self.further, out);
        out.put_u64(self.birth.0);
        out.put_varint(u64::from(self.age_ms));
        out.put_list(&self.addresses, ADDRESSES_MAX, "addresses", |out, address| {
            assert!(is_address(address), "an address was checked where it was configured");
            out.put_bytes(address.as_bytes(), ADDRESS_BYTES_MAX, "an address");
        });
        out.put_list(&self.neighbours, NEIGHBOURS_MAX, "neighbours", |out, neighbour| neighbour.put(out));
        out.put_list(&self.previous, PREVIOUS_IDENTITIES_MAX, "former hosts", |out, host| host.put(out));
        self.protocol.put(&self.neighbours, &self.domains, self.later, out);
    }
}

/// Tells a broker the ended hosts that had its name before it, as far as the sender knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousIdentities {
    /// The receiver.
    pub to: HostId,
    /// The number of links that it has passed.
    pub hops: u8,
    /// The ended hosts, at most [`PREVIOUS_IDENTITIES_MAX`].
    pub hosts: Vec<PreviousIdentity>,
}

impl Body<'_> for PreviousIdentities {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        Ok(PreviousIdentities {
            to: input.host()?,
            hops: input.byte()?,
            hosts: input.list(PREVIOUS_IDENTITIES_MAX, "former hosts", PreviousIdentity::read)?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.to.as_u64());
        out.push(self.hops);
        out.put_list(&self.hosts, PREVIOUS_IDENTITIES_MAX, "former hosts", |out, host| host.put(out));
    }
}

/// A host, its incarnation, and the sequence number of its link state or the version of its
/// interest.
pub type HostVersion = (HostId, u64, u64);

fn read_version(input: &mut Reader<'_>) -> Result<HostVersion, Invalid> {
    Ok((input.host()?, input.u64()?, input.varint()?))
}

fn put_version(out: &mut Vec<u8>, (host, incarnation, number): &HostVersion) {
    out.put_u64(host.as_u64());
    out.put_u64(*incarnation);
    out.put_varint(*number);
}

/// The versions that the sender has; the receiver may ask for those that are newer than its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Link states, at most [`LIST_MAX`].
    pub link_states: Vec<HostVersion>,
    /// Interests, at most [`LIST_MAX`].
    pub interests: Vec<HostVersion>,
    /// Whether another digest follows with the rest.
    pub more: bool,
}

impl Body<'_> for Digest {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let more = input.bool("whether more follows")?;
        let link_states = input.list(LIST_MAX, "link states", read_version)?;
        let interests = input.list(LIST_MAX, "interests", read_version)?;
        Ok(Digest { link_states, interests, more })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.more));
        out.put_list(&self.link_states, LIST_MAX, "link states", put_version);
        out.put_list(&self.interests, LIST_MAX, "interests", put_version);
    }
}

/// Asks for link states and interests of these hosts as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Hosts whose interests are asked for, at most [`LIST_MAX`].
    pub interests: Vec<HostId>,
    /// Hosts whose link states are asked for, at most [`LIST_MAX`].
    pub link_states: Vec<HostId>,
}

impl Body<'_> for Ask {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let interests = input.list(LIST_MAX, "interests", Reader::host)?;
        let link_states = input.list(LIST_MAX, "link states", Reader::host)?;
        Ok(Ask { interests, link_states })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let put_host = |out: &mut Vec<u8>, host: &HostId| out.put_u64(host.as_u64());
        out.put_list(&self.interests, LIST_MAX, "interests", put_host);
        out.put_list(&self.link_states, LIST_MAX, "link states", put_host);
    }
}
