//! MQTT 3.1.1 and 5: packet model, codec and the broker's edge, without IO.
//!
//! [`MqttBroker`] is a whole MQTT broker as a deterministic state machine: the core, and the
//! translation between packets and the core's vocabulary. Its driver feeds it bytes and times
//! ([`Input`]) and carries out its effects ([`Output`]).

pub mod codec;
mod config;
mod edge;
pub mod moment;
mod stats;

pub use config::{
    AHEAD_ENOUGH, AHEAD_MAX, ANSWERS_MAX, ANSWERS_WITHIN, AWAIT_MAX, Access, Config, HIGH_WATER, IDENTIFY_MAX,
    LISTEN_MAX, LOW_WATER, Limits, PARTIAL_FREE, READ_OUT_BYTES, REFUSED_UNREAD,
};
pub use edge::{
    ClientInfo, ConnId, Credentials, Decision, Identity, Input, MqttBroker, Origin, Output, Reason, RefusedPublishes,
    Traffic, TurnedAway, Unidentified,
};
pub use stats::{Reasons, Stats};
pub use whimbrel_core::{Unread, store};
