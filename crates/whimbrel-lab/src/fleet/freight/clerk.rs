//! A clerk publishes orders, and completes each one whatever happens to the connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use whimbrel_client::{Client, Error, Publish, QoS, Receipt, Session};

use super::{CLERKS, Habits, SESSION_EXPIRY, order};
use crate::fleet::board::Board;
use crate::fleet::link::FIRST_PAUSE;
use crate::fleet::regions::Travel;

/// Unanswered orders of a clerk, at most.
const WINDOW: usize = 64;
/// A clerk that is further behind takes no more orders until it has caught up.
const BEHIND: Duration = Duration::from_secs(10);
/// The longest pause between two attempts to connect again.
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Clerk {
    index: usize,
    board: Arc<Board>,
    travel: Travel,
    random: fastrand::Rng,
    session: Session,
    /// Sequence numbers for the broker begin after this one, and so after those of earlier runs.
    base: u64,
    /// The last number.
    number: u64,
    /// The order that was being handed over when the connection ended: the session may have it or
    /// not.
    handing: Option<(u64, Publish)>,
    /// The orders, by their numbers in the session.
    sent: BTreeMap<u64, u64>,
    /// When the next order is due.
    due: Instant,
    interval: Duration,
}

/// Why a clerk closes its connection.
enum Rest {
    /// Everything is answered, and nothing more is to be sent.
    Done,
    /// The clerk goes to another region.
    Moves,
}

impl Clerk {
    pub(super) fn new(index: usize, board: Arc<Board>, travel: Travel, habits: Habits) -> Clerk {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let interval = Duration::from_secs(1) * CLERKS as u32 / habits.rate.max(1);
        Clerk {
            index,
            board,
            travel,
            random: fastrand::Rng::with_seed(habits.seed.wrapping_add(index as u64)),
            session: Session::new(),
            base: since_epoch.as_millis() as u64,
            number: 0,
            handing: None,
            sent: BTreeMap::new(),
            due: Instant::now() + interval * index as u32 / CLERKS as u32,
            interval,
        }
    }

    /// Connects for the first time.
    pub(super) async fn begin(&mut self) -> Result<Client> {
        let client = self.connect(true).await;
        let (name, address) = (order::name(self.index), self.travel.address());
        client.with_context(|| format!("cannot connect {name} to the broker at {address}"))
    }

    async fn connect(&mut self, clean: bool) -> Result<Client, Error> {
        // Unanswered orders are sent again on the new connection.
        if let Some(from) = self.sent.values().copied().chain(self.handing.iter().map(|(number, _)| *number)).min() {
            self.hands(from);
        }
        let options = self
            .board
            .options(self.travel.address(), &order::name(self.index))
            .session(self.session.clone())
            .clean_start(clean)
            .session_expiry(SESSION_EXPIRY);
        let (client, _) = Client::connect(options).await?;
        self.board.freight.with(|state| state.clerks += 1);
        self.travel.settles();
        Ok(client)
    }

    /// Tells the ledger that all orders from this one on go to the broker of the present region.
    fn hands(&self, from: u64) {
        let (index, region) = (self.index, self.travel.at());
        self.board.freight.with(|state| state.ledger.handed(index, from, region));
    }

    /// Publishes until `stop` is set and everything is answered.
    pub(super) async fn run(mut self, mut client: Client, mut stop: watch::Receiver<bool>) {
        loop {
            let mut flying = client.resent().into();
            let ended = self.work(&client, &mut flying, &mut stop).await;
            self.board.freight.with(|state| state.clerks -= 1);
            let mut pause = FIRST_PAUSE;
            let is_lost = ended.is_err();
            match ended {
                Ok(Rest::Done) => return client.disconnect().await,
                Ok(Rest::Moves) => {
                    // In half of the cases with orders in flight.
                    if self.travel.tosses() {
                        client.abandon();
                    } else {
                        client.disconnect().await;
                    }
                    self.travel.goes();
                }
                Err(why) => {
                    client.abandon();
                    self.board.lost_connection(why.to_string());
                    self.travel.is_lost();
                }
            }
            // Some may have been answered while the connection ended: the session no longer has
            // them.
            for mut receipt in flying {
                let answer = receipt.acknowledged().await;
                // Unanswered orders stay in the session.
                drop(self.answered(receipt.number(), answer));
            }
            if is_lost {
                sleep(pause).await;
            }
            client = loop {
                match self.connect(false).await {
                    Ok(client) => break client,
                    Err(error) => self.board.lost_connection(format!("{}: {error}", order::name(self.index))),
                }
                self.travel.fails();
                sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
            };
        }
    }

    /// Publishes; `flying`: the unanswered orders. An error if the connection has ended.
    async fn work(
        &mut self,
        client: &Client,
        flying: &mut VecDeque<Receipt>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Rest, Error> {
        // The connection had ended before the order was handed over.
        if let Some((number, publish)) = self.handing.take() {
            flying.push_back(self.hand_over(client, number, publish).await?);
        }
        loop {
            let stopped = *stop.borrow_and_update();
            if stopped && flying.is_empty() {
                return Ok(Rest::Done);
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
                () = sleep_until(self.due), if has_room && !stopped => flying.push_back(self.send(client).await?),
                _ = stop.changed(), if !stopped => {}
                () = self.travel.leaves() => return Ok(Rest::Moves),
            }
        }
    }

    async fn send(&mut self, client: &Client) -> Result<Receipt, Error> {
        let now = Instant::now();
        self.due = (self.due + self.interval).max(now.checked_sub(BEHIND).unwrap_or(now));
        self.number += 1;
        let (index, number) = (self.index, self.number);
        let topic = order::topic(index);
        let (body, pallets) = order::make(number, &mut self.random);
        let digest = order::digest(&topic, &body);
        let at = self.board.now();
        self.board.freight.with(|state| state.ledger.sent(index, number, digest, at));
        self.hands(number);
        let publish = Publish::new(topic, body).property("pallets", pallets.to_string());
        let publish = match order::is_express(index) {
            // The session takes its packet identifiers from broker to broker; the number tells
            // which orders a broker that died had.
            true if self.travel.has_several() => publish.qos(QoS::ExactlyOnce).sequence(self.base + number),
            true => publish.qos(QoS::ExactlyOnce),
            false => publish.qos(QoS::AtLeastOnce).sequence(self.base + number),
        };
        self.hand_over(client, number, publish).await
    }

    async fn hand_over(&mut self, client: &Client, number: u64, publish: Publish) -> Result<Receipt, Error> {
        self.handing = Some((number, publish.clone()));
        let receipt = client.send(publish).await?;
        self.handing = None;
        self.sent.insert(receipt.number(), number);
        Ok(receipt)
    }

    fn answered(&mut self, receipt: u64, answer: Result<whimbrel_client::Published, Error>) -> Result<(), Error> {
        let index = self.index;
        let outcome = match answer {
            Ok(_) => super::ledger::Ledger::accepted,
            Err(Error::Refused { reason, text }) => {
                let text = text.unwrap_or_default();
                self.board.trouble(format!("an order of {} was refused: {reason} {text}", order::name(index)));
                super::ledger::Ledger::refused
            }
            Err(error) => return Err(error),
        };
        if let Some(number) = self.sent.remove(&receipt) {
            self.board.freight.with(|state| outcome(&mut state.ledger, index, number));
        }
        Ok(())
    }
}
