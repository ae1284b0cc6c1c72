//! The link between the brokers and their clients: perfect, or shared by all subscribers.

use whimbrel_core::{
    Accepted, Delivery, Granted, Kick, Link, LinkOutput, NOTICE_TOPIC, Naming, Output, Refusal, Segment, Sent, Tell,
};
use whimbrel_event::{EventId, PubendId, Tick, Time};
use whimbrel_sim::access::{Access, Member};
use whimbrel_sim::link::Arrival;

use super::subscriber::{Published, Subscriber};
use crate::cores::Clients;

/// Bytes at the start of a simulated packet that identify it: a notice, or the tick of an event.
const LABEL_BYTES: usize = 8;

/// The link that all subscribers share, and its present members.
#[derive(Debug)]
pub struct Shared {
    /// The link.
    pub access: Access,
    /// By subscriber.
    pub members: Vec<Option<Member>>,
    /// By subscriber: whether its broker has been told to wait.
    pub full: Vec<bool>,
}

/// The brokers' clients: subscribers, by number of the link, and a publisher at the broker
/// [`HOME`].
pub struct Radio {
    /// The present time, and the broker that is acting.
    now: Time,
    node: usize,
    /// The only stream, once something was published.
    pub pubend: PubendId,
    /// By number of the link.
    pub subscribers: Vec<Subscriber>,
    /// All events that were published, by class.
    pub logs: Vec<Vec<Published>>,
    /// The shared link; `None`: packets arrive at once.
    pub shared: Option<Shared>,
    /// The tick of the last event that was published.
    pub published: Option<Tick>,
}

/// The publisher's broker.
pub const HOME: usize = 0;

impl Radio {
    /// Subscribers to a number of classes; nothing was published.
    pub fn new(subscribers: Vec<Subscriber>, classes: usize, shared: Option<Shared>) -> Radio {
        let (logs, now) = (vec![Vec::new(); classes], Time::ZERO);
        Radio { now, node: HOME, pubend: PubendId(0), subscribers, logs, shared, published: None }
    }
}

impl Clients for Radio {
    fn at(&mut self, now: Time, node: usize) {
        (self.now, self.node) = (now, node);
    }
}

impl LinkOutput for Radio {}

impl Output for Radio {
    fn attached(&mut self, _: Link, _: bool) {}

    fn refused(&mut self, link: Link, why: Refusal) {
        panic!("client {} of broker {} was refused: {why:?}", link.0, self.node);
    }

    fn kicked(&mut self, link: Link, why: Kick) {
        panic!("client {} of broker {} was thrown out: {why:?}", link.0, self.node);
    }

    fn subscribed(&mut self, link: Link, _: u16, results: &[Result<Granted, Refusal>], _: &[Box<str>]) {
        match results {
            [Ok(granted)] => {
                if let Some(token) = &granted.begins {
                    self.subscribers[link.0 as usize].token = Some(token.clone());
                }
            }
            other => panic!("subscriber {} asked for one subscription and was told {other:?}", link.0),
        }
    }

    fn unsubscribed(&mut self, _: Link, _: u16, _: &[bool]) {}

    fn accepted(&mut self, _: Link, _: u16, _: whimbrel_event::Qos, result: Accepted) {
        assert!(matches!(result, Accepted::Routed { .. }), "an event was not accepted: {result:?}");
    }

    fn completed(&mut self, _: Link, _: u16, _: bool) {}

    fn release(&mut self, _: Link, _: u16, _: bool) {}

    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        let index = link.0 as usize;
        let Some(shared) = &mut self.shared else {
            let subscriber = &mut self.subscribers[index];
            if delivery.accepted.event.topic == NOTICE_TOPIC {
                subscriber
                    .notice(delivery.accepted.event.payload, self.pubend)
                    .expect("the broker's notices can be read");
            } else {
                subscriber.receive(delivery.accepted.id, &self.logs[subscriber.class]);
            }
            return Sent::Open;
        };
        let (length, name) = packet(delivery);
        let tally = &mut self.subscribers[index].tally;
        tally.packets += 1;
        tally.bytes += length as u64;
        tally.name_bytes += name as u64;
        let member = shared.members[index].expect("only those who are there are delivered to");
        shared.access.push(self.now, member, Arrival::Bytes(bytes(delivery, length)));
        shared.full[index] = !shared.access.has_room(member);
        if shared.full[index] { Sent::Full } else { Sent::Open }
    }

    fn knowledge(&mut self, segment: &Segment<'_>) {
        if self.node == HOME && matches!(segment.what, Tell::Data(_)) {
            (self.pubend, self.published) = (segment.pubend, Some(segment.upto));
        }
    }
}

/// The simulated bytes of a packet: its label, and the rest of its length. A notice is kept whole.
fn bytes(delivery: &Delivery<'_>, length: usize) -> Vec<u8> {
    let notice = delivery.accepted.event.topic == NOTICE_TOPIC;
    let mut bytes = if notice { 0 } else { delivery.accepted.id.tick.0 }.to_be_bytes().to_vec();
    if notice {
        bytes.extend_from_slice(delivery.accepted.event.payload);
    }
    bytes.resize(length.max(bytes.len()), b' ');
    bytes
}

/// Passes a packet from the shared link to its subscriber.
pub fn arrived(bytes: &[u8], pubend: PubendId, subscriber: &mut Subscriber, logs: &[Vec<Published>]) {
    let (label, rest) = bytes.split_first_chunk::<LABEL_BYTES>().expect("packets are sent whole");
    match u64::from_be_bytes(*label) {
        0 => subscriber.notice(rest, pubend).expect("the broker's notices can be read"),
        tick => subscriber.receive(EventId { pubend, tick: Tick(tick) }, &logs[subscriber.class]),
    }
}

/// Bytes of the MQTT 5 PUBLISH that carries a delivery at QoS 0, and the bytes of it that name the
/// event.
fn packet(delivery: &Delivery<'_>) -> (usize, usize) {
    /// The identifier, and two lengths.
    const USER_PROPERTY: usize = 5;
    let name = if delivery.naming == Naming::Event {
        USER_PROPERTY + "w-id".len() + delivery.accepted.id.to_string().len()
    } else {
        0
    };
    let attributes = delivery.accepted.event.attributes.iter();
    let properties = name + attributes.map(|(key, value)| USER_PROPERTY + key.len() + value.len()).sum::<usize>();
    let rest = 2
        + delivery.accepted.event.topic.len()
        + number_bytes(properties)
        + properties
        + delivery.accepted.event.payload.len();
    (1 + number_bytes(rest) + rest, name)
}

/// The size of a variable byte integer, bytes.
fn number_bytes(number: usize) -> usize {
    if number < 128 { 1 } else { 1 + number_bytes(number / 128) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_lengths_of_the_specification() {
        assert_eq!([0, 127, 128, 16_383, 16_384].map(number_bytes), [1, 1, 2, 2, 3]);
    }
}
