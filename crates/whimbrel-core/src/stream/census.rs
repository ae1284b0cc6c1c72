//! Which streams there are: so that two brokers that know the same ones need not name them to each other.

use std::sync::Arc;

use whimbrel_event::{PubendId, Seeded, Tick};

use super::Sources;
use crate::overlay::QUIET_MAX;

/// All brokers must agree on it.
const STREAMS: u64 = 0x7374_7265_616d_7300;

/// The streams that a broker follows, and its own, but for those of hosts that have ended.
#[derive(Clone, Debug)]
pub(crate) struct Census {
    /// Says which they are; never 0.
    pub(crate) digest: u64,
    /// Ascending. Held once, however many refer to it.
    pub(crate) streams: Arc<[PubendId]>,
}

impl Sources {
    /// Which streams there are. Found out anew, in n log n, when that has changed since it was last asked.
    pub(crate) fn census(&mut self) -> &Census {
        if self.census.is_none() {
            let own = self.own.pubends().map(|(pubend, _)| pubend);
            let remotes = self.remotes.iter().map(|remote| remote.pubend);
            let mut streams: Vec<PubendId> = own.chain(remotes.filter(|pubend| !self.has_ended_in(*pubend))).collect();
            streams.sort_unstable();
            let names: Vec<u64> = streams.iter().map(|pubend| pubend.0).collect();
            // 0 stands for none.
            let digest = Seeded::new(STREAMS).hash_one(names).max(1);
            self.census = Some(Census { digest, streams: streams.into() });
        }
        self.census.as_ref().expect("it was just counted")
    }

    /// The tick that most streams of other brokers have passed.
    pub(crate) fn level(&self) -> Tick {
        level_of(self.remotes.iter().filter(|remote| !self.has_ended_in(remote.pubend)).map(|remote| remote.passed))
    }

    /// The last tick of another broker's stream that was passed and was no silence, if it is followed.
    pub(crate) fn spoke(&self, pubend: PubendId) -> Option<Tick> {
        let at = self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend).ok()?;
        Some(self.remotes[at].spoke)
    }
}

/// Streams that stand still for longer than others by so much are not reckoned with: their broker is away, or its clock is behind.
const STANDS_STILL: u64 = 2 * QUIET_MAX.as_nanos() as u64;

/// The tick that most streams have passed: the least, but for those that stand far behind half of them.
fn level_of(ticks: impl Iterator<Item = Tick>) -> Tick {
    let mut ticks: Vec<Tick> = ticks.collect();
    if ticks.is_empty() {
        return Tick(0);
    }
    let half = ticks.len() / 2;
    let (before, middle, _) = ticks.select_nth_unstable(half);
    let least = Tick(middle.0.saturating_sub(STANDS_STILL));
    before.iter().copied().filter(|tick| *tick >= least).fold(*middle, Tick::min)
}
