//! `whimbrel version`.

use crate::failure::{self, Failure};

/// Version and commit, in one line.
pub const SHORT: &str = env!("WHIMBREL_VERSION");

/// Prints the facts about this build.
pub fn print() -> Result<(), Failure> {
    let text = format!(
        "whimbrel {}\nprotocols:  MQTT 5.0, MQTT 3.1.1\ntransports: TCP, TLS 1.2 and 1.3 (ring), WebSocket, WebSocket with TLS\n\
         build:      {}-{}, {}\n",
        SHORT,
        std::env::consts::ARCH,
        std::env::consts::OS,
        if cfg!(debug_assertions) { "debug assertions" } else { "release" },
    );
    failure::print(text.as_bytes())
}
