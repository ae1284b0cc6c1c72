//! What arrives over the connections between brokers.

use whimbrel_core::{Channel, PeerInput};
use whimbrel_mqtt::Input;

use super::line::CHANNELS;
use super::net::Fabric;
use crate::trunk::{Event, Side};

/// A broker is told of its unsent bytes again when they have fallen by this many.
const ROOM_STEP: usize = 16 << 10;

impl Fabric {
    /// What has arrived over a connection is given to its ends.
    pub(super) fn poll(&mut self, number: usize) {
        while let Some(line) = self.lines.get_mut(&number)
            && let Some(event) = line.trunk.poll(self.now)
        {
            match event {
                Event::Bytes { to, stream, bytes } => self.carry(number, to, CHANNELS[stream], &bytes),
                Event::Datagram { to, bytes } => self.carry(number, to, Channel::Datagram, &bytes),
                Event::Closed { side, .. } => {
                    let (node, link) = line.ends[side as usize];
                    if line.is_open[side as usize] {
                        self.nodes[node].peers[link.0 as usize] = None;
                        self.let_go(number, side);
                        self.handle(node, Input::Peer(PeerInput::Closed { link }));
                    }
                }
            }
        }
        self.stalls.extend(self.lines.get_mut(&number).and_then(|line| line.trunk.take_stall()));
        self.tell_room(number);
        self.plan_line(number);
    }

    fn carry(&mut self, number: usize, to: Side, channel: Channel, bytes: &[u8]) {
        let line = &self.lines[&number];
        if line.is_open[to as usize] {
            let (node, link) = line.ends[to as usize];
            self.handle(node, Input::Peer(PeerInput::Bytes { link, channel, bytes }));
        }
    }

    /// Tells both ends where fewer bytes are unsent than they know.
    fn tell_room(&mut self, number: usize) {
        for side in [Side::Near, Side::Far] {
            for (stream, channel) in CHANNELS.into_iter().enumerate() {
                let Some(line) = self.lines.get_mut(&number).filter(|line| line.is_open[side as usize]) else { break };
                let known = &mut line.unsent[side as usize][stream];
                let unsent = line.trunk.unsent(side, stream);
                if *known > 0 && (unsent == 0 || unsent + ROOM_STEP <= *known) {
                    *known = unsent;
                    let (node, link) = line.ends[side as usize];
                    self.handle(node, Input::Peer(PeerInput::Room { link, channel, unsent }));
                }
            }
        }
    }
}
