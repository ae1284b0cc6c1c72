//! The state of one connection: what is to be written, and which answers are awaited.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore, oneshot};
use whimbrel_mqtt::codec::{
    Ack, DecodeError, Packet, PacketId, PacketType, Publish as PublishPacket, QoS, ReasonCode, Version, encode_ack,
};

use crate::{Answer, Error, Event, Message, Published, Session};

/// Bytes that may wait to be written; [`Shared::room`] waits while there are more.
pub(crate) const OUTBOUND_MAX: usize = 1 << 20;

/// An event that the application has not taken yet, with packet id and QoS if the broker awaits an
/// acknowledgement.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) event: Event,
    unacknowledged: Option<(PacketId, QoS)>,
}

impl From<Event> for Arrival {
    fn from(event: Event) -> Arrival {
        Arrival { event, unacknowledged: None }
    }
}

/// A call that waits for an answer.
#[derive(Debug)]
pub(crate) enum Waiter {
    Publish(oneshot::Sender<Result<Published, Error>>),
    /// A subscribe or unsubscribe.
    Codes(oneshot::Sender<Result<Answer, Error>>),
}

impl Waiter {
    fn fail(self, error: Error) {
        // The receiver is gone if the application has stopped waiting.
        match self {
            Waiter::Publish(waiter) => drop(waiter.send(Err(error))),
            Waiter::Codes(waiter) => drop(waiter.send(Err(error))),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) out: Vec<u8>,
    waiters: HashMap<PacketId, Waiter>,
    /// Topics by alias less one.
    aliases: Vec<Option<String>>,
    pub(crate) ping_outstanding: bool,
    /// Set when the connection is over: the reason.
    pub(crate) over: Option<Error>,
}

/// What the tasks of a connection and its [`crate::Client`] share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) version: Version,
    pub(crate) session: Session,
    /// This connection's number in its session.
    connection: u64,
    pub(crate) max_packet: u32,
    /// Signals bytes to write, or the end of the connection.
    pub(crate) work: Notify,
    /// Signals that bytes have been written.
    pub(crate) space: Notify,
    /// Permits for further unacknowledged publishes, within the broker's receive maximum.
    pub(crate) window: Semaphore,
}

impl Shared {
    /// `out`: the bytes to write first; `connection`: its number in the session.
    pub(crate) fn new(
        version: Version,
        session: Session,
        connection: u64,
        max_packet: u32,
        window: usize,
        out: Vec<u8>,
    ) -> Shared {
        Shared {
            state: Mutex::new(State { out, ..State::default() }),
            version,
            session,
            connection,
            max_packet,
            work: Notify::new(),
            space: Notify::new(),
            window: Semaphore::new(window),
        }
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // No code under this lock panics half way; a poisoned lock guards consistent state.
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the connection like its loss: bytes not yet written are dropped.
    pub(crate) fn abandon(&self) {
        self.with(|state| {
            state.over.get_or_insert(Error::Closed);
            state.out.clear();
        });
        self.end(Error::Closed);
    }

    /// Awaits the acknowledgement of a publish that is sent again.
    pub(crate) fn await_again(&self, id: PacketId) -> oneshot::Receiver<Result<Published, Error>> {
        let (sender, receiver) = oneshot::channel();
        self.with(|state| state.waiters.insert(id, Waiter::Publish(sender)));
        receiver
    }

    /// Appends a packet to the bytes to write.
    ///
    /// # Errors
    /// The connection is over, or the packet is too large for the broker.
    pub(crate) fn send(&self, packet: &Packet<'_>, waiter: Option<(PacketId, Waiter)>) -> Result<(), Error> {
        self.with(|state| {
            if let Some(over) = &state.over {
                return Err(over.clone());
            }
            packet.encode_within(self.version, self.max_packet as usize, &mut state.out)?;
            if let Some((id, waiter)) = waiter {
                state.waiters.insert(id, waiter);
            }
            Ok(())
        })?;
        self.work.notify_one();
        Ok(())
    }

    /// Waits until at most [`OUTBOUND_MAX`] bytes wait to be written.
    pub(crate) async fn room(&self) -> Result<(), Error> {
        loop {
            let space = self.space.notified();
            let full = self.with(|state| match &state.over {
                Some(over) => Err(over.clone()),
                None => Ok(state.out.len() > OUTBOUND_MAX),
            })?;
            if !full {
                return Ok(());
            }
            space.await;
        }
    }

    /// Ends the connection for every waiting call; the first reason stands.
    pub(crate) fn end(&self, reason: Error) {
        let waiters = self.with(|state| {
            if state.over.is_none() {
                state.over = Some(reason.clone());
            }
            std::mem::take(&mut state.waiters)
        });
        waiters.into_values().for_each(|waiter| waiter.fail(reason.clone()));
        self.window.close();
        self.work.notify_one();
        self.space.notify_waiters();
    }

    /// Handles a packet of the broker; a message is returned, for [`Shared::hand_out`].
    pub(crate) fn handle(&self, packet: Packet<'_>) -> Result<Option<Arrival>, Error> {
        match packet {
            Packet::Publish(publish) => return self.arrive(&publish).map(Some),
            Packet::PubAck(ack) | Packet::PubComp(ack) => self.settled(&ack),
            Packet::PubRec(ack) if ack.reason.is_error() => self.settled(&ack),
            Packet::PubRec(Ack { packet_id, .. }) => {
                if self.session.with(|session| session.received_by_broker(packet_id)) {
                    self.send(&Packet::PubRel(Ack::success(packet_id)), None)?;
                }
            }
            Packet::PubRel(Ack { packet_id, .. }) => {
                self.session.with(|session| session.release(packet_id));
                self.send(&Packet::PubComp(Ack::success(packet_id)), None)?;
            }
            Packet::SubAck(answer) | Packet::UnsubAck(answer) => {
                self.session.with(|session| session.give_back(answer.packet_id));
                if let Some(Waiter::Codes(waiter)) = self.with(|state| state.waiters.remove(&answer.packet_id)) {
                    drop(waiter.send(Ok(Answer::new(&answer))));
                }
            }
            Packet::PingResp => self.with(|state| state.ping_outstanding = false),
            Packet::Disconnect(disconnect) => {
                let text = disconnect.properties.reason_string.map(Into::into);
                return Err(Error::Ended { reason: disconnect.reason, text });
            }
            _ => return Err(Error::Protocol(violation("a packet that only clients send, or at another time"))),
        }
        Ok(None)
    }

    fn arrive(&self, publish: &PublishPacket<'_>) -> Result<Arrival, Error> {
        let topic = match publish.properties.topic_alias {
            None => publish.topic.to_owned(),
            Some(alias) => self.with(|state| state.resolve(usize::from(alias.get()), publish.topic))?,
        };
        let asks_names = self.session.with(|session| session.asks_names());
        let event = Event::Message(Message::new(publish, topic, asks_names));
        Ok(Arrival { event, unacknowledged: publish.packet_id.map(|id| (id, publish.qos)) })
    }

    /// Acknowledges an event that the application takes, and returns it unless another connection
    /// has given it or will. The broker keeps messages that are not taken for the session.
    pub(crate) fn hand_out(&self, arrival: Arrival) -> Option<Event> {
        let Arrival { event, unacknowledged } = arrival;
        let Some((id, qos)) = unacknowledged else { return Some(event) };
        let is_wanted = self.session.with(|session| session.takes(id, qos, self.connection));
        let kind = if qos == QoS::AtLeastOnce { PacketType::PubAck } else { PacketType::PubRec };
        self.with(|state| {
            if state.over.is_none() {
                encode_ack(kind, id, &mut state.out);
            }
        });
        self.work.notify_one();
        is_wanted.then_some(event)
    }

    fn settled(&self, ack: &Ack<'_>) {
        let waiter = self.with(|state| {
            // The waiting call was told that the connection is over, and relies on the session to
            // send the publish again.
            let is_known = state.over.is_none() && self.session.with(|session| session.settle(ack.packet_id));
            is_known.then(|| state.waiters.remove(&ack.packet_id))
        });
        let Some(waiter) = waiter else { return };
        self.window.add_permits(1);
        if let Some(Waiter::Publish(waiter)) = waiter {
            let reason = ack.reason;
            let text = ack.properties.reason_string.map(Into::into);
            // A broker that has finished a QoS 2 message and crashed before it could say so no
            // longer knows its identifier.
            let is_refused = reason.is_error() && reason != ReasonCode::PACKET_IDENTIFIER_NOT_FOUND;
            let result = if is_refused { Err(Error::Refused { reason, text }) } else { Ok(Published { reason }) };
            drop(waiter.send(result));
        }
    }
}

impl State {
    fn resolve(&mut self, alias: usize, topic: &str) -> Result<String, Error> {
        if self.aliases.len() < alias {
            self.aliases.resize(alias, None);
        }
        let slot = &mut self.aliases[alias - 1];
        if !topic.is_empty() {
            *slot = Some(topic.to_owned());
        }
        slot.clone().ok_or(Error::Protocol(violation("a topic alias stands for no topic")))
    }
}

const fn violation(cause: &'static str) -> DecodeError {
    DecodeError { reason: ReasonCode::PROTOCOL_ERROR, cause }
}
