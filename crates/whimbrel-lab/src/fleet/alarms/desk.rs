//! An alarm desk asks for the alarms of all regions at the broker of its own, and keeps its
//! position: after a kill of its broker it continues where it was.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio::sync::watch;
use tokio::time::sleep;
use whimbrel_client::{
    Client, Durability, Event, Events, Message, Position, QoS, ReasonCode, RetainHandling, Start, Subscription,
};

use super::publisher::LAST_PAUSE;
use super::{ALL, report};
use crate::fleet::board::Board;
use crate::fleet::link::FIRST_PAUSE;

/// See the module's documentation.
pub(super) struct AlarmDesk {
    region: usize,
    address: String,
    name: String,
    /// The topics of alarms, by region.
    topics: Vec<String>,
    board: Arc<Board>,
    /// Its position, if it had a connection.
    position: Option<Position>,
    home: watch::Receiver<bool>,
}

impl AlarmDesk {
    /// The desk of a region whose broker has this address; `names`: those of all regions. It ends
    /// once `home` is set.
    pub(super) fn new(
        region: usize,
        address: &str,
        names: &[String],
        board: Arc<Board>,
        home: watch::Receiver<bool>,
    ) -> AlarmDesk {
        AlarmDesk {
            region,
            address: address.to_owned(),
            name: format!("alarm-desk-{}", names[region]),
            topics: names.iter().map(|name| report::topic(name)).collect(),
            board,
            position: None,
            home,
        }
    }

    /// Connects, and subscribes from its position.
    pub(super) async fn open(&mut self) -> Result<(Client, Events)> {
        let connected = Client::connect(self.board.options(&self.address, &self.name).clean_start(true)).await;
        let told = || format!("cannot connect {} to the broker at {}", self.name, self.address);
        let (client, mut events) = connected.with_context(told)?;
        let mut subscription = Subscription::to(ALL).qos(QoS::AtLeastOnce).notices();
        subscription = subscription.retained(RetainHandling::DoNotSend).durability(Durability::SemiDurable);
        if let Some(position) = &self.position {
            subscription = subscription.from(Start::After(position.clone()));
        }
        let asked = events.during(client.subscribe_to(&subscription)).await;
        let answer = asked.with_context(|| format!("{} cannot subscribe to {ALL}", self.name))?;
        if answer.reasons != [ReasonCode(QoS::AtLeastOnce as u8)] {
            bail!("{} was granted {:?} for {ALL}", self.name, answer.reasons);
        }
        let Some(token) = answer.tokens().next().flatten() else { bail!("the broker gives no position") };
        match &mut self.position {
            Some(position) => position.resumed(token),
            None => self.position = Some(Position::at(token)),
        }
        let now = self.board.now();
        self.board.alarms.with(|state| state.judge.attends(self.region, now));
        Ok((client, events))
    }

    /// Takes alarms until the run is over.
    pub(super) async fn run(mut self, mut client: Client, mut events: Events) {
        while let Some(why) = self.listen(&mut events).await {
            self.board.alarms.with(|state| state.judge.is_away(self.region));
            self.board.lost_connection(why);
            let mut pause = FIRST_PAUSE;
            (client, events) = loop {
                if *self.home.borrow() {
                    return;
                }
                sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
                match self.open().await {
                    Ok(connection) => break connection,
                    Err(error) => self.board.lost_connection(format!("{error:#}")),
                }
            };
        }
        client.disconnect().await;
    }

    /// Takes events until the connection is lost, and returns why; `None` once the run is over.
    async fn listen(&mut self, events: &mut Events) -> Option<String> {
        let mut home = self.home.clone();
        loop {
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Event::Message(message)) => self.take(&message),
                    Some(Event::Disconnected { reason }) => return Some(reason.to_string()),
                    None => return Some("the connection was closed".to_owned()),
                },
                _ = home.wait_for(|home| *home) => return None,
            }
        }
    }

    fn take(&mut self, message: &Message) {
        let now = self.board.now();
        if let Some(position) = &mut self.position {
            position.note(message);
        }
        // What a gap or an overdue alarm is, the judge knows better.
        if message.notice().is_some() {
            return;
        }
        let publisher = self.topics.iter().position(|topic| *topic == message.topic);
        self.board.alarms.with(|state| match publisher.zip(report::read(&message.payload)) {
            Some((region, (number, at))) => state.judge.arrived(self.region, region, number, at, now),
            None => state.judge.arrived_unreadable(),
        });
    }
}
