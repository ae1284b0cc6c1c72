//! The run's MQTT connections: vehicles that publish, subscribers that tell the board what they
//! receive.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use whimbrel_client::{
    Client, Durability, Event, Events, Message, Notice, Position, QoS, ReasonCode, RetainHandling, Session, Start,
    Subscription,
};

use super::board::{Arrival, Board, Role, Seat};
use super::checker::{How, Interest};
use super::message;
use super::regions::{Atlas, Class, Travel};
use super::trace;
use super::vehicle::Vehicle;

/// Connections that are being opened at the same time, at most.
const CONNECTING: usize = 64;
/// How long a connection and its subscription may take to be accepted.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// How long the broker may take to confirm a message; then the connection is given up.
pub const CONFIRM_LIMIT: Duration = Duration::from_secs(10);
/// The pause before the first attempt to connect again, doubled for each further one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause.
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(5);
/// Keep-alive of all connections.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long the broker keeps missed events for a reliable subscriber, s.
const SESSION_EXPIRY: u32 = 300;
/// Positions of one vehicle that may wait for the broker; further ones are held back.
pub const VEHICLE_QUEUE: usize = 8;

/// A position for a vehicle to publish.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The position.
    pub position: trace::Position,
    /// When it was due, on the board's clock.
    pub at: Duration,
}

/// A subscriber to be opened.
pub struct Asked {
    /// Its role.
    pub role: Role,
    /// Its interest.
    pub interest: Interest,
    /// Its client identifier.
    pub client_id: String,
    /// Whether it is told the names of messages.
    pub named: bool,
}

/// The state that all connections share.
#[derive(Clone)]
pub struct Network {
    pub(super) board: Arc<Board>,
    pub(super) atlas: Arc<Atlas>,
    gate: Arc<Semaphore>,
    pub(super) stop: watch::Receiver<bool>,
    /// Once it is set, clients no longer move to another region, and consoles without a signal get
    /// it back.
    pub(super) calm: watch::Receiver<bool>,
}

/// A connection to be opened.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) role: Role,
    pub(super) client_id: String,
    /// Whether the broker is to discard the client's session.
    pub(super) clean: bool,
    /// The client's state of unconfirmed publishes.
    pub(super) session: Session,
    /// The subscription to make.
    pub(super) wanted: Option<Wanted>,
    /// Its position, if it keeps it itself.
    pub(super) position: Option<Position>,
}

/// A subscription.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) filter: String,
    pub(super) selector: Option<String>,
    pub(super) qos: QoS,
    /// Whether messages are delivered with their names, by which the checker knows which lie in
    /// gaps.
    pub(super) named: bool,
}

impl Network {
    /// Connections to these brokers until `stop` is set; clients stop moving once it is `calm`.
    pub fn new(
        board: Arc<Board>,
        atlas: Arc<Atlas>,
        stop: watch::Receiver<bool>,
        calm: watch::Receiver<bool>,
    ) -> Network {
        Network { board, atlas, gate: Arc::new(Semaphore::new(CONNECTING)), stop, calm }
    }

    /// The travel of a client of a role, by its number there; it starts at home.
    pub(super) fn travel(&self, role: Role, number: usize) -> Travel {
        Travel::new(self.board.clone(), self.atlas.clone(), (Class::Fleet(role), number), self.calm.clone())
    }

    /// Opens the connections of all vehicles; returns a sender for each, in the order of the
    /// trace's vehicles. Their tasks, added to `tasks`, end when the sender is closed.
    pub async fn open_vehicles(&self, tasks: &mut JoinSet<()>) -> anyhow::Result<Vec<mpsc::Sender<Order>>> {
        let mut opening = JoinSet::new();
        for (vehicle, name) in (0..).zip(&self.board.trace.vehicles) {
            let dial = Dial {
                role: Role::Vehicle,
                client_id: name.clone(),
                clean: true,
                session: Session::new(),
                wanted: None,
                position: None,
            };
            let (network, mut travel, mut dial) = (self.clone(), self.travel(Role::Vehicle, vehicle as usize), dial);
            opening.spawn(async move {
                let connection = network.open(&mut dial, &mut travel).await;
                (vehicle, connection, dial, travel)
            });
        }
        let mut ways: Vec<Option<mpsc::Sender<Order>>> = vec![None; self.board.trace.vehicles.len()];
        while let Some(opened) = opening.join_next().await {
            let (vehicle, connection, dial, travel) = opened.context("opening a connection was interrupted")?;
            let (way, orders) = mpsc::channel(VEHICLE_QUEUE);
            tasks.spawn(Vehicle::new(self.clone(), vehicle, dial, travel).run(connection?, orders));
            ways[vehicle as usize] = Some(way);
        }
        Ok(ways.into_iter().flatten().collect())
    }

    /// Opens the connections of these subscribers and subscribes; their tasks run until `stop` is
    /// set.
    pub async fn open_subscribers(&self, wanted: Vec<Asked>, tasks: &mut JoinSet<()>) -> anyhow::Result<()> {
        let mut opening = JoinSet::new();
        for (number, Asked { role, interest, client_id, named }) in wanted.into_iter().enumerate() {
            let qos = if role == Role::Viewer { QoS::AtMostOnce } else { QoS::AtLeastOnce };
            let wanted = Wanted { named, ..self.wanted(interest, qos) };
            let dial =
                Dial { role, client_id, clean: true, session: Session::new(), wanted: Some(wanted), position: None };
            let (network, mut travel, mut dial) = (self.clone(), self.travel(role, number), dial);
            opening.spawn(async move {
                let connection = network.open(&mut dial, &mut travel).await?;
                let seat = network.board.subscribed(role, interest);
                anyhow::Ok((Subscriber { network, dial, travel }, connection, seat))
            });
        }
        while let Some(opened) = opening.join_next().await {
            let (subscriber, connection, seat) = opened.context("opening a connection was interrupted")??;
            tasks.spawn(subscriber.run(connection, seat));
        }
        Ok(())
    }

    /// The subscription for an interest.
    pub(super) fn wanted(&self, interest: Interest, qos: QoS) -> Wanted {
        let Board { trace, selection, .. } = &*self.board;
        let (filter, selector) = match interest {
            Interest::All => (message::all_filter(), None),
            Interest::Line(line) => (message::line_filter(&trace.lines[line as usize]), None),
            Interest::Selected(index) => {
                let selector = selection.selector(selection.conditions[index], &trace.lines);
                (message::all_filter(), Some(selector))
            }
        };
        Wanted { filter, selector, qos, named: false }
    }

    /// Connects and subscribes. With several regions a subscriber to events that are never logged
    /// keeps its position itself: a broker that dies takes its knowledge of the position along.
    async fn open(&self, dial: &mut Dial, travel: &mut Travel) -> anyhow::Result<(Client, Events)> {
        let (client, mut events) = self.connect(dial, travel).await?;
        if let Some(Wanted { filter, selector, qos, named }) = &dial.wanted {
            let by_token = *named && travel.has_several();
            let mut subscription = Subscription::to(filter).qos(*qos);
            if let Some(selector) = selector {
                subscription = subscription.selector(selector);
            }
            if *named {
                subscription = subscription.notices();
            }
            if travel.has_several() {
                // Earlier events of vehicles are of no use here, and would be delivered anew at
                // each broker.
                subscription = subscription.retained(RetainHandling::DoNotSend);
                // A subscription that names its durability is told which messages may be repeats.
                let durability = if by_token { Durability::SemiDurable } else { Durability::Nondurable };
                subscription = subscription.durability(durability);
            }
            if let Some(position) = &dial.position {
                subscription = subscription.from(Start::After(position.clone()));
            }
            let asked = events.during(client.subscribe_to(&subscription)).await;
            let what = || selector.as_ref().map_or_else(|| filter.clone(), |text| format!("{filter} where {text}"));
            let answer = asked.with_context(|| format!("{} cannot subscribe to {}", dial.client_id, what()))?;
            if answer.reasons != [ReasonCode(*qos as u8)] {
                let granted = &answer.reasons;
                bail!("{} was granted {granted:?} instead of {qos:?} for {}", dial.client_id, what());
            }
            if by_token {
                let Some(token) = answer.tokens().next().flatten() else { bail!("the broker gives no position") };
                match &mut dial.position {
                    Some(position) => position.resumed(token),
                    None => dial.position = Some(Position::at(token)),
                }
            }
        }
        self.board.connected(dial.role);
        travel.settles();
        Ok((client, events))
    }

    /// Opens a connection again that was lost, or given up for another region, after a `pause`. The
    /// broker has kept the session of a reliable subscriber and the events that it missed;
    /// subscribing again changes nothing then. A vehicle's `pending` message goes to the broker
    /// that answers. `None` once the run stops.
    pub(super) async fn come_back(
        &self,
        dial: &mut Dial,
        travel: &mut Travel,
        (mut pause, pending): (Duration, Option<(u32, u64)>),
    ) -> Option<(Client, Events)> {
        let (mut stop, mut has_set_out) = (self.stop.clone(), pause.is_zero());
        let mut found = None;
        while found.is_none() && timeout(pause, stop.wait_for(|stop| *stop)).await.is_err() {
            if let Some((vehicle, seq)) = pending {
                self.board.handing(vehicle, seq, travel.at());
            }
            match self.open(dial, travel).await {
                Ok(connection) => found = Some(connection),
                Err(error) => {
                    self.board.lost_connection(format!("{error:#}"));
                    travel.fails();
                    pause = (pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE);
                }
            }
            if std::mem::take(&mut has_set_out) {
                self.board.has_set_out(dial.role);
            }
        }
        found
    }

    /// Tells the board what a subscriber received.
    pub(super) fn tell(&self, seat: Seat, message: &Message, how: How) {
        let attributes = message.properties.iter().map(|(name, value)| (&**name, &**value));
        let is_doubtful = message.is_maybe_repeat();
        let how = How { id: message.id(), is_doubtful, ..how };
        self.board.arrived(seat, Arrival { topic: &message.topic, body: &message.payload, how }, attributes);
        self.board.regions.delivered(how.region);
    }

    pub(super) async fn connect(&self, dial: &Dial, travel: &Travel) -> anyhow::Result<(Client, Events)> {
        let _turn = self.gate.acquire().await.context("no connection is opened any more")?;
        let keeps_session = matches!(dial.role, Role::Console | Role::Watcher) && !travel.has_several();
        let session_expiry = if keeps_session { SESSION_EXPIRY } else { 0 };
        let address = travel.address();
        let options = self
            .board
            .options(address, &dial.client_id)
            .session(dial.session.clone())
            .keep_alive(KEEP_ALIVE)
            .clean_start(dial.clean)
            .session_expiry(session_expiry)
            .timeout(CONNECT_LIMIT);
        let connected = Client::connect(options).await;
        connected.with_context(|| format!("cannot connect {} to the broker at {address}", dial.client_id))
    }
}

struct Subscriber {
    network: Network,
    dial: Dial,
    travel: Travel,
}

/// Why a subscriber has no connection any more.
enum End {
    /// The subscriber goes to another region.
    Moves,
    /// The connection was lost.
    Lost(String),
    /// The run is over.
    Stop,
}

impl Subscriber {
    async fn run(mut self, connection: (Client, Events), seat: Seat) {
        let (mut client, mut events) = connection;
        loop {
            let end = self.listen(&mut events, seat).await;
            // A subscriber that keeps its position itself needs no session.
            self.dial.clean = self.dial.position.is_some();
            let come_back = match end {
                End::Stop => break,
                End::Lost(lost) => {
                    self.travel.is_lost();
                    self.network.board.dropped(self.dial.role, lost);
                    self.network.come_back(&mut self.dial, &mut self.travel, (FIRST_PAUSE, None)).await
                }
                End::Moves => {
                    if self.travel.tosses() {
                        client.disconnect().await;
                    } else {
                        client.abandon();
                    }
                    // Events that have arrived are taken, though acknowledgements no longer reach
                    // the broker.
                    while let Some(Event::Message(message)) = events.next().await {
                        take(&self.network, &mut self.dial, (seat, self.travel.at()), &message);
                    }
                    self.network.board.sets_out(self.dial.role);
                    self.travel.goes();
                    self.network.come_back(&mut self.dial, &mut self.travel, (Duration::ZERO, None)).await
                }
            };
            let Some(connection) = come_back else { return };
            (client, events) = connection;
        }
        client.disconnect().await;
        self.network.board.left(self.dial.role);
    }

    /// Takes events until the connection ends.
    async fn listen(&mut self, events: &mut Events, seat: Seat) -> End {
        let Subscriber { network, dial, travel } = self;
        let mut stop = network.stop.clone();
        let mut leaves = std::pin::pin!(travel.leaves());
        loop {
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Event::Message(message)) => take(network, dial, (seat, travel.at()), &message),
                    Some(Event::Disconnected { reason }) => return End::Lost(reason.to_string()),
                    None => return End::Lost("the connection was closed".to_owned()),
                },
                _ = stop.wait_for(|stop| *stop) => return End::Stop,
                () = &mut leaves => return End::Moves,
            }
        }
    }
}

/// Takes a message that a subscriber received in a region.
fn take(network: &Network, dial: &mut Dial, (seat, region): (Seat, usize), message: &Message) {
    // A retained message was published before; the subscription's own messages follow.
    if message.retain {
        return;
    }
    if let Some(position) = &mut dial.position {
        position.note(message);
    }
    match message.notice() {
        Some(Notice::Gap(gap)) => network.board.gap(seat, gap),
        Some(Notice::Silence { .. } | Notice::Overdue { .. } | Notice::Stalled { .. }) => {}
        None => {
            // A broken connection may lose acknowledgements; then QoS 1 sends again, and says so.
            let may_repeat = message.dup && !dial.clean;
            network.tell(seat, message, How { may_repeat, region, ..How::default() });
        }
    }
}
