//! Publishers that number their events, and keep what became of each.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::watch;
use whimbrel_client::{Client, Error, Options, Publish, QoS, Receipt, Session};

use crate::book::{Clock, Fate, Moment, Name, Published};
use crate::weather::{Phase, Weather};

/// Events on their way at most.
const WINDOW: usize = 16;

/// The length of a payload, about.
const PAYLOAD: usize = 180;

/// How a publisher works.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    pub number: u32,
    /// Its QoS; `None`: now this, now that.
    pub qos: Option<QoS>,
    /// It numbers its events with `w-seq`.
    pub numbered: bool,
    /// It has a session at the broker; else each connection begins anew.
    pub session: bool,
    /// Events in each round.
    pub each: u32,
    /// Bytes of a payload, if not as usual.
    pub bytes: Option<usize>,
}

impl Habits {
    pub fn new(number: u32, qos: QoS) -> Habits {
        Habits { number, qos: Some(qos), numbered: false, session: true, each: 100, bytes: None }
    }
}

/// What an event's payload begins with.
pub fn mark(name: Name) -> String {
    format!("storm-{}-{:06};", name.publisher, name.number)
}

/// Reads it back.
pub fn unmark(payload: &[u8]) -> Option<Name> {
    let text = payload.strip_prefix(b"storm-")?;
    let end = text.iter().position(|byte| *byte == b';')?;
    let (publisher, number) = std::str::from_utf8(&text[..end]).ok()?.split_once('-')?;
    Some(Name { publisher: publisher.parse().ok()?, number: number.parse().ok()? })
}

/// The topics of a publisher.
pub fn topics(publisher: u32) -> [String; 2] {
    ["a", "b"].map(|leaf| format!("storm/{publisher}/{leaf}"))
}

pub struct Publisher {
    habits: Habits,
    clock: Clock,
    random: fastrand::Rng,
    session: Session,
    events: Vec<Published>,
    /// Which event has which number in the session.
    sent: BTreeMap<u64, usize>,
}

impl Publisher {
    pub fn new(habits: Habits, weather: &Weather, seed: u64) -> Publisher {
        let random = fastrand::Rng::with_seed(seed ^ u64::from(habits.number));
        let (events, sent) = (Vec::new(), BTreeMap::new());
        Publisher { habits, clock: weather.clock.clone(), random, session: Session::new(), events, sent }
    }

    /// Publishes until the storm is over and everything is answered, or the deadline has passed;
    /// gives what it knows.
    pub async fn work(mut self, weather: Weather) -> Vec<Published> {
        let mut phase = weather.phase.subscribe();
        // Whatever it has not finished by then is of unknown fate.
        let _ = tokio::time::timeout_at(weather.deadline, async {
            loop {
                let up = weather.is_up().await;
                if let Ok(client) = self.connect(&up.url).await
                    && self.publish(&client, &mut phase).await.is_ok()
                {
                    client.disconnect().await;
                    return;
                }
                weather.is_other(&up).await;
            }
        })
        .await;
        self.events
    }

    async fn connect(&mut self, url: &str) -> Result<Client, Error> {
        let habits = self.habits;
        let mut options =
            Options::new(url).client_id(format!("publisher-{}", habits.number)).session(self.session.clone());
        if habits.session {
            options = options.clean_start(false).session_expiry(3600);
        }
        let (client, _) = Client::connect(options).await?;
        self.clock.tick();
        Ok(client)
    }

    /// `Ok` when all is done, and an error if the connection is over.
    async fn publish(&mut self, client: &Client, phase: &mut watch::Receiver<Phase>) -> Result<(), Error> {
        let mut flying: VecDeque<Receipt> = client.resent().into();
        for receipt in &flying {
            self.events[self.sent[&receipt.number()]].sends += 1;
        }
        loop {
            let now = *phase.borrow_and_update();
            let rest = match now {
                Phase::Round(round) => (self.habits.each * (round + 1)).saturating_sub(self.events.len() as u32),
                Phase::Closing => 0,
                Phase::Over => self.missing_last() as u32,
            };
            if rest > 0 && flying.len() < WINDOW {
                flying.push_back(self.send(client, now == Phase::Over).await?);
            } else if let Some(mut receipt) = flying.pop_front() {
                let answer = receipt.acknowledged().await;
                self.answered(receipt.number(), answer)?;
            } else if now == Phase::Over {
                return Ok(());
            } else {
                // The weather outlives the publishers.
                let _ = phase.changed().await;
            }
        }
    }

    /// Topics whose last event is not sent yet.
    fn missing_last(&self) -> usize {
        topics(self.habits.number).len() - self.events.iter().filter(|event| event.last).count()
    }

    async fn send(&mut self, client: &Client, last: bool) -> Result<Receipt, Error> {
        let habits = self.habits;
        let name = Name { publisher: habits.number, number: self.events.len() as u32 + 1 };
        let topics = topics(habits.number);
        let topic = if last { &topics[self.missing_last() - 1] } else { &topics[self.random.usize(..topics.len())] };
        let level = self.random.u8(..10);
        let qos = habits.qos.unwrap_or(if self.random.bool() { QoS::AtLeastOnce } else { QoS::ExactlyOnce });
        let mut payload = mark(name).into_bytes();
        payload.resize(habits.bytes.unwrap_or(PAYLOAD), b'.');
        let mut publish = Publish::new(topic, payload).qos(qos).property("level", level.to_string());
        publish = publish.property("last", last.to_string());
        if habits.numbered {
            publish = publish.sequence(name.number.into());
        }
        let exact = habits.numbered || (qos == QoS::ExactlyOnce && habits.session);
        let first = self.clock.tick();
        let (topic, fate) = (topic.clone(), Fate::Unknown);
        self.events.push(Published {
            name,
            topic,
            level,
            last,
            exact,
            qos2: qos == QoS::ExactlyOnce,
            first,
            sends: 0,
            fate,
        });
        // If this fails, nothing has left, and nothing will.
        let receipt = client.send(publish).await?;
        self.sent.insert(receipt.number(), self.events.len() - 1);
        self.events[name.number as usize - 1].sends = 1;
        Ok(receipt)
    }

    fn answered(&mut self, number: u64, answer: Result<whimbrel_client::Published, Error>) -> Result<(), Error> {
        let at: Moment = self.clock.tick();
        let index = self.sent[&number];
        self.events[index].fate = match answer {
            Ok(_) => Fate::Accepted(at),
            Err(Error::Refused { .. }) => Fate::Refused(at),
            Err(error) => return Err(error),
        };
        Ok(())
    }
}
