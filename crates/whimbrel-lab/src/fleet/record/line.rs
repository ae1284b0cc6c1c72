//! The lines of a recording.

use serde::{Deserialize, Serialize};

/// A line.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Line {
    /// Seconds since the recording began.
    pub at: f64,
    /// The client, the broker, `judge`, or `run` for acts of the run.
    pub from: String,
    /// The content of the line.
    #[serde(flatten)]
    pub what: What,
}

/// The subject of a line.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(untagged)]
pub enum What {
    /// A client has sent or received a packet.
    Packet(PacketLine),
    /// Text: a line of a broker's log or output, a verdict, an act of the run.
    Text {
        /// The text.
        says: String,
    },
}

/// The direction of a packet.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// By the client, to its broker.
    #[default]
    Sent,
    /// By the client, from its broker.
    Got,
}

/// An MQTT packet; fields that the packet does not have are left out.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Default, Debug)]
pub struct PacketLine {
    /// The number of the client's connection: 1, 2, 3, …
    pub connection: u32,
    /// The direction.
    pub way: Way,
    /// Its type, as `PUBLISH`.
    pub packet: String,
    /// The packet identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u16>,
    /// The QoS of a PUBLISH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    /// Whether it is marked as a possible repeat.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dup: bool,
    /// The retain flag.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retain: bool,
    /// The topic, also where an alias stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The payload; bytes that are not UTF-8 are replaced by U+FFFD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Flags, reason codes, filters, and user properties: names and values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<(String, String)>,
}

impl PacketLine {
    /// The first value of a name.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.with.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
