//! A vehicle publishes its positions, one after the other, at the broker of its present region.
//!
//! With several regions it numbers its publishes, and sends again at the next broker what the last
//! one has not confirmed; that broker drops a repeat. With a single broker it continues with the
//! next position.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::time::timeout;
use whimbrel_client::{Client, Error, Event, Events, Publish, QoS, Receipt, Session};

use super::board::Role;
use super::link::{CONFIRM_LIMIT, Dial, FIRST_PAUSE, Network, Order};
use super::message::Outgoing;
use super::regions::Travel;

/// See the module's documentation.
pub(super) struct Vehicle {
    network: Network,
    vehicle: u32,
    dial: Dial,
    travel: Travel,
    seq: u64,
    /// Sequence numbers for the broker begin after this one, and so after those of earlier runs;
    /// `None` with a single broker.
    base: Option<u64>,
    /// Whether the last position is unanswered.
    is_pending: bool,
    /// Whether it goes to another region with the next position, without waiting for its answer.
    is_leaving: bool,
    /// A publish for which the connection was already closed: the session does not have it.
    handing: Option<Publish>,
}

/// Why a vehicle has no connection any more.
enum End {
    /// Nothing more is to be published.
    Done,
    /// The vehicle goes to another region.
    Moves,
    /// The connection was lost.
    Lost(String),
}

impl Vehicle {
    /// The vehicle of an index, which has a connection.
    pub(super) fn new(network: Network, vehicle: u32, dial: Dial, travel: Travel) -> Vehicle {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = travel.has_several().then_some(since_epoch.as_millis() as u64);
        Vehicle { network, vehicle, dial, travel, seq: 0, base, is_pending: false, is_leaving: false, handing: None }
    }

    /// Publishes the given positions until there are no more.
    pub(super) async fn run(mut self, connection: (Client, Events), mut orders: mpsc::Receiver<Order>) {
        let (mut client, mut events) = connection;
        loop {
            let end = self.work(&client, &mut events, &mut orders).await;
            let pause = match end {
                End::Done => break,
                End::Lost(why) => {
                    self.travel.is_lost();
                    self.network.board.dropped(Role::Vehicle, why);
                    FIRST_PAUSE
                }
                End::Moves => {
                    // The position in flight is still sent, and its answer is not awaited.
                    if self.is_pending || self.travel.tosses() {
                        client.disconnect().await;
                    } else {
                        client.abandon();
                    }
                    self.network.board.sets_out(Role::Vehicle);
                    self.travel.goes();
                    Duration::ZERO
                }
            };
            let Some(connection) = self.come_back(pause).await else {
                if self.is_pending {
                    self.network.board.unconfirmed(self.vehicle, self.seq);
                }
                return;
            };
            (client, events) = connection;
        }
        client.disconnect().await;
        self.network.board.left(Role::Vehicle);
    }

    async fn come_back(&mut self, pause: Duration) -> Option<(Client, Events)> {
        let pending = self.is_pending.then_some((self.vehicle, self.seq));
        self.network.come_back(&mut self.dial, &mut self.travel, (pause, pending)).await
    }

    /// Publishes until the connection ends, or must end.
    async fn work(&mut self, client: &Client, events: &mut Events, orders: &mut mpsc::Receiver<Order>) -> End {
        self.is_leaving = false;
        if let Err(why) = self.finish(client).await {
            return End::Lost(why);
        }
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    None => return End::Done,
                    Some(_) if *self.network.stop.borrow() => self.network.board.held_back(),
                    Some(order) => match self.publish(client, order).await {
                        Ok(true) => {}
                        Ok(false) => return End::Moves,
                        Err(why) => return End::Lost(why),
                    },
                },
                event = events.next() => match event {
                    Some(Event::Disconnected { reason }) => return End::Lost(reason.to_string()),
                    None => return End::Lost("the connection was closed".to_owned()),
                    Some(_) => {}
                },
                () = self.travel.leaves(), if !self.is_leaving => match self.travel.tosses() {
                    true => self.is_leaving = true,
                    false => return End::Moves,
                },
            }
        }
    }

    /// Waits for the answer that is open from an earlier connection; the reason if the connection
    /// is lost.
    async fn finish(&mut self, client: &Client) -> Result<(), String> {
        let receipt = match (self.handing.take(), client.resent().pop()) {
            (Some(publish), _) => Some(self.hand_over(client, publish).await?),
            (None, resent) => resent,
        };
        match receipt {
            Some(receipt) => self.await_answer(receipt).await,
            None => {
                // The session has it no longer: its answer arrived while the last connection ended.
                if std::mem::take(&mut self.is_pending) {
                    self.network.board.confirmed();
                }
                Ok(())
            }
        }
    }

    /// Publishes a position and waits until the broker has it; false if it is to leave before it
    /// knows. The reason if the connection is lost.
    async fn publish(&mut self, client: &Client, order: Order) -> Result<bool, String> {
        let board = self.network.board.clone();
        self.seq += 1;
        let outgoing = Outgoing::new(&board.trace, &order.position, self.seq);
        board.publishing(&order.position, self.seq, &outgoing, order.at);
        board.handing(self.vehicle, self.seq, self.travel.at());
        board.regions.published(self.travel.at());
        let mut publish = Publish::new(outgoing.topic, outgoing.body).qos(QoS::AtLeastOnce).retain(true);
        for (name, value) in outgoing.attributes {
            publish = publish.property(name, value);
        }
        if let Some(base) = self.base {
            publish = publish.sequence(base + self.seq);
        }
        self.is_pending = true;
        let receipt = self.hand_over(client, publish).await?;
        if std::mem::take(&mut self.is_leaving) && self.travel.is_due() {
            return Ok(false);
        }
        self.await_answer(receipt).await.map(|()| true)
    }

    async fn hand_over(&mut self, client: &Client, publish: Publish) -> Result<Receipt, String> {
        match client.send(publish.clone()).await {
            Ok(receipt) => Ok(receipt),
            Err(error) => {
                self.handing = self.base.is_some().then_some(publish);
                Err(self.is_unanswered(error.to_string()))
            }
        }
    }

    async fn await_answer(&mut self, mut receipt: Receipt) -> Result<(), String> {
        match timeout(CONFIRM_LIMIT, receipt.acknowledged()).await {
            Ok(Ok(_)) => {
                self.is_pending = false;
                self.network.board.confirmed();
                Ok(())
            }
            Ok(Err(Error::Refused { reason, text })) => {
                self.is_pending = false;
                self.network.board.unconfirmed(self.vehicle, self.seq);
                let text = text.unwrap_or_default();
                self.network.board.trouble(format!("a message was refused: {reason} {text}"));
                Ok(())
            }
            Ok(Err(error)) => Err(self.is_unanswered(error.to_string())),
            Err(_) => Err(self.is_unanswered(format!("a message was not confirmed within {CONFIRM_LIMIT:?}"))),
        }
    }

    /// The connection was lost: without numbers nothing is sent again.
    fn is_unanswered(&mut self, why: String) -> String {
        if self.base.is_none() && std::mem::take(&mut self.is_pending) {
            self.network.board.unconfirmed(self.vehicle, self.seq);
            // A new session does not have it.
            self.dial.session = Session::new();
        }
        why
    }
}
