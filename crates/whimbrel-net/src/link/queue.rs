//! What waits in front of a link's driver: one queue per class of frames.
//!
//! Bytes that the driver has are in the order in which they leave; what waits here can still be put
//! in another order. A frame waits only while the driver has more unsent than a *mark* on the
//! frame's channel, or others wait for that channel already. Classes are released in their order.
//!
//! An event waits as its parts, and is encoded when it is released: its age goes on while it waits.
//! Urgent events are sorted, see `urgent.rs`. Where two classes wait for one channel the later one
//! has a share, see [`super::share`].

use std::collections::VecDeque;

use whimbrel_event::{EventId, PubendId, Reliability, StreamClass, Tick, Time};
use whimbrel_wire::Repairers;

use super::Channel;
use super::peers::high_of;
use super::share::Share;
use super::urgent::{UrgentQueue, WaysLeft};
use crate::fault::NetFaults;

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

    /// The channel on which frames of the class go to a neighbour that knows the urgent one.
    pub fn channel(self) -> Channel {
        match self {
            FrameClass::Flash | FrameClass::Control => Channel::Control,
            FrameClass::Urgent => Channel::Urgent,
            FrameClass::Reliable => Channel::Reliable,
            FrameClass::BestEffort | FrameClass::Bulk => Channel::BestEffort,
        }
    }

    /// The class of the events of a stream.
    pub(crate) fn of_stream(pubend: PubendId) -> FrameClass {
        match (pubend.reliability(), pubend.class()) {
            (Reliability::Reliable, StreamClass::Deadline) => FrameClass::Urgent,
            (Reliability::Reliable, StreamClass::Ordinary) => FrameClass::Reliable,
            (Reliability::BestEffort, _) => FrameClass::BestEffort,
        }
    }

    /// The class of silence, which follows the events of its channel.
    pub(crate) fn of_silence(channel: Channel) -> FrameClass {
        match channel {
            Channel::Urgent => FrameClass::Urgent,
            Channel::Reliable => FrameClass::Reliable,
            _ => FrameClass::BestEffort,
        }
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
    /// See [`whimbrel_wire::CopiedEvent::last_us`].
    pub(crate) last_us: Option<u32>,
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

/// Unsent bytes of the driver on the urgent channel from which on frames wait: what the driver has
/// cannot be sorted any more.
const URGENT_MARK: usize = 1;

/// The queues of one link.
///
/// Bounded by admission: what is sent over a full channel is not queued, see
/// [`Peer::has_room`](super::peers::Peer::has_room) and `Peer::admits`. Frames of the handshake and
/// of comparisons are sent without a look at room; [`LinkQueue::is_overrun`] bounds them.
#[derive(Debug)]
pub(crate) struct LinkQueue {
    classes: [VecDeque<Waiting>; CLASSES],
    /// The events of class urgent, and silence among them.
    urgent: UrgentQueue,
    bytes: [usize; CLASSES],
    /// Their sums by channel: asked for at each frame.
    on_channel: [usize; Channel::ALL.len()],
    /// What is due to the later class of a channel.
    shares: [Share; Channel::ALL.len()],
    /// Unsent bytes of the driver on a channel from which on frames wait; on the urgent channel at
    /// most [`URGENT_MARK`].
    mark: usize,
    /// The neighbour knows the urgent channel.
    has_urgent: bool,
}

impl LinkQueue {
    pub(crate) fn new(mark: usize, faults: NetFaults) -> LinkQueue {
        LinkQueue {
            classes: Default::default(),
            urgent: UrgentQueue::new(faults),
            bytes: [0; CLASSES],
            on_channel: [0; Channel::ALL.len()],
            shares: Default::default(),
            mark,
            has_urgent: false,
        }
    }

    /// Records that the neighbour knows the urgent channel. No urgent event has been sent to it.
    pub(crate) fn open_urgent(&mut self) {
        self.has_urgent = true;
    }

    /// The channel on which frames of a class go to this neighbour.
    pub(crate) fn channel(&self, class: FrameClass) -> Channel {
        match class.channel() {
            Channel::Urgent if !self.has_urgent => Channel::Reliable,
            channel => channel,
        }
    }

    /// See the field.
    fn mark(&self, channel: Channel) -> usize {
        if channel == Channel::Urgent { self.mark.min(URGENT_MARK) } else { self.mark }
    }

    /// Whether a frame goes to the driver at once, which has this many bytes unsent on its channel.
    pub(crate) fn passes(&self, channel: Channel, unsent: usize) -> bool {
        unsent < self.mark(channel) && self.bytes_on(channel) == 0
    }

    /// Whether urgent events of a stream wait.
    pub(crate) fn holds(&self, pubend: PubendId) -> bool {
        self.urgent.holds(pubend)
    }

    /// Whether a stream is late, and has at least half as many entries as the late stream with the
    /// most.
    pub(crate) fn is_far_behind(&self, pubend: PubendId) -> bool {
        self.urgent.is_far_behind(pubend)
    }

    fn count(&mut self, class: FrameClass, bytes: usize) {
        self.bytes[class as usize] += bytes;
        self.on_channel[self.channel(class) as usize] += bytes;
    }

    /// Adds a frame that has to wait.
    pub(crate) fn push(&mut self, class: FrameClass, frame: &[u8]) {
        self.count(class, ENTRY_BYTES + frame.len());
        self.classes[class as usize].push_back(Waiting::Frame(frame.into()));
    }

    /// Adds an event that has to wait.
    pub(crate) fn push_event(&mut self, class: FrameClass, event: Box<WaitingEvent>, ways: WaysLeft) {
        self.count(class, event.bytes());
        match class {
            FrameClass::Urgent => self.urgent.push_event(event, ways),
            _ => self.classes[class as usize].push_back(Waiting::Event(event)),
        }
    }

    /// Adds silence up to a tick of a stream whose urgent events wait.
    pub(crate) fn push_silence(&mut self, now: Time, upto: EventId, frame: &[u8]) {
        self.count(FrameClass::Urgent, ENTRY_BYTES + frame.len());
        self.urgent.push_silence(now, upto, frame.into());
    }

    fn is_waiting(&self, class: FrameClass) -> bool {
        !self.classes[class as usize].is_empty() || (class == FrameClass::Urgent && self.urgent.len() > 0)
    }

    /// The class of the next for a channel: the first one, unless its share is due to the next
    /// that waits. The urgent class is the first of its channel.
    fn next_class(&mut self, channel: Channel) -> Option<FrameClass> {
        let mut waiting = FrameClass::ALL.into_iter().filter(|class| self.channel(*class) == channel);
        let first = waiting.find(|class| self.is_waiting(*class))?;
        let behind = waiting.find(|class| self.is_waiting(*class));
        let share = &self.shares[channel as usize];
        let due = behind.filter(|class| {
            let next = self.classes[*class as usize].front();
            next.is_some_and(|next| next.bytes() <= share.due())
        });
        if behind.is_none() {
            self.shares[channel as usize].reset();
        }
        Some(due.unwrap_or(first))
    }

    /// Takes the next for a channel, if the driver has room for it.
    pub(crate) fn release(&mut self, now: Time, channel: Channel, unsent: usize) -> Option<Waiting> {
        if unsent >= self.mark(channel) || self.bytes_on(channel) == 0 {
            return None;
        }
        let class = self.next_class(channel)?;
        let mut next = self.classes[class as usize].pop_front();
        if next.is_none() && class == FrameClass::Urgent {
            next = self.urgent.pop(now);
        }
        let next = next?;
        let bytes = next.bytes();
        self.bytes[class as usize] -= bytes;
        self.on_channel[channel as usize] -= bytes;
        let is_first = FrameClass::ALL.into_iter().find(|first| self.channel(*first) == channel) == Some(class);
        let share = &mut self.shares[channel as usize];
        if is_first {
            share.record_ahead(bytes)
        } else {
            share.record_given(bytes)
        }
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
        core::array::from_fn(|class| {
            let urgent = if class == FrameClass::Urgent as usize { self.urgent.len() } else { 0 };
            Occupancy { frames: self.classes[class].len() + urgent, bytes: self.bytes[class] }
        })
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::HostId;

    use super::*;

    /// At any moment.
    const NOW: Time = Time::ZERO;

    fn queue(mark: usize) -> LinkQueue {
        LinkQueue::new(mark, NetFaults::default())
    }

    fn push(queue: &mut LinkQueue, class: FrameClass, byte: u8, len: usize) {
        queue.push(class, &vec![byte; len]);
    }

    fn first_byte(waiting: Option<Waiting>) -> Option<u8> {
        match waiting? {
            Waiting::Frame(frame) => Some(frame[0]),
            Waiting::Event(event) => Some(event.event[0]),
        }
    }

    #[test]
    fn a_frame_waits_behind_the_mark_and_behind_others_of_its_channel() {
        let mut queue = queue(100);
        assert!(queue.passes(Channel::Reliable, 99) && !queue.passes(Channel::Reliable, 100));
        push(&mut queue, FrameClass::Reliable, 1, 10);
        assert!(!queue.passes(Channel::Reliable, 0), "the order of a channel stays");
        assert!(queue.passes(Channel::Control, 0) && queue.passes(Channel::BestEffort, 0));
        assert_eq!(queue.bytes_on(Channel::Reliable), 10 + ENTRY_BYTES);
        assert_eq!(first_byte(queue.release(NOW, Channel::Reliable, 100)), None, "the driver has too much");
        assert_eq!(first_byte(queue.release(NOW, Channel::Reliable, 99)), Some(1));
        assert_eq!((queue.bytes_on(Channel::Reliable), queue.release(NOW, Channel::Reliable, 0).is_none()), (0, true));
    }

    #[test]
    fn on_the_urgent_channel_little_may_be_unsent() {
        let queue = queue(usize::MAX);
        assert!(queue.passes(Channel::Urgent, URGENT_MARK - 1) && !queue.passes(Channel::Urgent, URGENT_MARK));
        assert!(queue.passes(Channel::Reliable, 4 << 20));
    }

    #[test]
    fn classes_of_a_channel_are_released_in_their_order() {
        for has_urgent in [false, true] {
            let mut queue = queue(1);
            if has_urgent {
                queue.open_urgent();
            }
            let order = [
                (FrameClass::Bulk, 1),
                (FrameClass::BestEffort, 2),
                (FrameClass::Reliable, 3),
                (FrameClass::Urgent, 4),
            ];
            for (class, byte) in order {
                push(&mut queue, class, byte, 1);
            }
            assert_eq!(queue.bytes_on(Channel::Urgent) > 0, has_urgent);
            let mut released = Vec::new();
            for channel in Channel::ALL {
                released.extend(core::iter::from_fn(|| first_byte(queue.release(NOW, channel, 0))));
            }
            assert_eq!(released, [4, 3, 2, 1]);
            assert!(queue.occupancy().iter().all(|class| *class == Occupancy::default()));
        }
    }

    #[test]
    fn what_gives_way_has_its_share() {
        let mut queue = queue(1);
        let mut given = 0;
        for number in 0..10_000 {
            push(&mut queue, FrameClass::Urgent, 1, 100);
            if number % 2 == 0 {
                push(&mut queue, FrameClass::Reliable, 2, 100);
            }
            given += u32::from(first_byte(queue.release(NOW, Channel::Reliable, 0)) == Some(2));
        }
        assert!((540..=570).contains(&given), "{given} of 10,000");
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
            last_us: None,
            tree: [1, 2].into(),
            default_previous: Tick(0),
            event: [9].into(),
        };
        assert_eq!((event.age_us_at(at(1_000)), event.age_us_at(at(1_250))), (70, 320));
        assert_eq!([2_930, 2_931].map(|micros| event.is_late(at(micros))), [false, true]);
    }

    #[test]
    fn what_is_sent_without_admission_is_noticed() {
        let mut queue = queue(1);
        push(&mut queue, FrameClass::Control, 0, 2 * high_of(Channel::Control));
        assert!(queue.is_overrun(Channel::Control) && !queue.is_overrun(Channel::Reliable));
    }
}
