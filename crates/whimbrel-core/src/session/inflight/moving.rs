//! What is in flight when a session goes elsewhere, or comes.

use super::{Inflight, SPAN_MAX, TAGS};
use crate::cursor::{Gap, gap_of};
use crate::session::slot::{Slot, Stage};

impl Inflight {
    /// Takes over a delivery with its tag from before the broker was restarted. Tags come ascending
    /// from `first` on, and none is left out: what lies between is settled.
    pub(crate) fn restore(&mut self, tag: u16, slot: Slot) {
        if self.slots.is_empty() {
            self.first = tag - 1;
        }
        while self.tag(self.slots.len()) != tag {
            self.slots.push_back(Slot::settled(slot.id));
        }
        self.loading += u16::from(slot.stage == Stage::Loading);
        self.slots.push_back(slot);
        self.unsent = self.slots.len() as u16;
    }

    /// The deliveries that are not over, oldest first, with their tags.
    pub(crate) fn open(&self) -> impl Iterator<Item = (u16, &Slot)> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.stage != Stage::Settled);
        slots.map(|(index, slot)| (self.tag(index), slot))
    }

    /// Notices that the client may have got, oldest first, each with its tag; 0 if the client has
    /// acknowledged it, and something before it is open.
    pub(crate) fn notices(&self) -> impl Iterator<Item = (u16, &Slot)> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_notice());
        let tag = |index, slot: &Slot| if slot.stage == Stage::Settled { 0 } else { self.tag(index) };
        slots.map(move |(index, slot)| (tag(index, slot), slot)).filter(|(tag, slot)| *tag == 0 || slot.was_sent())
    }

    /// The gaps of a tracked subscription of which the client has a notice that it has not
    /// acknowledged, or one is on its way.
    pub(crate) fn unanswered_gaps(&self, cursor: u32) -> impl Iterator<Item = Gap> {
        let of_cursor = self.slots.iter().filter(move |slot| slot.cursor == cursor);
        let open = of_cursor.filter(|slot| slot.is_notice() && !slot.is_had());
        open.filter_map(|slot| gap_of(slot.event.as_ref()?))
    }

    /// The tag that was given last; 0 if none was.
    pub(crate) fn newest_tag(&self) -> u16 {
        if self.slots.is_empty() { self.first } else { self.tag(self.slots.len() - 1) }
    }

    /// The next tag is that behind `last`.
    pub(crate) fn resume_after(&mut self, last: u16) {
        let Some(id) = self.slots.back().map(|back| back.id) else {
            self.first = last;
            return;
        };
        let between = (u32::from(last) + u32::from(TAGS) - u32::from(self.newest_tag())) % u32::from(TAGS);
        let room = SPAN_MAX.saturating_sub(self.slots.len() + 1);
        for _ in 0..(between as usize).min(room) {
            self.slots.push_back(Slot::settled(id));
        }
        self.unsent = self.slots.len() as u16;
    }
}
