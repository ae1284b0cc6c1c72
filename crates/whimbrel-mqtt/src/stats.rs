//! Counters and gauges of the edge.

use crate::codec::ReasonCode;

/// Counts by reason code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reasons([u64; 256]);

impl Default for Reasons {
    fn default() -> Self {
        Reasons([0; 256])
    }
}

impl Reasons {
    pub(crate) fn add(&mut self, reason: ReasonCode) {
        self.0[usize::from(reason.0)] += 1;
    }

    /// The count of `code`.
    pub fn count(&self, code: u8) -> u64 {
        self.0[usize::from(code)]
    }

    /// All codes with a count above 0, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        (0..=u8::MAX).zip(self.0).filter(|(_, count)| *count > 0)
    }

    /// The sum over all codes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// Counters (since the start) and gauges (now; marked so) of the edge, and those of the
        /// core.
        // tidy: table
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: $type,)*
        }
    };
}

stats! {
    /// Counters and gauges of the core.
    core: whimbrel_core::Stats,
    /// Transport connections opened, by [`crate::Origin::ALL`].
    connections_opened: [u64; 4],
    /// Gauge: transport connections that are open.
    connections: u64,
    /// Gauge: connections whose CONNECT has been accepted.
    connections_accepted: u64,
    /// Connections that were lost: ended neither by the broker nor by DISCONNECT.
    connections_lost: u64,
    /// Connections closed because no CONNECT arrived in time.
    connect_timeouts: u64,
    /// Connections closed because the client kept silent for one and a half times its keep-alive.
    keep_alive_timeouts: u64,
    /// Control packets received.
    packets_in: u64,
    /// Bytes received.
    bytes_in: u64,
    /// Control packets sent.
    packets_out: u64,
    /// Bytes handed to the driver.
    bytes_out: u64,
    /// PUBLISH packets received.
    publishes_in: u64,
    /// PUBLISH packets sent.
    publishes_out: u64,
    /// PUBLISH packets sent as they were received, with another packet identifier.
    publishes_passed_through: u64,
    /// CONNECTs whose clients had to be identified first.
    identifying: u64,
    /// Deliveries that were dropped because no rule allows them any more.
    deliveries_denied: u64,
    /// Subscriptions that were ended because no rule allows them any more.
    subscriptions_ended: u64,
    /// The number of times that a connection was paused because its principal's quota was used up.
    throttled: u64,
    /// CONNECTs refused, by reason code of MQTT 5.
    refused: Reasons,
    /// Connections ended by the broker, by reason code of MQTT 5 (also where MQTT 3.1.1 does not
    /// transmit it).
    ended: Reasons,
    /// Publishes refused, by reason code.
    publishes_refused: Reasons,
    /// Acknowledgements for which there is no delivery.
    acknowledgements_unknown: u64,
    /// SUBSCRIBEs refused because their selector is invalid.
    selectors_refused: u64,
    /// SUBSCRIBEs refused because what they say about durability, where to begin, acknowledgement
    /// or notices cannot be read or is not available.
    following_refused: u64,
    /// Acknowledgements by token that cannot be parsed.
    tokens_refused: u64,
    /// Packets that went without what the broker adds (names of events and other properties of its
    /// own, aliases, reason strings), as the client does not accept packets of that size.
    additions_left_out: u64,
    /// User properties that begin with `w-` and are not known.
    reserved_properties_unknown: u64,
}
