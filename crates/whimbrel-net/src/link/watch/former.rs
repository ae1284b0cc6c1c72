//! The event that departed last as a datagram: it goes once more, behind the next one.

use whimbrel_event::{EventId, Time};
use whimbrel_wire::{LinkReport, REPEATED_BYTES_MAX};

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
    pub(crate) late_at: Time,
    /// The frame without its length; at most [`REPEATED_BYTES_MAX`].
    pub(crate) frame: Vec<u8>,
}

impl Former {
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
