//! Brokers that stand still: processes that the machine does not schedule for a while. Bytes of
//! clients and other brokers, timers and answers of the disk wait, and are all given to the process
//! when it continues: those of one source in order, those of different sources in any.

use std::collections::VecDeque;

use whimbrel_core::{Channel, PeerInput, PeerLink};
use whimbrel_event::Time;
use whimbrel_mqtt::{ConnId, Input, Origin};

use super::net::{Fabric, Item};
use crate::random::Random;

/// The source of input that waits for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Client(ConnId),
    Link(PeerLink),
    Disk,
    Clock,
}

/// Input that waits.
#[derive(Debug)]
enum What {
    Opened(Origin),
    Said(Vec<u8>),
    Closed,
    Linked {
        dialed: bool,
    },
    Carried(Channel, Vec<u8>),
    Room(Channel, usize),
    Unlinked,
    /// Its disk has progress to report, or a timer is due.
    IsDue,
}

/// A process that is not scheduled.
#[derive(Debug)]
pub(super) struct Still {
    waits: VecDeque<(Source, What)>,
    random: Random,
}

impl Still {
    /// Keeps an input.
    fn keep(&mut self, input: &Input<'_>) {
        let kept = match input {
            Input::Opened { conn, origin } => (Source::Client(*conn), What::Opened(*origin)),
            Input::Bytes { conn, bytes } => (Source::Client(*conn), What::Said(bytes.to_vec())),
            Input::Closed { conn } => (Source::Client(*conn), What::Closed),
            Input::Peer(PeerInput::Opened { link, dialed, .. }) => {
                (Source::Link(*link), What::Linked { dialed: *dialed })
            }
            Input::Peer(PeerInput::Bytes { link, channel, bytes }) => {
                (Source::Link(*link), What::Carried(*channel, bytes.to_vec()))
            }
            Input::Peer(PeerInput::Room { link, channel, unsent }) => {
                (Source::Link(*link), What::Room(*channel, *unsent))
            }
            Input::Peer(PeerInput::Closed { link }) => (Source::Link(*link), What::Unlinked),
            // The process looks at the time in any case, and these connections count no packets.
            Input::Deadline | Input::Peer(PeerInput::Packets { .. }) => return,
            other => panic!("nobody says this to a process that stands still: {other:?}"),
        };
        self.waits.push_back(kept);
    }

    /// The next input: the first of any source.
    fn next(&mut self) -> Option<(Source, What)> {
        let mut sources: Vec<Source> = Vec::new();
        for (source, _) in &self.waits {
            if !sources.contains(source) {
                sources.push(*source);
            }
        }
        if sources.is_empty() {
            return None;
        }
        let source = *self.random.pick(&sources);
        let at = self.waits.iter().position(|(of, _)| *of == source)?;
        self.waits.remove(at)
    }
}

impl Fabric {
    /// Stops a process until a moment.
    pub(super) fn stand_still(&mut self, node: usize, until: Time) {
        if !self.is_up(node) || self.nodes[node].still.is_some() || until <= self.now {
            return;
        }
        let random = self.random.fork();
        self.nodes[node].still = Some(Still { waits: VecDeque::new(), random });
        self.stills.push((self.now, until));
        self.plan(Item::Still(node), Some(until));
    }

    /// Whether a process stands still, and has kept the input.
    pub(super) fn keeps(&mut self, node: usize, input: &Input<'_>) -> bool {
        let Some(still) = &mut self.nodes[node].still else { return false };
        still.keep(input);
        true
    }

    /// A process continues: it is given all input that has waited.
    pub(super) fn go_on(&mut self, node: usize) {
        let Some(mut still) = self.nodes[node].still.take() else { return };
        still.waits.push_back((Source::Clock, What::IsDue));
        if self.nodes[node].log.is_some() {
            still.waits.push_back((Source::Disk, What::IsDue));
        }
        self.nodes[node].ended = Some(Vec::new());
        while let Some((source, what)) = still.next() {
            match source {
                Source::Client(conn) => self.hear_late(node, conn, what),
                Source::Link(link) => self.carry_late(node, link, &what),
                Source::Disk => self.disk_changed(node),
                Source::Clock => self.handle(node, Input::Deadline),
            }
            // It is given nothing more of a source that it has ended.
            let ended = self.nodes[node].ended.replace(Vec::new()).unwrap_or_default();
            still.waits.retain(|(source, _)| !ended.contains(source));
        }
        self.nodes[node].ended = None;
        self.plan_node(node);
    }

    fn hear_late(&mut self, node: usize, conn: ConnId, what: What) {
        match what {
            What::Opened(origin) => self.handle(node, Input::Opened { conn, origin }),
            What::Said(bytes) => self.say(node, conn, &bytes),
            _ => {
                self.nodes[node].held.retain(|(of, _)| *of != conn);
                self.handle(node, Input::Closed { conn });
            }
        }
    }

    fn carry_late(&mut self, node: usize, link: PeerLink, what: &What) {
        let input = match what {
            What::Linked { dialed } => PeerInput::Opened { link, dialed: *dialed, name: None },
            What::Carried(channel, bytes) => PeerInput::Bytes { link, channel: *channel, bytes },
            What::Room(channel, unsent) => PeerInput::Room { link, channel: *channel, unsent: *unsent },
            _ => PeerInput::Closed { link },
        };
        self.handle(node, Input::Peer(input));
    }
}
