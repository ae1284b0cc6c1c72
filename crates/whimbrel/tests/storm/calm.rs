//! One publisher that waits for each answer, and the steps around it, for tests in which one thing
//! happens after the other.

use whimbrel_client::{Client, Error, Options, Publish, QoS, ReasonCode};

use crate::book::{Book, Fate, Name, Published};
use crate::broker::{Plan, Running};
use crate::publisher::mark;
use crate::subscriber::{Habits, Subscriber};
use crate::weather::{Phase, Up, Weather};

/// The only publisher.
const PUBLISHER: u32 = 1;

/// A broker and its clients, none of which does anything unasked.
pub struct Calm {
    pub weather: Weather,
    pub plan: Plan,
    broker: Option<Running>,
    life: u32,
    client: Option<Client>,
    events: Vec<Published>,
    subscribers: Vec<Subscriber>,
}

impl Calm {
    /// A running broker and subscribers that have subscribed and vanished.
    pub async fn begin(plan: Plan, weather: Weather, subscribers: &[Habits]) -> Calm {
        let (broker, client) = (None, None);
        let mut calm = Calm { weather, plan, broker, life: 0, client, events: Vec::new(), subscribers: Vec::new() };
        calm.start().await.unwrap_or_else(|log| panic!("the broker does not start: {log}"));
        for habits in subscribers {
            let durable = calm.plan.store().is_durable();
            let mut subscriber = Subscriber::new(habits.clone(), &calm.weather, 7, durable);
            subscriber.begin().await.expect("nobody disturbs the subscriptions");
            calm.subscribers.push(subscriber);
        }
        calm
    }

    /// Kills the broker.
    pub fn kill(&mut self) {
        self.weather.up.send_replace(None);
        self.client = None;
        self.broker = None;
    }

    /// Starts the broker and connects the publisher.
    ///
    /// # Errors
    /// The broker does not start, and says this.
    pub async fn start(&mut self) -> Result<(), String> {
        self.broker = Some(tokio::task::block_in_place(|| self.plan.start())?);
        self.life += 1;
        self.weather.up.send_replace(Some(Up { life: self.life, url: self.plan.url() }));
        let options = Options::new(self.plan.url()).client_id("calm").clean_start(false).session_expiry(3600);
        let (client, _) = Client::connect(options).await.expect("the broker is there");
        self.client = Some(client);
        Ok(())
    }

    /// Publishes one event of this number of bytes and awaits its fate; whether it was accepted.
    pub async fn publish(&mut self, bytes: usize) -> bool {
        let name = Name { publisher: PUBLISHER, number: self.events.len() as u32 + 1 };
        let mut payload = mark(name).into_bytes();
        payload.resize(bytes, b'.');
        let topic = "storm/1/a";
        // A number that was refused is to be used again: greater ones are refused until then.
        let sequence = self.events.iter().filter(|event| event.is_accepted()).count() as u64 + 1;
        let publish = Publish::new(topic, payload).qos(QoS::AtLeastOnce).sequence(sequence);
        let publish = publish.property("level", "5").property("last", "true");
        let first = self.weather.clock.tick();
        let client = self.client.as_ref().expect("it is connected");
        let answer = client.publish(publish).await;
        let at = self.weather.clock.tick();
        let fate = match answer {
            Ok(_) => Fate::Accepted(at),
            Err(Error::Refused { reason, .. }) => {
                assert_eq!(reason, ReasonCode::QUOTA_EXCEEDED, "a refusal for want of room is 0x97");
                Fate::Refused(at)
            }
            Err(error) => panic!("event {} is neither accepted nor refused: {error}", name.number),
        };
        let topic = topic.to_owned();
        let event = Published { name, topic, level: 5, last: true, exact: true, qos2: false, first, sends: 1, fate };
        self.events.push(event);
        matches!(fate, Fate::Accepted(_))
    }

    /// Lets the subscribers come back. They end when they have the last accepted event of
    /// [`Calm::end`].
    pub fn release(&mut self) -> Vec<tokio::task::JoinHandle<Vec<crate::book::History>>> {
        self.weather.phase.send_replace(Phase::Over);
        self.subscribers.drain(..).map(|subscriber| tokio::spawn(subscriber.work())).collect()
    }

    /// Waits for the subscribers; gives what all have seen.
    pub async fn end(self, subscribers: Vec<tokio::task::JoinHandle<Vec<crate::book::History>>>) -> Book {
        let last = self.events.iter().rfind(|event| event.is_accepted()).expect("something was accepted");
        self.weather.last.send_replace(Some(vec![(last.name, last.topic.clone())]));
        let mut book = Book { published: self.events, histories: Vec::new() };
        for subscriber in subscribers {
            book.histories.extend(subscriber.await.expect("a subscriber does not panic"));
        }
        book
    }

    /// The number of the last event.
    pub fn number(&self) -> u32 {
        self.events.len() as u32
    }
}

/// One subscriber by each rule, none of which vanishes by itself.
pub fn one_by_each_rule() -> [Habits; 3] {
    use crate::book::{Condition::Any, Keeper};
    let habits = |name, keeper| Habits { vanishes: 0, ..Habits::new(name, keeper, &[("storm/#", Any)]) };
    [habits("i", Keeper::Client), habits("ii", Keeper::ExactlyOnce), habits("iii", Keeper::AtLeastOnce)]
}
