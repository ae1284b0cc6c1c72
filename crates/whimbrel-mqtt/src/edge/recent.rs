//! Encoded packets of cached events: many subscriptions that return together get the same packets.

use super::outbound::PublishKey;

/// Number of packets that are kept, indexed by the serials of their events.
const PACKETS: usize = 4_096;

/// The longest packet that is kept, bytes: together at most 4 MiB.
const PACKET_MAX: usize = 1_024;

/// A kept packet.
#[derive(Debug, Default)]
struct RecentPacket {
    key: Option<PublishKey>,
    tag_at: usize,
    bytes: Vec<u8>,
}

/// The packets encoded last for subscriptions in catch-up. The packet of an event replaces that of
/// an event whose serial differs by a multiple of [`PACKETS`].
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Empty until a subscription is in catch-up.
    kept: Vec<RecentPacket>,
    /// The highest serial of a delivery so far.
    newest: u64,
}

impl Recent {
    /// Whether the event with that serial is older than the newest one, and so comes from the
    /// cache.
    #[inline]
    pub(super) fn is_old(&mut self, serial: u64) -> bool {
        self.newest = self.newest.max(serial);
        serial < self.newest
    }

    /// Appends the packet with this key to `out`, with the packet identifier `tag` unless that is
    /// 0. False if it is not kept.
    pub(super) fn copy(&self, key: &PublishKey, tag: u16, out: &mut Vec<u8>) -> bool {
        let Some(kept) = self.kept.get(place(key)).filter(|kept| kept.key.as_ref() == Some(key)) else { return false };
        let at = out.len();
        out.extend_from_slice(&kept.bytes);
        if tag != 0 {
            out[at + kept.tag_at..at + kept.tag_at + 2].copy_from_slice(&tag.to_be_bytes());
        }
        true
    }

    /// Keeps a packet that has its packet identifier at `tag_at`, unless it is too long.
    pub(super) fn keep(&mut self, key: PublishKey, tag_at: usize, packet: &[u8]) {
        if packet.len() > PACKET_MAX {
            return;
        }
        if self.kept.is_empty() {
            self.kept.resize_with(PACKETS, RecentPacket::default);
        }
        let kept = &mut self.kept[place(&key)];
        (kept.key, kept.tag_at) = (Some(key), tag_at);
        kept.bytes.clear();
        kept.bytes.extend_from_slice(packet);
    }
}

fn place(key: &PublishKey) -> usize {
    key.serial as usize % PACKETS
}

#[cfg(test)]
mod tests {
    use whimbrel_event::Qos;

    use super::*;
    use crate::codec::Version;

    fn key(serial: u64) -> PublishKey {
        PublishKey { serial, version: Version::V5, qos: Qos::AtLeastOnce, retain: false, named: true }
    }

    #[test]
    fn a_kept_packet_is_copied_with_another_identifier() {
        let mut recent = Recent::default();
        let mut out = b"before".to_vec();
        assert!(!recent.copy(&key(7), 3, &mut out));
        recent.keep(key(7), 1, b"p\0\0q");
        assert!(recent.copy(&key(7), 0x0102, &mut out) && recent.copy(&key(7), 0, &mut out));
        assert_eq!(out, b"beforep\x01\x02qp\0\0q");
        assert!(!recent.copy(&PublishKey { retain: true, ..key(7) }, 3, &mut out), "another kind of packet");
    }

    #[test]
    fn a_later_event_takes_the_place_and_long_packets_are_not_kept() {
        let mut recent = Recent::default();
        recent.keep(key(7), 0, b"old");
        recent.keep(key(7 + PACKETS as u64), 0, b"new");
        recent.keep(key(8), 0, &[0; PACKET_MAX + 1]);
        let mut out = Vec::new();
        assert!(!recent.copy(&key(7), 0, &mut out) && !recent.copy(&key(8), 0, &mut out));
        assert!(recent.copy(&key(7 + PACKETS as u64), 0, &mut out));
        assert_eq!(out, b"new");
    }

    #[test]
    fn only_what_is_older_than_the_newest_is_old() {
        let mut recent = Recent::default();
        assert_eq!([5, 5, 4, 6, 5].map(|serial| recent.is_old(serial)), [false, false, true, false, true]);
    }
}
