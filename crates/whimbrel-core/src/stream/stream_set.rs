//! The set of streams that a broker knows: two brokers with equal sets need not name streams to
//! each other.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_event::{PubendId, Seeded, Tick, Time};

use super::Sources;
use crate::stream::QUIET_MAX;

/// The seed of the digest: all brokers must agree on it.
const STREAMS: u64 = 0x7374_7265_616d_7300;

/// The streams that a broker follows, and its own, without those of ended hosts.
#[derive(Clone, Debug)]
pub(crate) struct StreamSet {
    /// Identifies the set; never 0.
    pub(crate) digest: u64,
    /// Ascending; one copy for all references.
    pub(crate) streams: Arc<[PubendId]>,
}

impl Sources {
    /// The set of known streams. Computed anew, in n log n, when it has changed since the last
    /// call.
    pub(crate) fn stream_set(&mut self) -> &StreamSet {
        if self.stream_set.is_none() {
            let own = self.own.pubends().map(|(pubend, _)| pubend);
            let remotes = self.remotes.iter().map(|remote| remote.pubend);
            let mut streams: Vec<PubendId> = own.chain(remotes.filter(|pubend| !self.has_ended_in(*pubend))).collect();
            streams.sort_unstable();
            let names: Vec<u64> = streams.iter().map(|pubend| pubend.0).collect();
            // 0 stands for no set.
            let digest = Seeded::new(STREAMS).hash_one(names).max(1);
            self.stream_set = Some(StreamSet { digest, streams: streams.into() });
        }
        self.stream_set.as_ref().expect("it was just counted")
    }

    /// The low watermark: the tick that most streams of other brokers have passed.
    pub(crate) fn low_watermark(&self) -> Tick {
        low_watermark_of(
            self.remotes.iter().filter(|remote| !self.has_ended_in(remote.pubend)).map(|remote| remote.passed),
        )
    }

    /// A tick at or after all passed ticks and the own clock: clocks of other brokers may be ahead,
    /// and the own one may have been set back.
    pub(crate) fn reached(&self, now: Time) -> Tick {
        self.positions().map(|(_, passed)| passed).fold(Tick(now.as_nanos()), Tick::max)
    }

    /// The last tick of another broker's stream that was passed and was not silent, if it is
    /// followed.
    pub(crate) fn spoke(&self, pubend: PubendId) -> Option<Tick> {
        let at = self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend).ok()?;
        Some(self.remotes[at].spoke)
    }
}

/// Streams further behind the middle one than this, nanoseconds, do not count: their broker is
/// away, or its clock is behind.
const STANDS_STILL: u64 = 2 * QUIET_MAX.as_nanos() as u64;

/// The age that the low watermark mostly does not exceed: the middle one of all streams has moved
/// within [`QUIET_MAX`], and those that count are at most [`STANDS_STILL`] behind it.
pub(crate) const WATERMARK_AGE: Duration = QUIET_MAX.saturating_mul(3);

/// The tick that most streams have passed: the least, without those that are far behind the middle
/// one.
pub(crate) fn low_watermark_of(ticks: impl Iterator<Item = Tick>) -> Tick {
    let mut ticks: Vec<Tick> = ticks.collect();
    if ticks.is_empty() {
        return Tick(0);
    }
    let half = ticks.len() / 2;
    let (before, middle, _) = ticks.select_nth_unstable(half);
    let least = Tick(middle.0.saturating_sub(STANDS_STILL));
    before.iter().copied().filter(|tick| *tick >= least).fold(*middle, Tick::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_have_passed_the_level_and_who_stands_far_behind_does_not_count() {
        let watermark = |ticks: &[u64]| {
            low_watermark_of(ticks.iter().map(|seconds| Tick(seconds * 1_000_000_000))).0 / 1_000_000_000
        };
        assert_eq!(watermark(&[]), 0);
        assert_eq!(watermark(&[1_000]), 1_000);
        assert_eq!(watermark(&[1_000, 990, 985, 1_001]), 985);
        assert_eq!(watermark(&[1_000, 990, 200, 985, 1_001]), 985, "one is away");
        assert_eq!(watermark(&[1_000, 5_000, 990, 985, 1_001]), 985, "the clock of one is ahead");
        assert_eq!(watermark(&[500, 5_000, 500, 5_000]), 5_000, "half of them are away");
    }

    #[test]
    fn two_that_follow_the_same_streams_have_the_same_census() {
        let host = |number: u64| whimbrel_event::HostId::new(number << 8);
        let sources = |own: u64| Sources::restored(host(own), Tick(5), [Tick(5); super::super::Streams::COUNT]);
        let (reliable, further) = (super::super::Streams::FIRST, super::super::Streams::FURTHER);
        let (mut one, mut other) = (sources(1), sources(2));
        assert_ne!(one.stream_set().digest, other.stream_set().digest);
        one.add_host(host(2), (reliable, further), Tick(5), false);
        other.add_host(host(1), (reliable, further), Tick(5), false);
        assert_eq!(
            (one.stream_set().digest, &one.stream_set().streams.clone()),
            (other.stream_set().digest, &other.stream_set().streams)
        );
        let both = one.stream_set().digest;
        other.add_host(host(3), (reliable, further), Tick(5), false);
        assert_ne!(other.stream_set().digest, both);
        other.name_host(host(3), "c");
        assert!(other.end_host(host(3)));
        assert_eq!(other.stream_set().digest, both, "what has ended is not counted");
    }
}
