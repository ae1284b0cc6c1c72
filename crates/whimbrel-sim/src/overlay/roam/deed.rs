//! The reports about roaming clients to their book.

use crate::check::notice;
use crate::overlay::book::key_of;
use crate::speech::{Heard, Message, user_properties};

/// An act of a client, or a packet that it received.
#[derive(Debug)]
pub(super) enum Deed {
    /// CONNECT was sent. `forces`: it asks for a session even if its own cannot be found, so it
    /// must not be refused for that.
    Connects { is_clean: bool, forces: bool },
    /// SUBSCRIBE was sent. `goes_on`: it continues from the client's position.
    Subscribes { id: u16, goes_on: bool },
    /// A publish was sent, for the first time or again.
    Publishes { number: u64, message: Message },
    /// A packet arrived that is not a PUBLISH.
    Heard(Heard),
    /// A message arrived that the client did not have.
    Takes(Message),
    /// A delivery was acknowledged.
    Settles { id: u16 },
    /// The connection has ended, by the client's own will or not.
    Gone,
    /// The client's older connection is still open after the time by which it must be closed.
    Haunted,
}

impl Deed {
    /// The deed as one line of text.
    pub(super) fn words(&self) -> String {
        let of = |message: &Message| {
            if message.topic == notice::TOPIC {
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                return text.chars().filter(|letter| !"\"{}".contains(*letter)).take(120).collect();
            }
            let name = message.user_property("w-id").unwrap_or_default();
            let after = message.user_property("w-maybe-repeat").map_or("", |_| ", maybe again");
            let dup = if message.dup { ", dup" } else { "" };
            let (key, id, qos) = (key_of(message), message.id, message.qos as u8);
            format!("{key} on {} {name} QoS {qos} id {id}{dup}{after}", message.topic)
        };
        match self {
            Deed::Publishes { message, .. } => format!("-> {}", of(message)),
            Deed::Takes(message) => format!(" <- {}", of(message)),
            Deed::Heard(Heard::Connack { session_present, code, .. }) => {
                format!(" <- CONNACK {code:02x}, present: {session_present}")
            }
            Deed::Heard(Heard::Suback { codes, properties, .. }) => {
                let named = user_properties(properties).into_iter().filter(|(name, _)| name != "w-token");
                format!(" <- SUBACK {codes:02x?} {:?}", named.collect::<Vec<_>>())
            }
            other => format!("{other:?}").chars().take(160).collect(),
        }
    }
}
