//! A console that loses its signal now and then: its connection is cut without DISCONNECT, and
//! later it returns with its position, a token and the ids of events since.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use whimbrel_client::{
    Client, Durability, Event, Events, Message, Notice, Position, QoS, RetainHandling, Session, Start, Subscription,
};

use super::board::{Role, Seat};
use super::checker::{How, Interest};
use super::link::{Dial, FIRST_PAUSE, LAST_PAUSE, Network, Wanted};
use super::outages::Outages;
use super::regions::{Sites, Travel};

/// One return of the signal in this many is in another region.
const MOVES: usize = 3;
/// The property of a broker's answer that names brokers that have not confirmed a subscription yet.
const PENDING: &str = "w-pending";

/// Consoles that lose their signal.
pub struct Roamers {
    /// The consoles: role, interest, client identifier and outages.
    pub wanted: Vec<(Role, Interest, String, Outages)>,
}

struct Roamer {
    network: Network,
    dial: Dial,
    wanted: Wanted,
    outages: Outages,
    travel: Travel,
    /// Brokers that had not confirmed its subscription in the last answer.
    pending: Sites,
}

/// Why a console has no connection any more.
enum Cut {
    /// Its signal is gone until this time.
    NoSignal(Instant),
    /// The connection was lost for another reason.
    Lost(String),
    /// The run is over.
    Stop,
}

impl Network {
    /// Opens the connections of these consoles and subscribes; their tasks run until the network
    /// stops.
    pub async fn open_roamers(&self, roamers: Roamers, tasks: &mut JoinSet<()>) -> Result<()> {
        let mut opening = JoinSet::new();
        for (number, (role, interest, client_id, outages)) in roamers.wanted.into_iter().enumerate() {
            let wanted = self.wanted(interest, QoS::AtLeastOnce);
            let dial = Dial { role, client_id, clean: true, session: Session::new(), wanted: None, position: None };
            let (network, travel) = (self.clone(), self.travel(role, number));
            let mut roamer = Roamer { network, dial, wanted, outages, travel, pending: Sites::NONE };
            opening.spawn(async move {
                let connection = roamer.open().await?;
                let seat = roamer.network.board.subscribed(role, interest);
                roamer.network.board.connected(role);
                anyhow::Ok((roamer, connection, seat))
            });
        }
        while let Some(opened) = opening.join_next().await {
            let (roamer, connection, seat) = opened.context("opening a connection was interrupted")??;
            tasks.spawn(roamer.run(connection, seat));
        }
        Ok(())
    }
}

impl Roamer {
    /// Connects, and subscribes from its position.
    async fn open(&mut self) -> Result<(Client, Events)> {
        let (client, mut events) = self.network.connect(&self.dial, &self.travel).await?;
        let Wanted { filter, selector, qos, .. } = &self.wanted;
        let mut subscription = Subscription::to(filter).qos(*qos).retained(RetainHandling::DoNotSend);
        if let Some(selector) = selector {
            subscription = subscription.selector(selector);
        }
        let semi_durable = self.dial.role == Role::SemiDurable;
        subscription = match semi_durable {
            true => subscription.durability(Durability::SemiDurable).notices(),
            // Events that were lost with a broker in another region are told as a gap.
            false if self.travel.has_several() => subscription.durability(Durability::Nondurable).notices(),
            false => subscription.durability(Durability::Nondurable),
        };
        if let Some(position) = &self.dial.position {
            subscription = subscription.from(Start::After(position.clone()));
        }
        let asked = events.during(client.subscribe_to(&subscription)).await;
        let answer = asked.with_context(|| format!("{} cannot subscribe to {filter}", self.dial.client_id))?;
        if answer.reasons.iter().any(|reason| reason.is_error()) {
            let words = answer.text.unwrap_or_default();
            bail!("{} was granted {:?} for {filter}: {words}", self.dial.client_id, answer.reasons);
        }
        self.pending = self.network.atlas.named(answer.properties.iter().filter(|(name, _)| name == PENDING));
        if semi_durable {
            let Some(token) = answer.tokens().next().flatten() else { bail!("the broker gives no position") };
            match &mut self.dial.position {
                Some(position) => position.resumed(token),
                None => self.dial.position = Some(Position::at(token)),
            }
        }
        self.travel.settles();
        Ok((client, events))
    }

    async fn run(mut self, connection: (Client, Events), seat: Seat) {
        let mut connection = Some(connection);
        let mut outages = 0u32;
        while let Some((client, mut events)) = connection.take() {
            let board = self.network.board.clone();
            let mut held = None;
            let until = match self.listen(&mut events, seat).await {
                Cut::Stop => {
                    client.disconnect().await;
                    return board.left(self.dial.role);
                }
                Cut::NoSignal(until) => {
                    self.travel.is_away();
                    outages += 1;
                    // Every other time the broker notices at once; otherwise it sends to a dead
                    // connection until this console returns.
                    held = outages.is_multiple_of(2).then_some((client, events));
                    until
                }
                Cut::Lost(why) => {
                    self.travel.is_lost();
                    board.lost_connection(why);
                    Instant::now() + FIRST_PAUSE
                }
            };
            board.signal(seat, false);
            connection = self.come_back(until).await;
            drop(held);
            if connection.is_some() {
                board.signal(seat, true);
                board.pending(seat, self.pending);
            }
        }
    }

    /// Takes events until the connection ends.
    async fn listen(&mut self, events: &mut Events, seat: Seat) -> Cut {
        let (residence, outage) = self.outages.next().unwrap_or((Duration::MAX, Duration::ZERO));
        let cut = Instant::now().checked_add(residence);
        let (mut stop, mut calm) = (self.network.stop.clone(), self.network.calm.clone());
        loop {
            let ends = async {
                match cut.filter(|_| !*calm.borrow_and_update()) {
                    Some(cut) => tokio::select! {
                        () = sleep_until(cut) => true,
                        _ = calm.wait_for(|calm| *calm) => false,
                    },
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Event::Message(message)) => self.tell(seat, &message),
                    Some(Event::Disconnected { reason }) => return Cut::Lost(reason.to_string()),
                    None => return Cut::Lost("the connection was closed".to_owned()),
                },
                is_cut = ends => if is_cut { return Cut::NoSignal(Instant::now() + outage) },
                _ = stop.wait_for(|stop| *stop) => return Cut::Stop,
            }
        }
    }

    fn tell(&mut self, seat: Seat, message: &Message) {
        if let Some(position) = &mut self.dial.position {
            position.note(message);
        }
        match message.notice() {
            Some(Notice::Gap(gap)) => self.network.board.gap(seat, gap),
            Some(Notice::Silence { .. } | Notice::Overdue { .. } | Notice::Stalled { .. }) => {}
            None => {
                self.network.tell(seat, message, How { region: self.travel.at(), ..How::default() });
            }
        }
    }

    /// Waits for the signal and connects again; `None` once the run stops.
    async fn come_back(&mut self, until: Instant) -> Option<(Client, Events)> {
        let (mut stop, mut calm) = (self.network.stop.clone(), self.network.calm.clone());
        tokio::select! {
            () = sleep_until(until) => {}
            _ = calm.wait_for(|calm| *calm) => {}
            _ = stop.wait_for(|stop| *stop) => return None,
        }
        // A console whose broker ended has chosen another one already.
        if !self.travel.is_waiting() {
            self.travel.may_go(MOVES);
        }
        let mut pause = FIRST_PAUSE;
        loop {
            match self.open().await {
                Ok(connection) => return Some(connection),
                Err(error) => self.network.board.lost_connection(format!("{error:#}")),
            }
            self.travel.fails();
            if timeout(pause, stop.wait_for(|stop| *stop)).await.is_ok() {
                return None;
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}
