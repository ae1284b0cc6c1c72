//! The driver of one direction of a link that has a rate: what it has not sent yet, and the order
//! in which that leaves.
//!
//! It does as the deployed driver does with a congestion controller that knows the path: control
//! leaves first, urgent events next, what gives way has its share, and the network is given about
//! as much as it carries within [`QUEUE`], so that the order of all else is still open.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_core::Channel;
use whimbrel_core::overlay::Share;

/// How long a frame may wait in the network because of what this broker has sent before it.
const QUEUE: Duration = Duration::from_millis(5);

/// Beyond that there is room for urgent events: a part of the window, one in this many, and
/// [`URGENT_MIN`] bytes.
const URGENT_ONE_IN: u32 = 4;

/// See [`URGENT_ONE_IN`].
const URGENT_MIN: f64 = 4096.0;

/// How long a frame may wait in the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    /// One with ordinary events or bulk.
    pub(super) ordinary: Duration,
    /// One with an urgent event.
    pub(super) urgent: Duration,
}

impl WaitLimits {
    /// Those of a link with this round trip and rate, bytes per second, whose queue loses what
    /// waits for longer than `queue`.
    pub(super) fn new(round: Duration, rate: f64, queue: Duration) -> WaitLimits {
        let beyond = (round + QUEUE) / URGENT_ONE_IN + Duration::from_secs_f64(URGENT_MIN / rate);
        WaitLimits { ordinary: QUEUE.min(queue), urgent: (QUEUE + beyond).min(queue) }
    }

    /// Those of a link without a rate.
    pub(super) const NONE: WaitLimits = WaitLimits { ordinary: Duration::MAX, urgent: Duration::MAX };
}

/// Whole frames that wait, by channel.
#[derive(Debug, Default)]
pub(super) struct LinkDriver {
    queues: [VecDeque<Vec<u8>>; Channel::STREAMS],
    bytes: [usize; Channel::STREAMS],
    /// The unsent bytes that the broker knows of.
    told: [usize; Channel::STREAMS],
    /// What is due to ordinary events beside urgent ones, and to best effort beside reliable
    /// events.
    shares: [Share; 2],
}

/// The streams of events in the order in which they are served.
const EVENTS: [Channel; 3] = [Channel::Urgent, Channel::Reliable, Channel::BestEffort];

impl LinkDriver {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.iter().all(|bytes| *bytes == 0)
    }

    pub(super) fn push(&mut self, channel: Channel, frame: &[u8]) {
        self.queues[channel as usize].push_back(frame.to_vec());
        self.bytes[channel as usize] += frame.len();
    }

    /// Unsent bytes of a channel, which count as told.
    pub(super) fn tell(&mut self, channel: Channel) -> usize {
        self.told[channel as usize] = self.bytes[channel as usize];
        self.bytes[channel as usize]
    }

    /// A channel of which the broker is to be told that fewer bytes are unsent, which count as
    /// told.
    pub(super) fn room(&mut self) -> Option<(Channel, usize)> {
        let is_due = |channel: &Channel| {
            let (told, little) = (self.told[*channel as usize], channel.little());
            told > little && self.bytes[*channel as usize] <= (told / 2).max(little)
        };
        let channel = Channel::ALL[..Channel::STREAMS].iter().copied().find(is_due)?;
        Some((channel, self.tell(channel)))
    }

    fn first_len(&self, channel: Channel) -> Option<usize> {
        self.queues[channel as usize].front().map(Vec::len)
    }

    /// Whether what gives way has to leave before what is ahead of it.
    fn is_due(&self, share: usize, channel: Channel) -> bool {
        self.first_len(channel).is_some_and(|len| len <= self.shares[share].due())
    }

    /// The channel whose first frame leaves next, if the network has room for it.
    fn next_channel(&self) -> Option<Channel> {
        let [urgent, reliable, best_effort] = EVENTS;
        let is_waiting = |channel: &Channel| self.first_len(*channel).is_some();
        if is_waiting(&Channel::Control) {
            return Some(Channel::Control);
        }
        let is_behind = is_waiting(&reliable) && self.is_due(1, best_effort);
        let ordinary = if is_behind { best_effort } else { reliable };
        let ordinary = [ordinary, best_effort].into_iter().find(is_waiting);
        if is_waiting(&urgent) && !ordinary.is_some_and(|channel| self.is_due(0, channel)) {
            return Some(urgent);
        }
        ordinary
    }

    /// How long the network may have frames that wait when it is given the next one; `None`: no
    /// frame waits.
    pub(super) fn limit(&self, limits: WaitLimits) -> Option<Duration> {
        let is_urgent = self.first_len(Channel::Urgent).is_some();
        Some(match self.next_channel()? {
            Channel::Control => Duration::MAX,
            _ if is_urgent => limits.urgent,
            _ => limits.ordinary,
        })
    }

    /// Takes the next frame, if the network has room for it: what it has waits for this long.
    pub(super) fn next(&mut self, wait: Duration, limits: WaitLimits) -> Option<(Channel, Vec<u8>)> {
        if wait > self.limit(limits)? {
            return None;
        }
        let channel = self.next_channel()?;
        let frame = self.queues[channel as usize].pop_front()?;
        self.bytes[channel as usize] -= frame.len();
        self.record(channel, frame.len());
        Some((channel, frame))
    }

    /// Counts a frame that leaves for the shares.
    fn record(&mut self, channel: Channel, len: usize) {
        let is_waiting = EVENTS.map(|channel| self.first_len(channel).is_some());
        let [ordinary, bulk] = &mut self.shares;
        match channel {
            Channel::Urgent => ordinary.record_ahead(len),
            Channel::Reliable => bulk.record_ahead(len),
            Channel::BestEffort => bulk.record_given(len),
            Channel::Control | Channel::Datagram => {}
        }
        if matches!(channel, Channel::Reliable | Channel::BestEffort) {
            ordinary.record_given(len);
        }
        if !is_waiting[1] && !is_waiting[2] {
            ordinary.reset();
        }
        if !is_waiting[2] {
            bulk.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WaitLimits = WaitLimits { ordinary: Duration::from_millis(5), urgent: Duration::from_millis(9) };

    fn next(driver: &mut LinkDriver, wait_ms: u64) -> Option<Channel> {
        driver.next(Duration::from_millis(wait_ms), LIMITS).map(|(channel, _)| channel)
    }

    #[test]
    fn control_leaves_at_once_and_urgent_frames_have_room_beyond_that_of_others() {
        let mut driver = LinkDriver::default();
        for channel in [Channel::BestEffort, Channel::Urgent, Channel::Control] {
            driver.push(channel, &[0; 100]);
        }
        assert_eq!(next(&mut driver, 1_000), Some(Channel::Control));
        assert_eq!((next(&mut driver, 10), next(&mut driver, 9)), (None, Some(Channel::Urgent)));
        assert_eq!((next(&mut driver, 6), next(&mut driver, 5)), (None, Some(Channel::BestEffort)));
        assert!(driver.is_empty() && driver.limit(LIMITS).is_none());
    }

    #[test]
    fn what_gives_way_has_its_share_and_room_is_told_once() {
        let mut driver = LinkDriver::default();
        for _ in 0..1_000 {
            driver.push(Channel::Urgent, &[0; 100]);
            driver.push(Channel::BestEffort, &[0; 100]);
        }
        assert_eq!((driver.tell(Channel::Urgent), driver.tell(Channel::BestEffort)), (100_000, 100_000));
        let bulk = (0..950).filter(|_| next(&mut driver, 0) == Some(Channel::BestEffort)).count();
        assert_eq!(bulk, 52, "one in eighteen");
        assert_eq!((driver.room(), driver.room()), (Some((Channel::Urgent, 10_200)), None));
        while next(&mut driver, 0).is_some() {}
        assert_eq!((driver.room(), driver.room()), (Some((Channel::Urgent, 0)), Some((Channel::BestEffort, 0))));
        assert_eq!(driver.room(), None);
    }
}
