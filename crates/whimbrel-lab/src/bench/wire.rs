//! The load generator's protocols: just enough MQTT and NATS to publish, subscribe, acknowledge and
//! count.
//!
//! The code is separate from the broker's codec: a generator that shared a mistake with the broker
//! could not see it, and one that built whole packets would cost more than some of the measured
//! brokers.

pub mod mqtt;
pub mod nats;

use std::fmt;

/// Bytes at the start of every body that carry the sequence number (throughput) or the intended
/// sending time (latency).
pub const STAMP_BYTES: usize = 8;

/// The protocol that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT 3.1.1.
    Mqtt311,
    /// MQTT 5.0.
    Mqtt5,
    /// The NATS client protocol; QoS 1 is done with JetStream.
    Nats,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Mqtt311 => "MQTT 3.1.1",
            Protocol::Mqtt5 => "MQTT 5.0",
            Protocol::Nats => "NATS",
        })
    }
}

/// Quality of service of the messages of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QoS {
    /// At most once: nothing is acknowledged.
    AtMostOnce,
    /// At least once: publisher and subscribers exchange acknowledgements with the broker.
    AtLeastOnce,
}

/// How a delivered message is to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack<'a> {
    /// Not at all.
    None,
    /// With an MQTT PUBACK of this packet identifier.
    Packet(u16),
    /// With an empty NATS message on this subject.
    Subject(&'a [u8]),
}

/// One frame from the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The connection is accepted (CONNACK), or everything sent so far has been processed (NATS
    /// PONG).
    Ready,
    /// A subscription is accepted (SUBACK).
    Subscribed {
        /// The token of its start; empty if the broker does not tell it.
        token: &'a str,
        /// Whether another broker does not know of it yet: events published there may be missed.
        pending: bool,
    },
    /// A delivered message.
    Message {
        /// The properties of MQTT 5, see [`mqtt::last_property`].
        properties: &'a [u8],
        /// Its body.
        body: &'a [u8],
        /// The acknowledgement that it asks for.
        ack: Ack<'a>,
    },
    /// The broker accepted one of the generator's messages. MQTT names its packet identifier;
    /// JetStream does not.
    Accepted(Option<u16>),
    /// The broker asks for a NATS PONG.
    Ping,
    /// Something that needs no answer.
    Ignored,
}

/// Why bytes from the broker cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    /// The bytes follow no rule of the protocol that this generator knows.
    #[error("the broker sent {0}")]
    Malformed(&'static str),
    /// The broker refused.
    #[error("the broker refused: {0}")]
    Refused(String),
}

/// Parses one frame at the start of `bytes`: the frame and its length, or `None` if more bytes are
/// needed.
///
/// # Errors
/// [`WireError`] when the bytes are malformed or the broker reports an error; the connection is of
/// no more use.
pub fn parse(protocol: Protocol, bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, WireError> {
    match protocol {
        Protocol::Mqtt311 | Protocol::Mqtt5 => mqtt::parse(protocol == Protocol::Mqtt5, bytes),
        Protocol::Nats => nats::parse(bytes),
    }
}

/// A ready-made PUBLISH in which only the stamp and the packet identifier change.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    packet_id_at: Option<usize>,
    stamp_at: usize,
}

impl Template {
    /// A message of `body` bytes (at least [`STAMP_BYTES`]) to `topic`.
    pub fn new(protocol: Protocol, topic: &str, qos: QoS, body: usize) -> Template {
        assert!(body >= STAMP_BYTES, "a body must have room for its stamp");
        match protocol {
            Protocol::Mqtt311 | Protocol::Mqtt5 => mqtt::template(protocol == Protocol::Mqtt5, topic, qos, body, &[]),
            Protocol::Nats => nats::template(topic, qos, body),
        }
    }

    /// As [`Template::new`], over MQTT 5 with user properties.
    pub fn with_attributes(topic: &str, qos: QoS, body: usize, attributes: &[(&str, &str)]) -> Template {
        assert!(body >= STAMP_BYTES, "a body must have room for its stamp");
        mqtt::template(true, topic, qos, body, attributes)
    }

    /// Appends the message to `out`. `packet_id` is only used by MQTT at QoS 1.
    pub fn write(&self, out: &mut Vec<u8>, stamp: u64, packet_id: u16) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let stamp_at = start + self.stamp_at;
        out[stamp_at..stamp_at + STAMP_BYTES].copy_from_slice(&stamp.to_be_bytes());
        if let Some(at) = self.packet_id_at {
            out[start + at..start + at + 2].copy_from_slice(&packet_id.to_be_bytes());
        }
    }

    /// Length of the message on the wire, in bytes.
    pub fn wire_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The stamp of a delivered body.
///
/// # Errors
/// [`WireError::Malformed`] when the body is too short to hold one.
pub fn stamp(body: &[u8]) -> Result<u64, WireError> {
    let bytes = body.first_chunk::<STAMP_BYTES>().ok_or(WireError::Malformed("a body shorter than was published"))?;
    Ok(u64::from_be_bytes(*bytes))
}

/// Appends the acknowledgement of a delivered message to `out`.
pub fn acknowledge(out: &mut Vec<u8>, ack: Ack<'_>) {
    match ack {
        Ack::None => {}
        Ack::Packet(id) => mqtt::puback(out, id),
        Ack::Subject(subject) => nats::publish(out, subject, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_carries_stamp_and_packet_identifier() {
        for (protocol, qos) in [
            (Protocol::Mqtt311, QoS::AtLeastOnce),
            (Protocol::Mqtt5, QoS::AtLeastOnce),
            (Protocol::Mqtt311, QoS::AtMostOnce),
            (Protocol::Mqtt5, QoS::AtMostOnce),
        ] {
            let template = Template::new(protocol, "b/0", qos, 300);
            let mut out = Vec::new();
            template.write(&mut out, 7, 1);
            template.write(&mut out, 0x0102_0304_0506_0708, 0xABCD);
            assert_eq!(out.len(), 2 * template.wire_len());
            let (frame, length) = parse(protocol, &out[template.wire_len()..]).expect("well formed").expect("whole");
            assert_eq!(length, template.wire_len());
            let Frame::Message { body, ack, .. } = frame else {
                panic!("{protocol}: a PUBLISH must parse as a message, got {frame:?}")
            };
            assert_eq!((body.len(), stamp(body)), (300, Ok(0x0102_0304_0506_0708)));
            let expected = if qos == QoS::AtLeastOnce { Ack::Packet(0xABCD) } else { Ack::None };
            assert_eq!(ack, expected);
        }
    }

    #[test]
    fn every_split_of_a_stream_gives_the_same_frames() {
        let mut mqtt = Vec::new();
        let template = Template::new(Protocol::Mqtt311, "b/0", QoS::AtLeastOnce, 200);
        template.write(&mut mqtt, 1, 1);
        mqtt::puback(&mut mqtt, 9);
        template.write(&mut mqtt, 2, 2);
        let nats = b"PING\r\nMSG b.0 1 9\r\n123456789\r\nPONG\r\nMSG b.0 1 $JS.ACK.x 8\r\n12345678\r\n+OK\r\n".to_vec();
        for (protocol, bytes, frames) in [(Protocol::Mqtt311, mqtt, 3), (Protocol::Nats, nats, 5)] {
            for split in 0..=bytes.len() {
                let mut at = 0;
                let mut seen = 0;
                for end in [split, bytes.len()] {
                    while let Some((_, length)) = parse(protocol, &bytes[at..end]).expect("well formed") {
                        at += length;
                        seen += 1;
                    }
                }
                assert_eq!((seen, at), (frames, bytes.len()), "{protocol} split at {split}");
            }
        }
    }

    #[test]
    fn a_short_body_is_an_error() {
        assert!(stamp(b"1234567").is_err());
        assert_eq!(stamp(b"\0\0\0\0\0\0\0\x05rest"), Ok(5));
    }
}
