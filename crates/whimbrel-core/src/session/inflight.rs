//! Deliveries that a client has not settled yet.

mod moving;
mod settling;
mod stale_ids;

use std::collections::VecDeque;

use whimbrel_event::{Event, EventId, Qos};

use crate::cursor::{ENDED, ENDED_BY_TOKEN};
use crate::lazy::at_rest;
use crate::route::NO_CURSOR;

use super::slot::{Slot, Stage};
use super::wake::Waker;
use stale_ids::StaleIds;

/// Tags go from 1 to this number and then begin again.
const TAGS: u16 = 65_535;

/// The oldest unsettled and the newest tag are never further apart than this, so that a tag names
/// one delivery.
const SPAN_MAX: usize = 32_768;

/// The unsettled deliveries of a session, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    slots: VecDeque<Slot>,
    /// Tag of `slots[0]`, less one.
    first: u16,
    /// Deliveries that occupy the client's window: sent on this connection and not settled.
    occupied: u16,
    /// Slots at the back that wait to be sent, or sent again. No new one is sent before them.
    unsent: u16,
    /// The number of these that were never sent, as they are in preparation.
    prepared: u16,
    /// Slots that wait until their cursors get to their events in the log.
    loading: u16,
    window: u16,
    /// The rank of the delivery that was sent last.
    rank: u64,
    /// Tags of deliveries to be sent before any other, in order: those not in the order of tags.
    first_again: VecDeque<u16>,
    /// Tags that the client may use for other deliveries.
    stale: Option<Box<StaleIds>>,
}

at_rest!(
    Inflight,
    Inflight {
        slots: VecDeque::new(),
        first: 0,
        occupied: 0,
        unsent: 0,
        prepared: 0,
        loading: 0,
        window: 0,
        rank: 0,
        first_again: VecDeque::new(),
        stale: None
    }
);

/// A delivery of a shared subscription that goes to another member.
#[derive(Debug)]
pub(crate) struct ReassignedDelivery {
    pub(crate) group: u32,
    /// See [`Slot::origin`].
    pub(crate) origin: u16,
    pub(crate) event: Event,
    /// Its tag.
    pub(crate) tag: u16,
    /// The record of the delivery may be written.
    pub(crate) is_written: bool,
}

/// The effect of a client's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// The delivery is over.
    Done,
    /// The client has the event; it must be told to forget the tag.
    Received,
    /// No delivery with this tag waits for an answer.
    Unknown,
    /// One waits, for an answer of another kind.
    OtherKind,
}

impl Inflight {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn tag(&self, index: usize) -> u16 {
        ((self.first as usize + index) % TAGS as usize) as u16 + 1
    }

    fn index(&self, tag: u16) -> Option<usize> {
        let position = tag.checked_sub(1)? as usize;
        let index = (position + TAGS as usize - self.first as usize) % TAGS as usize;
        (index < self.slots.len()).then_some(index)
    }

    /// The tag assigned last, or 0 if none was, while nothing is unsettled.
    pub(crate) fn last_tag(&self) -> u16 {
        debug_assert!(self.slots.is_empty());
        self.first
    }

    /// Begins a connection with a window: everything unsettled is to be sent again, in order. If
    /// there is nothing, tags continue after `last_tag`.
    pub(crate) fn begin(&mut self, window: u16, last_tag: u16) {
        self.window = window.max(1);
        if self.slots.is_empty() && last_tag != 0 {
            self.first = last_tag;
        }
        (self.occupied, self.prepared, self.unsent) = (0, 0, 0);
        for slot in &mut self.slots {
            slot.repeated |= core::mem::take(&mut slot.sent);
        }
        self.first_again.clear();
        self.forget_asked();
        if self.slots.iter().is_sorted_by_key(|slot| slot.rank) {
            self.unsent = self.slots.len() as u16;
            return;
        }
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_key(|index| self.slots[*index].rank);
        self.first_again = order.into_iter().map(|index| self.tag(index)).collect();
    }

    /// Whether a new delivery may be sent at once.
    pub(crate) fn takes_new(&self) -> bool {
        self.has_room() && self.is_resent() && self.is_next_free()
    }

    /// Whether the window takes another delivery.
    pub(crate) fn has_room(&self) -> bool {
        self.occupied < self.window && self.slots.len() < SPAN_MAX
    }

    pub(crate) fn window(&self) -> u16 {
        self.window
    }

    /// Whether at least half of the window is free.
    pub(crate) fn is_half_free(&self) -> bool {
        self.occupied <= self.window / 2
    }

    /// Whether all earlier deliveries have been sent.
    pub(crate) fn is_resent(&self) -> bool {
        self.unsent == 0 && self.first_again.is_empty()
    }

    /// Whether all repeats have been sent; new deliveries may be in preparation.
    pub(crate) fn is_past_repeats(&self) -> bool {
        self.unsent == self.prepared && self.first_again.is_empty()
    }

    /// Whether another delivery can be prepared, with room for those in preparation, too.
    pub(crate) fn can_prepare(&self) -> bool {
        let has_room = self.occupied.saturating_add(self.unsent) < self.window && self.slots.len() < SPAN_MAX;
        self.is_past_repeats() && has_room && self.is_next_free()
    }

    /// Takes a new delivery that is sent later; returns its tag. Needs [`Inflight::can_prepare`].
    pub(crate) fn prepare(&mut self, slot: Slot) -> u16 {
        debug_assert!(self.can_prepare() && !slot.sent);
        (self.unsent, self.prepared) = (self.unsent + 1, self.prepared + 1);
        self.add(slot)
    }

    fn add(&mut self, slot: Slot) -> u16 {
        self.rank += 1;
        self.record_given();
        self.slots.push_back(Slot { rank: self.rank, ..slot });
        self.tag(self.slots.len() - 1)
    }

    /// The delivery with a tag, if it is not over.
    pub(crate) fn slot(&mut self, tag: u16) -> Option<&mut Slot> {
        let index = self.index(tag)?;
        self.slots.get_mut(index).filter(|slot| slot.stage != Stage::Settled)
    }

    /// The delivery of an event that was in flight before a restart and is to be sent again.
    #[inline]
    pub(crate) fn loading(&self, cursor: u32, id: EventId) -> Option<u16> {
        if self.loading == 0 {
            return None;
        }
        let is_it = |slot: &Slot| slot.stage == Stage::Loading && slot.cursor == cursor && slot.id == id;
        self.slots.iter().position(is_it).map(|index| self.tag(index))
    }

    /// The event of a delivery from before a restart was read, with this mark: it is sent next.
    pub(crate) fn loaded(&mut self, tag: u16, event: Event, retain: bool) {
        let rank = self.rank + 1;
        let slot = self.slot(tag).filter(|slot| slot.stage == Stage::Loading);
        let slot = slot.expect("it is loaded once");
        (slot.stage, slot.event, slot.rank) = (Stage::Expect, Some(event), rank);
        slot.retain = retain;
        self.rank = rank;
        self.loading -= 1;
        self.first_again.push_back(tag);
    }

    /// Ends deliveries from before a restart whose events are gone (`is_gone`); tells whether any
    /// were. The client may have them, and has to forget their tags before other events get these.
    pub(crate) fn lose_loading(
        &mut self,
        cursor: u32,
        waker: &mut Waker<'_>,
        mut is_gone: impl FnMut(EventId) -> bool,
    ) -> bool {
        if self.loading == 0 {
            return false;
        }
        let before = self.loading;
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.stage == Stage::Loading && slot.cursor == cursor && is_gone(slot.id) {
                self.loading -= 1;
                if slot.qos == Qos::AtLeastOnce {
                    self.free(index, waker).event = None;
                    continue;
                }
                slot.stage = Stage::ExpectCompleted;
                self.first_again.push_back(self.tag(index));
                // The client is to be told to forget the tag.
                waker.wake();
            }
        }
        self.drop_settled();
        self.loading < before
    }

    /// The client has the event; it is answered once that is durable.
    pub(crate) fn receive(&mut self, tag: u16) {
        if let Some(slot) = self.slot(tag).filter(|slot| slot.stage == Stage::ExpectCompleted) {
            slot.stage = Stage::Receiving;
        }
    }

    /// The record is durable that the client has the event.
    pub(crate) fn received(&mut self, tag: u16) {
        if let Some(slot) = self.slot(tag).filter(|slot| slot.stage == Stage::Receiving) {
            slot.stage = Stage::ExpectCompleted;
        }
    }

    /// A delivery in preparation can be sent.
    pub(crate) fn is_ready(&mut self, tag: u16) {
        if let Some(slot) = self.slot(tag).filter(|slot| slot.stage == Stage::Preparing) {
            slot.stage = Stage::Expect;
        }
    }

    /// Takes a new delivery; returns its tag. Needs [`Inflight::takes_new`].
    pub(crate) fn push(&mut self, slot: Slot) -> u16 {
        debug_assert!(self.takes_new() && slot.sent);
        self.occupied += 1;
        self.add(slot)
    }

    /// The next delivery to be sent, now marked as sent, unless it has to wait. Needs
    /// [`Inflight::has_room`]. (A question to forget a tag needs no room, but occupies it until
    /// answered.)
    pub(crate) fn resend(&mut self) -> Option<(u16, &Slot)> {
        while let Some(tag) = self.first_again.front().copied() {
            let index = self.index(tag);
            let stage = index.map_or(Stage::Settled, |index| self.slots[index].stage);
            if matches!(stage, Stage::Preparing | Stage::Receiving) {
                return None;
            }
            self.first_again.pop_front();
            if let Some(index) = index.filter(|index| self.slots[*index].is_to_be_sent()) {
                return Some(self.mark_sent(index));
            }
        }
        while self.unsent > 0 {
            let index = self.slots.len() - self.unsent as usize;
            if matches!(self.slots[index].stage, Stage::Preparing | Stage::Receiving) {
                return None;
            }
            self.unsent -= 1;
            self.prepared = self.prepared.min(self.unsent);
            if self.slots[index].is_to_be_sent() {
                return Some(self.mark_sent(index));
            }
        }
        None
    }

    fn mark_sent(&mut self, index: usize) -> (u16, &Slot) {
        self.occupied += 1;
        self.slots[index].sent = true;
        (self.tag(index), &self.slots[index])
    }

    /// Takes out the deliveries of shared subscriptions (`groups`, ascending) that other members
    /// may get: unacknowledged at-least-once ones, oldest first, and exactly-once ones never sent.
    /// The protocol forbids giving the others to another client.
    pub(crate) fn take_groups(&mut self, groups: &[u32], waker: &mut Waker<'_>) -> Vec<ReassignedDelivery> {
        let mut taken = Vec::new();
        for index in 0..self.slots.len() {
            let tag = self.tag(index);
            let slot = &self.slots[index];
            if slot.may_go_to_another(slot.was_sent()) && groups.binary_search(&slot.group).is_ok() {
                let Slot { group, origin, qos, .. } = *slot;
                let is_written = qos == Qos::ExactlyOnce;
                let event = self.free(index, waker).event.take().expect("what may go to another is kept");
                taken.push(ReassignedDelivery { group, origin, event, tag, is_written });
            }
        }
        self.drop_settled();
        taken
    }

    /// Takes out a delivery that could not be sent, if another member may get it.
    pub(crate) fn take_unsent(&mut self, tag: u16, waker: &mut Waker<'_>) -> Option<ReassignedDelivery> {
        let index = self.index(tag)?;
        let slot = &self.slots[index];
        if !slot.may_go_to_another(slot.repeated) {
            return None;
        }
        let Slot { group, origin, qos, .. } = *slot;
        let event = self.free(index, waker).event.take().expect("what may go to another is kept");
        self.drop_settled();
        Some(ReassignedDelivery { group, origin, event, tag, is_written: qos == Qos::ExactlyOnce })
    }

    /// The deliveries of shared subscriptions that the client does not have yet: the subscription
    /// of each, and the delivery to its own session that it settles.
    pub(crate) fn unsettled_of_groups(&self) -> impl Iterator<Item = (u32, u16)> {
        let unsettled = self.slots.iter().filter(|slot| slot.origin != 0 && !slot.is_had());
        unsettled.map(|slot| (slot.group, slot.origin))
    }

    /// Whether a delivery of a shared subscription is not over.
    pub(crate) fn has_of_group(&self, group: u32) -> bool {
        self.slots.iter().any(|slot| slot.group == group && slot.stage != Stage::Settled)
    }

    /// Deliveries of a shared subscription settle nothing at its own session any more.
    pub(crate) fn forget_origins(&mut self, group: u32) {
        self.slots.iter_mut().filter(|slot| slot.group == group).for_each(|slot| slot.origin = 0);
    }

    /// Passes over a delivery of a former connection: a member has it, so it is not sent again.
    pub(crate) fn pass_over(&mut self, tag: u16) {
        if let Some(index) = self.index(tag).filter(|index| self.slots[*index].is_to_be_sent()) {
            self.mark_sent(index);
        }
    }

    /// Ends at-least-once deliveries of cursors (`is_let_go`) whose clients tell their positions.
    /// Those sent on the current connection only if it `has_ended`: the client still counts them in
    /// its window. Exactly-once deliveries stay: the client may wait for their second phase.
    pub(crate) fn let_go(&mut self, waker: &mut Waker<'_>, is_let_go: impl Fn(u32) -> bool, has_ended: bool) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let waits = slot.stage == Stage::Expect && slot.qos == Qos::AtLeastOnce && (has_ended || !slot.sent);
            if waits && slot.cursor != NO_CURSOR && is_let_go(slot.cursor) {
                self.free(index, waker).event = None;
            }
        }
        self.drop_settled();
    }

    /// A cursor begins at a position named by its client. Its deliveries stay in flight, but their
    /// answers say nothing of the new range, which is delivered again. Exactly-once ones are not
    /// repeated.
    pub(crate) fn leave_behind(&mut self, cursor: u32, by_token: bool, waker: &mut Waker<'_>) {
        if by_token {
            return self.forget_cursor(cursor, true, waker);
        }
        let is_left = |slot: &&mut Slot| slot.cursor == cursor && slot.qos == Qos::AtLeastOnce;
        self.slots.iter_mut().filter(is_left).for_each(|slot| slot.cursor = ENDED);
    }

    /// Deliveries of a cursor that has ended stay with the session, or with the connection if the
    /// client keeps the position.
    pub(crate) fn forget_cursor(&mut self, cursor: u32, by_token: bool, waker: &mut Waker<'_>) {
        self.lose_loading(cursor, waker, |_| true);
        let of_cursor = self.slots.iter_mut().filter(|slot| slot.cursor == cursor);
        of_cursor.for_each(|slot| slot.cursor = if by_token { ENDED_BY_TOKEN } else { ENDED });
    }

    /// Whether an earlier event of the same stream is unanswered for a cursor. It may have a later
    /// tag after a restart or a move.
    pub(crate) fn lacks_before(&self, cursor: u32, id: EventId) -> bool {
        let is_before = |slot: &&Slot| slot.cursor == cursor && slot.id.pubend == id.pubend && slot.id.tick < id.tick;
        self.slots.iter().filter(is_before).any(|slot| !slot.is_had())
    }

    /// The unanswered deliveries of a cursor, and whether each was sent on the current connection.
    pub(crate) fn open_of_cursor(&self, cursor: u32) -> impl Iterator<Item = (EventId, bool)> {
        let of_cursor = self.slots.iter().filter(move |slot| slot.cursor == cursor);
        let open = of_cursor.filter(|slot| !slot.is_had());
        open.map(|slot| (slot.id, slot.sent))
    }

    /// The deliveries of a cursor, and whether the client has each.
    pub(crate) fn of_cursor(&self, cursor: u32) -> impl Iterator<Item = (EventId, bool)> + Clone {
        let of_cursor = self.slots.iter().filter(move |slot| slot.cursor == cursor);
        of_cursor.map(|slot| (slot.id, slot.is_had()))
    }

    /// The tags of all [`Qos::ExactlyOnce`] deliveries that are not over.
    pub(crate) fn exactly_once(&self) -> Vec<u16> {
        let is_open = |slot: &Slot| slot.qos == Qos::ExactlyOnce && slot.stage != Stage::Settled;
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| is_open(slot));
        slots.map(|(index, _)| self.tag(index)).collect()
    }

    /// Deliveries of shared subscriptions (`groups`, ascending) stay with the session that left
    /// them.
    pub(crate) fn forget_groups(&mut self, groups: &[u32]) {
        let left = self.slots.iter_mut().filter(|slot| groups.binary_search(&slot.group).is_ok());
        left.for_each(|slot| (slot.group, slot.origin) = (crate::route::NO_GROUP, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Settlement;
    use proptest::prelude::*;

    fn slot(qos: Qos) -> Slot {
        Slot {
            id: EventId { pubend: whimbrel_event::PubendId(16), tick: whimbrel_event::Tick(1) },
            event: None,
            identifier: 0,
            group: u32::MAX,
            origin: 0,
            qos,
            stage: Stage::Expect,
            retain: false,
            naming: crate::api::Naming::None,
            cursor: NO_CURSOR,
            sent: true,
            repeated: false,
            rank: 0,
        }
    }

    fn settle(inflight: &mut Inflight, tag: u16, by: Settlement) -> Settled {
        inflight.settle(tag, by, &mut Waker::new(0, &mut Vec::new()))
    }

    #[test]
    fn tags_go_round_without_zero() {
        let mut inflight = Inflight::default();
        inflight.begin(10, 0);
        let mut last = 0;
        for _ in 0..70_000 {
            let tag = inflight.push(slot(Qos::AtLeastOnce));
            assert_eq!(tag, if last == 65_535 { 1 } else { last + 1 });
            assert_eq!(settle(&mut inflight, tag, Settlement::Acknowledged), Settled::Done);
            last = tag;
        }
        assert_eq!(inflight.len(), 0);
    }

    #[test]
    fn exactly_once_takes_two_phases_and_tolerates_repeats() {
        let mut inflight = Inflight::default();
        inflight.begin(1, 0);
        let tag = inflight.push(slot(Qos::ExactlyOnce));
        assert!(!inflight.has_room());
        for wrong in [Settlement::Acknowledged, Settlement::Completed, Settlement::Refused] {
            assert_eq!(settle(&mut inflight, tag, wrong), Settled::OtherKind);
        }
        assert_eq!(settle(&mut inflight, tag, Settlement::Received), Settled::Received);
        assert_eq!(settle(&mut inflight, tag, Settlement::Received), Settled::Received);
        assert_eq!(settle(&mut inflight, tag, Settlement::Acknowledged), Settled::OtherKind);
        assert_eq!(settle(&mut inflight, tag, Settlement::Completed), Settled::Done);
        assert_eq!(settle(&mut inflight, tag, Settlement::Completed), Settled::Unknown);
        assert!(inflight.has_room());
        let tag = inflight.push(slot(Qos::AtLeastOnce));
        for wrong in [Settlement::Received, Settlement::Completed, Settlement::NotReceived] {
            assert_eq!(settle(&mut inflight, tag, wrong), Settled::OtherKind);
        }
        assert_eq!(settle(&mut inflight, tag, Settlement::Acknowledged), Settled::Done);
    }

    proptest! {
        /// Against a plain model of the open tags and those to be sent again.
        #[test]
        fn windows_and_resends_agree_with_a_model(steps in proptest::collection::vec((0_u8..4, any::<u16>()), 1..400)) {
            let mut inflight = Inflight::default();
            let mut window = 8;
            inflight.begin(window, 0);
            let mut open: Vec<(u16, bool)> = Vec::new();
            for (kind, pick) in steps {
                match kind {
                    0 | 1 => {
                        let sent = open.iter().filter(|(_, sent)| *sent).count();
                        prop_assert_eq!(inflight.has_room(), sent < window as usize);
                        if inflight.has_room() {
                            let resent = inflight.resend().map(|(tag, _)| tag);
                            let expected = open.iter_mut().find(|(_, sent)| !*sent);
                            prop_assert_eq!(resent, expected.as_ref().map(|(tag, _)| *tag));
                            match expected {
                                Some(entry) => entry.1 = true,
                                None => {
                                    prop_assert!(inflight.is_resent());
                                    // Every other one is of a cursor; number 1 is plain.
                                    let cursor = if pick % 2 == 0 { NO_CURSOR } else { u32::from(pick % 4) };
                                    open.push((inflight.push(Slot { cursor, ..slot(Qos::AtLeastOnce) }), true));
                                }
                            }
                        }
                    }
                    2 if !open.is_empty() => {
                        let (tag, _) = open.remove(pick as usize % open.len());
                        // By the short way or, where that does not apply, by the general one.
                        let cursor = inflight.slot(tag).expect("it is open").cursor;
                        let by = pick.is_multiple_of(2).then(|| inflight.acknowledge_oldest(tag, |of, _| of == 1));
                        let is_short = by.flatten().is_some();
                        prop_assert!(!is_short || by.flatten() == Some(cursor) && matches!(cursor, 1 | NO_CURSOR));
                        if !is_short {
                            prop_assert_eq!(settle(&mut inflight, tag, Settlement::Acknowledged), Settled::Done);
                        }
                    }
                    2 => prop_assert_eq!(settle(&mut inflight, pick, Settlement::Acknowledged), Settled::Unknown),
                    _ => {
                        window = pick % 9 + 1;
                        inflight.begin(window, 0);
                        open.iter_mut().for_each(|(_, sent)| *sent = false);
                    }
                }
            }
        }
    }

    #[test]
    fn a_notice_goes_along_while_something_before_it_is_open() {
        let mut inflight = Inflight::default();
        inflight.begin(10, 0);
        let gap = crate::cursor::Gap {
            pubend: whimbrel_event::PubendId(16),
            from: whimbrel_event::Tick(1),
            to: whimbrel_event::Tick(9),
            reason: crate::cursor::GapReason::Released,
        };
        let told = || {
            let event = crate::cursor::notice_of(&gap, whimbrel_event::Time::from_nanos(1));
            Slot { id: event.id(), event: Some(event), ..slot(Qos::AtLeastOnce) }
        };
        let (first, notice) = (inflight.push(slot(Qos::ExactlyOnce)), inflight.push(told()));
        let going = |inflight: &Inflight| inflight.notices().map(|(tag, _)| tag).collect::<Vec<_>>();
        assert_eq!(going(&inflight), [notice], "under its tag: it is not acknowledged");
        settle(&mut inflight, notice, Settlement::Acknowledged);
        assert_eq!(going(&inflight), [0], "what it told holds on");
        assert_eq!(inflight.open().map(|(tag, _)| tag).collect::<Vec<_>>(), [first]);
        settle(&mut inflight, first, Settlement::Received);
        settle(&mut inflight, first, Settlement::Completed);
        assert_eq!(going(&inflight), [0; 0], "nothing before it is read again");
        let last = inflight.push(told());
        settle(&mut inflight, last, Settlement::Acknowledged);
        assert_eq!(going(&inflight), [0; 0]);
    }

    #[test]
    fn whatever_frees_a_place_wakes_the_session() {
        let event = |qos| {
            let event = crate::cursor::notice_of(
                &crate::cursor::Gap {
                    pubend: whimbrel_event::PubendId(16),
                    from: whimbrel_event::Tick(1),
                    to: whimbrel_event::Tick(2),
                    reason: crate::cursor::GapReason::Lost,
                },
                whimbrel_event::Time::ZERO,
            );
            Slot { event: Some(event), group: 7, cursor: 3, ..slot(qos) }
        };
        type Free = fn(&mut Inflight, u16, &mut Waker<'_>);
        let ways: [(&str, Free); 5] = [
            ("an answer", |inflight, tag, waker| {
                inflight.settle(tag, Settlement::Acknowledged, waker);
            }),
            ("a delivery that could not be sent", |inflight, tag, waker| inflight.abandon(tag, waker)),
            ("one that another member gets", |inflight, tag, waker| {
                inflight.take_unsent(tag, waker).expect("it may go to another");
            }),
            ("a member that leaves", |inflight, _, waker| {
                assert_eq!(inflight.take_groups(&[7], waker).len(), 1);
            }),
            ("a client that says where it stands", |inflight, _, waker| inflight.let_go(waker, |_| true, true)),
        ];
        for (what, free) in ways {
            let mut inflight = Inflight::default();
            inflight.begin(1, 0);
            let tag = inflight.push(event(Qos::AtLeastOnce));
            assert!(!inflight.has_room(), "{what}");
            let mut woken = Vec::new();
            free(&mut inflight, tag, &mut Waker::new(5, &mut woken));
            assert!(inflight.has_room() && inflight.len() == 0, "{what}");
            assert_eq!(woken, [5], "{what}");
        }
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            let mut inflight = Inflight::default();
            inflight.restore(1, Slot { stage: Stage::Loading, sent: false, cursor: 3, ..slot(qos) });
            let mut woken = Vec::new();
            assert!(inflight.lose_loading(3, &mut Waker::new(5, &mut woken), |_| true));
            assert_eq!(woken, [5], "what is lost with a hidden place, {qos:?}");
        }
    }
}
