//! One connection, as applications use it.

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

/// Events that wait for the application; when it does not take them, the broker is not read from
/// any more.
const EVENTS_MAX: usize = 1024;

/// Events that wait for the application while it waits for an answer ([`Events::during`]), beyond
/// those.
const EARLY_MAX: usize = 65_536;

/// And bytes of their payloads.
const EARLY_BYTES_MAX: usize = 64 << 20;

/// Where tokens are acknowledged.
const ACKNOWLEDGE: &str = "$whimbrel/ack";

/// Unacknowledged publishes, where the broker sets no smaller receive maximum.
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
    /// Of what the session's earlier connections left, until somebody takes it.
    resent: Mutex<Vec<Receipt>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end(Error::Closed);
    }
}

/// What happens on a connection, in order. A message counts as received when it is taken from here:
/// what nobody takes is not acknowledged, and waits in the session at the broker, which sends no
/// more of QoS 1 and 2 than [`Options::receive_maximum`] meanwhile. What is taken when the
/// connection is over cannot be acknowledged, and may come again on the next one.
#[derive(Debug)]
pub struct Events {
    shared: Arc<Shared>,
    receiver: mpsc::Receiver<Arrival>,
    /// What came while the application waited for an answer, and how many bytes that is.
    early: VecDeque<Arrival>,
    early_bytes: usize,
}

impl Events {
    /// The next event; `None` after [`Event::Disconnected`]. It may be given up and called anew:
    /// nothing is lost by that.
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

    /// The next event, if there is one already.
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

    /// Waits for an answer, such as [`Client::subscribe_to`] gives, and keeps what comes in the
    /// meantime for [`Events::next`]. Whoever only waits reads nothing: behind 1,024 events no
    /// answer comes any more. A broker may well send what a subscription missed before it answers
    /// that. Here there is room for 65,536 more, and 64 MiB of payloads; behind those no answer
    /// comes.
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

/// A message on its way ([`Client::send`]). Dropping it changes nothing for the message.
#[derive(Debug)]
#[must_use = "a refusal of the message is told here alone"]
pub struct Receipt {
    number: u64,
    answer: Option<oneshot::Receiver<Result<Published, Error>>>,
}

impl Receipt {
    /// Which message of its [`Session`] it is: 1, 2, 3, … in the order of publication; 0 with QoS
    /// 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Waits for the acknowledgement; returns at once with QoS 0. To be called until it has
    /// returned once.
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
    /// Connects, and waits until the broker has accepted.
    ///
    /// # Errors
    /// The broker cannot be reached, does not answer in time, or refuses.
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

    /// The client's name, which the broker may have chosen.
    pub fn client_id(&self) -> &str {
        &self.handle.client_id
    }

    /// Whether the broker still had the session.
    pub fn session_present(&self) -> bool {
        self.handle.session_present
    }

    /// What to give to the next connection so that nothing published is lost.
    pub fn session(&self) -> Session {
        self.handle.shared.session.clone()
    }

    /// What this connection has sent again because the session's earlier ones ended before its
    /// acknowledgement, in the order of publication. Each is given once; whoever does not care for
    /// the answers needs not take them.
    pub fn resent(&self) -> Vec<Receipt> {
        // Nothing in here panics half way.
        std::mem::take(&mut self.handle.resent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Subscribes, and waits for the answer: one reason code per filter, errors among them not
    /// being errors of the call.
    ///
    /// # Errors
    /// The connection is over, or no answer came in time.
    pub async fn subscribe(&self, filters: &[(&str, QoS)]) -> Result<Vec<ReasonCode>, Error> {
        let filters: Vec<Filter<'_>> = filters.iter().map(|(filter, qos)| Filter::new(filter, *qos)).collect();
        Ok(self.subscribe_with(&filters, None, &[]).await?.reasons)
    }

    /// Subscribes with all options: an identifier that comes back with each message, and user
    /// properties, such as `w-selector` with a condition on the messages that are wanted.
    ///
    /// # Errors
    /// The connection is over, or no answer came in time.
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

    /// Subscribes as Whimbrel's brokers have it, and waits for the answer. The answer may come
    /// behind messages that the broker has sent before, of this subscription as well if it goes on
    /// where it stood: whoever takes nothing from [`Events`] meanwhile may not get it in time.
    ///
    /// # Errors
    /// The connection is over, or no answer came in time.
    pub async fn subscribe_to(&self, subscription: &Subscription) -> Result<Answer, Error> {
        let user = subscription.user();
        let user: Vec<(&str, &str)> = user.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.subscribe_with(&[subscription.as_filter()], subscription.identifier, &user).await
    }

    /// Tells the broker that a subscription's messages have been processed up to `token`
    /// ([`Subscription::acknowledged_by_token`]); the identifier says which subscription, where
    /// there are several. The answer comes behind what the broker has sent before: whoever takes
    /// nothing from [`Events`] meanwhile may not get it in time. To acknowledge the same again does
    /// no harm.
    ///
    /// # Errors
    /// The connection is over, the broker refuses, or no answer came in time
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
    /// The connection is over, or no answer came in time.
    pub async fn unsubscribe(&self, filters: &[&str]) -> Result<Vec<ReasonCode>, Error> {
        let packet_id = self.handle.shared.session.with(|session| session.reserve());
        let properties = UnsubscribeProperties::default();
        let packet = Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters: Topics::list(filters) });
        let (sender, receiver) = oneshot::channel();
        self.handle.shared.send(&packet, Some((packet_id, Waiter::Codes(sender))))?;
        Ok(self.answer(receiver).await?.reasons)
    }

    /// Publishes. With QoS 1 and 2 it waits for the acknowledgement; with QoS 0 for room to write.
    /// The acknowledgement comes behind what the broker has sent before: whoever subscribes on the
    /// same connection has to take that from [`Events`] meanwhile.
    ///
    /// # Errors
    /// The connection is over, the broker refuses the message, or it is too large. A QoS 1 or 2
    /// message whose connection ends while it awaits its acknowledgement stays in the [`Session`];
    /// one that found its connection over does not ([`Client::send`] tells them apart).
    pub async fn publish(&self, publish: Publish) -> Result<Published, Error> {
        self.send(publish).await?.acknowledged().await
    }

    /// Publishes without waiting for the acknowledgement, only for room to write and in the
    /// broker's receive maximum. Messages of successive calls leave in their order, which
    /// concurrent calls of [`Client::publish`] do not promise.
    ///
    /// # Errors
    /// The connection is over, or the message is too large. Then nothing of it has left or will,
    /// and the [`Session`] does not have it.
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
        // It comes back with the acknowledgement.
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

    /// Says goodbye: the broker forgets the will. Everything written before is sent first.
    pub async fn disconnect(&self) {
        let shared = &self.handle.shared;
        // If the connection is over already there is nobody to say goodbye to.
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

    /// Breaks the connection off, as if the network had failed: nothing that waits to be written is
    /// sent, acknowledgements among it, and the broker publishes the will. [`Events`] still gives
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

/// What a CONNACK says that matters here.
struct Welcome {
    session_present: bool,
    window: usize,
    max_packet: u32,
    client_id: Option<String>,
    keep_alive: Option<Duration>,
}

/// Reads until CONNACK; returns it and how many bytes it took.
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
            return Ok((welcome, cut.len));
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
