//! What waits in front of a link's driver: one queue per class of frames.
//!
//! Bytes that the driver has are in the order in which they leave; what waits here can still be put
//! in another order. A frame waits only while the driver has more unsent than a *mark* on the
//! frame's channel, or others wait for that channel already. Classes are released in their order.
//!
//! An event waits as its parts, and is encoded when it is released: its age goes on while it waits.

use std::collections::VecDeque;

use whimbrel_event::{EventId, Tick, Time};
use whimbrel_wire::Repairers;

use super::Channel;
use super::peers::high_of;

/// A class of frames, in the order in which classes are released.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FrameClass {
    /// Changes of links, which are flooded.
    Flash,
    /// Handshake, link states, interests, maps, nacks, messages.
    Control,
    /// Reliable events that are in a hurry, and silence on their channel.
    Urgent,
    /// Reliable events, and silence on their channel.
    Reliable,
    /// Events of best effort, and silence on their channel.
    BestEffort,
    /// Messages that give way to all other traffic.
    Bulk,
}

impl FrameClass {
    /// All classes, in their order.
    pub const ALL: [FrameClass; 6] = [
        FrameClass::Flash,
        FrameClass::Control,
        FrameClass::Urgent,
        FrameClass::Reliable,
        FrameClass::BestEffort,
        FrameClass::Bulk,
    ];

    /// The channel on which frames of the class go.
    pub fn channel(self) -> Channel {
        match self {
            FrameClass::Flash | FrameClass::Control => Channel::Control,
            FrameClass::Urgent | FrameClass::Reliable => Channel::Reliable,
            FrameClass::BestEffort | FrameClass::Bulk => Channel::BestEffort,
        }
    }

    /// The class of silence, which follows the events of its channel.
    pub(crate) fn of_silence(channel: Channel) -> FrameClass {
        if channel == Channel::Reliable { FrameClass::Reliable } else { FrameClass::BestEffort }
    }
}

/// The number of classes.
const CLASSES: usize = FrameClass::ALL.len();

/// An event that waits, in its parts.
#[derive(Debug)]
pub(crate) struct WaitingEvent {
    pub(crate) id: EventId,
    /// Its age when it began to wait, microseconds, and that moment.
    pub(crate) age_us: u64,
    pub(crate) since: Time,
    /// The age at which it should be at its subscribers, for events with a deadline.
    pub(crate) deadline_ms: Option<u32>,
    pub(crate) answer: bool,
    pub(crate) retain: bool,
    pub(crate) repairers: Repairers,
    pub(crate) tree: Box<[u8]>,
    pub(crate) default_previous: Tick,
    pub(crate) event: Box<[u8]>,
}

impl WaitingEvent {
    /// Its age at this moment, microseconds.
    pub(crate) fn age_us_at(&self, now: Time) -> u64 {
        let waited = u64::try_from(now.since(self.since).as_micros()).unwrap_or(u64::MAX);
        self.age_us.saturating_add(waited)
    }

    /// The bytes that it takes, estimated.
    pub(crate) fn bytes(&self) -> usize {
        ENTRY_BYTES + self.tree.len() + self.event.len()
    }

    /// Whether its deadline is past.
    pub(crate) fn is_late(&self, now: Time) -> bool {
        self.deadline_ms.is_some_and(|deadline| self.age_us_at(now) > u64::from(deadline) * 1_000)
    }
}

/// One thing that waits.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// A frame that is encoded.
    Frame(Box<[u8]>),
    /// An event.
    Event(Box<WaitingEvent>),
}

/// Bytes of one entry beside its parts, estimated.
const ENTRY_BYTES: usize = 96;

impl Waiting {
    fn bytes(&self) -> usize {
        match self {
            Waiting::Frame(frame) => ENTRY_BYTES + frame.len(),
            Waiting::Event(event) => event.bytes(),
        }
    }
}

/// What waits in one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Number of frames.
    pub frames: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The queues of one link.
///
/// Bounded by admission: what is sent over a full channel is not queued, see
/// [`Peer::has_room`](super::peers::Peer::has_room). Frames of the handshake and of comparisons are
/// sent without a look at room; [`LinkQueue::is_overrun`] bounds them.
#[derive(Debug)]
pub(crate) struct LinkQueue {
    classes: [VecDeque<Waiting>; CLASSES],
    bytes: [usize; CLASSES],
    /// Their sums by channel: asked for at each frame.
    on_channel: [usize; Channel::ALL.len()],
    /// Unsent bytes of the driver on a channel from which on frames wait.
    mark: usize,
}

impl LinkQueue {
    pub(crate) fn new(mark: usize) -> LinkQueue {
        LinkQueue { classes: Default::default(), bytes: [0; CLASSES], on_channel: [0; Channel::ALL.len()], mark }
    }

    /// Whether a frame goes to the driver at once, which has this many bytes unsent on its channel.
    pub(crate) fn passes(&self, channel: Channel, unsent: usize) -> bool {
        unsent < self.mark && self.bytes_on(channel) == 0
    }

    /// Adds what has to wait.
    pub(crate) fn push(&mut self, class: FrameClass, waiting: Waiting) {
        let bytes = waiting.bytes();
        self.bytes[class as usize] += bytes;
        self.on_channel[class.channel() as usize] += bytes;
        self.classes[class as usize].push_back(waiting);
    }

    /// Takes the next for a channel, if the driver has room for it.
    pub(crate) fn release(&mut self, channel: Channel, unsent: usize) -> Option<Waiting> {
        if unsent >= self.mark {
            return None;
        }
        let is_next = |class: &FrameClass| class.channel() == channel && !self.classes[*class as usize].is_empty();
        let class = FrameClass::ALL.into_iter().find(is_next)?;
        let next = self.classes[class as usize].pop_front()?;
        let bytes = next.bytes();
        self.bytes[class as usize] -= bytes;
        self.on_channel[channel as usize] -= bytes;
        Some(next)
    }

    /// Bytes that wait for a channel.
    pub(crate) fn bytes_on(&self, channel: Channel) -> usize {
        self.on_channel[channel as usize]
    }

    /// Whether more waits for a channel than may be admitted to it, by as much again: its other end
    /// takes nothing while it has this broker answer.
    pub(crate) fn is_overrun(&self, channel: Channel) -> bool {
        self.bytes_on(channel) >= 2 * high_of(channel)
    }

    /// What waits in each class.
    pub(crate) fn occupancy(&self) -> [Occupancy; CLASSES] {
        core::array::from_fn(|class| Occupancy { frames: self.classes[class].len(), bytes: self.bytes[class] })
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::HostId;

    use super::*;

    fn frame(byte: u8, len: usize) -> Waiting {
        Waiting::Frame(vec![byte; len].into())
    }

    fn first_byte(waiting: Option<Waiting>) -> Option<u8> {
        match waiting? {
            Waiting::Frame(frame) => Some(frame[0]),
            Waiting::Event(event) => Some(event.event[0]),
        }
    }

    #[test]
    fn a_frame_waits_behind_the_mark_and_behind_others_of_its_channel() {
        let mut queue = LinkQueue::new(100);
        assert!(queue.passes(Channel::Reliable, 99) && !queue.passes(Channel::Reliable, 100));
        queue.push(FrameClass::Reliable, frame(1, 10));
        assert!(!queue.passes(Channel::Reliable, 0), "the order of a channel stays");
        assert!(queue.passes(Channel::Control, 0) && queue.passes(Channel::BestEffort, 0));
        assert_eq!(queue.bytes_on(Channel::Reliable), 10 + ENTRY_BYTES);
        assert_eq!(first_byte(queue.release(Channel::Reliable, 100)), None, "the driver has too much");
        assert_eq!(first_byte(queue.release(Channel::Reliable, 99)), Some(1));
        assert_eq!((queue.bytes_on(Channel::Reliable), queue.release(Channel::Reliable, 0).is_none()), (0, true));
    }

    #[test]
    fn classes_of_a_channel_are_released_in_their_order() {
        let mut queue = LinkQueue::new(1);
        let order =
            [(FrameClass::Bulk, 1), (FrameClass::BestEffort, 2), (FrameClass::Reliable, 3), (FrameClass::Urgent, 4)];
        for (class, byte) in order {
            queue.push(class, frame(byte, 1));
        }
        let mut released = Vec::new();
        for channel in Channel::ALL {
            released.extend(core::iter::from_fn(|| first_byte(queue.release(channel, 0))));
        }
        assert_eq!(released, [4, 3, 2, 1]);
        assert!(queue.occupancy().iter().all(|class| *class == Occupancy::default()));
    }

    #[test]
    fn an_event_ages_while_it_waits() {
        let at = |micros: u64| Time::from_nanos(micros * 1_000);
        let id = EventId { pubend: HostId::new(1 << 8).pubend(0), tick: Tick(5) };
        let event = WaitingEvent {
            id,
            age_us: 70,
            since: at(1_000),
            deadline_ms: Some(2),
            answer: false,
            retain: false,
            repairers: Repairers::NONE,
            tree: [1, 2].into(),
            default_previous: Tick(0),
            event: [9].into(),
        };
        assert_eq!((event.age_us_at(at(1_000)), event.age_us_at(at(1_250))), (70, 320));
        assert_eq!([2_930, 2_931].map(|micros| event.is_late(at(micros))), [false, true]);
    }

    #[test]
    fn what_is_sent_without_admission_is_noticed() {
        let mut queue = LinkQueue::new(1);
        queue.push(FrameClass::Control, frame(0, 2 * high_of(Channel::Control)));
        assert!(queue.is_overrun(Channel::Control) && !queue.is_overrun(Channel::Reliable));
    }
}
