//! The event that departed last as a datagram: it goes once more, behind the next one.

use core::time::Duration;

use whimbrel_event::{EventId, Time};
use whimbrel_wire::{LinkReport, REPEATED_BYTES_MAX};

use crate::forward::Sending;

/// Most bytes of an event and its tree that are repeated.
pub const REPEATED_MAX: usize = 400;

/// A frame is longer than its event and tree by at most this: type, age of the last copy, stamp and
/// header with three hosts.
const FRAME_ADDS_MAX: usize = 1 + 5 + 11 + (1 + 8 + 8 + 10 + 10 + 3 * 8);

const _: () = assert!(REPEATED_MAX + FRAME_ADDS_MAX <= REPEATED_BYTES_MAX);

/// See the module. A link has at most one.
#[derive(Debug)]
pub(crate) struct Former {
    /// The event.
    pub(crate) id: EventId,
    /// The sequence of its frame.
    pub(crate) sequence: u16,
    /// From then on its deadline is past.
    late_at: Time,
    /// The frame without its length; at most [`REPEATED_BYTES_MAX`].
    pub(crate) frame: Vec<u8>,
}

impl Former {
    /// The event of a datagram that departs now. `tree`: bytes of its tree; `buffer`: taken for a
    /// copy of the frame. `None`: it is not to be repeated, as it is too large, or its deadline is
    /// past.
    pub(crate) fn of(now: Time, sending: &Sending<'_>, tree: usize, sequence: u16, buffer: Vec<u8>) -> Option<Former> {
        let left_us = (u64::from(sending.deadline_ms?) * 1_000).checked_sub(sending.age_us)?;
        let is_small = tree + sending.event.len() <= REPEATED_MAX;
        let late_at = now + Duration::from_micros(left_us);
        is_small.then_some(Former { id: sending.id, sequence, late_at, frame: buffer })
    }

    /// Whether its deadline is past.
    pub(super) fn is_late(&self, now: Time) -> bool {
        now > self.late_at
    }

    /// Whether a report tells that its frame has arrived. One that is too far behind to tell counts
    /// as arrived.
    pub(super) fn is_reported(&self, report: &LinkReport) -> bool {
        let behind = report.highest.wrapping_sub(self.sequence) as i16;
        behind >= 0 && report.missing.checked_shr(behind as u32).is_none_or(|missing| missing & 1 == 0)
    }
}
