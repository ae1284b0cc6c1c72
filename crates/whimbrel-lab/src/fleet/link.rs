//! The run's MQTT connections: vehicles that publish, subscribers that tell the board what they get.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use whimbrel_client::{
    Client, Event, Events, Message, Notice, Options, QoS, ReasonCode, RetainHandling, Session, Subscription,
};

use super::board::{Arrival, Board, Role, Seat};
use super::checker::{How, Interest};
use super::message;
use super::regions::{Atlas, Class, Travel};
use super::trace::Position;
use super::vehicle::Vehicle;

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

/// The property by which a broker says that a publisher may have sent a message twice, to another broker as well.
pub(super) const MAYBE_REPEAT: &str = "w-maybe-repeat";

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
    pub(super) atlas: Arc<Atlas>,
    gate: Arc<Semaphore>,
    pub(super) stop: watch::Receiver<bool>,
    /// Once it is set, nobody goes to another region any more, and whoever has no signal gets it back.
    pub(super) calm: watch::Receiver<bool>,
}

/// A connection to be opened.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) role: Role,
    pub(super) client_id: String,
    /// Ask the broker to forget what it knows of this client.
    pub(super) clean: bool,
    /// What was published and not confirmed.
    pub(super) session: Session,
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
    /// Connections to these brokers until `stop` is set; nobody moves once it is `calm`.
    pub fn new(
        board: Arc<Board>,
        atlas: Arc<Atlas>,
        stop: watch::Receiver<bool>,
        calm: watch::Receiver<bool>,
    ) -> Network {
        Network { board, atlas, gate: Arc::new(Semaphore::new(CONNECTING)), stop, calm }
    }

    /// The client of that number among those of its role, at home.
    pub(super) fn travel(&self, role: Role, number: usize) -> Travel {
        Travel::new(self.board.clone(), self.atlas.clone(), (Class::from(role), number), self.calm.clone())
    }

    /// Opens the connections of all vehicles; gives the way to each, in the order of the trace's vehicles. Their tasks,
    /// added to `tasks`, end when the way is closed.
    pub async fn open_vehicles(&self, tasks: &mut JoinSet<()>) -> anyhow::Result<Vec<mpsc::Sender<Order>>> {
        let mut opening = JoinSet::new();
        for (vehicle, name) in (0..).zip(&self.board.trace.vehicles) {
            let dial = Dial {
                role: Role::Vehicle,
                client_id: name.clone(),
                clean: true,
                session: Session::new(),
                wanted: None,
            };
            let (network, mut travel) = (self.clone(), self.travel(Role::Vehicle, vehicle as usize));
            opening.spawn(async move { (vehicle, network.open(&dial, &mut travel).await, dial, travel) });
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

    /// Opens the connections of these subscribers and subscribes; their tasks run until `stop` is set.
    pub async fn open_subscribers(&self, wanted: Vec<Asked>, tasks: &mut JoinSet<()>) -> anyhow::Result<()> {
        let mut opening = JoinSet::new();
        for (number, Asked { role, interest, client_id, named }) in wanted.into_iter().enumerate() {
            let qos = if role == Role::Viewer { QoS::AtMostOnce } else { QoS::AtLeastOnce };
            let wanted = Wanted { named, ..self.wanted(interest, qos) };
            let dial = Dial { role, client_id, clean: true, session: Session::new(), wanted: Some(wanted) };
            let (network, mut travel) = (self.clone(), self.travel(role, number));
            opening.spawn(async move {
                let connection = network.open(&dial, &mut travel).await?;
                let seat = network.board.subscribed(role, interest);
                anyhow::Ok((Subscriber { network, dial, travel, connections: 1 }, connection, seat))
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
    async fn open(&self, dial: &Dial, travel: &mut Travel) -> anyhow::Result<(Client, Events)> {
        let connection = self.connect(dial, travel).await?;
        // A session that came along from another broker has its subscription.
        let has_come_along = travel.has_several() && !dial.clean && connection.0.session_present();
        if let Some(Wanted { filter, selector, qos, named }) = dial.wanted.as_ref().filter(|_| !has_come_along) {
            let mut subscription = Subscription::to(filter).qos(*qos);
            if travel.has_several() {
                // What vehicles said before is no use to anybody here, and comes from all brokers at once.
                subscription = subscription.retained(RetainHandling::DoNotSend);
            }
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
        travel.settles();
        Ok(connection)
    }

    /// Opens a connection again that was lost, or given up for another region, after this `pause`. The broker has kept the session of a
    /// reliable subscriber, and what it missed; subscribing again changes nothing then. What is `pending` of a vehicle goes to whoever answers.
    /// None once the run stops.
    pub(super) async fn come_back(
        &self,
        dial: &Dial,
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

    /// Tells the board what a subscriber got.
    pub(super) fn tell(&self, seat: Seat, message: &Message, how: How) {
        let attributes = message.properties.iter().map(|(name, value)| (&**name, &**value));
        let is_doubtful = message.properties.iter().any(|(name, _)| name == MAYBE_REPEAT);
        let how = How { id: message.id(), is_doubtful, ..how };
        self.board.arrived(seat, Arrival { topic: &message.topic, body: &message.payload, how }, attributes);
        self.board.regions.delivered(how.region);
    }

    pub(super) async fn connect(&self, dial: &Dial, travel: &Travel) -> anyhow::Result<(Client, Events)> {
        let _turn = self.gate.acquire().await.context("no connection is opened any more")?;
        let session_expiry = if matches!(dial.role, Role::Console | Role::Watcher) { SESSION_EXPIRY } else { 0 };
        let address = travel.address();
        let options = Options::new(address)
            .session(dial.session.clone())
            .client_id(&dial.client_id)
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
    /// Connections up to now.
    connections: u32,
}

/// Why a subscriber has no connection any more.
enum End {
    /// It goes to another region.
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
            self.dial.clean = false;
            let come_back = match end {
                End::Stop => break,
                End::Lost(lost) => {
                    self.travel.is_lost();
                    self.network.board.dropped(self.dial.role, lost);
                    self.network.come_back(&self.dial, &mut self.travel, (FIRST_PAUSE, None)).await
                }
                End::Moves => {
                    if self.travel.tosses() {
                        client.disconnect().await;
                    } else {
                        client.abandon();
                    }
                    // What the library has acknowledged counts as received.
                    while let Some(Event::Message(message)) = events.next().await {
                        self.take(seat, &message);
                    }
                    self.network.board.sets_out(self.dial.role);
                    self.travel.goes();
                    self.network.come_back(&self.dial, &mut self.travel, (Duration::ZERO, None)).await
                }
            };
            let Some(connection) = come_back else { return };
            self.connections += 1;
            (client, events) = connection;
        }
        client.disconnect().await;
        self.network.board.left(self.dial.role);
    }

    /// Takes what comes until the connection ends.
    async fn listen(&self, events: &mut Events, seat: Seat) -> End {
        let mut stop = self.network.stop.clone();
        let mut leaves = std::pin::pin!(self.travel.leaves());
        loop {
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Event::Message(message)) => self.take(seat, &message),
                    Some(Event::Disconnected { reason }) => return End::Lost(reason.to_string()),
                    None => return End::Lost("the connection was closed".to_owned()),
                },
                _ = stop.wait_for(|stop| *stop) => return End::Stop,
                () = &mut leaves => return End::Moves,
            }
        }
    }

    fn take(&self, seat: Seat, message: &Message) {
        // A retained message is what was published before; the subscription's own messages follow.
        if message.retain {
            return;
        }
        match message.notice() {
            Some(Notice::Gap(gap)) => self.network.board.gap(seat, gap),
            Some(Notice::Silence { .. }) => {}
            None => {
                // When a connection breaks, acknowledgements may be lost with it; then QoS 1 sends again, and says so.
                let may_repeat = message.dup && !self.dial.clean;
                let (connection, region) = (self.connections, self.travel.at());
                self.network.tell(seat, message, How { may_repeat, connection, region, ..How::default() });
            }
        }
    }
}
