//! The client's part of a session, which outlives its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use whimbrel_mqtt::codec::{Ack, EncodeError, Packet, PacketId, QoS, Version};

use crate::Publish;

/// Publishes that are not acknowledged, and QoS 2 messages that have arrived and were not released.
/// Give it to the next connection of the same client id with [`crate::Options::session`].
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
    /// A subscription of the session has asked for event ids.
    named: bool,
    /// Identifiers of subscribes and unsubscribes that await their answer.
    reserved: BTreeSet<PacketId>,
    received: BTreeSet<PacketId>,
    last_id: u16,
    /// Number of the last connection that has begun: 1, 2, 3, …
    connection: u64,
    /// Number of the last connection for which the broker still had the session.
    found: u64,
}

impl Session {
    /// An empty session.
    pub fn new() -> Session {
        Session::default()
    }

    /// The number of publishes that the broker has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.with(|state| state.unacknowledged.len())
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // A poisoned lock means that another thread panicked in here, which leaves no half change.
        f(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl State {
    /// An identifier that is not in use. There are 65,535, and the receive maximum keeps the number
    /// of publishes below that.
    fn free_id(&mut self) -> PacketId {
        loop {
            self.last_id = self.last_id.wrapping_add(1).max(1);
            let id = PacketId::new(self.last_id).expect("at least 1");
            if !self.by_id.contains_key(&id) && !self.reserved.contains(&id) {
                return id;
            }
        }
    }

    /// Reserves an identifier for a subscribe or unsubscribe.
    pub(crate) fn reserve(&mut self) -> PacketId {
        let id = self.free_id();
        self.reserved.insert(id);
        id
    }

    /// A subscription asks for event ids: from now on, properties that look like the broker's are
    /// read as the broker's.
    pub(crate) fn ask_names(&mut self) {
        self.named = true;
    }

    /// Whether a subscription has asked for event ids.
    pub(crate) fn asks_names(&self) -> bool {
        self.named
    }

    pub(crate) fn give_back(&mut self, id: PacketId) {
        self.reserved.remove(&id);
    }

    /// Keeps a publish until it is acknowledged; returns its identifier and its number in the
    /// session.
    pub(crate) fn keep(&mut self, publish: Publish) -> (PacketId, u64) {
        let packet_id = self.free_id();
        self.published += 1;
        self.by_id.insert(packet_id, self.published);
        self.unacknowledged.insert(self.published, Unacknowledged { publish: Some(publish), packet_id });
        (packet_id, self.published)
    }

    /// Unacknowledged publishes in the order of publication: number and identifier.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (u64, PacketId)> {
        self.unacknowledged.iter().map(|(number, kept)| (*number, kept.packet_id))
    }

    /// Removes a finished publish; false if no publish has that identifier.
    pub(crate) fn settle(&mut self, id: PacketId) -> bool {
        self.by_id.remove(&id).and_then(|number| self.unacknowledged.remove(&number)).is_some()
    }

    /// Ends the first phase of a QoS 2 publish; false if no publish has that identifier.
    pub(crate) fn received_by_broker(&mut self, id: PacketId) -> bool {
        let kept = self.by_id.get(&id).and_then(|number| self.unacknowledged.get_mut(number));
        kept.is_some_and(|kept| {
            kept.publish = None;
            true
        })
    }

    /// Whether the application is to have a message of this connection: not if a later connection
    /// delivers it, nor, with QoS 2, if the application has had it.
    pub(crate) fn takes(&mut self, id: PacketId, qos: QoS, connection: u64) -> bool {
        let may_repeat = qos != QoS::ExactlyOnce || connection != self.connection;
        connection >= self.found && (may_repeat || self.received.insert(id))
    }

    pub(crate) fn release(&mut self, id: PacketId) {
        self.received.remove(&id);
    }

    /// The number of awaited acknowledgements.
    pub(crate) fn in_flight(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Begins a new connection: returns its number, and appends the packets to send again. If the
    /// broker has no longer the session, publishes are sent as new ones, and half finished QoS 2
    /// exchanges end.
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

/// Whether messages of that QoS are acknowledged.
pub(crate) fn is_acknowledged(qos: QoS) -> bool {
    qos != QoS::AtMostOnce
}
