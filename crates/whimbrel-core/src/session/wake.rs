//! Sessions to resume, as a place in their window has become free.

use super::Sessions;
use super::inflight::Inflight;

/// Records that a session is resumed when the step ends. Code that frees a place in a window needs
/// one, so that no place becomes free without its session being resumed.
#[derive(Debug)]
pub(crate) struct Waker<'a> {
    session: u32,
    woken: &'a mut Vec<u32>,
}

impl<'a> Waker<'a> {
    pub(super) fn new(session: u32, woken: &'a mut Vec<u32>) -> Self {
        Waker { session, woken }
    }

    /// Has the session resumed when the step ends: once, for any number of calls in a row.
    #[inline]
    pub(crate) fn wake(&mut self) {
        if self.woken.last() != Some(&self.session) {
            self.woken.push(self.session);
        }
    }
}

impl Sessions {
    /// The deliveries of a session, and its waker.
    pub(crate) fn inflight_mut(&mut self, index: u32) -> (&mut Inflight, Waker<'_>) {
        let Sessions { slots, woken, .. } = self;
        let session = slots[index as usize].as_mut().expect("a session index in use");
        (&mut session.inflight, Waker::new(index, woken))
    }

    /// Whether a session is to be resumed.
    #[inline]
    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Takes out a session to resume. The deliveries that end in a step bound their number: those
    /// in windows and queues, and a slice of what each session reads or catches up with.
    #[inline]
    pub(crate) fn pop_woken(&mut self) -> Option<u32> {
        loop {
            let index = self.woken.pop()?;
            // It may have ended meanwhile.
            if self.slots[index as usize].is_some() {
                return Some(index);
            }
        }
    }
}
