//! Where a subscription begins.

use core::time::Duration;

use whimbrel_event::{CheckpointToken, EventId, PubendId, Tick, Time};

use whimbrel_selector::TopicFilter;

use super::{Gap, GapReason, Gaps, Lag, Positions};
use crate::api::{Durability, Filter, Refusal, Start};
use crate::broker::Core;
use crate::cache::PartitionSet;

/// Pubends that are not named beside event ids begin so much before the smallest tick that is.
const ASSUMED: Duration = Duration::from_secs(60);

/// Clocks of different brokers differ by less; a position that is further ahead is none of ours.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// How a subscription begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// As it stood.
    Keep,
    /// With the next event.
    Live,
    /// Behind the consolidated stream.
    Lag(Box<Lag>),
}

impl Core {
    /// Where a subscription is to begin; `track` is what it was before, `partitions` where the cache has what it wants.
    ///
    /// # Errors
    /// When the place does not belong to this deployment, or lies ahead of what this broker can have sent.
    pub(crate) fn begin(
        &self,
        now: Time,
        (asked, filter): (&Filter<'_>, TopicFilter<'_>),
        track: Option<u32>,
        partitions: &PartitionSet,
    ) -> Result<Begin, Refusal> {
        let following = &asked.following;
        if following.durability != Durability::SemiDurable && !matches!(following.start, Start::Own) {
            return Err(Refusal::StartNotKept);
        }
        let lag = match following.start {
            Start::Own => {
                let Some(track) = track.map(|id| self.tracks.get(id)) else { return Ok(Begin::Live) };
                match &track.acknowledged {
                    Some(token) if track.by_token && following.by_token => self.after_token(now, token, &[])?,
                    _ => return Ok(Begin::Keep),
                }
            }
            Start::Token(token, later) => self.after_token(now, token, later)?,
            Start::After(ids) => self.after_ids(now, ids)?,
            Start::Since(at) if at > now => return Err(Refusal::FutureStart),
            Start::Since(at) => {
                let at = Tick(at.as_nanos());
                lag(self.streams.positions().map(|(pubend, _)| (pubend, at)).collect(), Gaps::default())
            }
            Start::Earliest => {
                let first = |pubend| (pubend, self.cache.incomplete(partitions, pubend));
                lag(self.streams.positions().map(|(pubend, _)| first(pubend)).collect(), Gaps::default())
            }
        };
        let mut lag = Lag { next: self.first_after(&lag.positions), ..lag };
        if !self.is_buffered(filter, asked.selector) {
            // Its own interest comes in force now.
            for (pubend, to) in self.streams.remote_positions() {
                let (from, reason) = (lag.positions.get(pubend), GapReason::NotBuffered);
                lag.gaps.add(Gap { pubend, from, to, reason });
            }
        }
        Ok(Begin::Lag(Box::new(lag)))
    }

    /// The serial of the first event that may lie after these positions.
    fn first_after(&self, positions: &Positions) -> u64 {
        let behind = self.streams.positions().filter(|(pubend, last)| positions.get(*pubend) < *last);
        let first = behind.map(|(pubend, _)| self.cache.serial_for(pubend, positions.get(pubend))).min();
        first.unwrap_or(self.serial + 1)
    }

    fn after_token(&self, now: Time, token: &CheckpointToken, later: &[EventId]) -> Result<Lag, Refusal> {
        if token.deployment() != self.sessions.limits.deployment {
            return Err(Refusal::OtherDeployment);
        }
        let mut positions: Positions = token.pubends().collect();
        for id in later {
            positions.advance(id.pubend, id.tick);
        }
        self.checked(now, positions, Gaps::default())
    }

    fn after_ids(&self, now: Time, ids: &[EventId]) -> Result<Lag, Refusal> {
        let mut positions = Positions::default();
        for id in ids {
            positions.advance(id.pubend, id.tick);
        }
        let smallest = ids.iter().map(|id| id.tick.0).min().unwrap_or(0);
        let assumed = Tick(smallest.saturating_sub(ASSUMED.as_nanos() as u64));
        let mut gaps = Gaps::default();
        for (pubend, birth) in self.streams.births() {
            if ids.iter().all(|id| id.pubend != pubend) && birth < assumed {
                positions.set(pubend, assumed);
                gaps.add(Gap { pubend, from: birth, to: assumed, reason: GapReason::Assumed });
            }
        }
        self.checked(now, positions, gaps)
    }

    /// Positions that this broker can begin from: what is ahead of it is refused, what has ended is a gap.
    fn checked(&self, now: Time, positions: Positions, mut gaps: Gaps) -> Result<Lag, Refusal> {
        let latest = Tick(now.after(AHEAD_MAX).as_nanos());
        let ended = |pubend: PubendId| !self.streams.knows(pubend);
        for (pubend, tick) in positions.iter() {
            if self.streams.closed(pubend).map_or(tick > latest, |closed| tick > closed) {
                return Err(Refusal::FutureStart);
            }
            if ended(pubend) {
                let to = Tick(now.as_nanos()).max(tick);
                gaps.add(Gap { pubend, from: tick, to, reason: GapReason::Lost });
            }
        }
        let known = positions.iter().filter(|(pubend, _)| !ended(*pubend)).collect();
        Ok(lag(known, gaps))
    }

    /// The token of a subscription that stands at these positions.
    pub(crate) fn token_at(&self, positions: &Positions) -> CheckpointToken {
        let latest = positions.iter().map(|(_, tick)| tick).max().unwrap_or_default();
        let mut token = self.streams.token(self.sessions.limits.deployment, latest);
        for (pubend, _) in self.streams.positions() {
            token.set(pubend, positions.get(pubend));
        }
        token
    }

    /// The token of all subscriptions that are live: silence is declared up to now on all own streams, so that what comes is later.
    pub(crate) fn live_token(&mut self, now: Time) -> CheckpointToken {
        let common = self.streams.close(now);
        let mut token = self.streams.token(self.sessions.limits.deployment, common);
        for (pubend, passed) in self.streams.positions() {
            token.set(pubend, passed);
        }
        token
    }
}

fn lag(positions: Positions, gaps: Gaps) -> Lag {
    Lag { next: 0, positions, gaps, slow: false }
}
