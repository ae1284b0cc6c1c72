//! Gaps: ranges of a stream of which a subscription is told only that some events may have matched.

use whimbrel_event::{EventId, HostId, PubendId, Reliability, Tick};

/// Why possibly matching events are not given to a subscription. For gaps that are told as one, the
/// last of these reasons counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GapReason {
    /// The client named no position, and one was assumed.
    Assumed,
    /// The client was too slow for too long.
    Slow,
    /// The cache has given the room to other events.
    Overwritten,
    /// No interest here matched such events before this subscription.
    NotBuffered,
    /// The event was kept for as long as configured, and given up.
    Released,
    /// The stream has ended, or its broker has lost that part.
    Lost,
    /// Nothing was promised of the stream's events: a stream of best effort, whatever the cause.
    BestEffort,
}

impl GapReason {
    /// All reasons, in the order of [`GapReason::index`].
    pub const ALL: [GapReason; 7] = [
        GapReason::Assumed,
        GapReason::Slow,
        GapReason::Overwritten,
        GapReason::NotBuffered,
        GapReason::Released,
        GapReason::Lost,
        GapReason::BestEffort,
    ];

    /// The place of the reason in [`GapReason::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The reason's name in notices.
    pub fn name(self) -> &'static str {
        match self {
            GapReason::Overwritten => "overwritten",
            GapReason::NotBuffered => "not-buffered",
            GapReason::Released => "released",
            GapReason::Lost => "lost",
            GapReason::Slow => "slow",
            GapReason::Assumed => "assumed",
            GapReason::BestEffort => "best-effort",
        }
    }

    /// The reason that is told for a gap with this cause in a stream. An assumed position is the
    /// client's own doing in any stream.
    pub(crate) fn in_stream(self, pubend: PubendId) -> GapReason {
        match (self, pubend.reliability()) {
            (GapReason::Assumed, _) | (_, Reliability::Reliable) => self,
            (_, Reliability::BestEffort) => GapReason::BestEffort,
        }
    }

    /// Whether promised events may be lost in such a gap.
    pub fn is_loss(self) -> bool {
        !matches!(self, GapReason::Assumed | GapReason::BestEffort)
    }
}

/// A gap in one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gap {
    pub(crate) pubend: PubendId,
    /// Exclusive.
    pub(crate) from: Tick,
    /// Inclusive.
    pub(crate) to: Tick,
    pub(crate) reason: GapReason,
}

/// The untold gaps of one subscription: at most one per pubend, ascending by pubend.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    entries: Vec<Gap>,
}

impl Gaps {
    /// Adds a range that begins at the subscription's position in that stream, or behind a gap.
    pub(crate) fn add(&mut self, gap: Gap) {
        if gap.to <= gap.from {
            return;
        }
        match self.entries.binary_search_by_key(&gap.pubend, |known| known.pubend) {
            Ok(at) => {
                let known = &mut self.entries[at];
                known.from = known.from.min(gap.from);
                known.to = known.to.max(gap.to);
                known.reason = known.reason.max(gap.reason);
            }
            Err(at) => self.entries.insert(at, gap),
        }
    }

    /// Whether an event lies in one of the gaps.
    pub(crate) fn hides(&self, EventId { pubend, tick }: EventId) -> bool {
        let found = self.entries.binary_search_by_key(&pubend, |known| known.pubend);
        found.is_ok_and(|at| self.entries[at].from < tick && tick <= self.entries[at].to)
    }

    /// The part of a gap that is to be told before an event at `tick` of that pubend.
    pub(crate) fn before(&self, pubend: PubendId, tick: Tick) -> Option<Gap> {
        let at = self.entries.binary_search_by_key(&pubend, |known| known.pubend).ok()?;
        let gap = self.entries[at];
        let to = gap.to.min(Tick(tick.0.saturating_sub(1)));
        Some(Gap { to, ..gap }).filter(|gap| gap.to > gap.from)
    }

    /// Everything up to `tick` of that pubend was told.
    pub(crate) fn passed(&mut self, pubend: PubendId, tick: Tick) {
        if let Ok(at) = self.entries.binary_search_by_key(&pubend, |known| known.pubend) {
            let gap = &mut self.entries[at];
            gap.from = gap.from.max(tick);
            if gap.from >= gap.to {
                self.entries.remove(at);
            }
        }
    }

    /// Takes out the part of a gap behind `tick` of that pubend.
    pub(crate) fn cut(&mut self, pubend: PubendId, tick: Tick) -> Option<Gap> {
        let at = self.entries.binary_search_by_key(&pubend, |known| known.pubend).ok()?;
        let gap = self.entries[at];
        if gap.to <= tick {
            return None;
        }
        if gap.from < tick {
            self.entries[at].to = tick;
        } else {
            self.entries.remove(at);
        }
        Some(Gap { from: gap.from.max(tick), ..gap })
    }

    /// Takes out a stream's gap that has only the reason [`GapReason::NotBuffered`], and returns
    /// where it begins.
    pub(crate) fn take_unasked(&mut self, pubend: PubendId) -> Option<Tick> {
        let at = self.entries.binary_search_by_key(&pubend, |known| known.pubend).ok()?;
        let is_unasked = self.entries[at].reason == GapReason::NotBuffered;
        is_unasked.then(|| self.entries.remove(at).from)
    }

    /// The streams of a host have ended: their missing events are lost.
    pub(crate) fn end(&mut self, host: HostId) {
        let was_lacking = |gap: &&mut Gap| matches!(gap.reason, GapReason::Overwritten | GapReason::NotBuffered);
        let of_host = self.entries.iter_mut().filter(|gap| gap.pubend.host() == host);
        of_host.filter(was_lacking).for_each(|gap| gap.reason = GapReason::Lost);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Gap> {
        self.entries.iter()
    }

    pub(crate) fn first(&self) -> Option<Gap> {
        self.entries.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PubendId = PubendId(16);

    fn gap(from: u64, to: u64) -> Gap {
        Gap { pubend: P, from: Tick(from), to: Tick(to), reason: GapReason::Overwritten }
    }

    #[test]
    fn adjacent_gaps_are_one_and_end_before_the_next_event() {
        let mut gaps = Gaps::default();
        gaps.add(gap(10, 20));
        gaps.add(gap(20, 30));
        assert_eq!(gaps.before(P, Tick(25)), Some(gap(10, 24)));
        gaps.passed(P, Tick(25));
        assert_eq!(gaps.first(), Some(gap(25, 30)));
        assert_eq!(gaps.before(P, Tick(26)), None, "nothing lies between");
        gaps.passed(P, Tick(30));
        assert_eq!(gaps.first(), None);
    }

    #[test]
    fn what_lies_behind_is_cut_off() {
        let mut gaps = Gaps::default();
        gaps.add(gap(10, 20));
        assert_eq!(gaps.cut(P, Tick(20)), None);
        assert_eq!(gaps.cut(P, Tick(15)), Some(gap(15, 20)));
        assert_eq!(gaps.first(), Some(gap(10, 15)));
        assert_eq!(gaps.cut(P, Tick(10)), Some(gap(10, 15)));
        assert_eq!((gaps.first(), gaps.cut(P, Tick(0))), (None, None));
    }

    #[test]
    fn what_was_to_be_told_of_a_stream_that_ends_is_lost() {
        let other = PubendId(32);
        let mut gaps = Gaps::default();
        gaps.add(gap(10, 20));
        gaps.add(Gap { pubend: P.host().pubend(7), reason: GapReason::Slow, ..gap(10, 20) });
        gaps.add(Gap { pubend: other, ..gap(10, 20) });
        gaps.end(P.host());
        let reasons: Vec<GapReason> = gaps.iter().map(|gap| gap.reason).collect();
        assert_eq!(reasons, [GapReason::Lost, GapReason::Slow, GapReason::Overwritten]);
    }

    #[test]
    fn what_is_a_gap_for_another_reason_as_well_is_not_taken_out() {
        let mut gaps = Gaps::default();
        gaps.add(Gap { reason: GapReason::NotBuffered, ..gap(10, 20) });
        assert_eq!(gaps.take_unasked(P.host().pubend(7)), None);
        assert_eq!((gaps.take_unasked(P), gaps.first()), (Some(Tick(10)), None));
        gaps.add(gap(20, 30));
        assert_eq!(gaps.take_unasked(P), None);
        gaps.add(Gap { reason: GapReason::Released, ..gap(30, 40) });
        assert_eq!((gaps.take_unasked(P), gaps.first().map(|gap| gap.to)), (None, Some(Tick(40))));
    }

    #[test]
    fn of_best_effort_every_cause_is_told_as_such_but_what_was_assumed() {
        let best_effort = P.host().pubend(whimbrel_event::KIND_PUBENDS_MAX);
        assert_eq!((P.reliability(), best_effort.reliability()), (Reliability::Reliable, Reliability::BestEffort));
        for cause in GapReason::ALL.into_iter().filter(|cause| *cause != GapReason::BestEffort) {
            let told = if cause == GapReason::Assumed { cause } else { GapReason::BestEffort };
            assert_eq!((cause.in_stream(P), cause.in_stream(best_effort)), (cause, told));
            assert_eq!((cause.is_loss(), told.is_loss()), (cause != GapReason::Assumed, false));
        }
    }

    #[test]
    fn an_empty_range_is_no_gap() {
        let mut gaps = Gaps::default();
        gaps.add(gap(10, 10));
        assert_eq!(gaps.first(), None);
    }
}
