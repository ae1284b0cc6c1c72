//! What the two brokers at the ends of a link tell each other of themselves and the link.

use whimbrel_event::{HOST_FURTHER_MAX, HostId, KIND_PUBENDS_MAX, Tick};

use crate::body::Body;
use crate::bytes::{Put, Reader};
use crate::{GOODBYE_BYTES_MAX, Invalid, MAJOR, VERSION_BYTES_MAX};

/// The identity of the sender. Its first two bytes, the versions, are the same in every version of
/// the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// [`MAJOR`]; another one is refused when it is decoded.
    pub major: u8,
    /// [`crate::MINOR`] of the sender.
    pub minor: u8,
    /// The deployment that it belongs to.
    pub deployment: u64,
    /// The sender's host id.
    pub host: HostId,
    /// Greater at each start.
    pub incarnation: u64,
    /// The sender's name, see [`crate::is_name`].
    pub name: &'a str,
    /// The sender's clock, nanoseconds since 1970.
    pub time: u64,
    /// Number of its pubends from index 0 on, at most [`KIND_PUBENDS_MAX`].
    pub reliable: u8,
    /// Number of its pubends from index [`KIND_PUBENDS_MAX`] on, at most [`HOST_FURTHER_MAX`]; it
    /// has at least one pubend. Since 1.3 a broker has all of them.
    pub further: u8,
    /// The tick before the first one that its pubends can have used.
    pub birth: Tick,
    /// The version of its program, for people, at most [`VERSION_BYTES_MAX`] bytes; empty if it
    /// tells none, as in minor version 0.
    pub version: &'a str,
}

/// Numbers of pubends from index 0 and from index [`KIND_PUBENDS_MAX`] on, each a byte.
pub(crate) fn read_pubends(input: &mut Reader<'_>) -> Result<(u8, u8), Invalid> {
    let [reliable, further] = input.array()?;
    if are_pubends(reliable, further) { Ok((reliable, further)) } else { Err(Invalid::Range("a number of pubends")) }
}

pub(crate) fn put_pubends(reliable: u8, further: u8, out: &mut Vec<u8>) {
    assert!(are_pubends(reliable, further), "these are more pubends than a host can have");
    out.extend_from_slice(&[reliable, further]);
}

fn are_pubends(reliable: u8, further: u8) -> bool {
    (reliable, further) != (0, 0) && reliable <= KIND_PUBENDS_MAX && further <= HOST_FURTHER_MAX
}

impl<'a> Body<'a> for Hello<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let [major, minor] = input.array()?;
        if major != MAJOR {
            return Err(Invalid::Major(major));
        }
        let deployment = input.u64()?;
        let host = input.host()?;
        let incarnation = input.u64()?;
        let name = input.name()?;
        let time = input.u64()?;
        let (reliable, further) = read_pubends(input)?;
        let birth = input.tick()?;
        let version = if input.0.is_empty() { "" } else { input.text(VERSION_BYTES_MAX, "a version")? };
        Ok(Hello { major, minor, deployment, host, incarnation, name, time, reliable, further, birth, version })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.major, self.minor]);
        out.put_u64(self.deployment);
        out.put_u64(self.host.as_u64());
        out.put_u64(self.incarnation);
        out.put_name(self.name);
        out.put_u64(self.time);
        put_pubends(self.reliable, self.further, out);
        out.put_u64(self.birth.0);
        // There is only one form: an empty version is not written.
        if !self.version.is_empty() {
            out.put_bytes(self.version.as_bytes(), VERSION_BYTES_MAX, "a version");
        }
    }
}

/// Why a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goodbye<'a> {
    /// The reason as a number; the core defines the numbers.
    pub code: u8,
    /// The reason for people, at most [`GOODBYE_BYTES_MAX`] bytes.
    pub text: &'a str,
}

impl<'a> Body<'a> for Goodbye<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(Goodbye { code: input.byte()?, text: input.text(GOODBYE_BYTES_MAX, "a goodbye")? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.code);
        out.put_bytes(self.text.as_bytes(), GOODBYE_BYTES_MAX, "a goodbye");
    }
}

/// A request for an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The sender's number for it.
    pub sequence: u32,
    /// When it was sent, nanoseconds of the sender's clock.
    pub sent: u64,
}

impl Body<'_> for Probe {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        Ok(Probe { sequence: input.small("a sequence number")?, sent: input.u64()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(u64::from(self.sequence));
        out.put_u64(self.sent);
    }
}

/// The echo of a [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeEcho {
    /// As in the probe.
    pub sequence: u32,
    /// As in the probe.
    pub sent: u64,
    /// Time for which the probe was held before it was answered, µs.
    pub held_us: u32,
}

impl Body<'_> for ProbeEcho {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let Probe { sequence, sent } = Probe::read(input)?;
        Ok(ProbeEcho { sequence, sent, held_us: input.small("the time a probe was held")? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        Probe { sequence: self.sequence, sent: self.sent }.put(out);
        out.put_varint(u64::from(self.held_us));
    }
}
