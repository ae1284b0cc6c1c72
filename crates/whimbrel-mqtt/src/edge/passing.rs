//! Passing a PUBLISH through: one without properties goes to subscribers of the same version and
//! QoS as the received bytes.

use whimbrel_core::Delivery;

use crate::codec::{BarePublish, Version};

/// A packet whose event is being published.
#[derive(Clone, Copy)]
pub(super) struct PassingPacket<'a> {
    pub(super) packet: BarePublish<'a>,
    pub(super) version: Version,
    /// The event's topic. Only this event has it at this place in memory.
    pub(super) topic: &'a str,
}

impl PassingPacket<'_> {
    /// Whether a delivery is the packet's bytes. The caller has checked that the client has no
    /// topic aliases, the delivery no subscription identifier, and whether it has its event's name.
    /// `version` and `max_packet` are the client's.
    #[inline]
    pub(super) fn is(&self, delivery: &Delivery<'_>, is_named: bool, version: Version, max_packet: u32) -> bool {
        let is_same_event = core::ptr::eq(self.topic, delivery.accepted.event.topic);
        let is_same_form = self.packet.qos == delivery.qos && self.packet.retain == delivery.retain;
        let is_plain = !is_named && !delivery.repeated && self.version == version;
        is_same_event && is_same_form && is_plain && self.packet.packet_len() <= max_packet as usize
    }
}
