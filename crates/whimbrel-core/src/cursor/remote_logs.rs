//! Since when, and how far, the logs of other brokers count for a durable subscription.

use whimbrel_event::{HostId, PubendId, Tick};

use super::remote::BlockedStream;
use super::{Gap, NOTHING, Positions};
use crate::lazy::at_rest;
use crate::store::{OWN, OwnTicks, RemotePosition, WrittenPosition};

/// A durable subscription's state for other brokers' reliable streams.
#[derive(Debug, Default)]
pub(crate) struct RemoteLogs {
    /// After which ticks its interest is logged there: behind them silence of the log is silence,
    /// before them it is a gap, unless the cache has it. Only these streams are in its written
    /// position.
    pub(crate) since: Positions,
    /// Up to where it is unknown, behind those ticks, whether the interest was logged: its previous
    /// broker had not been told, or had not said. Events that such a log has are given, the rest is
    /// a gap. [`NOTHING`] until the log's broker has told.
    pub(crate) unsure: Positions,
    /// Up to where filter records of the own streams do not name it: it was at another broker.
    pub(crate) unnamed: OwnTicks,
    /// The last wanted event of each stream that was passed, until it is acknowledged; [`NOTHING`]
    /// if unknown.
    pub(crate) newest: Positions,
    /// The holds there, as last counted.
    pub(crate) held: Positions,
    /// Detached streams, with the cursor's position in them.
    pub(crate) detached: Positions,
    /// Up to where the cache here is known to lack events.
    pub(crate) holes: Positions,
    /// Gaps of detached streams, behind the cursor's position in them, to be told when they rejoin.
    pub(crate) later: Vec<Gap>,
    /// Gaps of detached streams that the client knows from another broker, as
    /// [`super::CatchUp::told`]: catch-up may be over before the streams rejoin.
    pub(crate) told: Vec<Gap>,
    /// Streams that are detached until the cursor has passed an event of another stream; own ones
    /// among them.
    pub(crate) blocked: Vec<BlockedStream>,
    /// The cursor resumes a subscription that cannot be reached: ranges that a log has not got any
    /// more are gaps.
    pub(crate) resumes: bool,
    /// The written part of the position there.
    pub(crate) written: WrittenPosition,
}

at_rest!(
    RemoteLogs,
    RemoteLogs {
        since: Positions::new(),
        unsure: Positions::new(),
        unnamed: [Tick(0); OWN],
        newest: Positions::new(),
        held: Positions::new(),
        detached: Positions::new(),
        holes: Positions::new(),
        later: Vec::new(),
        told: Vec::new(),
        blocked: Vec::new(),
        resumes: false,
        written: WrittenPosition::new()
    }
);

impl RemoteLogs {
    /// Whether it is known for all of a broker's streams since when their log counts.
    pub(crate) fn is_counted(&self, host: HostId) -> bool {
        self.since.has(host.pubend(0)) && host.all_reliable().all(|pubend| self.unsure.get(pubend) != NOTHING)
    }

    /// Forgets uncertainty that lies behind the position: it makes no difference any more.
    pub(crate) fn pass_unsure(&mut self, stood: &[RemotePosition]) {
        if self.unsure.is_empty() {
            return;
        }
        for RemotePosition { pubend, acked, .. } in stood {
            let unsure = self.unsure.get(*pubend);
            if self.unsure.has(*pubend) && unsure <= *acked {
                self.since.set(*pubend, unsure.max(self.since.get(*pubend)));
                self.unsure.remove(*pubend);
            }
        }
    }

    /// Since when the log of a stream counts for a cursor at these positions, if it does. The
    /// streams of one broker count together.
    pub(crate) fn counts_from(&self, pubend: PubendId, acked: impl Fn(PubendId) -> Tick) -> Option<Tick> {
        let is_sure = |of: PubendId| self.unsure.get(of) <= acked(of);
        let counts = self.since.has(pubend) && pubend.host().all_reliable().all(is_sure);
        counts.then(|| self.since.get(pubend))
    }
}
