//! Publishers that number their events, at a steady pace, over the lives of their broker.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use whimbrel_client::{Client, Error, Options, Publish, QoS, Receipt};

use crate::book::{Desk, Name, Phase, Published};
use crate::world::Up;

/// The length of a payload.
const PAYLOAD: usize = 150;

/// The leaves of a publisher's topics.
const LEAVES: [&str; 2] = ["a", "b"];

pub struct Publisher {
    pub number: u32,
    pub site: usize,
    pub qos: QoS,
    /// Between two events.
    pub pace: Duration,
    pub desk: Desk,
    pub up: watch::Receiver<Up>,
    /// Numbers that have been used.
    pub used: u32,
}

impl Publisher {
    /// Publishes until its last events are acknowledged. What was not answered when a connection
    /// ended is never sent again.
    pub async fn work(mut self) {
        loop {
            let up = self.up.wait_for(|up| up.url.is_some()).await.expect("the world outlives it").clone();
            let options = Options::new(up.url.expect("it is there")).client_id(format!("publisher-{}", self.number));
            if let Ok((client, _events)) = Client::connect(options.timeout(Duration::from_secs(5))).await
                && self.publish(&client, up.life).await.is_ok()
            {
                return client.disconnect().await;
            }
            let mut known = self.up.clone();
            known.wait_for(|now| now.life != up.life || now.url.is_none()).await.expect("the world outlives it");
        }
    }

    /// `Ok` when all is done, and an error if the connection is over.
    async fn publish(&mut self, client: &Client, life: u32) -> Result<(), Error> {
        let mut pace = interval(self.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut flying: VecDeque<(Name, Receipt)> = VecDeque::new();
        let mut phase = self.desk.phase.subscribe();
        let mut last = 0;
        loop {
            let is_last = *phase.borrow_and_update() != Phase::Running;
            if is_last && last == LEAVES.len() && flying.is_empty() {
                return Ok(());
            }
            tokio::select! {
                _ = pace.tick(), if last < LEAVES.len() => {
                    let leaf = if is_last { last } else { self.used as usize % LEAVES.len() };
                    last += usize::from(is_last);
                    let (name, publish) = self.next(LEAVES[leaf], is_last, life);
                    flying.push_back((name, client.send(publish).await?));
                }
                answer = async { flying[0].1.acknowledged().await }, if !flying.is_empty() => {
                    answer?;
                    let (name, _) = flying.pop_front().expect("it was answered");
                    let mut book = self.desk.book();
                    book.published.get_mut(&name).expect("it was sent").acknowledged = Some(Instant::now());
                }
            }
        }
    }

    /// The next event, which the book has already.
    fn next(&mut self, leaf: &str, last: bool, life: u32) -> (Name, Publish) {
        self.used += 1;
        let name = Name { publisher: self.number, number: self.used };
        let topic = format!("load/{}/{leaf}", self.number);
        let level = (self.used * 7 % 10) as u8;
        let mut payload = name.mark().into_bytes();
        payload.resize(PAYLOAD, b'.');
        let publish = Publish::new(&topic, payload).qos(self.qos);
        let publish = publish.property("level", level.to_string()).property("last", last.to_string());
        let reliable = self.qos != QoS::AtMostOnce;
        let (life, sent) = ((self.site, life), Instant::now());
        let event = Published { topic, level, last, reliable, life, sent, acknowledged: None };
        self.desk.book().published.insert(name, event);
        self.desk.sent.send_modify(|sent| *sent += 1);
        (name, publish)
    }
}
