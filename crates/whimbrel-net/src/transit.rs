//! Frames that have passed through this broker recently: a frame that is lost farther on is sent
//! again from here.

use std::collections::VecDeque;

use whimbrel_event::EventId;

/// Bytes of frames that are kept.
pub const TRANSIT_BYTES_MAX: usize = 8 << 20;

/// The latest frames.
#[derive(Debug, Default)]
pub struct Transit {
    frames: VecDeque<(EventId, Box<[u8]>)>,
    bytes: usize,
}

/// Bytes of one entry beside its frame.
const ENTRY_BYTES: usize = 48;

impl Transit {
    /// Keeps a frame (its type and body).
    pub fn keep(&mut self, id: EventId, frame: &[u8]) {
        self.bytes += frame.len() + ENTRY_BYTES;
        self.frames.push_back((id, frame.into()));
        while self.bytes > TRANSIT_BYTES_MAX {
            let (_, oldest) = self.frames.pop_front().expect("bytes are of frames");
            self.bytes -= oldest.len() + ENTRY_BYTES;
        }
    }

    /// The latest frame with an event. Scans all that are kept; nacks are rare, and each names few
    /// events.
    pub fn find(&self, id: EventId) -> Option<&[u8]> {
        self.frames.iter().rev().find(|(known, _)| *known == id).map(|(_, frame)| &**frame)
    }
}
