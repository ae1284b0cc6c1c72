//! The share of what gives way: it is released after everything else, but not starved by it.

/// While both wait, one byte in this many goes to what gives way.
pub const SHARE_ONE_IN: u64 = 18;

/// Most bytes that are due to what gives way: a frame of the greatest size, and one more. More is
/// forgotten.
const DUE_MAX: u64 = 2 * whimbrel_wire::FRAME_BYTES_MAX as u64;

/// Counts the bytes that went ahead of what gives way, and so what is due to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// Bytes that went ahead and were not made up for, at most [`DUE_MAX`] times their ratio.
    ahead: u64,
}

impl Share {
    /// Bytes that are due to what gives way, before any others.
    pub fn due(&self) -> usize {
        (self.ahead / (SHARE_ONE_IN - 1)) as usize
    }

    /// Records bytes that went ahead of what gives way, which waits.
    pub fn record_ahead(&mut self, bytes: usize) {
        self.ahead = (self.ahead + bytes as u64).min(DUE_MAX * (SHARE_ONE_IN - 1));
    }

    /// Records bytes of what gives way.
    pub fn record_given(&mut self, bytes: usize) {
        self.ahead = self.ahead.saturating_sub(bytes as u64 * (SHARE_ONE_IN - 1));
    }

    /// Nothing that gives way waits: nothing is due.
    pub fn reset(&mut self) {
        self.ahead = 0;
    }
}
