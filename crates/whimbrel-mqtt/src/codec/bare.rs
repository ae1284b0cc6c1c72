//! A PUBLISH without properties: most of the traffic, read without the general decoder, and passed
//! on as the bytes that it arrived in.

use super::publish::{DUP, FIRST_BYTE, RETAIN, packet_id, qos_from_bits};
use super::wire::{Frame, Reader};
use super::{PacketId, QoS, Version};

/// A PUBLISH without properties. To a subscriber of the same version, QoS and RETAIN it is the same
/// bytes but for the packet identifier and the DUP flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarePublish<'a> {
    /// All bytes of the packet.
    whole: &'a [u8],
    /// Bytes of the packet up to and with the packet identifier.
    head: usize,
    /// The topic name, not checked.
    pub topic: &'a [u8],
    /// Present exactly if the QoS is above 0.
    pub packet_id: Option<PacketId>,
    /// The QoS.
    pub qos: QoS,
    /// The message is to be retained.
    pub retain: bool,
    /// The payload of the message.
    pub payload: &'a [u8],
}

impl<'a> BarePublish<'a> {
    /// Reads a packet. `None` if it is no PUBLISH, has properties or no topic, or is malformed in
    /// any other way than in its topic: then [`super::decode`] tells.
    #[inline]
    pub fn read(version: Version, frame: &Frame<'a>) -> Option<Self> {
        let Frame { first_byte, body, whole } = *frame;
        let qos = qos_from_bits((first_byte >> 1) & 3)?;
        let is_repeated = first_byte & DUP != 0;
        if first_byte & 0xf0 != FIRST_BYTE || is_repeated && qos == QoS::AtMostOnce {
            return None;
        }
        let mut reader = Reader::new(body);
        let topic = reader.binary().ok()?;
        let packet_id = if qos == QoS::AtMostOnce { None } else { Some(packet_id(&mut reader).ok()?) };
        let head = whole.len() - reader.len();
        let has_properties = version == Version::V5 && reader.u8().ok()? != 0;
        let retain = first_byte & RETAIN != 0;
        let bare = BarePublish { whole, head, topic, packet_id, qos, retain, payload: reader.rest() };
        (!has_properties && !topic.is_empty()).then_some(bare)
    }

    /// Bytes of the whole packet.
    pub fn packet_len(&self) -> usize {
        self.whole.len()
    }

    /// Appends the packet for a receiver that gets it for the first time, with its packet
    /// identifier in place of the publisher's; `tag` has no meaning at QoS 0.
    #[inline]
    pub fn append(&self, tag: u16, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.whole);
        let packet = &mut out[start..];
        packet[0] &= !DUP;
        if self.packet_id.is_some() {
            packet[self.head - 2..self.head].copy_from_slice(&tag.to_be_bytes());
        }
    }
}
