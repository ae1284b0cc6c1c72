//! A dispatcher has a durable subscription, and disconnects and returns again and again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use whimbrel_client::{
    Client, Durability, Error, Event, Events, GapReason, Message, Notice, Position, QoS, RetainHandling, Session,
    Start, Subscription,
};

use super::clerk::LAST_PAUSE;
use super::ledger::{Arrival, Keeper};
use super::{DISPATCHERS, Presence, SESSION_EXPIRY, order};
use crate::fleet::board::Board;
use crate::fleet::link::FIRST_PAUSE;
use crate::fleet::regions::Travel;

/// How long it stays connected, ms.
const STAYS: std::ops::Range<u64> = 1_000..7_000;
/// How long it is away, ms.
const AWAY: std::ops::Range<u64> = 500..4_000;
/// One return of this many is to another region.
const MOVES: usize = 2;
/// How long until it acknowledges its position again, if it keeps the position itself.
const ACKNOWLEDGES: Duration = Duration::from_millis(500);

pub(super) struct Dispatcher {
    index: usize,
    keeper: Keeper,
    board: Arc<Board>,
    travel: Travel,
    random: fastrand::Rng,
    session: Session,
    /// Its position, if it keeps it itself; an application would store it in its database.
    position: Option<Position>,
    connections: u32,
    /// When it next disconnects.
    leaves: Instant,
    calm: watch::Receiver<bool>,
    home: watch::Receiver<bool>,
}

/// Why it has no connection any more.
enum End {
    /// The dispatcher disconnects for some time.
    Leaves,
    /// The connection was lost.
    Lost(String),
    /// The run is over.
    Home,
}

impl Dispatcher {
    /// A dispatcher. `calm`: it stays connected; `home`: it ends.
    pub(super) fn new(
        index: usize,
        board: Arc<Board>,
        travel: Travel,
        seed: u64,
        (calm, home): (watch::Receiver<bool>, watch::Receiver<bool>),
    ) -> Dispatcher {
        let seed = seed.wrapping_mul(31).wrapping_add(index as u64);
        Dispatcher {
            index,
            keeper: DISPATCHERS[index].1,
            board,
            travel,
            random: fastrand::Rng::with_seed(seed),
            session: Session::new(),
            position: None,
            connections: 0,
            leaves: Instant::now(),
            calm,
            home,
        }
    }

    /// Connects for the first time, with a new session.
    pub(super) async fn begin(&mut self) -> Result<(Client, Events)> {
        self.leaves = Instant::now() + Duration::from_millis(self.random.u64(STAYS));
        self.open(true).await
    }

    async fn open(&mut self, clean: bool) -> Result<(Client, Events)> {
        let (name, ..) = DISPATCHERS[self.index];
        let options = self
            .board
            .options(self.travel.address(), name)
            .session(self.session.clone())
            .clean_start(clean)
            .session_expiry(SESSION_EXPIRY);
        let connected = Client::connect(options).await;
        let address = self.travel.address();
        let (client, mut events) =
            connected.with_context(|| format!("cannot connect {name} to the broker at {address}"))?;
        self.connections += 1;
        if !clean && !client.session_present() {
            self.board.trouble(format!("the broker has forgotten the session of {name}"));
        }
        if self.keeper == Keeper::Client || !client.session_present() {
            self.subscribe(&client, &mut events).await?;
        }
        self.board.freight.is_there(self.index, Presence::There);
        self.travel.settles();
        Ok((client, events))
    }

    async fn subscribe(&mut self, client: &Client, events: &mut Events) -> Result<()> {
        let (name, keeper, filter) = DISPATCHERS[self.index];
        let qos = if keeper == Keeper::ExactlyOnce { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        let mut subscription = Subscription::to(filter).qos(qos).notices().retained(RetainHandling::DoNotSend);
        subscription = subscription.identifier(1);
        if keeper == Keeper::Client {
            subscription = subscription.durability(Durability::Durable).acknowledged_by_token();
            if let Some(position) = &self.position {
                subscription = subscription.from(Start::After(position.clone()));
            }
        }
        let asked = events.during(client.subscribe_to(&subscription)).await;
        let answer = asked.with_context(|| format!("{name} cannot subscribe to {filter}"))?;
        if answer.reasons.iter().any(|reason| reason.is_error()) {
            let words = answer.text.unwrap_or_default();
            bail!("{name} was granted {:?} for {filter}: {words}", answer.reasons);
        }
        if keeper == Keeper::Client {
            let Some(token) = answer.tokens().next().flatten() else { bail!("the broker gives no position") };
            match &mut self.position {
                Some(position) => position.resumed(token),
                None => self.position = Some(Position::at(token)),
            }
        }
        Ok(())
    }

    pub(super) async fn run(mut self, connection: (Client, Events)) {
        let (mut client, mut events) = connection;
        loop {
            match self.listen(&client, &mut events).await {
                End::Home => {
                    let (_, _, filter) = DISPATCHERS[self.index];
                    // Nothing is kept for it after the run; if the request fails, its session
                    // expires.
                    let _ = events.during(client.unsubscribe(&[filter])).await;
                    while let Some(Event::Message(message)) = events.try_next() {
                        self.take(&message);
                    }
                    return client.disconnect().await;
                }
                End::Leaves => {
                    self.board.freight.is_there(self.index, Presence::Away);
                    self.leave(client, events).await;
                    self.travel.is_away();
                    self.stay_away().await;
                    self.travel.may_go(MOVES);
                }
                End::Lost(why) => {
                    self.board.freight.is_there(self.index, Presence::Lost);
                    self.board.lost_connection(why);
                    self.take_rest(events).await;
                    self.travel.is_lost();
                }
            }
            let Some(connection) = self.come_back().await else { return };
            (client, events) = connection;
        }
    }

    /// Takes events until the connection ends.
    async fn listen(&mut self, client: &Client, events: &mut Events) -> End {
        let (leaves, mut acknowledges) = (self.leaves, interval(ACKNOWLEDGES));
        let (mut calm, mut home) = (self.calm.clone(), self.home.clone());
        acknowledges.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_calm = *calm.borrow_and_update();
            let event = tokio::select! {
                event = events.next() => Some(event),
                () = sleep_until(leaves), if !is_calm => return End::Leaves,
                _ = calm.changed(), if !is_calm => continue,
                _ = home.wait_for(|home| *home) => return End::Home,
                _ = acknowledges.tick(), if self.keeper == Keeper::Client => None,
            };
            let Some(event) = event else {
                match self.acknowledge(client, events).await {
                    Ok(()) => continue,
                    Err(error) => return End::Lost(error.to_string()),
                }
            };
            match event {
                Some(Event::Message(message)) => self.take(&message),
                Some(Event::Disconnected { reason }) => return End::Lost(reason.to_string()),
                None => return End::Lost("the connection was closed".to_owned()),
            }
        }
    }

    /// Acknowledges its position.
    async fn acknowledge(&mut self, client: &Client, events: &mut Events) -> Result<(), Error> {
        if let Some(position) = &self.position {
            let token = position.token().clone();
            events.during(client.acknowledge(&token, Some(1))).await?;
        }
        Ok(())
    }

    fn take(&mut self, message: &Message) {
        if let Some(position) = &mut self.position {
            position.note(message);
        }
        let (index, now) = (self.index, self.board.now());
        let desk = &self.board.freight;
        match message.notice() {
            // Nothing was promised for best-effort events.
            Some(Notice::Gap(gap)) if gap.reason != GapReason::BestEffort => {
                let (name, ..) = DISPATCHERS[index];
                self.board.trouble(format!("{name} was told of a gap ({})", gap.reason.name()));
                return desk.with(|state| state.ledger.gap(index));
            }
            Some(_) => return,
            None => {}
        }
        let Some((clerk, number)) = order::read(&message.topic, &message.payload) else {
            return desk.with(|state| state.ledger.arrived_unreadable(index));
        };
        let digest = order::digest(&message.topic, &message.payload);
        let is_doubtful = message.is_maybe_repeat();
        let (id, connection, region) = (message.id(), self.connections, self.travel.at());
        let arrival = Arrival { clerk, number, digest, id, connection, region, is_doubtful };
        if let Some(fault) = desk.arrived(index, arrival, now) {
            let ((name, ..), clerk, moment) = (DISPATCHERS[index], order::name(clerk), now.as_secs_f64());
            let out_of_reach = self.board.disturbances.last();
            self.board.trouble(format!(
                "{name}: order {number} of {clerk} {fault}, at {moment:.3} s; out of reach: {out_of_reach}"
            ));
        }
        self.board.regions.delivered(region);
    }

    /// Disconnects, or aborts the connection.
    async fn leave(&mut self, client: Client, events: Events) {
        if self.random.bool() {
            client.disconnect().await;
        } else {
            client.abandon();
        }
        drop(client);
        self.take_rest(events).await;
    }

    /// Takes the events that have arrived, though acknowledgements no longer reach the broker. A
    /// dispatcher that keeps the position itself discards them.
    async fn take_rest(&mut self, mut events: Events) {
        while let Some(Event::Message(message)) = events.next().await {
            if self.keeper != Keeper::Client {
                self.take(&message);
            }
        }
    }

    async fn stay_away(&mut self) {
        let span = Duration::from_millis(self.random.u64(AWAY));
        let (mut calm, mut home) = (self.calm.clone(), self.home.clone());
        tokio::select! {
            () = sleep(span) => {}
            _ = calm.wait_for(|calm| *calm) => {}
            _ = home.wait_for(|home| *home) => {}
        }
        self.leaves = Instant::now() + Duration::from_millis(self.random.u64(STAYS));
    }

    /// Connects again; `None` once the run is over.
    async fn come_back(&mut self) -> Option<(Client, Events)> {
        let mut pause = FIRST_PAUSE;
        loop {
            if *self.home.borrow() {
                return None;
            }
            match self.open(false).await {
                Ok(connection) => return Some(connection),
                Err(error) => {
                    self.board.freight.is_there(self.index, Presence::Lost);
                    self.board.lost_connection(format!("{error:#}"));
                    self.travel.fails();
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}
