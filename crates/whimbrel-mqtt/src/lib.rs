//! MQTT 3.1.1 and 5: packet model, codec and edge, without IO.

pub mod codec;
