//! Standing between the broker and everybody else, packet by packet.

use std::collections::BTreeMap;

use mqtt_protocol_core::mqtt::Version;
use whimbrel_mqtt::ConnId;
use whimbrel_sim::check::Outcome;
use whimbrel_sim::packets::next_packet;
use whimbrel_sim::speech::{Heard, Message, Said};

/// One packet that the broker says.
pub struct Spoken {
    pub conn: ConnId,
    pub version: Version,
    pub heard: Heard,
    pub bytes: Vec<u8>,
}

impl Spoken {
    pub fn message(&self) -> Option<&Message> {
        match &self.heard {
            Heard::Publish(message) => Some(message),
            _ => None,
        }
    }

    /// Says another message instead.
    pub fn replace(&mut self, message: Message) {
        self.bytes = Said::Publish(message.clone()).encode(self.version);
        self.heard = Heard::Publish(message);
    }

    /// Changes the message; false if it is none, or the change does not apply.
    pub fn change(&mut self, change: impl FnOnce(&mut Message) -> bool) -> bool {
        let Some(mut message) = self.message().cloned() else { return false };
        let changed = change(&mut message);
        if changed {
            self.replace(message);
        }
        changed
    }
}

/// The packets in what the broker says.
pub fn hear(outcome: &Outcome, version: &dyn Fn(ConnId) -> Version) -> Vec<Spoken> {
    let mut spoken = Vec::new();
    for (conn, bytes) in &outcome.sends {
        let (version, mut at) = (version(*conn), 0);
        loop {
            let from = at;
            let packet = next_packet(version, bytes, &mut at).expect("the broker itself is not at fault");
            let Some(packet) = packet else { break };
            let bytes = bytes[from..at].to_vec();
            spoken.push(Spoken { conn: *conn, version, heard: Heard::from(packet), bytes });
        }
    }
    spoken
}

/// Has the broker say those packets instead.
pub fn say(outcome: &mut Outcome, spoken: Vec<Spoken>) {
    let mut sends: BTreeMap<ConnId, Vec<u8>> = BTreeMap::new();
    for packet in spoken {
        sends.entry(packet.conn).or_default().extend(packet.bytes);
    }
    outcome.sends = sends.into_iter().collect();
}
