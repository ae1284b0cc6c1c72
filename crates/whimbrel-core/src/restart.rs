//! Resuming the host of the data directory after a restart.

use whimbrel_event::{HostId, Tick};

use crate::broker::Broker;
use crate::stream::{Sources, Streams};

impl Broker {
    /// Makes the own streams those of a host that was here before, instead of new ones. `birth` is
    /// the tick of their begin. `last` has for each stream the last tick that can have been used or
    /// named: all ticks from now on are greater, and the cache is sure of nothing up to there. No
    /// tick is named that is not reserved ([`Streams::reserve`]).
    ///
    /// # Panics
    /// When the core has been used.
    pub fn resume_host(&mut self, host: HostId, birth: Tick, last: [Tick; Streams::COUNT]) {
        assert!(self.serial == 0 && self.sessions.stats.sessions == 0, "streams are taken up before anybody comes");
        self.streams = Sources::restored(host, birth, last);
        for (pubend, passed) in self.streams.own.pubends() {
            self.cache.miss(pubend, passed);
        }
    }
}
