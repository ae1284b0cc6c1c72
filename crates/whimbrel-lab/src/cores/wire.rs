//! A link between two brokers: its truth, which changes by a schedule, and what that makes of
//! packets.
//!
//! Each input of the driver is one packet. A lost datagram is gone. A packet of a stream is sent
//! again, as QUIC does (RFC 9002): after a probe timeout that doubles at each try, until the link
//! carries it; a packet that is lost behind it on its channel follows when the other end's
//! acknowledgement of that try is back. A channel delivers in order, and the channels do not hold
//! each other up. Where a direction has a rate, streams wait in its [`driver`](super::driver) for a
//! place in the network's queue, and datagrams that find the queue full are lost.

use std::time::Duration;

use whimbrel_core::{Channel, PeerLink};
use whimbrel_event::Time;
use whimbrel_sim::random::Random;

use super::driver::{LinkDriver, WaitLimits};

/// The delay of an acknowledgement that a probe timeout allows for (RFC 9000, section 18.2).
const ACK_DELAY: Duration = Duration::from_millis(25);

/// Tries of one packet, at most: the probe timeout has doubled to more than any outage lasts.
const TRIES_MAX: u32 = 20;

/// Random shares are drawn in this many steps.
const STEPS: u64 = 1 << 20;

/// The truth of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WayTruth {
    /// The delay.
    pub delay: Duration,
    /// By how much the delay of a packet differs at most, as a share of it.
    pub noise: f64,
    /// The share of packets that is lost; 1: a black hole.
    pub loss: f64,
    /// The rate of the link; `None`: without a limit.
    pub rate: Option<NarrowLink>,
}

/// The rate of one direction of a link, with a queue in front of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NarrowLink {
    /// Bytes per second.
    pub bytes: f64,
    /// The longest time that a packet waits in the queue; one that would wait longer is lost.
    pub queue: Duration,
}

impl WayTruth {
    /// A fixed delay, without loss.
    pub const fn steady(delay: Duration) -> WayTruth {
        WayTruth { delay, noise: 0.0, loss: 0.0, rate: None }
    }

    /// Whether it carries any packets.
    pub fn carries(&self) -> bool {
        self.loss < 1.0
    }
}

/// The truth of one direction of a link over time: what holds from each moment on, in order. The
/// first one holds before it, too.
#[derive(Clone, Debug, PartialEq)]
pub struct WayCourse(pub Vec<(Time, WayTruth)>);

impl WayCourse {
    /// The truth at a moment.
    pub fn at(&self, now: Time) -> &WayTruth {
        let next = self.0.partition_point(|(from, _)| *from <= now);
        &self.0[next.saturating_sub(1)].1
    }
}

/// The packets of one channel in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct ChannelFlow {
    /// When the last packet arrives.
    arrives: Time,
    /// When the last packet that was tried by probe timeouts is sent with success.
    mended: Time,
}

/// One direction of a link.
#[derive(Debug)]
struct Direction {
    course: WayCourse,
    flows: [ChannelFlow; Channel::ALL.len()],
    /// Until when its rate is used up.
    busy: Time,
    /// Frames of streams that wait, while it has a rate.
    driver: LinkDriver,
    /// Frames that have left.
    departed: Vec<Departed>,
    /// When the driver is looked at next.
    looks: Option<Time>,
    /// Bytes that have left the driver, by channel.
    served: [u64; Channel::STREAMS],
    /// All that the network was given.
    sent: PacketSums,
    random: Random,
}

/// Packets, and the bytes in them without what QUIC puts around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketSums {
    /// Packets, each try of one that is repeated included.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl PacketSums {
    /// Adds others.
    pub fn add(&mut self, other: PacketSums) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// A frame of a stream that has left a driver.
#[derive(Debug)]
pub struct Departed {
    /// The channel.
    pub channel: Channel,
    /// The frame.
    pub frame: Vec<u8>,
    /// When it arrives at the other end.
    pub arrives: Time,
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
struct LeavingPacket {
    channel: Channel,
    /// When the network was given it, and when its last byte leaves.
    given: Time,
    sent: Time,
    bytes: usize,
    is_lost: bool,
}

impl Direction {
    /// A share from 0 to 1.
    fn share(&mut self) -> f64 {
        self.random.below(STEPS) as f64 / STEPS as f64
    }

    /// Whether a packet that is sent at a moment is lost.
    fn loses(&mut self, at: Time) -> bool {
        let loss = self.course.at(at).loss;
        loss >= 1.0 || loss > 0.0 && self.share() < loss
    }

    /// The delay of a packet that is sent at a moment.
    fn delay(&mut self, at: Time) -> Duration {
        let WayTruth { delay, noise, .. } = *self.course.at(at);
        if noise == 0.0 { delay } else { delay.mul_f64(1.0 - noise + 2.0 * noise * self.share()) }
    }

    /// How long a packet takes to leave; `None` if the queue is full.
    fn leave(&mut self, at: Time, bytes: usize) -> Option<Duration> {
        let Some(NarrowLink { bytes: rate, queue }) = self.course.at(at).rate else { return Some(Duration::ZERO) };
        let waits = self.busy.since(at);
        if waits > queue {
            return None;
        }
        let leaves = waits + Duration::from_secs_f64(bytes as f64 / rate);
        self.busy = at + leaves;
        Some(leaves)
    }

    /// When a packet arrives; `None`: never. `round`: the round trip.
    fn arrival(&mut self, packet: LeavingPacket, round: Duration) -> Option<Time> {
        let LeavingPacket { channel, given, sent, bytes, is_lost } = packet;
        self.sent.add(PacketSums { packets: 1, bytes: bytes as u64 });
        if channel == Channel::Datagram {
            return (!is_lost).then(|| sent + self.delay(given));
        }
        let flow = self.flows[channel as usize];
        let sent = if is_lost { self.mend(flow, packet, round)? } else { sent };
        let arrives = flow.arrives.max(sent + self.delay(sent));
        // What follows the packet that is being tried is sent again together.
        let mended = if is_lost && flow.mended <= given { sent } else { flow.mended };
        self.flows[channel as usize] = ChannelFlow { arrives, mended };
        Some(arrives)
    }

    fn limits(&self, now: Time, round: Duration) -> WaitLimits {
        let rate = self.course.at(now).rate;
        rate.map_or(WaitLimits::NONE, |NarrowLink { bytes, queue }| WaitLimits::new(round, bytes, queue))
    }

    /// Gives the network what it has room for.
    fn serve(&mut self, now: Time, round: Duration) {
        let limits = self.limits(now, round);
        while let Some((channel, frame)) = self.driver.next(self.busy.since(now), limits) {
            if let Some(NarrowLink { bytes, .. }) = self.course.at(now).rate {
                self.busy = self.busy.max(now) + Duration::from_secs_f64(frame.len() as f64 / bytes);
            }
            self.served[channel as usize] += frame.len() as u64;
            let (sent, bytes, is_lost) = (self.busy.max(now), frame.len(), self.loses(now));
            let packet = LeavingPacket { channel, given: now, sent, bytes, is_lost };
            let arrival = self.arrival(packet, round);
            self.departed.extend(arrival.map(|arrives| Departed { channel, frame, arrives }));
        }
    }
}

/// A connection between two brokers.
#[derive(Debug)]
pub struct Wire {
    /// The brokers, and their names for the connection. The first one has dialled it.
    pub ends: [(usize, PeerLink); 2],
    /// Whether there is a connection.
    pub is_up: bool,
    /// Whether the wire is cut: everything sent over it is lost, and neither end is told.
    pub is_cut: bool,
    /// Whether a connection that has ended is dialled again.
    pub is_redialled: bool,
    sides: [Direction; 2],
}

impl Wire {
    /// A wire without a connection, with the truth of both directions, from the first end and from
    /// the second one.
    pub fn new(ends: [(usize, PeerLink); 2], courses: [WayCourse; 2], is_redialled: bool, seed: u64) -> Wire {
        let mut random = Random::new(seed);
        let sides = courses.map(|course| Direction {
            course,
            flows: Default::default(),
            busy: Time::ZERO,
            driver: LinkDriver::default(),
            departed: Vec::new(),
            looks: None,
            served: [0; Channel::STREAMS],
            sent: PacketSums::default(),
            random: random.fork(),
        });
        Wire { ends, is_up: false, is_cut: false, is_redialled, sides }
    }

    /// A new connection under these names: nothing of the old one arrives any more.
    pub fn renew(&mut self, ends: [(usize, PeerLink); 2]) {
        (self.ends, self.is_up, self.is_cut) = (ends, true, false);
        for side in &mut self.sides {
            (side.flows, side.driver, side.looks) = (Default::default(), LinkDriver::default(), None);
            side.departed.clear();
        }
    }

    /// The side of a broker.
    pub fn side_of(&self, node: usize) -> usize {
        usize::from(self.ends[0].0 != node)
    }

    /// The present delay from a side.
    pub fn delay(&self, side: usize, now: Time) -> Duration {
        self.sides[side].course.at(now).delay
    }

    /// Whether a handshake that begins now succeeds: one packet each way.
    pub fn is_answered(&mut self, now: Time) -> bool {
        !self.is_cut && !self.sides.iter_mut().any(|side| side.loses(now))
    }

    /// When a packet of a side arrives at the other end; `None`: never.
    pub fn carry(&mut self, side: usize, now: Time, packet: Parcel) -> Option<Time> {
        if self.is_cut {
            return None;
        }
        let round = self.round(now);
        let own = &mut self.sides[side];
        let left = own.leave(now, packet.bytes);
        let is_lost = left.is_none() || own.loses(now);
        let sent = now + left.unwrap_or_default();
        let Parcel { channel, bytes } = packet;
        own.arrival(LeavingPacket { channel, given: now, sent, bytes, is_lost }, round)
    }

    /// The present round trip.
    fn round(&self, now: Time) -> Duration {
        self.delay(0, now) + self.delay(1, now)
    }

    /// Whether streams of a side go through its driver.
    pub fn has_driver(&self, side: usize, now: Time) -> bool {
        let Direction { course, driver, .. } = &self.sides[side];
        course.at(now).rate.is_some() || !driver.is_empty()
    }

    /// Gives the driver of a side a frame of a stream. Returns the channel's unsent bytes.
    pub fn give(&mut self, side: usize, now: Time, channel: Channel, frame: &[u8]) -> usize {
        if self.is_cut {
            return 0;
        }
        let round = self.round(now);
        let own = &mut self.sides[side];
        own.driver.push(channel, frame);
        own.serve(now, round);
        own.driver.tell(channel)
    }

    /// Has the driver of a side give the network what it has room for. Returns all that has left
    /// since the last call.
    pub fn serve(&mut self, side: usize, now: Time) -> Vec<Departed> {
        let round = self.round(now);
        let own = &mut self.sides[side];
        own.serve(now, round);
        core::mem::take(&mut own.departed)
    }

    /// Bytes that have left the driver of a side, by channel.
    pub fn served(&self, side: usize) -> [u64; Channel::STREAMS] {
        self.sides[side].served
    }

    /// All that a side has given to the network.
    pub fn sent(&self, side: usize) -> PacketSums {
        self.sides[side].sent
    }

    /// A channel of a side of which its broker is to be told that fewer bytes are unsent.
    pub fn room(&mut self, side: usize) -> Option<(Channel, usize)> {
        self.sides[side].driver.room()
    }

    /// When the driver of a side is to be served next, unless that is known already: when the
    /// network has room again.
    pub fn look_later(&mut self, side: usize, now: Time) -> Option<Time> {
        let round = self.round(now);
        let own = &mut self.sides[side];
        let limit = own.driver.limit(own.limits(now, round))?;
        let at = now + self.sides[side].busy.since(now).saturating_sub(limit);
        let is_new = self.sides[side].looks.is_none_or(|known| at < known || known <= now);
        is_new.then(|| {
            self.sides[side].looks = Some(at);
            at
        })
    }
}

/// Bytes that are sent in one go.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    /// The channel.
    pub channel: Channel,
    /// Their number.
    pub bytes: usize,
}

impl Direction {
    /// When a lost packet is sent again with success; `None`: not within [`TRIES_MAX`]. `round`:
    /// the round trip.
    fn mend(&mut self, flow: ChannelFlow, packet: LeavingPacket, round: Duration) -> Option<Time> {
        let LeavingPacket { given: now, bytes, .. } = packet;
        // An earlier packet is being tried already: this one goes when that is acknowledged.
        let (mut at, mut pause) = match flow.mended > now {
            true => (flow.mended + round, round + ACK_DELAY),
            false => (now + round + ACK_DELAY, 2 * (round + ACK_DELAY)),
        };
        for _ in 0..TRIES_MAX {
            self.sent.add(PacketSums { packets: 1, bytes: bytes as u64 });
            if !self.loses(at) {
                return Some(at);
            }
            at = at + pause;
            pause *= 2;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::START;

    const MILLI: Duration = Duration::from_millis(1);

    fn wire(courses: [WayCourse; 2]) -> Wire {
        let mut wire = Wire::new([(0, PeerLink(1)), (1, PeerLink(2))], courses, true, 7);
        wire.renew(wire.ends);
        wire
    }

    fn steady(millis: u32) -> WayCourse {
        WayCourse(vec![(START, WayTruth::steady(millis * MILLI))])
    }

    fn packet(channel: Channel) -> Parcel {
        Parcel { channel, bytes: 100 }
    }

    fn carried(wire: &mut Wire, at: Time, channel: Channel) -> Option<Duration> {
        wire.carry(0, at, packet(channel)).map(|arrives| arrives.since(START))
    }

    #[test]
    fn each_direction_has_its_own_delay_and_packets_of_a_channel_do_not_overtake() {
        let step = vec![(START, WayTruth::steady(100 * MILLI)), (START + 10 * MILLI, WayTruth::steady(5 * MILLI))];
        let mut wire = wire([WayCourse(step), steady(3)]);
        assert_eq!(wire.carry(1, START, packet(Channel::Control)), Some(START + 3 * MILLI));
        assert_eq!(carried(&mut wire, START, Channel::Reliable), Some(100 * MILLI));
        assert_eq!(carried(&mut wire, START + 10 * MILLI, Channel::Reliable), Some(100 * MILLI));
        for channel in [Channel::BestEffort, Channel::Datagram] {
            assert_eq!(carried(&mut wire, START + 10 * MILLI, channel), Some(15 * MILLI), "{channel:?}");
        }
    }

    #[test]
    fn a_black_hole_takes_datagrams_and_holds_up_streams_until_a_probe_timeout_behind_it() {
        let hole = WayTruth { loss: 1.0, ..WayTruth::steady(10 * MILLI) };
        let course = vec![(START, hole), (START + 200 * MILLI, WayTruth::steady(10 * MILLI))];
        let mut wire = wire([WayCourse(course), steady(10)]);
        assert_eq!(carried(&mut wire, START, Channel::Datagram), None);
        // Tries at 45, 135 and 315 ms.
        assert_eq!(carried(&mut wire, START, Channel::Reliable), Some(325 * MILLI));
        // The next one, when the acknowledgement is back.
        assert_eq!(carried(&mut wire, START + 50 * MILLI, Channel::Reliable), Some(345 * MILLI));
        assert_eq!(carried(&mut wire, START + 250 * MILLI, Channel::Reliable), Some(345 * MILLI));
        assert_eq!(carried(&mut wire, START + 250 * MILLI, Channel::Control), Some(260 * MILLI));
        assert!(wire.is_answered(START + 250 * MILLI) && !wire.is_answered(START));
        wire.is_cut = true;
        assert_eq!(carried(&mut wire, START + 400 * MILLI, Channel::Control), None);
    }

    #[test]
    fn packets_are_lost_and_delayed_as_often_as_the_link_says_and_the_same_with_one_seed() {
        let way = WayTruth { loss: 0.2, noise: 0.2, ..WayTruth::steady(10 * MILLI) };
        let play = || {
            let mut wire = wire([WayCourse(vec![(START, way)]), steady(10)]);
            (0..10_000).map(|_| carried(&mut wire, START, Channel::Datagram)).collect::<Vec<_>>()
        };
        let delays = play();
        assert_eq!(delays, play());
        let arrived: Vec<Duration> = delays.iter().flatten().copied().collect();
        assert!((7_800..8_200).contains(&arrived.len()), "{} of 10,000", arrived.len());
        assert!(arrived.iter().all(|delay| (8 * MILLI..=12 * MILLI).contains(delay)));
        let mean = arrived.iter().sum::<Duration>() / arrived.len() as u32;
        assert!(mean.abs_diff(10 * MILLI) < MILLI / 10, "{mean:?}");
    }

    #[test]
    fn what_a_stream_repeats_is_counted_and_a_datagram_is_sent_once() {
        let hole = WayTruth { loss: 1.0, ..WayTruth::steady(10 * MILLI) };
        let course = vec![(START, hole), (START + 200 * MILLI, WayTruth::steady(10 * MILLI))];
        let mut wire = wire([WayCourse(course), steady(10)]);
        carried(&mut wire, START, Channel::Datagram);
        assert_eq!(wire.sent(0), PacketSums { packets: 1, bytes: 100 });
        // Tries at 0, 45, 135 and 315 ms.
        carried(&mut wire, START, Channel::Reliable);
        assert_eq!(wire.sent(0), PacketSums { packets: 5, bytes: 500 });
        assert_eq!(wire.sent(1), PacketSums::default());
    }

    #[test]
    fn random_loss_delays_a_stream_by_some_round_trips_and_does_not_pile_up() {
        let way = WayTruth { loss: 0.3, ..WayTruth::steady(10 * MILLI) };
        let mut wire = wire([WayCourse(vec![(START, way)]), steady(10)]);
        let mut late = 0;
        for number in 0..1_000 {
            let sent = START + 10 * MILLI * number;
            let arrives = wire.carry(0, sent, packet(Channel::BestEffort)).expect("a stream loses nothing");
            let delay = arrives.since(sent);
            assert!(delay < Duration::from_secs(10), "{delay:?} at {number}");
            late += u32::from(delay > 300 * MILLI);
        }
        assert!(late < 300, "{late} of 1,000 take more than 300 ms");
    }

    #[test]
    fn a_narrow_link_queues_packets_up_to_its_bound() {
        let rate = Some(NarrowLink { bytes: 100_000.0, queue: 2 * MILLI });
        let mut wire = wire([WayCourse(vec![(START, WayTruth { rate, ..WayTruth::steady(10 * MILLI) })]), steady(10)]);
        // Each packet takes 1 ms.
        let times: Vec<_> = (0..5).map(|_| carried(&mut wire, START, Channel::Datagram)).collect();
        assert_eq!(times, [Some(11 * MILLI), Some(12 * MILLI), Some(13 * MILLI), None, None]);
        assert_eq!(carried(&mut wire, START + 3 * MILLI, Channel::Datagram), Some(14 * MILLI));
    }

    #[test]
    fn streams_wait_in_the_driver_of_a_narrow_link_and_the_broker_is_told() {
        let rate = Some(NarrowLink { bytes: 100_000.0, queue: 100 * MILLI });
        let course = WayCourse(vec![(START, WayTruth { rate, ..WayTruth::steady(10 * MILLI) })]);
        let mut wire = wire([course, steady(10)]);
        assert!(wire.has_driver(0, START) && !wire.has_driver(1, START));
        // Each frame takes 10 ms; the network takes what waits for at most 5 ms.
        let unsent: Vec<usize> = (0..3).map(|_| wire.give(0, START, Channel::Reliable, &[0; 1_000])).collect();
        assert_eq!(unsent, [0, 1_000, 2_000]);
        let arrived = |wire: &mut Wire, at| -> Vec<Time> {
            wire.serve(0, at).into_iter().map(|departed| departed.arrives).collect()
        };
        assert_eq!(arrived(&mut wire, START), [START + 20 * MILLI]);
        let look = wire.look_later(0, START).expect("frames wait");
        assert_eq!((look, wire.look_later(0, START)), (START + 5 * MILLI, None));
        assert_eq!(arrived(&mut wire, look), [START + 30 * MILLI]);
        // An urgent frame goes ahead, and has room beyond that of others.
        assert_eq!(wire.give(0, look, Channel::Urgent, &[0; 100]), 0);
        assert_eq!(arrived(&mut wire, look), [START + 31 * MILLI]);
        assert_eq!(wire.give(0, look, Channel::Urgent, &[0; 100_000]), 0);
        assert_eq!(wire.give(0, look, Channel::Urgent, &[0; 100]), 100);
        assert_eq!(wire.room(0), None);
        arrived(&mut wire, START + 2_000 * MILLI);
        assert_eq!((wire.room(0), wire.room(0)), (Some((Channel::Urgent, 0)), None));
    }
}
