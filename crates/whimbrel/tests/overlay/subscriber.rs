//! Subscribers: some stay at their broker and come back to it, roamers go from one to the next.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use whimbrel_client::{
    Client, Durability, Error, Event, Events, Message, Notice, Options, Position, QoS, RetainHandling, Start,
    Subscription,
};

use crate::book::{Desk, Kind, Name, Phase, Seen};
use crate::world::Up;

/// A roamer leaves after this number of messages.
const STAY: u32 = 120;

/// It is away until all publishers together have sent this number of events.
const AWAY: u64 = 60;

pub struct Subscriber {
    /// Its place among the histories.
    pub index: usize,
    pub kind: Kind,
    pub qos: QoS,
    /// Where it begins, and a roamer ends.
    pub home: usize,
    pub desk: Desk,
    pub up: Vec<watch::Receiver<Up>>,
    /// Told when the subscription has been granted for the first time.
    pub begun: Option<oneshot::Sender<()>>,
    pub position: Option<Position>,
    /// Last events that it has.
    pub last: BTreeSet<Name>,
}

/// Why a stay at a broker has ended.
enum Ended {
    /// It has all it waits for.
    Done,
    /// It has had enough of this broker.
    Moved,
    Lost,
}

impl Subscriber {
    /// Takes what comes until it has the last events of all publishers.
    pub async fn work(mut self) {
        let mut at = self.home;
        loop {
            let is_roamer = self.kind == Kind::Roamer;
            let is_there = |up: &Up| up.url.is_some() && (up.whole || !is_roamer);
            let up = self.up[at].wait_for(is_there).await.expect("the world outlives it").clone();
            let ended = match self.connect(&up, at).await {
                Ok((client, mut events)) => {
                    let ended = self.stay(&mut events).await;
                    if matches!(ended, Ended::Moved) {
                        client.abandon()
                    } else {
                        client.disconnect().await
                    }
                    self.see(Seen::Away);
                    ended
                }
                Err(_) => Ended::Lost,
            };
            match ended {
                Ended::Done => return,
                Ended::Lost if self.kind != Kind::Roamer => {
                    let mut known = self.up[at].clone();
                    let other = |now: &Up| now.life != up.life || now.url.is_none();
                    known.wait_for(other).await.expect("the world outlives it");
                }
                _ => {
                    let mut phase = self.desk.phase.subscribe();
                    tokio::select! {
                        () = self.desk.events(AWAY) => {}
                        _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
                    }
                    at = if *phase.borrow() == Phase::Running { (at + 1) % self.up.len() } else { self.home };
                }
            }
        }
    }

    async fn connect(&mut self, up: &Up, at: usize) -> Result<(Client, Events), Error> {
        let url = up.url.clone().expect("it is there");
        let options = Options::new(url).client_id(format!("subscriber-{}", self.index));
        let (client, mut events) = Client::connect(options.timeout(Duration::from_secs(5))).await?;
        let (filter, least) = {
            let book = self.desk.book();
            (book.histories[self.index].filter, book.histories[self.index].least)
        };
        let mut subscription = Subscription::to(filter).qos(self.qos).retained(RetainHandling::DoNotSend);
        if let Some(least) = least {
            subscription = subscription.selector(format!("level >= {least} OR last = TRUE"));
        }
        if self.kind != Kind::Plain {
            subscription = subscription.notices();
        }
        if self.kind == Kind::Roamer {
            subscription = subscription.durability(Durability::SemiDurable);
            if let Some(position) = &self.position {
                subscription = subscription.from(Start::After(position.clone()));
            }
        }
        let answer = events.during(client.subscribe_to(&subscription)).await?;
        assert!(!answer.reasons[0].is_error(), "refused: {answer:?}");
        let named = answer.properties.iter().filter(|(name, _)| name == "w-pending");
        let pending = named.map(|(_, broker)| broker.clone()).collect();
        self.see(Seen::Granted { life: (at, up.life), pending });
        if self.kind == Kind::Roamer {
            let token = answer.tokens().next().flatten().expect("SUBACK names the position");
            match &mut self.position {
                Some(position) => position.resumed(token),
                None => self.position = Some(Position::at(token)),
            }
        }
        if let Some(begun) = self.begun.take() {
            // The world that waited for it may have given up.
            let _ = begun.send(());
        }
        Ok((client, events))
    }

    async fn stay(&mut self, events: &mut Events) -> Ended {
        let mut phase = self.desk.phase.subscribe();
        let mut taken = 0;
        loop {
            let now = phase.borrow_and_update().clone();
            if matches!(&now, Phase::Over(last) if self.has_all(last)) {
                return Ended::Done;
            }
            if self.kind == Kind::Roamer && now == Phase::Running && taken >= STAY {
                return Ended::Moved;
            }
            tokio::select! {
                event = events.next() => match event {
                    Some(Event::Message(message)) => {
                        taken += 1;
                        self.note(&message);
                    }
                    _ => return Ended::Lost,
                },
                _ = phase.changed() => {}
            }
        }
    }

    fn has_all(&self, last: &[Name]) -> bool {
        let book = self.desk.book();
        let history = &book.histories[self.index];
        last.iter().all(|name| !history.wants(&book.published[name]) || self.last.contains(name))
    }

    fn note(&mut self, message: &Message) {
        if let Some(position) = &mut self.position {
            position.note(message);
        }
        let seen = match message.notice() {
            Some(Notice::Silence { .. } | Notice::Overdue { .. } | Notice::Stalled { .. }) => return,
            Some(Notice::Gap(gap)) => {
                Seen::Gap { pubend: gap.pubend, from: gap.from, to: gap.to, reason: gap.reason.name().to_owned() }
            }
            None => match Name::unmark(&message.payload) {
                Some(name) => {
                    if message.properties.iter().any(|(name, value)| name == "last" && value == "true") {
                        self.last.insert(name);
                    }
                    Seen::Delivered { name, id: message.id() }
                }
                None => Seen::Stray(format!("{} with {} bytes", message.topic, message.payload.len())),
            },
        };
        self.see(seen);
    }

    fn see(&self, seen: Seen) {
        self.desk.book().histories[self.index].seen.push((Instant::now(), seen));
    }
}
