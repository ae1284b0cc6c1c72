//! Deliveries in flight of a session that moves to another broker, or is restored.

use super::{Inflight, SPAN_MAX, TAGS};
use crate::cursor::{Gap, gap_of};
use crate::session::slot::{Slot, Stage};

impl Inflight {
    /// Restores a delivery with its tag from before a restart. Tags ascend from `first` on; those
    /// left out are settled.
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

    /// Notices that the client may have, oldest first, each with its tag. The tag is 0 if the
    /// client has acknowledged it and an earlier delivery is open.
    pub(crate) fn notices(&self) -> impl Iterator<Item = (u16, &Slot)> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_notice());
        let tag = |index, slot: &Slot| if slot.stage == Stage::Settled { 0 } else { self.tag(index) };
        slots.map(move |(index, slot)| (tag(index, slot), slot)).filter(|(tag, slot)| *tag == 0 || slot.was_sent())
    }

    /// The gaps of a cursor whose notice the client has not acknowledged, sent or not.
    pub(crate) fn unanswered_gaps(&self, cursor: u32) -> impl Iterator<Item = Gap> {
        let of_cursor = self.slots.iter().filter(move |slot| slot.cursor == cursor);
        let open = of_cursor.filter(|slot| slot.is_notice() && !slot.is_had());
        open.filter_map(|slot| gap_of(slot.event.as_ref()?))
    }

    /// The tag assigned last; 0 if none was.
    pub(crate) fn newest_tag(&self) -> u16 {
        if self.slots.is_empty() { self.first } else { self.tag(self.slots.len() - 1) }
    }

    /// Sets the next tag to the one behind `last`.
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
