//! Whoever has left stands at one tick in most streams.
//!
//! Each stream moves at least each [`QUIET_MAX`](crate::overlay::QUIET_MAX), so where somebody stands who has left now is another tick for each stream, and for each moment. But between the
//! tick that all streams have passed and where it stands there is mostly nothing that it wants, or has had: there it stands as well where all others stood, and
//! takes no memory of its own. It is that which positions that are written rely on, too ([`crate::store::Written`]): what it would read again is silence.

use whimbrel_event::{PubendId, Reliability, Tick};

use super::Track;
use super::positions::COMMON_MIN;
use crate::broker::Core;

impl Core {
    /// Whether a subscription that stands at `at` in a stream of another broker may as well stand at `level`, which comes before: it was given nothing in between, is
    /// not waiting for anything, and would not be told anything.
    pub(crate) fn is_silent_between(&self, track: &Track, pubend: PubendId, level: Tick, at: Tick) -> bool {
        let Some((durable, spoke)) = track.durable.as_deref().zip(self.streams.spoke(pubend)) else { return false };
        // What is volatile is in no log, and whatever of that is read again is told as a gap. So is what a log may have given up that it has passed.
        if durable.may_be_volatile || self.streams.has_ended_in(pubend) || self.sessions.limits.max_retain.is_some() {
            return false;
        }
        let far = &durable.far;
        // Those of one broker count together; what is of best effort is wanted there since then as well.
        let is_reliable = pubend.reliability() == Reliability::Reliable;
        let counted = if is_reliable { pubend } else { pubend.host().pubend(0) };
        let counts = far.since.has(counted) && far.since.get(counted) <= level;
        let waits = track.unsettled.has(pubend) || far.aside.has(pubend) || far.holes.get(pubend) > level;
        let is_silence = || match is_reliable {
            true => far.written.given(pubend, &self.store.bases) <= level,
            // What it had elsewhere need not have been passed here.
            false => {
                spoke <= level && at <= self.streams.passed(pubend) && far.unnamed.iter().all(|tick| *tick <= level)
            }
        };
        counts && !waits && is_silence()
    }

    /// A subscription whose client has left, and that is kept, stands at one tick wherever that makes no difference.
    pub(super) fn level_off(&mut self, id: u32) {
        let track = self.tracks.get(id);
        let Some(lag) = track.lag.as_deref().filter(|_| track.durable.is_some() && !track.by_token) else { return };
        let level = self.streams.level();
        let base = |pubend| self.store.bases.tick_of_current(pubend);
        let is_alike = |(pubend, at): &(PubendId, Tick)| {
            *at > level
                && base(*pubend) <= level
                && lag.gaps.iter().chain(lag.told.iter()).all(|gap| gap.pubend != *pubend)
                && self.is_silent_between(track, *pubend, level, *at)
        };
        let alike: Vec<PubendId> = lag.positions.iter().filter(is_alike).map(|(pubend, _)| pubend).collect();
        if alike.len() < COMMON_MIN || alike.len() * 2 < lag.positions.iter().count() {
            return;
        }
        let (track, common) = self.tracks.get_with_common(id);
        let Some(lag) = track.lag.as_deref_mut() else { return };
        alike.into_iter().for_each(|pubend| lag.positions.set(pubend, level));
        common.level_off(&mut lag.positions, level);
    }
}
