//! What waits in a session for its tracked subscriptions, as these begin, end and go back.

use whimbrel_event::Qos;

use super::Sessions;
use super::queue::{Queue, Queued};
use crate::route::NO_CURSOR;

impl Sessions {
    /// Takes what waits for the tracked subscriptions of a session out of its queue: they read it
    /// from the cache.
    pub(crate) fn take_tracked(&mut self, index: u32) -> Queue {
        let queue = core::mem::take(&mut self.get_mut(index).follow.queue);
        self.stats.queued_events -= queue.len() as u64;
        self.stats.queued_bytes -= queue.bytes() as u64;
        queue
    }

    /// What waits for a tracked subscription that is tracked no more waits with the rest: before
    /// what comes at the same quality of service.
    pub(crate) fn untrack_queue(&mut self, index: u32, cursor: u32) {
        let session = self.get_mut(index);
        for entry in session.follow.queue.iter().filter(|entry| entry.cursor == cursor).cloned().collect::<Vec<_>>() {
            let queue = if entry.qos == Qos::AtMostOnce { &mut session.passing } else { &mut session.waiting };
            queue.push(Queued { cursor: NO_CURSOR, ..entry });
        }
        session.follow.queue.purge(|entry| entry.cursor != cursor);
    }

    /// A subscription that was plain up to the event `serial` is tracked from now on: what waits
    /// goes first, some of it may be its own.
    pub(crate) fn add_cursor_after(&mut self, index: u32, serial: u64) {
        let session = self.get_mut(index);
        if !session.waiting.is_empty() || !session.passing.is_empty() {
            session.follow.plain_until = serial;
        }
    }

    /// What waits for a tracked subscription is dropped: it begins somewhere else.
    pub(crate) fn purge_cursor(&mut self, index: u32, cursor: u32) {
        let (events, bytes) = self.get_mut(index).follow.queue.purge(|entry| entry.cursor != cursor);
        self.stats.queued_events -= events as u64;
        self.stats.queued_bytes -= bytes as u64;
    }
}
