//! How a broker's process begins, which it does in the same way when what came to it is played
//! again.

use whimbrel_core::{Broker, Limits, OverlayConfig};
use whimbrel_event::Time;

use super::Node;

/// Entries of an interest.
const INTEREST_MAX: usize = 256;

/// What a process begins with, apart from what its broker is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    pub(super) seed: u64,
    pub(super) at: Time,
    pub(super) expects_peers: bool,
}

impl Node {
    /// The core of a process.
    pub(super) fn born(&self, Birth { seed, at, expects_peers }: Birth) -> Broker {
        let limits = Limits::default();
        let mut core = match &self.log {
            Some(log) => log.restoring().finish(limits, seed, at, &log.state()).expect("what was written makes sense"),
            None => Broker::new(limits, seed, at),
        };
        core.set_buffer(self.buffer.clone());
        if let Some(plan) = &self.cache {
            core.set_cache(at, plan.clone());
        }
        core.open_overlay(
            at,
            OverlayConfig {
                name: self.name.as_str().into(),
                version: env!("CARGO_PKG_VERSION").into(),
                addresses: Vec::new(),
                interest_max: INTEREST_MAX,
                expects_peers,
                links_wanted: 0,
                moves_sessions: self.moves_sessions,
            },
        );
        core
    }
}
