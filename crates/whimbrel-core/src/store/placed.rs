//! Which attachment of its client a session is for, as it is written.

use whimbrel_event::HostId;

use super::keys::Value;
use super::wire::{Bytes, put_varint};

/// Which attachment of its client a session is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    /// The number of the attachment.
    pub(crate) epoch: u64,
    /// When the client attached, nanoseconds since 1970.
    pub(crate) moment: u64,
    /// Where its session went, and under which number.
    pub(crate) given: Option<(HostId, u64)>,
}

impl Value<'_> for Placed {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.epoch);
        put_varint(out, self.moment);
        let (host, epoch) = self.given.map_or((0, 0), |(host, epoch)| (host.as_u64(), epoch));
        out.push(u8::from(self.given.is_some()));
        put_varint(out, host);
        put_varint(out, epoch);
    }

    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let (epoch, moment, is_given) = (bytes.varint()?, bytes.varint()?, bytes.u8()? == 1);
        let given = (HostId::new(bytes.varint()?), bytes.varint()?);
        Some(Placed { epoch, moment, given: is_given.then_some(given) })
    }
}
