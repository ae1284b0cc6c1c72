//! From where on, and how far, the logs of other brokers count for a durable subscription.

use whimbrel_event::{HOST_RELIABLE_MAX, HostId, PubendId, Tick};

use super::remote::BlockedStream;
use super::{Gap, NOTHING, Positions};
use crate::lazy::at_rest;
use crate::store::{OWN, OwnTicks, RemotePosition, Written};

/// What is kept of a durable subscription for other brokers' reliable streams.
#[derive(Debug, Default)]
pub(crate) struct RemoteLogs {
    /// After which ticks what it wants was logged there: behind them silence of the log is silence,
    /// before them it is a gap, unless the cache has it. Only these streams are in its written
    /// position.
    pub(crate) since: Positions,
    /// Up to where it is not known, behind those ticks, whether it was: where it comes from that
    /// had not been told, or not been said. What such a log has is given, and the rest is a gap.
    /// The end of time until the log's broker has told.
    pub(crate) unsure: Positions,
    /// Up to where filter records of the own streams do not name it: it was somewhere else.
    pub(crate) unnamed: OwnTicks,
    /// The last event of each that it wants and that has been passed, as long as it has not
    /// acknowledged that; the end of time where that is not known.
    pub(crate) newest: Positions,
    /// What it holds there, as it was last counted.
    pub(crate) held: Positions,
    /// Streams that are set aside: where it stands in them.
    pub(crate) detached: Positions,
    /// Up to where the cache here is known to lack something.
    pub(crate) holes: Positions,
    /// What is to be told of streams that are set aside when they are followed again: it lies
    /// behind where it stands in them.
    pub(crate) later: Vec<Gap>,
    /// What its client knows of them from another broker, as of [`super::CatchUp::told`]: it may be
    /// live, and lag no more, before they are followed again.
    pub(crate) told: Vec<Gap>,
    /// Streams that are set aside until it has passed an event of another one, own ones among them.
    pub(crate) blocked: Vec<BlockedStream>,
    /// It goes on where a subscription stood that cannot be reached: whatever a log has not got any
    /// more is a gap.
    pub(crate) resumes: bool,
    /// What is written of where it stands there.
    pub(crate) written: Written,
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
        written: Written::new()
    }
);

impl RemoteLogs {
    /// Whether it has been told of all of a broker's streams from where on their log counts.
    pub(crate) fn is_counted(&self, host: HostId) -> bool {
        let is_told = |own| self.unsure.get(host.pubend(own)) != NOTHING;
        self.since.has(host.pubend(0)) && (0..HOST_RELIABLE_MAX).all(is_told)
    }

    /// What it stands behind by now makes no difference any more.
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

    /// From where on the log of a stream counts for one that stands there, if it does. The streams
    /// of one broker count together.
    pub(crate) fn counts_from(&self, pubend: PubendId, acked: impl Fn(PubendId) -> Tick) -> Option<Tick> {
        let is_sure = |of: PubendId| self.unsure.get(of) <= acked(of);
        let counts = self.since.has(pubend) && (0..HOST_RELIABLE_MAX).all(|own| is_sure(pubend.host().pubend(own)));
        counts.then(|| self.since.get(pubend))
    }
}
