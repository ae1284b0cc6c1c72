//! Deliveries that wait in a session for its cursors, as these begin, end and go back.

use whimbrel_event::Qos;

use super::Sessions;
use super::queue::{Queue, Queued};
use crate::route::NO_CURSOR;

impl Sessions {
    /// Takes the deliveries that wait for a session's cursors out of its queue: the cursors read
    /// them from the cache.
    pub(crate) fn take_tracked(&mut self, index: u32) -> Queue {
        let queue = core::mem::take(&mut self.get_mut(index).follow.queue);
        self.stats.queued_events -= queue.len() as u64;
        self.stats.queued_bytes -= queue.bytes() as u64;
        queue
    }

    /// Moves deliveries of a cursor that ends to the queues without cursors: before later ones at
    /// the same QoS.
    pub(crate) fn untrack_queue(&mut self, index: u32, cursor: u32) {
        let session = self.get_mut(index);
        for entry in session.follow.queue.iter().filter(|entry| entry.cursor == cursor).cloned().collect::<Vec<_>>() {
            let queue = if entry.qos == Qos::AtMostOnce { &mut session.passing } else { &mut session.waiting };
            queue.push(Queued { cursor: NO_CURSOR, ..entry });
        }
        session.follow.queue.purge(|entry| entry.cursor != cursor);
    }

    /// A subscription without a cursor up to event `serial` has one from now on: waiting deliveries
    /// go first, as some may be its own.
    pub(crate) fn add_cursor_after(&mut self, index: u32, serial: u64) {
        let session = self.get_mut(index);
        if !session.waiting.is_empty() || !session.passing.is_empty() {
            session.follow.plain_until = serial;
        }
    }

    /// Drops the waiting deliveries of a cursor: it begins at another position.
    pub(crate) fn purge_cursor(&mut self, index: u32, cursor: u32) {
        let (events, bytes) = self.get_mut(index).follow.queue.purge(|entry| entry.cursor != cursor);
        self.stats.queued_events -= events as u64;
        self.stats.queued_bytes -= bytes as u64;
    }
}
