//! Records of sessions' attachments, and of other brokers.

use whimbrel_event::{EventId, HostId, PREDECESSORS_MAX, PredecessorsBuf, PubendId, Tick};

use super::wire::{ByteReader, MapValue, put_bytes, put_varint};

/// The attachment of its client that a session is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AttachmentRecord {
    /// The number of the attachment.
    pub(crate) epoch: u64,
    /// When the client attached, nanoseconds since 1970.
    pub(crate) connected_at: u64,
    /// The broker that the session was given to, and the epoch there.
    pub(crate) given: Option<(HostId, u64)>,
    /// The client may have published at a broker that could not be asked.
    pub(crate) maybe_repeats: bool,
    /// Possible predecessors: events that the client published at other brokers. Its publishes here
    /// come after them, also if this broker restarts before the first.
    pub(crate) after: PredecessorsBuf,
    /// It was begun while the session that its client had elsewhere could not be reached, and the
    /// client has resumed no subscription yet.
    pub(crate) awaits_resumption: bool,
}

/// Another broker that is or was known, as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KnownBrokerRecord<N> {
    pub(crate) name: N,
    /// Number of its reliable and of its best-effort streams, which began at `birth`.
    pub(crate) pubends: (u8, u8),
    pub(crate) birth: Tick,
    /// The incarnation in which it was told everything; 0: none.
    pub(crate) incarnation: u64,
}

impl<'a> MapValue<'a> for KnownBrokerRecord<&'a str> {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.pubends.0, self.pubends.1]);
        put_varint(out, self.birth.0);
        put_varint(out, self.incarnation);
        put_bytes(out, self.name.as_bytes());
    }

    fn read(bytes: &mut ByteReader<'a>) -> Option<Self> {
        let (pubends, birth) = ((bytes.u8()?, bytes.u8()?), Tick(bytes.varint()?));
        Some(KnownBrokerRecord { pubends, birth, incarnation: bytes.varint()?, name: bytes.text()? })
    }
}

impl MapValue<'_> for AttachmentRecord {
    const VERSION: u8 = 4;

    // Few are begun so, and 0.1.0 reads the version before, too.
    fn put_versioned(&self, out: &mut Vec<u8>) {
        out.push(if self.awaits_resumption { Self::VERSION } else { 3 });
        self.put(out);
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.epoch);
        put_varint(out, self.connected_at);
        let (host, epoch) = self.given.map_or((0, 0), |(host, epoch)| (host.as_u64(), epoch));
        out.push(u8::from(self.given.is_some()));
        put_varint(out, host);
        put_varint(out, epoch);
        out.push(u8::from(self.maybe_repeats));
        put_varint(out, self.after.iter().count() as u64);
        for EventId { pubend, tick } in self.after.iter() {
            put_varint(out, pubend.0);
            put_varint(out, tick.0);
        }
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        Some(AttachmentRecord { awaits_resumption: true, ..AttachmentRecord::read_older(3, bytes)? })
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        (1..=3).contains(&version).then_some(())?;
        let (epoch, connected_at, is_given) = (bytes.varint()?, bytes.varint()?, bytes.u8()? == 1);
        let given = (HostId::new(bytes.varint()?), bytes.varint()?);
        // Version 1 did not have that flag.
        let maybe_repeats = version == 1 || bytes.u8()? == 1;
        let given = is_given.then_some(given);
        let count = if version == 3 { bytes.varint()? } else { 0 };
        let count = usize::try_from(count).ok().filter(|count| *count <= PREDECESSORS_MAX)?;
        let mut id = || Some(EventId { pubend: PubendId(bytes.varint()?), tick: Tick(bytes.varint()?) });
        let after = (0..count).map(|_| id()).collect::<Option<PredecessorsBuf>>()?;
        Some(AttachmentRecord { epoch, connected_at, given, maybe_repeats, after, awaits_resumption: false })
    }
}
