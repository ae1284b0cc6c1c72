//! Which sessions have to go on, as a place in their window has become free.

use super::Sessions;
use super::inflight::Inflight;

/// Notes that a session has to go on when the step ends. Whatever frees a place in a window needs
/// one, so that no place becomes free without its session hearing of it.
#[derive(Debug)]
pub(crate) struct Waker<'a> {
    session: u32,
    woken: &'a mut Vec<u32>,
}

impl<'a> Waker<'a> {
    pub(super) fn new(session: u32, woken: &'a mut Vec<u32>) -> Self {
        Waker { session, woken }
    }

    /// The session goes on when the step ends: once, however often that is called in a row.
    #[inline]
    pub(crate) fn wake(&mut self) {
        if self.woken.last() != Some(&self.session) {
            self.woken.push(self.session);
        }
    }
}

impl Sessions {
    /// The deliveries of a session, and what wakes it.
    pub(crate) fn inflight_mut(&mut self, index: u32) -> (&mut Inflight, Waker<'_>) {
        let Sessions { slots, woken, .. } = self;
        let session = slots[index as usize].as_mut().expect("a session index in use");
        (&mut session.inflight, Waker::new(index, woken))
    }

    /// A session that has to go on. The deliveries that end in a step bound how many there are:
    /// those in windows and queues, and a slice of what each session reads or catches up with.
    #[inline]
    pub(crate) fn pop_woken(&mut self) -> Option<u32> {
        loop {
            let index = self.woken.pop()?;
            // It may have ended since.
            if self.slots[index as usize].is_some() {
                return Some(index);
            }
        }
    }
}
