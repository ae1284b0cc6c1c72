//! A cursor whose client has left stands at one tick in most streams.
//!
//! Each stream moves at least once in [`QUIET_MAX`](crate::stream::QUIET_MAX), so the position of
//! a cursor whose client leaves now is another tick for each stream, and for each moment. But
//! between the low watermark, which all streams have passed, and that position there are mostly no
//! events that the cursor wants or has had. So it stands as well at the watermark, and takes no
//! memory of its own. Written positions rely on that, too ([`crate::store::WrittenPosition`]): a
//! range that would be read again is silence.

use core::time::Duration;

use whimbrel_event::{PubendId, Reliability, Tick, Time};

use super::positions::COMMON_MIN;
use super::{Cursor, Positions};
use crate::broker::Broker;
use crate::stream::{WATERMARK_AGE, low_watermark_of};

impl Broker {
    /// Whether a cursor at `at` in a stream of another broker may as well stand at `watermark`,
    /// before that: it was given nothing in between, waits for nothing there, and would be told of
    /// nothing.
    pub(crate) fn is_silent_between(&self, cursor: &Cursor, pubend: PubendId, watermark: Tick, at: Tick) -> bool {
        let Some(spoke) = self.streams.spoke(pubend) else { return false };
        if self.streams.has_ended_in(pubend) || cursor.unsettled.has(pubend) || !self.is_kept_from(watermark) {
            return false;
        }
        // Events that it had before it began here need not have been passed here.
        let is_still = spoke <= watermark && at <= self.streams.passed(pubend);
        let Some(durable) = cursor.durable.as_deref() else { return is_still && cursor.began.here <= watermark };
        if cursor.by_token && cursor.began.here > watermark {
            return false;
        }
        let remote = &durable.remote;
        // Streams of one broker count together; the interest in best-effort ones is known there
        // since then as well.
        let is_reliable = pubend.reliability() == Reliability::Reliable;
        let counted = if is_reliable { pubend } else { pubend.host().pubend(0) };
        let counts = remote.counts_from(counted, |_| watermark).is_some_and(|since| since <= watermark);
        // If the newest wanted event is unknown, the log is held until the cursor stands where the
        // stream was passed.
        let waits = remote.detached.has(pubend)
            || remote.holes.get(pubend) > watermark
            || remote.newest.get(pubend) > watermark;
        let is_silence = || match is_reliable {
            true => remote.written.given(pubend, &self.store.bases) <= watermark,
            // Events that it had at another broker need not have been passed here.
            false => is_still && remote.unnamed.iter().all(|tick| *tick <= watermark),
        };
        counts && !waits && is_silence()
    }

    /// Whether logs that are given up early are kept as long for a cursor at that tick as for one
    /// at the streams' present positions.
    fn is_kept_from(&self, watermark: Tick) -> bool {
        let age = self.now.since(Time::from_nanos(watermark.0));
        self.sessions.limits.max_retain.is_none_or(|max| age <= early_grace(max))
    }

    /// Moves a kept cursor whose client has left to the watermark, wherever that makes no
    /// difference.
    pub(super) fn align_to_watermark(&mut self, id: u32) {
        let cursor = self.cursors.get(id);
        let Some(catch_up) = cursor.catch_up.as_deref().filter(|_| cursor.keeps) else { return };
        let watermark = self.streams.low_watermark();
        let told = |pubend| catch_up.gaps.iter().chain(catch_up.told.iter()).any(|gap| gap.pubend == pubend);
        let Some(alike) = self.alike(cursor, &catch_up.positions, watermark, told) else { return };
        let (cursor, common) = self.cursors.get_with_common(id);
        let Some(catch_up) = cursor.catch_up.as_deref_mut() else { return };
        common.align(&mut catch_up.positions, alike, watermark);
    }

    /// As [`Broker::align_to_watermark`], for acknowledged positions: a token names each stream.
    pub(super) fn align_acknowledged(&mut self, id: u32) {
        let cursor = self.cursors.get(id);
        let others = cursor.acknowledged.iter().filter(|(pubend, _)| self.streams.spoke(*pubend).is_some());
        let watermark = low_watermark_of(others.map(|(_, tick)| tick));
        let Some(alike) = self.alike(cursor, &cursor.acknowledged, watermark, |_| false) else { return };
        let (cursor, common) = self.cursors.get_with_common(id);
        common.align(&mut cursor.acknowledged, alike, watermark);
    }

    /// The streams in which a cursor at these positions may as well stand at `watermark`, if they
    /// are most.
    fn alike(
        &self,
        cursor: &Cursor,
        positions: &Positions,
        watermark: Tick,
        is_told: impl Fn(PubendId) -> bool,
    ) -> Option<Vec<PubendId>> {
        // A durable cursor must not move behind the last base.
        let base = |pubend| match cursor.durable {
            Some(_) => self.store.bases.tick_of_current(pubend),
            None => Tick(0),
        };
        let is_alike = |(pubend, at): &(PubendId, Tick)| {
            *at > watermark
                && base(*pubend) <= watermark
                && !is_told(*pubend)
                && self.is_silent_between(cursor, *pubend, watermark, *at)
        };
        let alike: Vec<PubendId> = positions.iter().filter(is_alike).map(|(pubend, _)| pubend).collect();
        (alike.len() >= COMMON_MIN && alike.len() * 2 >= positions.iter().count()).then_some(alike)
    }
}

/// For how much longer a log that is given up early is kept: a cursor whose client has left may
/// stand that much earlier than where it had everything.
pub(crate) fn early_grace(max_retain: Duration) -> Duration {
    WATERMARK_AGE.min(max_retain / 8)
}
