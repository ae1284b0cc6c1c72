//! A storm from its first subscription to the verdict.

use std::time::Duration;

use crate::book::{Book, Clock};
use crate::broker::{Plan, Running};
use crate::publisher::{self, Publisher};
use crate::subscriber::{self, Subscriber};
use crate::weather::{Phase, Up, Weather};

/// How long a round waits for what it has in mind; then it ends all the same.
const PATIENCE: std::ops::Range<u64> = 5..400;

/// Moments that a publisher's event takes with all its receivers, about.
const MOMENTS_OF_EVENT: u64 = 6;

/// How often the killer gives way to others before it kills a broker that has just been spawned, at
/// most.
const TURNS: u32 = 20_000;

/// One in this number of brokers is killed before it is ready, too.
const STILLBORN: u32 = 4;

pub struct Storm {
    pub plan: Plan,
    pub seed: u64,
    pub rounds: u32,
    /// Rounds end with `kill -9`.
    pub kills: bool,
    pub publishers: Vec<publisher::Habits>,
    pub subscribers: Vec<subscriber::Habits>,
    /// How long all of it may take.
    pub limit: Duration,
}

impl Storm {
    /// Lets it happen; gives what the clients saw.
    pub async fn rage(mut self) -> Book {
        let weather = Weather::new(self.limit);
        let durable = self.plan.store().is_durable();
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut broker = Some(self.next(&weather, 0));
        let mut subscribers = Vec::new();
        for habits in &self.subscribers {
            let mut subscriber = Subscriber::new(habits.clone(), &weather, self.seed, durable);
            subscriber.begin().await.expect("nobody disturbs the first subscriptions");
            subscribers.push(subscriber);
        }
        let subscribers: Vec<_> = subscribers.into_iter().map(|subscriber| tokio::spawn(subscriber.work())).collect();
        let publisher = |habits: &publisher::Habits| Publisher::new(*habits, &weather, self.seed).work(weather.clone());
        let publishers: Vec<_> = self.publishers.iter().map(|habits| tokio::spawn(publisher(habits))).collect();
        for round in 0..self.rounds {
            weather.phase.send_replace(Phase::Round(round));
            self.wait(&weather.clock, &mut random).await;
            if self.kills {
                weather.up.send_replace(None);
                drop(broker.take());
                self.stillborn(&mut random);
                broker = Some(self.next(&weather, round + 1));
            }
        }
        weather.close().await;
        let mut book = Book::default();
        for publisher in publishers {
            book.published.extend(publisher.await.expect("a publisher does not panic"));
        }
        let last = book.published.iter().filter(|event| event.last && event.is_accepted());
        weather.last.send_replace(Some(last.map(|event| (event.name, event.topic.clone())).collect()));
        for subscriber in subscribers {
            book.histories.extend(subscriber.await.expect("a subscriber does not panic"));
        }
        book
    }

    /// Starts the broker's next life.
    fn next(&mut self, weather: &Weather, life: u32) -> Running {
        let started = tokio::task::block_in_place(|| self.plan.start());
        let running = started.unwrap_or_else(|log| panic!("life {life} of the broker does not begin: {log}"));
        weather.up.send_replace(Some(Up { life, url: self.plan.url() }));
        running
    }

    /// Waits until some part of this round's events is through.
    async fn wait(&self, clock: &Clock, random: &mut fastrand::Rng) {
        let events: u64 = self.publishers.iter().map(|habits| u64::from(habits.each)).sum();
        let until = clock.now() + random.u64(..events * MOMENTS_OF_EVENT);
        let patience = Duration::from_millis(random.u64(PATIENCE));
        // Whichever comes first.
        let _ = tokio::time::timeout(patience, clock.reached(until)).await;
    }

    /// Now and then lets a broker begin, and kills it somewhere on its way through recovery.
    fn stillborn(&self, random: &mut fastrand::Rng) {
        if random.u32(..STILLBORN) == 0 {
            let starting = self.plan.spawn();
            let turns = random.u32(..TURNS);
            tokio::task::block_in_place(|| (0..turns).for_each(|_| std::thread::yield_now()));
            drop(starting);
        }
    }
}
