//! When the streams of one link are followed by compressed or plain ones.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::outlet::Outlet;
use super::pipe::{Broken, Pipe};
use super::thin::Thinness;
use crate::overlay::codec::{PACKER_BYTES_MAX, Packer};

/// Bytes of all contexts that compress, over all links: 64 contexts. Further links stay plain.
const PACKERS_BYTES_MAX: usize = 40 << 20;

/// Contexts that compress, over all links.
pub(in crate::overlay) const PACKERS_MAX: usize = PACKERS_BYTES_MAX / PACKER_BYTES_MAX;

/// A change that is not possible at present is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A channel that compression did not pay for is compressed again after this time.
const PAYS_AGAIN: Duration = Duration::from_secs(60);

/// Decides when the channels of events of one link are compressed.
#[derive(Debug)]
pub(super) struct StreamChanges {
    pub(super) thinness: Thinness,
    /// Places for contexts that compress; none where compression is off.
    packers: Arc<Semaphore>,
    /// Before this a channel is not changed over again.
    not_before: [Instant; 2],
    /// The streams are about to end.
    is_ending: bool,
}

impl StreamChanges {
    pub(super) fn new(now: Instant, packers: Arc<Semaphore>) -> StreamChanges {
        StreamChanges { thinness: Thinness::new(now), packers, not_before: [now; 2], is_ending: false }
    }

    /// No stream begins from now on. One that is about to still follows.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Has the streams of events followed by compressed or plain ones where that is due and the
    /// other end allows it.
    ///
    /// # Errors
    /// The link has ended.
    pub(super) fn make(
        &mut self,
        now: Instant,
        urgent: &mut Outlet,
        events: &mut [Outlet; 2],
        pipe: &mut Pipe<'_, '_>,
    ) -> Result<(), Broken> {
        let is_thin = self.thinness.is_thin();
        for (outlet, not_before) in events.iter_mut().zip(&mut self.not_before) {
            let (is_packed, pays) = (outlet.is_packed(), outlet.pays());
            let is_due = if is_packed { !is_thin || !pays } else { is_thin && outlet.unsent() > 0 };
            if self.is_ending || !is_due || now < *not_before || outlet.is_changing() {
                continue;
            }
            *not_before = now + TRY_AGAIN;
            let packer = if is_packed {
                None
            } else {
                let place = self.packers.clone().try_acquire_owned().ok();
                let Some(packer) = place.and_then(Packer::new) else { continue };
                Some(packer)
            };
            // Else a successor could have the place of a link's urgent stream.
            if !urgent.open_early(pipe)? {
                continue;
            }
            if let Poll::Ready(stream) = pipe.open(outlet.channel()) {
                outlet.succession().follow(stream?, packer).map_err(|_| pipe.fail())?;
                if !pays {
                    *not_before = now + PAYS_AGAIN;
                }
            }
        }
        Ok(())
    }
}
