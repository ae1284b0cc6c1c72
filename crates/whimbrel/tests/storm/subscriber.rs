//! Durable subscribers: they vanish, come back, change their minds, and keep what they saw.

use std::future::Future;

use whimbrel_client::{
    Client, Durability, Error, Event, Events, Message, Notice, Options, Position, QoS, ReasonCode, RetainHandling,
    Session, Start, Subscription,
};

use crate::book::{Condition, Filter, History, Keeper, Seen};
use crate::publisher::unmark;
use crate::weather::{Phase, Weather};

/// Deliveries that a client takes unacknowledged. Small, so that much is left for later when it
/// vanishes.
const WINDOW: u16 = 24;

/// How a subscriber behaves.
#[derive(Clone, Debug)]
pub struct Habits {
    pub name: &'static str,
    pub keeper: Keeper,
    /// Its subscriptions; those of one client overlap.
    pub wanted: Vec<(&'static str, Condition)>,
    /// It breaks its connection off after this number of messages at most, 0: never.
    pub vanishes: u32,
    /// It changes the condition of its first subscription now and then.
    pub changes: bool,
    /// It ends its first subscription now and then, and subscribes anew.
    pub leaves: bool,
}

impl Habits {
    pub fn new(name: &'static str, keeper: Keeper, wanted: &[(&'static str, Condition)]) -> Habits {
        Habits { name, keeper, wanted: wanted.to_vec(), vanishes: 150, changes: false, leaves: false }
    }
}

/// One subscription on the client's side.
struct Held {
    condition: Condition,
    /// The condition that was granted last.
    before: Option<Condition>,
    /// The broker has granted what was asked last, and the session has not been lost since.
    granted: bool,
    /// Its end was asked for, and no answer came.
    leaving: bool,
    /// It was ended, or is about to be, and has not been granted anew: it counts in
    /// [`Weather::ended`].
    ended: bool,
    /// Where it stands, if the client keeps that.
    position: Option<Position>,
    /// Last events that have come.
    last: Vec<crate::book::Name>,
    history: History,
}

pub struct Subscriber {
    habits: Habits,
    weather: Weather,
    random: fastrand::Rng,
    session: Session,
    held: Vec<Held>,
    durable: bool,
}

/// Why a connection's work is over.
enum End {
    /// Everything has come.
    Done,
    /// The client has had enough of this connection.
    Vanish,
    Lost,
}

impl Subscriber {
    /// `durable`: it says that it wants durable subscriptions where that is not the default; else
    /// semi-durable ones.
    pub fn new(habits: Habits, weather: &Weather, seed: u64, durable: bool) -> Subscriber {
        let held = |(index, &(filter, condition)): (usize, &(&'static str, Condition))| {
            let subscription = format!("{} {} {filter}", habits.name, index + 1);
            let history = History { subscription, keeper: habits.keeper, filter: Filter(filter), seen: Vec::new() };
            Held {
                condition,
                before: None,
                granted: false,
                leaving: false,
                ended: false,
                position: None,
                last: Vec::new(),
                history,
            }
        };
        let held = habits.wanted.iter().enumerate().map(held).collect();
        let mixed = habits.name.bytes().fold(seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let (random, session) = (fastrand::Rng::with_seed(mixed), Session::new());
        Subscriber { habits, weather: weather.clone(), random, session, held, durable }
    }

    /// Subscribes for the first time, and vanishes; whatever is published after this is due.
    pub async fn begin(&mut self) -> Result<(), Error> {
        let up = self.weather.is_up().await;
        let (client, mut events) = self.connect(&up.url).await?;
        self.catch_up_on_requests(&client, &mut events).await?;
        self.vanish(client, events).await;
        Ok(())
    }

    /// Receives until everything has come or the deadline has passed; gives what it saw.
    pub async fn work(mut self) -> Vec<History> {
        let weather = self.weather.clone();
        // What has not come by then is missing.
        let _ = tokio::time::timeout_at(weather.deadline, async {
            loop {
                let up = weather.is_up().await;
                let Ok((client, mut events)) = self.connect(&up.url).await else {
                    weather.is_other(&up).await;
                    continue;
                };
                let end = self.receive(&client, &mut events).await;
                self.vanish(client, events).await;
                match end {
                    End::Done => return,
                    End::Vanish => self.stay_away().await,
                    End::Lost => weather.is_other(&up).await,
                }
            }
        })
        .await;
        self.held.into_iter().map(|held| held.history).collect()
    }

    async fn connect(&mut self, url: &str) -> Result<(Client, Events), Error> {
        let options = Options::new(url).client_id(self.habits.name).session(self.session.clone());
        let options = options.clean_start(false).session_expiry(3600).receive_maximum(WINDOW);
        let (client, events) = Client::connect(options).await?;
        let present = client.session_present();
        for held in &mut self.held {
            held.granted &= present && self.habits.keeper != Keeper::Client;
            held.history.seen.push((self.weather.clock.tick(), Seen::Connected { present }));
        }
        Ok((client, events))
    }

    /// Receives on one connection.
    async fn receive(&mut self, client: &Client, events: &mut Events) -> End {
        if self.catch_up_on_requests(client, events).await.is_err() {
            return End::Lost;
        }
        let mut patience = if self.habits.vanishes == 0 { u32::MAX } else { self.random.u32(1..=self.habits.vanishes) };
        let mut last = self.weather.last.subscribe();
        loop {
            if last.borrow_and_update().as_ref().is_some_and(|last| self.has_all(last)) {
                return if self.acknowledge(client, events).await.is_ok() { End::Done } else { End::Lost };
            }
            let event = tokio::select! {
                event = events.next() => event,
                _ = last.changed() => continue,
            };
            let Some(Event::Message(message)) = event else { return End::Lost };
            self.note(&message);
            patience = patience.saturating_sub(1);
            let is_stormy = self.weather.is_stormy();
            if is_stormy && patience == 0 {
                return End::Vanish;
            }
            let done = match self.random.u32(..100) {
                0..5 if self.habits.keeper == Keeper::Client => self.acknowledge(client, events).await,
                10 if self.habits.changes && is_stormy => self.change(client, events).await,
                11 if self.habits.leaves && is_stormy => self.leave(client, events).await,
                _ => Ok(()),
            };
            if done.is_err() {
                return End::Lost;
            }
        }
    }

    /// Ends the connection without a goodbye.
    async fn vanish(&mut self, client: Client, mut events: Events) {
        // Half of the time acknowledgements that wait are still written.
        if self.random.bool() {
            client.abandon();
        }
        drop(client);
        // What has come is taken, though the broker does not hear of that any more. A client that
        // keeps its position forgets it.
        while let Some(Event::Message(message)) = events.next().await {
            if self.habits.keeper != Keeper::Client {
                self.note(&message);
            }
        }
    }

    async fn stay_away(&mut self) {
        let mut phase = self.weather.phase.subscribe();
        let now = *phase.borrow();
        let clock = &self.weather.clock;
        let until = clock.now() + self.random.u64(..1500);
        tokio::select! {
            () = clock.reached(until) => {}
            // Nothing may happen any more when publishers have done their share.
            _ = phase.wait_for(|phase| *phase != now || !matches!(now, Phase::Round(_))) => {}
        }
    }

    fn see(&mut self, index: usize, seen: Seen) {
        self.held[index].history.seen.push((self.weather.clock.tick(), seen));
    }

    fn has_all(&self, last: &[(crate::book::Name, String)]) -> bool {
        self.held.iter().all(|held| {
            last.iter().all(|(name, topic)| !held.history.filter.matches(topic) || held.last.contains(name))
        })
    }

    /// Notes a message in the history of the subscription that it came for.
    fn note(&mut self, message: &Message) {
        // Identifiers are 1, 2, 3, … in the order of the subscriptions.
        let index = message.subscription_ids.first().map_or(0, |identifier| *identifier as usize - 1);
        if let Some(position) = &mut self.held[index].position {
            position.note(message);
        }
        let seen = match message.notice() {
            Some(Notice::Silence { .. } | Notice::Overdue { .. } | Notice::Stalled { .. }) => return,
            Some(Notice::Gap(gap)) => {
                let reason = gap.reason.name().to_owned();
                Seen::Gap { pubend: gap.pubend, from: gap.from, to: gap.to, reason }
            }
            None => match unmark(&message.payload) {
                Some(name) => {
                    if message.properties.iter().any(|(name, value)| name == "last" && value == "true") {
                        self.held[index].last.push(name);
                    }
                    Seen::Delivered { name, id: message.id() }
                }
                None => Seen::Stray(format!("{} with {} bytes", message.topic, message.payload.len())),
            },
        };
        self.see(index, seen);
    }

    /// Waits for an answer while messages go on arriving.
    async fn during<T>(
        &mut self,
        events: &mut Events,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut answer = std::pin::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                event = events.next() => match event {
                    Some(Event::Message(message)) => self.note(&message),
                    Some(Event::Disconnected { reason }) => return Err(reason),
                    None => return Err(Error::Closed),
                },
            }
        }
    }

    /// Asks for everything that was asked for and not answered, or that the broker has forgotten.
    async fn catch_up_on_requests(&mut self, client: &Client, events: &mut Events) -> Result<(), Error> {
        for index in 0..self.held.len() {
            if self.held[index].leaving {
                self.end(index, client, events).await?;
            }
            if !self.held[index].granted {
                self.ask(index, client, events).await?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self, index: usize, client: &Client, events: &mut Events) -> Result<(), Error> {
        let held = &mut self.held[index];
        held.granted = false;
        let condition = held.condition;
        let qos = if self.habits.keeper == Keeper::ExactlyOnce { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        let mut subscription = Subscription::to(held.history.filter.0).qos(qos).identifier(index as u32 + 1).notices();
        subscription = subscription.retained(RetainHandling::DoNotSend);
        if let Some(text) = condition.text() {
            subscription = subscription.selector(text);
        }
        if self.habits.keeper == Keeper::Client {
            let class = if self.durable { Durability::Durable } else { Durability::SemiDurable };
            subscription = subscription.durability(class).acknowledged_by_token();
            if let Some(position) = &held.position {
                subscription = subscription.from(Start::After(position.clone()));
            }
        }
        self.see(index, Seen::Asked(condition));
        let answer = self.during(events, client.subscribe_to(&subscription)).await?;
        if let Some(reason) = answer.reasons.iter().find(|reason| reason.is_error()) {
            let held = &mut self.held[index];
            // The broker remembers a bounded number of conditions that older events are still to be
            // judged by.
            let before = held.before.filter(|_| *reason == ReasonCode::QUOTA_EXCEEDED);
            held.condition = before.unwrap_or_else(|| panic!("{} is refused: {answer:?}", held.history.subscription));
            held.granted = true;
            self.see(index, Seen::Refused);
            return Ok(());
        }
        self.see(index, Seen::Granted);
        self.back(index);
        let held = &mut self.held[index];
        (held.granted, held.before) = (true, Some(condition));
        if self.habits.keeper == Keeper::Client {
            let token = answer.tokens().next().flatten().expect("SUBACK names the position");
            match &mut held.position {
                Some(position) => position.resumed(token),
                None => held.position = Some(Position::at(token)),
            }
        }
        Ok(())
    }

    /// Asks for the end of a subscription.
    async fn end(&mut self, index: usize, client: &Client, events: &mut Events) -> Result<(), Error> {
        self.held[index].leaving = true;
        self.see(index, Seen::Leaving);
        let filter = [self.held[index].history.filter.0];
        self.during(events, client.unsubscribe(&filter)).await?;
        self.see(index, Seen::Left);
        let held = &mut self.held[index];
        (held.leaving, held.granted, held.position, held.before) = (false, false, None, None);
        Ok(())
    }

    async fn change(&mut self, client: &Client, events: &mut Events) -> Result<(), Error> {
        let level = self.random.u8(2..8);
        self.held[0].condition = if self.random.bool() { Condition::AtLeast(level) } else { Condition::Below(level) };
        self.ask(0, client, events).await
    }

    /// The subscription is there, whether it was ended or not.
    fn back(&mut self, index: usize) {
        if std::mem::take(&mut self.held[index].ended) {
            self.weather.ended.send_modify(|ended| *ended -= 1);
        }
    }

    async fn leave(&mut self, client: &Client, events: &mut Events) -> Result<(), Error> {
        self.held[0].ended = true;
        self.weather.ended.send_modify(|ended| *ended += 1);
        // Counted before this look at the weather, so that the last events wait for this one or it
        // stays.
        if self.weather.is_stormy() {
            self.end(0, client, events).await?;
            return self.ask(0, client, events).await;
        }
        self.back(0);
        Ok(())
    }

    /// Tells the broker where the client's own positions are.
    async fn acknowledge(&mut self, client: &Client, events: &mut Events) -> Result<(), Error> {
        for index in 0..self.held.len() {
            let Some(position) = &self.held[index].position else { continue };
            let token = position.token().clone();
            self.during(events, client.acknowledge(&token, Some(index as u32 + 1))).await?;
        }
        Ok(())
    }
}
