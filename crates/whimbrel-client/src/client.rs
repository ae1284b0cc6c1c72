//! A connection to a broker, as applications use it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use whimbrel_event::CheckpointToken;
use whimbrel_mqtt::codec::{
    ConnAck, Connect, ConnectProperties, Disconnect, Filter, Filters, Packet, PacketId, QoS, ReasonCode, Subscribe,
    SubscribeProperties, Topics, Unsubscribe, UnsubscribeProperties, Version, Will as WillPacket, WillProperties,
    decode, frame,
};

use crate::message::ASK_NAMES;
use crate::protocol::{Arrival, Shared, Waiter};
use crate::session::is_acknowledged;
use crate::tap::Tapped;
use crate::transport::{self, Stream};
use crate::{Answer, Error, Event, Options, Publish, Published, Session, Subscription, task};

/// Capacity, in events, of the channel to the application. While it is full the connection is not
/// read.
const EVENTS_MAX: usize = 1024;

/// Further events that [`Events::during`] holds while the application waits for an answer.
const EARLY_MAX: usize = 65_536;

/// Bytes of payload that [`Events::during`] holds at most.
const EARLY_BYTES_MAX: usize = 64 << 20;

/// Topic on which a checkpoint token is acknowledged.
const ACKNOWLEDGE: &str = "$whimbrel/ack";

/// Unacknowledged publishes, unless the broker sets a smaller receive maximum.
const WINDOW_MAX: usize = 16_384;

/// A connection to a broker. Clones use the same connection; when the last is dropped without
/// [`Client::disconnect`], it is closed and the broker publishes the will.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    client_id: String,
    session_present: bool,
    timeout: Duration,
    /// Receipts of the publishes that this connection has repeated, until [`Client::resent`] takes
    /// them.
    resent: Mutex<Vec<Receipt>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end(Error::Closed);
    }
}

/// The events of a connection, in order. A message counts as received when it is taken from here. A
/// message that is not taken is not acknowledged: it stays in the session at the broker, which
/// meanwhile sends at most [`Options::receive_maximum`] messages of QoS 1 and 2. A message taken
/// after the connection has ended cannot be acknowledged, and may be delivered again on the next
/// one.
#[derive(Debug)]
pub struct Events {
    shared: Arc<Shared>,
    receiver: mpsc::Receiver<Arrival>,
    /// Events that arrived while the application waited for an answer, and the bytes of their
    /// payloads.
    early: VecDeque<Arrival>,
    early_bytes: usize,
}

impl Events {
    /// The next event; `None` after [`Event::Disconnected`]. Cancel safe: dropping the future loses
    /// no event.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let arrival = match self.take_early() {
                None => self.receiver.recv().await?,
                Some(arrival) => arrival,
            };
            if let Some(event) = self.shared.hand_out(arrival) {
                return Some(event);
            }
        }
    }

    /// The next event, if one has arrived already.
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            let arrival = self.take_early().or_else(|| self.receiver.try_recv().ok())?;
            if let Some(event) = self.shared.hand_out(arrival) {
                return Some(event);
            }
        }
    }

    fn take_early(&mut self) -> Option<Arrival> {
        let arrival = self.early.pop_front()?;
        self.early_bytes -= bytes_of(&arrival);
        Some(arrival)
    }

    /// Waits for an answer, such as that of [`Client::subscribe_to`], and keeps the events that
    /// arrive meanwhile for [`Events::next`]. Without it an application that only waits reads
    /// nothing, and behind 1,024 events no answer arrives; a broker may send what a subscription
    /// missed before it answers the subscribe. This call has room for 65,536 more events and 64 MiB
    /// of payloads; behind those no answer arrives either.
    pub async fn during<T>(&mut self, answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        loop {
            let has_room = self.early.len() < EARLY_MAX && self.early_bytes < EARLY_BYTES_MAX;
            tokio::select! {
                answer = &mut answer => return answer,
                Some(arrival) = self.receiver.recv(), if has_room => {
                    self.early_bytes += bytes_of(&arrival);
                    self.early.push_back(arrival);
                }
            }
        }
    }
}

fn bytes_of(arrival: &Arrival) -> usize {
    match &arrival.event {
        Event::Message(message) => message.payload.len(),
        Event::Disconnected { .. } => 0,
    }
}

/// A message that was sent ([`Client::send`]). Dropping the receipt changes nothing for the
/// message.
#[derive(Debug)]
#[must_use = "a refusal of the message is told here alone"]
pub struct Receipt {
    number: u64,
    answer: Option<oneshot::Receiver<Result<Published, Error>>>,
}

impl Receipt {
    /// The number of the message in its [`Session`]: 1, 2, 3, … in the order of publication; 0 with
    /// QoS 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Waits for the acknowledgement; returns at once with QoS 0. Cancel safe: to be called until
    /// it has returned once.
    ///
    /// # Errors
    /// The connection is over, or the broker refuses the message.
    pub async fn acknowledged(&mut self) -> Result<Published, Error> {
        let Some(receiver) = &mut self.answer else { return Ok(Published { reason: ReasonCode::SUCCESS }) };
        let result = receiver.await.unwrap_or(Err(Error::Closed));
        self.answer = None;
        result
    }
}

impl Client {
    /// Connects, and waits until the broker has accepted the connection.
    ///
    /// # Errors
    /// The broker cannot be reached, does not answer in time, or refuses the connection.
    pub async fn connect(options: Options) -> Result<(Client, Events), Error> {
        let limit = options.timeout;
        timeout(limit, Self::connect_now(options)).await.unwrap_or(Err(Error::Timeout))
    }

    async fn connect_now(options: Options) -> Result<(Client, Events), Error> {
        let mut stream = transport::open(&options).await?;
        if let Some(tap) = &options.tap {
            stream = Box::new(Tapped::new(stream, tap.clone()));
        }
        let mut hello = Vec::new();
        Packet::Connect(connect_packet(&options)).encode(options.version, &mut hello)?;
        task::write_pieces(&mut stream, &hello).await?;
        let mut bytes = Vec::new();
        let (welcome, used) = welcome(&mut stream, options.version, &mut bytes).await?;
        bytes.drain(..used);
        if options.has_names {
            options.session.with(|session| session.ask_names());
        }
        let in_flight = options.session.with(|session| session.in_flight());
        let window = welcome.window.saturating_sub(in_flight).max(1);
        let mut out = Vec::new();
        let connection =
            options.session.with(|session| session.resume(welcome.session_present, options.version, &mut out))?;
        let (version, session) = (options.version, options.session.clone());
        let shared = Arc::new(Shared::new(version, session, connection, welcome.max_packet, window, out));
        let kept: Vec<(u64, PacketId)> = options.session.with(|session| session.kept().collect());
        let again = |(number, id)| Receipt { number, answer: Some(shared.await_again(id)) };
        let resent = Mutex::new(kept.into_iter().map(again).collect());
        shared.work.notify_one();
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let (read, write) = tokio::io::split(stream);
        tokio::spawn(task::read(shared.clone(), read, bytes, options.max_packet_size, sender));
        let keep_alive = welcome.keep_alive.unwrap_or(options.keep_alive);
        tokio::spawn(task::write(shared.clone(), write, keep_alive));
        let client_id = welcome.client_id.unwrap_or(options.client_id);
        let (session_present, timeout) = (welcome.session_present, options.timeout);
        let handle = Handle { shared, client_id, session_present, timeout, resent };
        let events = Events { shared: handle.shared.clone(), receiver, early: VecDeque::new(), early_bytes: 0 };
        Ok((Client { handle: Arc::new(handle) }, events))
    }

    /// The client id, which the broker may have chosen.
    pub fn client_id(&self) -> &str {
        &self.handle.client_id
    }

    /// Whether the broker still had the session.
    pub fn session_present(&self) -> bool {
        self.handle.session_present
    }

    /// The session, to be given to the next connection so that no publish is lost.
    pub fn session(&self) -> Session {
        self.handle.shared.session.clone()
    }

    /// Receipts of the publishes that this connection has sent again, because earlier connections
    /// of the session ended before the acknowledgement; in the order of publication. Each is given
    /// once. An application that needs no answers may leave them.
    pub fn resent(&self) -> Vec<Receipt> {
        // No code under this lock panics half way.
        std::mem::take(&mut self.handle.resent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Subscribes, and waits for the answer: one reason code per filter. A reason code that refuses
    /// a filter is not an error of the call.
    ///
    /// # Errors
    /// The connection is over, or no answer arrived in time.
    pub async fn subscribe(&self, filters: &[(&str, QoS)]) -> Result<Vec<ReasonCode>, Error> {
        let filters: Vec<Filter<'_>> = filters.iter().map(|(filter, qos)| Filter::new(filter, *qos)).collect();
        Ok(self.subscribe_with(&filters, None, &[]).await?.reasons)
    }

    /// Subscribes with all options: an identifier that the broker sends with each message, and user
    /// properties, such as `w-selector` with a condition on the messages that are wanted.
    ///
    /// # Errors
    /// The connection is over, or no answer arrived in time.
    pub async fn subscribe_with(
        &self,
        filters: &[Filter<'_>],
        subscription_id: Option<u32>,
        user: &[(&str, &str)],
    ) -> Result<Answer, Error> {
        let mut attributes = whimbrel_event::AttributesBuf::new();
        user.iter().for_each(|(name, value)| attributes.push(name, value));
        if user.iter().any(|(name, _)| ASK_NAMES.contains(name)) {
            self.handle.shared.session.with(|session| session.ask_names());
        }
        let properties = SubscribeProperties { subscription_id, user: attributes.as_attributes().into() };
        let packet_id = self.handle.shared.session.with(|session| session.reserve());
        let packet = Packet::Subscribe(Subscribe { packet_id, properties, filters: Filters::list(filters) });
        let (sender, receiver) = oneshot::channel();
        self.handle.shared.send(&packet, Some((packet_id, Waiter::Codes(sender))))?;
        self.answer(receiver).await
    }

    /// Subscribes with the extensions of Whimbrel's brokers, and waits for the answer. The answer
    /// may arrive behind messages that the broker has sent before it, among them messages of this
    /// subscription if it resumes. An application that takes nothing from [`Events`] meanwhile may
    /// not get the answer in time.
    ///
    /// # Errors
    /// The connection is over, or no answer arrived in time.
    pub async fn subscribe_to(&self, subscription: &Subscription) -> Result<Answer, Error> {
        let user = subscription.user();
        let user: Vec<(&str, &str)> = user.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.subscribe_with(&[subscription.as_filter()], subscription.identifier, &user).await
    }

    /// Tells the broker that a subscription's messages have been processed up to `token`
    /// ([`Subscription::acknowledged_by_token`]). The identifier selects the subscription where
    /// there are several. The answer arrives behind what the broker has sent before it: an
    /// application that takes nothing from [`Events`] meanwhile may not get it in time.
    /// Acknowledging the same token again does no harm.
    ///
    /// # Errors
    /// The connection is over, the broker refuses the token, or no answer arrived in time
    /// ([`Options::timeout`]).
    pub async fn acknowledge(&self, token: &CheckpointToken, subscription_id: Option<u32>) -> Result<Published, Error> {
        let mut message = Publish::new(ACKNOWLEDGE, token.to_string()).qos(QoS::AtLeastOnce);
        if let Some(identifier) = subscription_id {
            message = message.property("w-subscription", identifier.to_string());
        }
        timeout(self.handle.timeout, self.publish(message)).await.unwrap_or(Err(Error::Timeout))
    }

    /// Ends subscriptions, and waits for the answer.
    ///
    /// # Errors
    /// The connection is over, or no answer arrived in time.
    pub async fn unsubscribe(&self, filters: &[&str]) -> Result<Vec<ReasonCode>, Error> {
        let packet_id = self.handle.shared.session.with(|session| session.reserve());
        let properties = UnsubscribeProperties::default();
        let packet = Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters: Topics::list(filters) });
        let (sender, receiver) = oneshot::channel();
        self.handle.shared.send(&packet, Some((packet_id, Waiter::Codes(sender))))?;
        Ok(self.answer(receiver).await?.reasons)
    }

    /// Publishes. With QoS 1 and 2 it waits for the acknowledgement; with QoS 0 for room in the
    /// write buffer. The acknowledgement arrives behind what the broker has sent before it: an
    /// application that also subscribes on this connection has to take messages from [`Events`]
    /// meanwhile.
    ///
    /// # Errors
    /// The connection is over, the broker refuses the message, or it is too large. A QoS 1 or 2
    /// message whose connection ends while it awaits its acknowledgement stays in the [`Session`];
    /// a message whose connection was already over does not ([`Client::send`] tells the two apart).
    pub async fn publish(&self, publish: Publish) -> Result<Published, Error> {
        self.send(publish).await?.acknowledged().await
    }

    /// Publishes without waiting for the acknowledgement, only for room in the write buffer and in
    /// the broker's receive maximum. Messages of successive calls leave in the order of the calls,
    /// which concurrent calls of [`Client::publish`] do not guarantee.
    ///
    /// # Errors
    /// The connection is over, or the message is too large. In both cases no byte of it leaves, and
    /// the [`Session`] does not have it.
    pub async fn send(&self, publish: Publish) -> Result<Receipt, Error> {
        let shared = &self.handle.shared;
        shared.room().await?;
        if !is_acknowledged(publish.qos) {
            shared.send(&Packet::Publish(publish.packet(None, false)), None)?;
            return Ok(Receipt { number: 0, answer: None });
        }
        let Ok(permit) = shared.window.acquire().await else {
            return Err(shared.with(|state| state.over.clone()).unwrap_or(Error::Closed));
        };
        // The permit is added again with the acknowledgement.
        permit.forget();
        let (packet_id, number) = shared.session.with(|session| session.keep(publish.clone()));
        let (sender, receiver) = oneshot::channel();
        let packet = Packet::Publish(publish.packet(Some(packet_id), false));
        if let Err(error) = shared.send(&packet, Some((packet_id, Waiter::Publish(sender)))) {
            shared.session.with(|session| session.settle(packet_id));
            shared.window.add_permits(1);
            return Err(error);
        }
        Ok(Receipt { number, answer: Some(receiver) })
    }

    /// Sends DISCONNECT, so that the broker drops the will. Everything written before is sent
    /// first.
    pub async fn disconnect(&self) {
        let shared = &self.handle.shared;
        // A connection that is over needs no DISCONNECT.
        if shared.send(&Packet::Disconnect(Disconnect::new(ReasonCode::SUCCESS)), None).is_err() {
            return;
        }
        let written = async {
            loop {
                let space = shared.space.notified();
                if shared.with(|state| state.out.is_empty() || state.over.is_some()) {
                    return;
                }
                space.await;
            }
        };
        let _ = timeout(self.handle.timeout, written).await;
        shared.end(Error::Closed);
    }

    /// Breaks the connection off like a failure of the network: nothing that waits to be written is
    /// sent, acknowledgements included, and the broker publishes the will. [`Events`] still gives
    /// what has arrived.
    pub fn abandon(&self) {
        self.handle.shared.abandon();
    }

    async fn answer(&self, receiver: oneshot::Receiver<Result<Answer, Error>>) -> Result<Answer, Error> {
        match timeout(self.handle.timeout, receiver).await {
            Ok(answer) => answer.unwrap_or(Err(Error::Closed)),
            Err(_) => Err(Error::Timeout),
        }
    }
}

/// The contents of a CONNACK that the client uses.
struct Welcome {
    session_present: bool,
    window: usize,
    max_packet: u32,
    client_id: Option<String>,
    keep_alive: Option<Duration>,
}

/// Reads until CONNACK; returns it and its length in bytes.
async fn welcome(
    stream: &mut Box<dyn Stream>,
    version: Version,
    bytes: &mut Vec<u8>,
) -> Result<(Welcome, usize), Error> {
    loop {
        if let Some(other) = transport::other_protocol(bytes) {
            return Err(other);
        }
        if let Some(cut) = frame(bytes, 1 << 20)? {
            let Packet::ConnAck(ConnAck { session_present, reason, properties }) =
                decode(version, cut.first_byte, cut.body)?
            else {
                return Err(Error::Protocol(whimbrel_mqtt::codec::DecodeError {
                    reason: ReasonCode::PROTOCOL_ERROR,
                    cause: "the first packet is not CONNACK",
                }));
            };
            if reason.is_error() {
                return Err(Error::Refused { reason, text: properties.reason_string.map(Into::into) });
            }
            let welcome = Welcome {
                session_present,
                window: properties
                    .receive_maximum
                    .map_or(WINDOW_MAX, |window| usize::from(window.get()))
                    .min(WINDOW_MAX),
                max_packet: properties.maximum_packet_size.unwrap_or(u32::MAX),
                client_id: properties.assigned_client_id.map(Into::into),
                keep_alive: properties.server_keep_alive.map(|seconds| Duration::from_secs(seconds.into())),
            };
            return Ok((welcome, cut.whole.len()));
        }
        if stream.read_buf(bytes).await? == 0 {
            return Err(Error::Closed);
        }
    }
}

fn connect_packet(options: &Options) -> Connect<'_> {
    let will = options.will.as_ref().map(|will| {
        let message = &will.message;
        WillPacket {
            topic: &message.topic,
            payload: &message.payload,
            qos: message.qos,
            retain: message.retain,
            properties: WillProperties {
                delay: will.delay,
                message_expiry: message.expiry,
                content_type: message.content_type.as_deref(),
                response_topic: message.response_topic.as_deref(),
                correlation_data: message.correlation.as_deref(),
                user: message.properties.as_attributes().into(),
                ..WillProperties::default()
            },
        }
    });
    let properties = ConnectProperties {
        session_expiry: (options.session_expiry > 0).then_some(options.session_expiry),
        receive_maximum: core::num::NonZeroU16::new(options.receive_maximum),
        maximum_packet_size: Some(options.max_packet_size),
        topic_alias_maximum: Some(options.topic_alias_maximum),
        ..ConnectProperties::default()
    };
    Connect {
        version: options.version,
        bridge: false,
        clean_start: options.clean_start,
        keep_alive: u16::try_from(options.keep_alive.as_secs()).unwrap_or(u16::MAX),
        properties,
        client_id: &options.client_id,
        will,
        user_name: options.user.as_ref().map(|(name, _)| name.as_str()),
        password: options.user.as_ref().map(|(_, password)| password.as_slice()),
    }
}
