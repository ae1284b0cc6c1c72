//! The run's MQTT connections: vehicles that publish, subscribers that tell the board what they get.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use whimbrel_client::{Client, Event, Events, Message, Notice, Options, Publish, QoS, ReasonCode, Subscription};

use super::board::{Arrival, Board, Role, Seat};
use super::checker::Interest;
use super::message::{self, Outgoing};
use super::trace::Position;

/// Connections being opened at the same time.
const CONNECTING: usize = 64;
/// How long one, and its subscription, may take to be accepted.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// How long the broker may take to confirm a message; then the connection is given up.
pub const CONFIRM_LIMIT: Duration = Duration::from_secs(10);
/// Pause before the first attempt to come back, doubled for each further one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause.
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(5);
/// Keep-alive of all connections.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long the broker keeps what a reliable subscriber missed while it comes back, s.
const SESSION_EXPIRY: u32 = 300;
/// Positions of one vehicle that may wait for the broker; further ones are held back.
pub const VEHICLE_QUEUE: usize = 8;

/// What a vehicle has to publish, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// What.
    pub position: Position,
    /// When it was due, on the board's clock.
    pub at: Duration,
}

/// A subscriber that is wanted.
pub struct Asked {
    /// What for.
    pub role: Role,
    /// In what.
    pub interest: Interest,
    /// Its name.
    pub client_id: String,
    /// It is told the names of messages.
    pub named: bool,
}

/// What all connections share.
#[derive(Clone)]
pub struct Network {
    pub(super) board: Arc<Board>,
    address: Arc<str>,
    gate: Arc<Semaphore>,
    pub(super) stop: watch::Receiver<bool>,
}

/// A connection to be opened.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) role: Role,
    pub(super) client_id: String,
    /// Ask the broker to forget what it knows of this client.
    pub(super) clean: bool,
    /// What to subscribe to.
    pub(super) wanted: Option<Wanted>,
}

/// A subscription.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) filter: String,
    pub(super) selector: Option<String>,
    pub(super) qos: QoS,
    /// Messages come with their names, by which the checker knows what lies in gaps.
    pub(super) named: bool,
}

impl Network {
    /// Connections to the broker at `address`, until `stop` is set.
    pub fn new(board: Arc<Board>, address: &str, stop: watch::Receiver<bool>) -> Network {
        Network { board, address: address.into(), gate: Arc::new(Semaphore::new(CONNECTING)), stop }
    }

    /// Opens the connections of all vehicles; gives the way to each, in the order of the trace's vehicles. Their tasks,
    /// added to `tasks`, end when the way is closed.
    pub async fn open_vehicles(&self, tasks: &mut JoinSet<()>) -> anyhow::Result<Vec<mpsc::Sender<Order>>> {
        let mut opening = JoinSet::new();
        for (vehicle, name) in (0..).zip(&self.board.trace.vehicles) {
            let dial = Dial { role: Role::Vehicle, client_id: name.clone(), clean: true, wanted: None };
            let network = self.clone();
            opening.spawn(async move { (vehicle, network.open(&dial).await, dial) });
        }
        let mut ways: Vec<Option<mpsc::Sender<Order>>> = vec![None; self.board.trace.vehicles.len()];
        while let Some(opened) = opening.join_next().await {
            let (vehicle, connection, dial) = opened.context("opening a connection was interrupted")?;
            let (way, orders) = mpsc::channel(VEHICLE_QUEUE);
            tasks.spawn(Vehicle { network: self.clone(), vehicle, dial, seq: 0 }.run(connection?, orders));
            ways[vehicle as usize] = Some(way);
        }
        Ok(ways.into_iter().flatten().collect())
    }

    /// Opens the connections of these subscribers and subscribes; their tasks run until `stop` is set.
    pub async fn open_subscribers(&self, wanted: Vec<Asked>, tasks: &mut JoinSet<()>) -> anyhow::Result<()> {
        let mut opening = JoinSet::new();
        for Asked { role, interest, client_id, named } in wanted {
            let qos = if role == Role::Viewer { QoS::AtMostOnce } else { QoS::AtLeastOnce };
            let wanted = Wanted { named, ..self.wanted(interest, qos) };
            let dial = Dial { role, client_id, clean: true, wanted: Some(wanted) };
            let network = self.clone();
            opening.spawn(async move {
                let connection = network.open(&dial).await?;
                let seat = network.board.subscribed(role, interest);
                anyhow::Ok((Subscriber { network, dial }, connection, seat))
            });
        }
        while let Some(opened) = opening.join_next().await {
            let (subscriber, connection, seat) = opened.context("opening a connection was interrupted")??;
            tasks.spawn(subscriber.run(connection, seat));
        }
        Ok(())
    }

    /// What to subscribe to for an interest.
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

    /// Connects and subscribes.
    async fn open(&self, dial: &Dial) -> anyhow::Result<(Client, Events)> {
        let connection = self.connect(dial).await?;
        if let Some(Wanted { filter, selector, qos, named }) = &dial.wanted {
            let mut subscription = Subscription::to(filter).qos(*qos);
            if let Some(selector) = selector {
                subscription = subscription.selector(selector);
            }
            if *named {
                subscription = subscription.notices();
            }
            let asked = connection.0.subscribe_to(&subscription).await;
            let what = || selector.as_ref().map_or_else(|| filter.clone(), |text| format!("{filter} where {text}"));
            let answer = asked.with_context(|| format!("{} cannot subscribe to {}", dial.client_id, what()))?;
            let granted = answer.reasons;
            if granted != [ReasonCode(*qos as u8)] {
                bail!("{} was granted {granted:?} instead of {qos:?} for {}", dial.client_id, what());
            }
        }
        self.board.connected(dial.role);
        Ok(connection)
    }

    /// Opens a lost connection again. The broker has kept the session of a reliable subscriber, and what it missed;
    /// subscribing again changes nothing then. None once the run stops.
    async fn come_back(&self, dial: &Dial, lost: String) -> Option<(Client, Events)> {
        self.board.dropped(dial.role, lost);
        let mut pause = FIRST_PAUSE;
        let mut stop = self.stop.clone();
        while timeout(pause, stop.wait_for(|stop| *stop)).await.is_err() {
            match self.open(dial).await {
                Ok(connection) => return Some(connection),
                Err(error) => self.board.lost_connection(format!("{error:#}")),
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
        None
    }

    /// Tells the board what a subscriber got.
    pub(super) fn tell(&self, seat: Seat, message: &Message, may_repeat: bool) {
        let attributes = message.properties.iter().map(|(name, value)| (&**name, &**value));
        let arrival = Arrival { topic: &message.topic, body: &message.payload, id: message.id(), may_repeat };
        self.board.arrived(seat, arrival, attributes);
    }

    pub(super) async fn connect(&self, dial: &Dial) -> anyhow::Result<(Client, Events)> {
        let _turn = self.gate.acquire().await.context("no connection is opened any more")?;
        let session_expiry = if matches!(dial.role, Role::Console | Role::Watcher) { SESSION_EXPIRY } else { 0 };
        let options = Options::new(&*self.address)
            .client_id(&dial.client_id)
            .keep_alive(KEEP_ALIVE)
            .clean_start(dial.clean)
            .session_expiry(session_expiry)
            .timeout(CONNECT_LIMIT);
        let connected = Client::connect(options).await;
        connected.with_context(|| format!("cannot connect {} to the broker at {}", dial.client_id, self.address))
    }
}

struct Vehicle {
    network: Network,
    vehicle: u32,
    dial: Dial,
    seq: u64,
}

impl Vehicle {
    async fn run(mut self, connection: (Client, Events), mut orders: mpsc::Receiver<Order>) {
        let (mut client, mut events) = connection;
        loop {
            let lost = tokio::select! {
                order = orders.recv() => match order {
                    None => break,
                    Some(_) if *self.network.stop.borrow() => {
                        self.network.board.held_back();
                        continue;
                    }
                    Some(order) => self.publish(&client, order).await.err(),
                },
                event = events.next() => match event {
                    Some(Event::Disconnected { reason }) => Some(format!("{reason}")),
                    None => Some("the connection was closed".to_owned()),
                    Some(_) => None,
                },
            };
            let Some(lost) = lost else { continue };
            let Some(connection) = self.network.come_back(&self.dial, lost).await else { return };
            (client, events) = connection;
        }
        client.disconnect().await;
        self.network.board.left(Role::Vehicle);
    }

    /// Publishes a position and waits until the broker has it; the reason if the connection is lost.
    async fn publish(&mut self, client: &Client, order: Order) -> Result<(), String> {
        let board = self.network.board.clone();
        self.seq += 1;
        let outgoing = Outgoing::new(&board.trace, &order.position, self.seq);
        board.publishing(&order.position, self.seq, &outgoing, order.at);
        let mut publish = Publish::new(outgoing.topic, outgoing.body).qos(QoS::AtLeastOnce).retain(true);
        for (name, value) in outgoing.attributes {
            publish = publish.property(name, value);
        }
        let published = timeout(CONFIRM_LIMIT, client.publish(publish)).await;
        if matches!(&published, Ok(Ok(published)) if !published.reason.is_error()) {
            board.confirmed();
            return Ok(());
        }
        board.unconfirmed(self.vehicle, self.seq);
        match published {
            Ok(Ok(published)) => {
                board.trouble(format!("a message was refused: {}", published.reason));
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("a message was not confirmed within {CONFIRM_LIMIT:?}")),
        }
    }
}

struct Subscriber {
    network: Network,
    dial: Dial,
}

impl Subscriber {
    async fn run(mut self, connection: (Client, Events), seat: Seat) {
        let (mut client, mut events) = connection;
        let mut stop = self.network.stop.clone();
        loop {
            let lost = tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Event::Message(message)) => {
                        // A retained message is what was published before; the subscription's own messages follow.
                        if !message.retain {
                            self.tell(seat, &message);
                        }
                        continue;
                    }
                    Some(Event::Disconnected { reason }) => format!("{reason}"),
                    None => "the connection was closed".to_owned(),
                },
                _ = stop.wait_for(|stop| *stop) => break,
            };
            self.dial.clean = false;
            let Some(connection) = self.network.come_back(&self.dial, lost).await else { return };
            (client, events) = connection;
        }
        client.disconnect().await;
        self.network.board.left(self.dial.role);
    }

    fn tell(&self, seat: Seat, message: &Message) {
        match message.notice() {
            Some(Notice::Gap(gap)) => self.network.board.gap(seat, gap),
            Some(Notice::Silence { .. }) => {}
            // When a connection breaks, acknowledgements may be lost with it; then QoS 1 sends again, and says so.
            None => self.network.tell(seat, message, message.dup && !self.dial.clean),
        }
    }
}
