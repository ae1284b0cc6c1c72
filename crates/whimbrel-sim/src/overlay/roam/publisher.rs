//! Publishers that move between brokers, number their events, and repeat unacknowledged ones.

use std::collections::VecDeque;
use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::{Qos, UserProperty};
use whimbrel_event::Time;

use super::client::{Client, Role};
use super::deed::Deed;
use crate::overlay::client::{ORIGIN, TOPICS, VALID};
use crate::overlay::net::Fabric;
use crate::speech::{Message, Said};

/// Unacknowledged events of a publisher, at most.
const WINDOW: usize = 4;

/// The topic whose events are never logged in worlds with a volatile profile.
pub(super) const VOLATILE: &str = "v/x";

/// How a publisher behaves, and its state.
#[derive(Debug)]
pub(super) struct Trade {
    /// The mean time between two events.
    pub(super) pause: Duration,
    /// The mean time between two moves; `None`: it stays where it is.
    pub(super) moves: Option<Duration>,
    /// Whether it numbers its events (`w-seq`).
    pub(super) is_numbered: bool,
    /// Its session outlives its connection.
    pub(super) has_session: bool,
    /// How many of 1,000 events go to [`VOLATILE`].
    pub(super) volatile: u64,
    pub(super) qos: Qos,
    number: u64,
    /// Publishes that may have to be sent again: number, packet identifier, message.
    unanswered: VecDeque<(u64, u16, Message)>,
    leaves_at: Option<Time>,
}

impl Trade {
    /// One that has not started: numbered, QoS 1, without a session.
    pub(super) fn new(pause: Duration, moves: Option<Duration>) -> Trade {
        let (unanswered, leaves_at) = (VecDeque::new(), None);
        let (is_numbered, has_session, qos) = (true, false, Qos::AtLeastOnce);
        Trade { pause, moves, is_numbered, has_session, volatile: 0, qos, number: 0, unanswered, leaves_at }
    }
}

impl Client {
    /// Publishes an event, or moves to another broker.
    pub(super) fn trade(&mut self, net: &mut Fabric, calm: bool, deeds: &mut Vec<Deed>) {
        let Role::Publisher(trade) = &mut self.role else { return };
        let pause = trade.pause;
        self.wake = Some(net.now + self.random.exponential(pause) + Duration::from_micros(1));
        if let Some(mean) = trade.moves.filter(|_| !calm) {
            let drawn = net.now + self.random.exponential(mean);
            if *trade.leaves_at.get_or_insert(drawn) <= net.now {
                trade.leaves_at = None;
                self.leave(net, deeds);
                self.node = net.any_machine(&mut self.random);
                let is_quick = self.random.chance(600);
                let away = if is_quick { Duration::ZERO } else { self.random.span(Duration::from_millis(500)) };
                self.wake = Some(net.now + away);
                return;
            }
        }
        self.publish(net, deeds);
    }

    /// Publishes an event, unless [`WINDOW`] events are not acknowledged.
    pub(super) fn publish(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        let id = self.fresh_id();
        let is_welcome = self.is_welcome();
        let Role::Publisher(trade) = &mut self.role else { return };
        if !is_welcome || trade.unanswered.len() >= WINDOW {
            return;
        }
        trade.number += 1;
        let number = trade.number;
        let is_volatile = self.random.chance(trade.volatile);
        let topic = if is_volatile { VOLATILE } else { *self.random.pick(&TOPICS) };
        let property = |name: &str, value: &str| UserProperty::new(name, value).expect(VALID);
        let mut message = Message::new(topic, format!("~{}-{number}~ ", self.name).into_bytes());
        if trade.is_numbered {
            message = message.property(property("w-seq", &number.to_string()));
        }
        message = message.property(property("fuel", &self.random.below(100).to_string()));
        message = message.property(property("line", &self.random.below(12).to_string()));
        trade.unanswered.push_back((number, id, message.clone()));
        self.send(net, (number, id), message, deeds);
    }

    fn send(&mut self, net: &mut Fabric, (number, id): (u64, u16), message: Message, deeds: &mut Vec<Deed>) {
        let Role::Publisher(trade) = &self.role else { return };
        let origin = UserProperty::new(ORIGIN, &*net.nodes[self.node].name).expect(VALID);
        let message = message.property(origin).qos(trade.qos, id);
        deeds.push(Deed::Publishes { number, message: message.clone() });
        self.say(net, &Said::Publish(message));
    }

    /// Sends unacknowledged events again, if they are numbered: otherwise a broker cannot tell them
    /// from new ones.
    pub(super) fn repeat(&mut self, net: &mut Fabric, deeds: &mut Vec<Deed>) {
        let Role::Publisher(trade) = &mut self.role else { return };
        let mut unanswered = core::mem::take(&mut trade.unanswered);
        if !trade.is_numbered {
            return;
        }
        for (number, id, message) in &mut unanswered {
            *id = self.fresh_id();
            self.send(net, (*number, *id), message.clone(), deeds);
        }
        if let Role::Publisher(trade) = &mut self.role {
            // The answers come later.
            trade.unanswered = unanswered;
        }
    }

    /// A publish was answered.
    pub(super) fn accepted(&mut self, id: u16) {
        if let Role::Publisher(trade) = &mut self.role {
            trade.unanswered.retain(|(_, known, _)| *known != id);
        }
    }
}
