//! Whose turn it is: what waits for a client, what its subscriptions catch up with, and what is
//! retained that they read.

use whimbrel_event::Time;

use super::catchup::CATCH_UP_SLICE;
use crate::api::Output;
use crate::broker::Broker;
use crate::retained::REPLAY_SLICE;

impl Broker {
    /// A session's client takes more: what waits for it goes on, and the subscriptions that catch
    /// up; first one, then the other, and the next time the other way round. What it reads of
    /// retained messages beyond a slice waits for a turn of its own.
    pub(crate) fn resume(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let mut budget = REPLAY_SLICE;
        if self.retained.replays.take_turn(index) {
            self.read_retained(now, index, &mut budget, out);
        }
        let session = self.sessions.get_mut(index);
        // While something of a former connection is to be sent again, what catches up has to wait
        // for that.
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
        // What waited may have been in its way.
        if self.retained.replays.may_read(index) {
            self.read_retained(now, index, &mut budget, out);
        }
    }

    /// The same when a place in its window has become free. While less than half of its window is
    /// free, subscriptions that catch up wait for the end of the turn, when more answers may have
    /// come: to begin reading costs more than an event.
    pub(crate) fn resume_answered(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let session = self.sessions.get_mut(index);
        let waits = !session.follow.lagging.is_empty() && session.takes_any() && !session.inflight.is_half_free();
        if waits {
            self.turn_soon(index);
        }
        self.resume(now, index, out);
    }

    /// The subscription of a session whose turn it is to catch up: none that has to read first what
    /// is retained.
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

    /// A subscription that lags has its turn at the end of this one.
    pub(crate) fn catch_up_soon(&mut self, id: u32) {
        self.turn_soon(self.cursors.get(id).session);
    }

    /// A session has a turn of its own at the end of this one, for what it is catching up with or
    /// reading.
    pub(crate) fn turn_soon(&mut self, index: u32) {
        if !core::mem::replace(&mut self.sessions.get_mut(index).follow.catching_up, true) {
            if self.catching_up.queue.is_empty() {
                // What was accepted while none of them waited gives them no more work in one turn.
                self.catching_up.upto = self.serial;
            }
            self.catching_up.queue.push_back(index);
        }
    }

    /// Gives sessions that catch up their turns: as much work as a slice, and as was accepted since
    /// the last time.
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
