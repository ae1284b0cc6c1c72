//! Gaps are told to cursors in catch-up.

use whimbrel_event::{EventId, Qos};

use super::catchup::CursorReader;
use super::{Gap, notice};
use crate::session::Publication;

impl CursorReader<'_> {
    /// Tells a gap, if there may have been an event in it; `false` if the client takes no more at
    /// the moment.
    pub(super) fn tell(&mut self, gap: Gap) -> bool {
        if let Some(gap) = self.streams.possible(gap)
            && !self.tell_possible(Gap { reason: gap.reason.in_stream(gap.pubend), ..gap })
        {
            return false;
        }
        self.catch_up.gaps.passed(gap.pubend, gap.to);
        self.catch_up.positions.advance(gap.pubend, gap.to);
        self.cursor.record_told(gap);
        self.cursor.mark(gap.pubend, gap.to);
        true
    }

    fn tell_possible(&mut self, gap: Gap) -> bool {
        if self.cursor.notices {
            let qos = Qos::AtLeastOnce.min(self.cursor.qos);
            if !self.sessions.get(self.cursor.session).takes_tracked(qos) {
                return false;
            }
            let terms = self.cursor.terms_of_notice(qos);
            let event = notice::gap(&gap, self.now);
            let taken =
                self.sessions.offer_tracked(self.cursor.session, &mut Publication::of(&event, 0), terms, self.out);
            assert!(taken, "it was asked whether it takes the notice");
            self.cursor.silence.told_at = self.now;
        }
        self.sessions.count_gap(self.cursor.session, self.cursor.gap_class(), gap.reason);
        self.lose_hidden(gap);
        true
    }

    /// Drops deliveries in flight that lie in a told gap: if they were found later, they would come
    /// after events behind the gap. While awaited they would also hold back the position, and a
    /// broker that resumes from it would read what the gap hides.
    fn lose_hidden(&mut self, gap: Gap) {
        let session = self.cursor.session;
        let mut hidden = Vec::new();
        let is_hidden = |event: EventId| {
            let is_in = event.pubend == gap.pubend && gap.from < event.tick && event.tick <= gap.to;
            hidden.extend(is_in.then_some(event));
            is_in
        };
        let (inflight, mut waker) = self.sessions.inflight_mut(session);
        if !inflight.lose_loading(self.cursor.id, &mut waker, is_hidden) {
            return;
        }
        // The stream may be read again from before the gap. The client may have the event, and
        // forgets its tag: with another tag it would be delivered twice.
        if let Some(durable) = self.cursor.durable.as_deref_mut() {
            hidden.retain(|event| !durable.rare.beyond.contains(event));
            durable.rare.beyond.extend(hidden);
        }
    }

    /// Tells the gaps that are left. Returns whether the client takes no more at the moment, and
    /// whether all were told.
    pub(super) fn tell_rest(&mut self, budget: &mut usize) -> (bool, bool) {
        while let Some(gap) = self.catch_up.gaps.first() {
            if *budget == 0 {
                return (false, false);
            }
            *budget -= 1;
            if !self.tell(gap) {
                return (true, false);
            }
        }
        (false, true)
    }
}
