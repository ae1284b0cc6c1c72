//! Turns of a session: for its waiting events, for its cursors in catch-up, and for retained
//! messages that it reads.

use whimbrel_event::Time;

use super::catchup::CATCH_UP_SLICE;
use crate::api::Output;
use crate::broker::Broker;
use crate::retained::REPLAY_SLICE;

impl Broker {
    /// Continues a session whose client takes more: waiting events and catch-up; first one, then
    /// the other, and the next time the other way round. Retained messages beyond a slice are read
    /// in a turn of their own.
    pub(crate) fn resume(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let mut budget = REPLAY_SLICE;
        if self.retained.replays.take_turn(index) {
            self.read_retained(now, index, &mut budget, out);
        }
        let session = self.sessions.get_mut(index);
        // While deliveries of a previous connection are to be sent again, catch-up waits.
        let ready = session.takes_any();
        let follow = &mut session.follow;
        let catches_up = !follow.lagging.is_empty() && !follow.catching_up;
        let first = catches_up && ready && follow.catches_up_first;
        follow.catches_up_first = !first;
        if first {
            self.catch_up(now, index, &mut { CATCH_UP_SLICE }, out);
        }
        self.sessions.pump(index, now, out);
        self.take_shared(now, index, out);
        if catches_up && !first {
            self.catch_up(now, index, &mut { CATCH_UP_SLICE }, out);
        }
        // Waiting events may have been in the way of reading.
        if self.retained.replays.may_read(index) {
            self.read_retained(now, index, &mut budget, out);
        }
    }

    /// As [`Broker::resume`], when a place in the client's window has become free. While less than
    /// half of the window is free, catch-up waits for the end of the turn, when more answers may
    /// have come: to begin reading costs more than an event.
    pub(crate) fn resume_answered(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let session = self.sessions.get_mut(index);
        let waits = !session.follow.lagging.is_empty() && session.takes_any() && !session.inflight.is_half_free();
        if waits {
            self.turn_soon(index);
        }
        self.resume(now, index, out);
    }

    /// The next cursor of a session for catch-up, without those that have to read retained messages
    /// first.
    pub(super) fn next_to_catch_up(&mut self, index: u32) -> Option<u32> {
        let Broker { sessions, retained, cursors, .. } = self;
        if !retained.replays.has(index) {
            return sessions.get(index).follow.lagging.front().copied();
        }
        let is_free = |id: &u32| !retained.replays.holds(index, cursors.get(*id).subscription);
        let lagging = &mut sessions.get_mut(index).follow.lagging;
        let at = lagging.iter().position(is_free)?;
        lagging.rotate_left(at);
        lagging.front().copied()
    }

    /// Gives a cursor in catch-up a turn at the end of this one.
    pub(crate) fn catch_up_soon(&mut self, id: u32) {
        self.turn_soon(self.cursors.get(id).session);
    }

    /// Gives a session a turn of its own at the end of this one, for catch-up or reading.
    pub(crate) fn turn_soon(&mut self, index: u32) {
        if !core::mem::replace(&mut self.sessions.get_mut(index).follow.catching_up, true) {
            if self.catching_up.queue.is_empty() {
                // Events accepted while no session waited do not add to the work of a turn.
                self.catching_up.upto = self.serial;
            }
            self.catching_up.queue.push_back(index);
        }
    }

    /// Gives sessions that wait their turns for catch-up: in all, a slice of work plus one unit for
    /// each event accepted since the last time.
    pub(crate) fn continue_catching_up(&mut self, now: Time, out: &mut dyn Output) {
        let accepted = self.serial - core::mem::replace(&mut self.catching_up.upto, self.serial);
        let mut budget = CATCH_UP_SLICE + accepted as usize;
        while budget > 0
            && let Some(index) = self.catching_up.queue.pop_front()
        {
            // The session may have ended, and another may have its number.
            if self.sessions.take_turn(index) {
                self.retained.replays.begin_turn(index);
                let slice = budget.min(CATCH_UP_SLICE);
                let mut left = slice;
                self.catch_up(now, index, &mut left, out);
                self.read_retained(now, index, &mut left, out);
                budget -= (slice - left).max(1);
            }
        }
    }
}
