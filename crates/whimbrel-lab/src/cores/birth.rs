//! The start of a broker's process, which is the same when its input is replayed.

use whimbrel_core::{Broker, Limits, OverlayConfig};
use whimbrel_event::Time;

use super::Node;

/// Entries of an interest, at most.
const INTEREST_MAX: usize = 256;

/// The parameters of a process's start, apart from its broker's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    pub(super) seed: u64,
    pub(super) at: Time,
    pub(super) expects_peers: bool,
}

impl Node {
    /// The core of a new process.
    pub(super) fn born(&self, Birth { seed, at, expects_peers }: Birth) -> Broker {
        let limits = Limits::default();
        let mut core = match &self.log {
            Some(log) => log.restoring().finish(limits, seed, at, &log.state()).expect("what was written makes sense"),
            None => Broker::new(limits, seed, at),
        };
        core.set_buffer(self.buffer.clone());
        core.set_profiles(self.profiles.clone());
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
                surcharges: Default::default(),
                domains: Default::default(),
                routing: self.routing,
                pace: self.pace,
                moves_sessions: self.moves_sessions,
            },
        );
        core
    }
}
