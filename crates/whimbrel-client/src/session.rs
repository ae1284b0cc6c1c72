//! What outlives a connection on the client's side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use whimbrel_mqtt::codec::{Ack, EncodeError, Packet, PacketId, QoS, Version};

use crate::Publish;

/// What was published and not acknowledged, and which QoS 2 messages have arrived and not been
/// released. Give it to the next connection of the same client id with [`crate::Options::session`].
#[derive(Clone, Debug, Default)]
pub struct Session(Arc<Mutex<State>>);

/// One publish that the broker has not acknowledged.
#[derive(Debug)]
struct Unacknowledged {
    publish: Option<Publish>,
    packet_id: PacketId,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// In the order of publication. A publish whose first phase (QoS 2) is over has no message any
    /// more.
    unacknowledged: BTreeMap<u64, Unacknowledged>,
    by_id: BTreeMap<PacketId, u64>,
    published: u64,
    /// A subscription of it has asked for the names of events.
    named: bool,
    /// Of subscribes that await their answer.
    reserved: BTreeSet<PacketId>,
    received: BTreeSet<PacketId>,
    last_id: u16,
    /// The last connection that has begun: 1, 2, 3, …
    connection: u64,
    /// The last one for which the broker still had the session.
    found: u64,
}

impl Session {
    /// An empty session.
    pub fn new() -> Session {
        Session::default()
    }

    /// Publishes that the broker has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.with(|state| state.unacknowledged.len())
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // A poisoned lock means that another thread panicked in here, which changes nothing half.
        f(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl State {
    /// An identifier that nothing else has. There are 65,535, and the receive maximum keeps
    /// publishes below that.
    fn free_id(&mut self) -> PacketId {
        loop {
            self.last_id = self.last_id.wrapping_add(1).max(1);
            let id = PacketId::new(self.last_id).expect("at least 1");
            if !self.by_id.contains_key(&id) && !self.reserved.contains(&id) {
                return id;
            }
        }
    }

    /// An identifier for a subscribe or unsubscribe.
    pub(crate) fn reserve(&mut self) -> PacketId {
        let id = self.free_id();
        self.reserved.insert(id);
        id
    }

    /// A subscription asks for the names of events: what the broker says of a message, it says from
    /// now on.
    pub(crate) fn ask_names(&mut self) {
        self.named = true;
    }

    /// Whether one has.
    pub(crate) fn asks_names(&self) -> bool {
        self.named
    }

    pub(crate) fn give_back(&mut self, id: PacketId) {
        self.reserved.remove(&id);
    }

    /// Keeps a publish until it is acknowledged; gives its identifier and its number in the
    /// session.
    pub(crate) fn keep(&mut self, publish: Publish) -> (PacketId, u64) {
        let packet_id = self.free_id();
        self.published += 1;
        self.by_id.insert(packet_id, self.published);
        self.unacknowledged.insert(self.published, Unacknowledged { publish: Some(publish), packet_id });
        (packet_id, self.published)
    }

    /// What is not acknowledged, in the order of publication: number and identifier.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (u64, PacketId)> {
        self.unacknowledged.iter().map(|(number, kept)| (*number, kept.packet_id))
    }

    /// A publish is over; false if there was none of that identifier.
    pub(crate) fn settle(&mut self, id: PacketId) -> bool {
        self.by_id.remove(&id).and_then(|number| self.unacknowledged.remove(&number)).is_some()
    }

    /// The first phase of a QoS 2 publish is over; false if there was none of that identifier.
    pub(crate) fn received_by_broker(&mut self, id: PacketId) -> bool {
        let kept = self.by_id.get(&id).and_then(|number| self.unacknowledged.get_mut(number));
        kept.is_some_and(|kept| {
            kept.publish = None;
            true
        })
    }

    /// Whether the application is to have a message that came over a connection: not if it gets it
    /// over a later one, nor, with QoS 2, if it has had it.
    pub(crate) fn takes(&mut self, id: PacketId, qos: QoS, connection: u64) -> bool {
        let may_repeat = qos != QoS::ExactlyOnce || connection != self.connection;
        connection >= self.found && (may_repeat || self.received.insert(id))
    }

    pub(crate) fn release(&mut self, id: PacketId) {
        self.received.remove(&id);
    }

    /// How many acknowledgements are awaited.
    pub(crate) fn in_flight(&self) -> usize {
        self.unacknowledged.len()
    }

    /// A new connection begins: gives its number, and appends what is to be sent again. If the
    /// broker has forgotten the session, publishes go as new ones, and what was half done is over.
    pub(crate) fn resume(&mut self, present: bool, version: Version, out: &mut Vec<u8>) -> Result<u64, EncodeError> {
        self.reserved.clear();
        self.connection += 1;
        if present {
            self.found = self.connection;
        } else {
            self.received.clear();
            self.unacknowledged.retain(|_, kept| kept.publish.is_some());
            let unacknowledged = &self.unacknowledged;
            self.by_id.retain(|_, number| unacknowledged.contains_key(number));
        }
        for kept in self.unacknowledged.values() {
            match &kept.publish {
                Some(publish) => Packet::Publish(publish.packet(Some(kept.packet_id), present)).encode(version, out)?,
                None => Packet::PubRel(Ack::success(kept.packet_id)).encode(version, out)?,
            }
        }
        Ok(self.connection)
    }
}

/// Whether a message of that QoS is acknowledged.
pub(crate) fn is_acknowledged(qos: QoS) -> bool {
    qos != QoS::AtMostOnce
}
