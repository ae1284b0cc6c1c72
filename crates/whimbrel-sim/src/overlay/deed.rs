//! The reports about clients to the book.

use super::book::key_of;
use super::client::{Class, Wish};
use crate::check::notice;
use crate::speech::{Heard, Message, Said, user_properties};

/// An act of a client, or a packet that it received.
#[derive(Debug)]
pub(super) enum Deed {
    Said(Said),
    /// The client subscribes; `goes_on`: it continues from its position.
    Subscribes {
        id: u16,
        class: Class,
        wish: Wish,
        goes_on: bool,
    },
    Unsubscribes,
    Heard(Heard),
    /// Its connection has ended, by its own will or not.
    Gone,
}

impl Deed {
    /// The deed as one line of text.
    pub(super) fn words(&self) -> String {
        let message = |message: &Message| {
            let key = key_of(message);
            let text = String::from_utf8_lossy(&message.payload);
            let name = message.user_property("w-id").unwrap_or_default();
            if message.topic == notice::TOPIC {
                let text: String = text.chars().filter(|letter| !"\"{}".contains(*letter)).take(120).collect();
                return text;
            }
            let retain = if message.retain { ", retained" } else { "" };
            format!("{key} on {} {name}{retain}", message.topic)
        };
        match self {
            Deed::Said(Said::Publish(published)) => format!("-> {} QoS {}", message(published), published.qos as u8),
            Deed::Heard(Heard::Publish(published)) => format!(" <- {}", message(published)),
            Deed::Heard(Heard::Suback { codes, properties, .. }) => {
                let named = user_properties(properties).into_iter().filter(|(name, _)| name == "w-pending");
                format!(" <- SUBACK {codes:02x?} {:?}", named.map(|(_, name)| name).collect::<Vec<_>>())
            }
            other => format!("{other:?}").chars().take(160).collect(),
        }
    }
}
