//! A publisher of alarms stays at the broker of its region, and connects to it again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use whimbrel_client::{Client, Error, Publish, Published, QoS, Receipt, Session};

use super::report;
use crate::fleet::board::Board;
use crate::fleet::link::FIRST_PAUSE;
use crate::fleet::regions::REGIONS_MAX;

/// The time between two alarms of a publisher.
const EVERY: Duration = Duration::from_millis(200);
/// Unanswered alarms of a publisher; with more it publishes none.
const WINDOW: usize = 64;
/// The longest pause between two attempts to connect again: it waits for one broker, which is down
/// for a moment.
pub(super) const LAST_PAUSE: Duration = Duration::from_millis(200);

/// See the module's documentation.
pub(super) struct AlarmPublisher {
    region: usize,
    name: String,
    address: String,
    board: Arc<Board>,
    session: Session,
    /// Sequence numbers for the broker begin after this one, and so after those of earlier runs.
    base: u64,
    /// The last number.
    number: u64,
    /// The alarm that was being handed over when the connection ended: the session does not have
    /// it.
    handing: Option<(u64, Publish)>,
    /// The unanswered alarms, by their numbers in the session.
    sent: BTreeMap<u64, u64>,
    due: Interval,
}

impl AlarmPublisher {
    pub(super) fn new(region: usize, name: &str, address: &str, board: Arc<Board>) -> AlarmPublisher {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Not all at once.
        let mut due = interval_at(Instant::now() + EVERY * region as u32 / REGIONS_MAX as u32, EVERY);
        // Nothing is published afterwards for the time without a connection.
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        AlarmPublisher {
            region,
            name: name.to_owned(),
            address: address.to_owned(),
            board,
            session: Session::new(),
            base: since_epoch.as_millis() as u64,
            number: 0,
            handing: None,
            sent: BTreeMap::new(),
            due,
        }
    }

    /// Connects for the first time.
    pub(super) async fn begin(&mut self) -> Result<Client> {
        let client = self.connect().await;
        client.with_context(|| format!("cannot connect {} to the broker at {}", self.id(), self.address))
    }

    fn id(&self) -> String {
        format!("alarms-{}", self.name)
    }

    /// Connects; unanswered alarms are sent again on the new connection.
    async fn connect(&self) -> Result<Client, Error> {
        let options = self.board.options(&self.address, &self.id()).session(self.session.clone()).clean_start(true);
        let (client, _) = Client::connect(options).await?;
        self.board.alarms.with(|state| state.publishers += 1);
        Ok(client)
    }

    /// Publishes until `stop` is set and everything is answered.
    pub(super) async fn run(mut self, mut client: Client, mut stop: watch::Receiver<bool>) {
        loop {
            let mut flying = client.resent().into();
            let ended = self.work(&client, &mut flying, &mut stop).await;
            self.board.alarms.with(|state| state.publishers -= 1);
            let Err(why) = ended else { return client.disconnect().await };
            client.abandon();
            self.board.lost_connection(why.to_string());
            // Some may have been answered while the connection ended: the session no longer has
            // them.
            for mut receipt in flying {
                let answer = receipt.acknowledged().await;
                // Unanswered ones stay in the session.
                drop(self.answered(receipt.number(), answer));
            }
            let mut pause = FIRST_PAUSE;
            client = loop {
                sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
                match self.connect().await {
                    Ok(client) => break client,
                    Err(error) => self.board.lost_connection(format!("{}: {error}", self.id())),
                }
            };
        }
    }

    /// Publishes; `flying`: the unanswered alarms. An error if the connection has ended.
    async fn work(
        &mut self,
        client: &Client,
        flying: &mut VecDeque<Receipt>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), Error> {
        if let Some((number, publish)) = self.handing.take() {
            flying.push_back(self.hand_over(client, number, publish).await?);
        }
        loop {
            let stopped = *stop.borrow_and_update();
            if stopped && flying.is_empty() {
                return Ok(());
            }
            let has_room = flying.len() < WINDOW;
            let answer = async {
                match flying.front_mut() {
                    Some(receipt) => receipt.acknowledged().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = answer => {
                    if let Some(receipt) = flying.pop_front() {
                        self.answered(receipt.number(), answer)?;
                    }
                }
                _ = self.due.tick(), if has_room && !stopped => flying.push_back(self.publish(client).await?),
                _ = stop.changed(), if !stopped => {}
            }
        }
    }

    async fn publish(&mut self, client: &Client) -> Result<Receipt, Error> {
        self.number += 1;
        // As exact as the body tells it.
        let at = Duration::from_micros(self.board.now().as_micros() as u64);
        self.board.alarms.with(|state| state.judge.published(self.region, self.number, at));
        let publish = Publish::new(report::topic(&self.name), report::write(self.number, at));
        // The number tells the broker what it had already, if it is sent again.
        let publish = publish.qos(QoS::AtLeastOnce).sequence(self.base + self.number);
        self.hand_over(client, self.number, publish).await
    }

    async fn hand_over(&mut self, client: &Client, number: u64, publish: Publish) -> Result<Receipt, Error> {
        self.handing = Some((number, publish.clone()));
        let receipt = client.send(publish).await?;
        self.handing = None;
        self.sent.insert(receipt.number(), number);
        Ok(receipt)
    }

    fn answered(&mut self, receipt: u64, answer: Result<Published, Error>) -> Result<(), Error> {
        match answer {
            Err(Error::Refused { reason, text }) => {
                let text = text.unwrap_or_default();
                self.board.trouble(format!("an alarm of {} was refused: {reason} {text}", self.name));
                self.sent.remove(&receipt);
            }
            Err(error) => return Err(error),
            Ok(_) => {
                if let Some(number) = self.sent.remove(&receipt) {
                    self.board.alarms.with(|state| state.judge.accepted(self.region, number));
                }
            }
        }
        Ok(())
    }
}
