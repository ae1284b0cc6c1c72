//! Silence is sent to a neighbour, behind the events that it is about.

use whimbrel_event::EventId;
use whimbrel_wire::{Frame, Part, Silence};

use super::Carrier;
use crate::io::LinkOutput;
use crate::link::queue::FrameClass;
use crate::{Channel, PeerLink};

impl Carrier<'_> {
    /// Sends silence to a neighbour: each part on the channel of its stream's events, and behind
    /// those that wait. `channel_of`: the channel if the stream is not an urgent one. Returns the
    /// number of frames.
    pub(crate) fn send_silence(
        &mut self,
        link: PeerLink,
        silence: Silence<'_>,
        channel_of: impl Fn(&Part) -> Channel,
        out: &mut dyn LinkOutput,
    ) -> u64 {
        let Some(peer) = self.peers.get_mut(link) else { return 0 };
        let mut frames = 0;
        let mut frame = Vec::with_capacity(128);
        // By channel: at most one of each stream of a host.
        let mut parts: [Vec<Part>; Channel::STREAMS] = Default::default();
        for part in &silence.parts {
            let pubend = silence.from.pubend(part.index);
            let channel = peer.silence_channel(pubend, channel_of(part));
            // Silence that is dropped leaves a hole as well.
            if !peer.admits(channel, pubend) {
                continue;
            }
            if peer.queue.holds(pubend) {
                frame.clear();
                Frame::Silence(Silence { parts: vec![*part], ..silence.clone() }).encode(&mut frame);
                peer.queue.push_silence(self.now, EventId { pubend, tick: part.upto }, &frame);
                frames += 1;
            } else {
                parts[channel as usize].push(*part);
            }
        }
        for (channel, parts) in Channel::ALL.into_iter().zip(parts) {
            if !parts.is_empty() {
                frame.clear();
                Frame::Silence(Silence { parts, ..silence }).encode(&mut frame);
                self.send(link, FrameClass::of_silence(channel), &frame, out);
                frames += 1;
            }
        }
        frames
    }
}
