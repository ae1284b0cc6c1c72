//! Events that go as datagrams: a small one goes once more behind the next event of its link.
//!
//! So an event is lost on a link only if two datagrams in a row are, and no packet is added. The
//! repeat is the frame as it departed first, so its receiver knows its age, and by its sequence
//! whether it has arrived.

use core::time::Duration;

use whimbrel_event::{EventId, Time};
use whimbrel_wire::{Cutter, Frame, FrameAt, Invalid, LinkStamp, Repeat};

use super::Sending;
use super::carrier::Carrier;
use crate::PeerLink;
use crate::link::watch::{Former, REPEATED_MAX};

/// Most bytes of a datagram with two events: a packet of 1,200 bytes, the least that QUIC has,
/// holds it with its header.
const DATAGRAM_BYTES_MAX: usize = 1_100;

impl Carrier<'_> {
    /// Appends the event of the link's last datagram to the frame of an event, if it is to be
    /// repeated and fits; the frame's event takes its place. Returns the event that is repeated.
    pub(super) fn append_repeat(
        &mut self,
        link: PeerLink,
        sending: &Sending<'_>,
        tree: &[u8],
        stamp: LinkStamp,
        frame: &mut Vec<u8>,
    ) -> Option<EventId> {
        let peer = self.peers.get_mut(link).filter(|peer| peer.knows_repeats())?;
        let end = frame.len();
        let body = frame_body(frame)?.len();
        let former = peer.watch.take_former(self.now);
        let mut repeated = None;
        if let Some(former) = &former {
            self.traffic.runs.clear();
            let repeat = Repeat::of(former.sequence, &former.frame, &frame[end - body..], &mut self.traffic.runs);
            Frame::Repeat(repeat).encode(frame);
            if frame.len() <= DATAGRAM_BYTES_MAX {
                let bytes = (frame.len() - end) as u64;
                self.stats.repeats_sent += 1;
                self.stats.repeat_bytes += bytes;
                self.stats.header_bytes += bytes;
                peer.counters.frames_out += 1;
                repeated = Some(former.id);
            } else {
                frame.truncate(end);
            }
        }
        let mut buffer = former.map(|former| former.frame).unwrap_or_default();
        buffer.clear();
        let is_small = tree.len() + sending.event.len() <= REPEATED_MAX;
        let late_at = late_at(self.now, sending).filter(|_| is_small);
        peer.watch.keep_former(late_at.map(|late_at| {
            buffer.extend_from_slice(&frame[end - body..end]);
            Former { id: sending.id, sequence: stamp.sequence, late_at, frame: buffer }
        }));
        repeated
    }

    /// Reads the repeat behind the frame of an event in a datagram. `front`: that frame without its
    /// length. Returns the repeated frame without its length; `None`: it has arrived before.
    ///
    /// # Errors
    /// When there is anything else.
    pub(crate) fn read_repeat(
        &mut self,
        link: PeerLink,
        front: &[u8],
        behind: &[u8],
    ) -> Result<Option<Vec<u8>>, Invalid> {
        let (mut cutter, mut chunk) = (Cutter::new(), behind);
        let body = cutter.next(&mut chunk)?.ok_or(Invalid::Truncated)?;
        let Frame::Repeat(repeat) = Frame::decode(body)? else { return Err(Invalid::Form("a datagram")) };
        if !chunk.is_empty() {
            return Err(Invalid::Form("a datagram"));
        }
        let Some(peer) = self.peers.get_mut(link) else { return Ok(None) };
        peer.counters.frames_in += 1;
        if peer.watch.knows(repeat.sequence) {
            self.stats.repeats_known += 1;
            return Ok(None);
        }
        let mut frame = Vec::with_capacity(repeat.length);
        repeat.restore(front, &mut frame)?;
        Ok(Some(frame))
    }
}

/// When the deadline of an event is past; `None`: it is.
fn late_at(now: Time, sending: &Sending<'_>) -> Option<Time> {
    let left_us = (u64::from(sending.deadline_ms?) * 1_000).checked_sub(sending.age_us)?;
    Some(now + Duration::from_micros(left_us))
}

/// The first frame of some bytes, without its length.
fn frame_body(bytes: &[u8]) -> Option<&[u8]> {
    let mut chunk = bytes;
    match Cutter::new().find(&mut chunk) {
        Ok(FrameAt::Chunk(body)) => Some(body),
        _ => None,
    }
}
