//! Those who wander: subscribers of three kinds, and publishers that repeat what was not
//! acknowledged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use whimbrel_client::{
    Client, Durability, Error, Event, Events, Message, Notice, Options, Position, Publish, QoS, ReasonCode, Receipt,
    Reliability, RetainHandling, Session, Start, Subscription,
};

use super::ghost::Ghost;
use super::{Attached, Came, Desk, Ends, Keeper, Name, Phase, Sent};
use crate::world::Up;

/// A roamer leaves after this number of messages.
const STAY: u32 = 120;

/// One in this number of moves loses the older connection without its broker noticing.
const HAUNTS: u64 = 4;

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// An older connection that a newer one has replaced ends by then.
const ENDS: Duration = Duration::from_secs(6);

/// Between two events of one publisher.
const PACE: Duration = Duration::from_millis(10);

/// A publisher that wanders leaves after this number of events.
const PUBLISHES: u64 = 60;

/// The session outlives every absence.
const EXPIRY: u32 = 600;

/// A CONNECT that its client has given up is read by then.
const LATE: Duration = Duration::from_secs(10);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(6);

fn mark((publisher, number): Name) -> Vec<u8> {
    let mut payload = format!("roam-{publisher}-{number};").into_bytes();
    payload.resize(100, b'.');
    payload
}

fn unmark(payload: &[u8]) -> Option<Name> {
    let end = payload.iter().position(|byte| *byte == b';')?;
    let text = std::str::from_utf8(&payload[..end]).ok()?.strip_prefix("roam-")?;
    let (publisher, number) = text.split_once('-')?;
    Some((publisher.parse().ok()?, number.parse().ok()?))
}

/// The broker to go to next: the one after, or the next that runs; waits for one.
async fn next_up(up: &mut [watch::Receiver<Up>], from: usize) -> (usize, String) {
    let mut pace = interval(RETRY);
    loop {
        for step in 0..up.len() {
            let at = (from + step) % up.len();
            if let Some(url) = up[at].borrow().url.clone() {
                return (at, url);
            }
        }
        pace.tick().await;
    }
}

pub struct Roamer {
    who: String,
    index: usize,
    at: usize,
    keeper: Keeper,
    subscription: Subscription,
    desk: Desk,
    up: Vec<watch::Receiver<Up>>,
    session: Session,
    position: Option<Position>,
    /// Its older connection, which it has lost, and its broker has open still.
    ghost: Option<Ghost>,
    has_session: bool,
    /// Since it tries to connect, if it does.
    sought: Option<Instant>,
    /// When it last gave up a CONNECT that was not answered.
    given_up: Option<Instant>,
    /// The number of the present connection.
    connection: u64,
}

impl Roamer {
    pub fn new(
        who: String,
        (index, at): (usize, usize),
        (keeper, qos, least): (Keeper, QoS, u8),
        desk: Desk,
        up: Vec<watch::Receiver<Up>>,
    ) -> Roamer {
        let mut subscription = Subscription::to("roam/#").qos(qos).retained(RetainHandling::DoNotSend).notices();
        subscription = subscription.selector(format!("level >= {least}"));
        if keeper == Keeper::Client {
            subscription = subscription.durability(Durability::Durable).acknowledged_by_token();
        }
        let (session, position) = (Session::new(), None);
        Roamer {
            who,
            index,
            at,
            keeper,
            subscription,
            desk,
            up,
            session,
            position,
            ghost: None,
            has_session: false,
            sought: None,
            given_up: None,
            connection: 0,
        }
    }

    /// Goes from broker to broker until all is over.
    pub async fn work(mut self) {
        let mut pace = interval(RETRY);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut moves = 0_u64;
        while *self.desk.phase.borrow() < Phase::Over {
            let (at, url) = next_up(&mut self.up, self.at).await;
            let haunts = self.desk.ends == Ends::Killed && moves % HAUNTS == self.index as u64 % HAUNTS;
            let way = if haunts { Some(Ghost::new(&url).await) } else { None };
            let connected = self.connect(way.as_ref().map_or(&*url, Ghost::url), at).await;
            let (client, mut events) = match connected {
                Ok(connected) => connected,
                Err(error) => {
                    if matches!(&error, Error::Refused { reason, .. } if *reason == ReasonCode::SERVER_UNAVAILABLE) {
                        self.desk.book().stories[self.index].refused += 1;
                    } else if !error.is_temporary() && !self.may_be_taken_over(&error) {
                        self.fault(format!("at b{at}: {error}"));
                    }
                    self.at += 1;
                    pace.tick().await;
                    continue;
                }
            };
            let is_moving = self.stay(&client, &mut events, at).await;
            moves += 1;
            let is_over = *self.desk.phase.borrow() == Phase::Over;
            let end = (at, self.connection);
            match way {
                Some(way) if is_moving => {
                    way.lose();
                    client.abandon();
                    self.ghost = Some(way);
                    self.drain(&mut events, end).await;
                }
                _ => {
                    if is_over || is_moving && moves.is_multiple_of(2) {
                        client.disconnect().await;
                        self.desk.book().stories[self.index].clean.insert(self.connection);
                    } else {
                        client.abandon();
                    }
                    self.drain(&mut events, end).await;
                }
            }
            self.at = at + 1;
            if is_moving {
                self.desk.book().stories[self.index].moves += 1;
                self.desk.moved.send_modify(|moved| *moved += 1);
            }
        }
    }

    fn fault(&self, what: String) {
        self.desk.book().stories[self.index].faults.push(what);
    }

    /// Whether a broker may just have come to read a CONNECT that its client gave up: nothing
    /// orders that and what the client did since.
    fn may_be_taken_over(&self, error: &Error) -> bool {
        let is_taken_over = matches!(error, Error::Ended { reason, .. } if *reason == ReasonCode::SESSION_TAKEN_OVER);
        is_taken_over && self.given_up.is_some_and(|at| at.elapsed() < LATE)
    }

    async fn connect(&mut self, url: &str, at: usize) -> Result<(Client, Events), Error> {
        let options = Options::new(url).client_id(&*self.who).clean_start(false).session_expiry(EXPIRY);
        let options = options.session(self.session.clone()).timeout(ANSWER);
        let begun = Instant::now();
        let sought = *self.sought.get_or_insert(begun);
        let connected = Client::connect(options).await;
        if matches!(connected, Err(Error::Timeout)) {
            self.given_up = Some(Instant::now());
        }
        let (client, mut events) = connected?;
        self.connection += 1;
        let attached = Attached { broker: at, sought, at: Instant::now() };
        self.desk.book().stories[self.index].attached.insert(self.connection, attached);
        self.sought = None;
        if let Some(way) = self.ghost.take()
            && timeout(ENDS, way.closed()).await.is_err()
        {
            self.fault(format!("the older connection stays open after {:?} at b{at}", begun.elapsed()));
        }
        if self.has_session && !client.session_present() {
            self.fault(format!("the session is gone at b{at}"));
            self.has_session = false;
        }
        if !self.has_session || self.keeper == Keeper::Client {
            self.subscribe(&client, &mut events, at).await?;
        }
        Ok((client, events))
    }

    /// Subscribes, and takes what comes meanwhile: who was away for long gets more before the
    /// answer than its library keeps.
    async fn subscribe(&mut self, client: &Client, events: &mut Events, at: usize) -> Result<(), Error> {
        let mut subscription = self.subscription.clone();
        if let Some(position) = &self.position {
            subscription = subscription.from(Start::After(position.clone()));
        }
        let mut answered = std::pin::pin!(client.subscribe_to(&subscription));
        let mut early = Vec::new();
        let answer = loop {
            tokio::select! {
                answer = &mut answered => break answer?,
                event = events.next() => match event {
                    Some(Event::Message(message)) => early.push(message),
                    Some(Event::Disconnected { reason }) => return Err(reason),
                    None => return Err(Error::Closed),
                },
            }
        };
        if answer.reasons[0].is_error() {
            self.fault(format!("refused at b{at}: {answer:?}"));
        }
        self.has_session = true;
        if self.keeper == Keeper::Client {
            let token = answer.tokens().next().flatten().expect("SUBACK names the position");
            match &mut self.position {
                Some(position) => position.resumed(token),
                None => self.position = Some(Position::at(token)),
            }
        }
        self.desk.book().stories[self.index].granted.get_or_insert_with(Instant::now);
        early.iter().for_each(|message| self.note(message, (at, self.connection), false));
        Ok(())
    }

    /// Takes what comes; whether it leaves of its own will.
    async fn stay(&mut self, client: &Client, events: &mut Events, at: usize) -> bool {
        let mut phase = self.desk.phase.subscribe();
        let mut taken = 0;
        loop {
            let now = *phase.borrow_and_update();
            if now == Phase::Over {
                return false;
            }
            if now == Phase::Running && taken >= STAY {
                return match self.position.clone().filter(|_| self.index.is_multiple_of(2)) {
                    Some(position) => self.acknowledge(client, events, &position, at).await,
                    None => true,
                };
            }
            tokio::select! {
                event = events.next() => match event {
                    Some(Event::Message(message)) => {
                        taken += 1;
                        self.note(&message, (at, self.connection), false);
                    }
                    _ => return false,
                },
                _ = phase.changed() => {}
            }
        }
    }

    /// Acknowledges a position, and takes what comes meanwhile: answers come behind that. Whether
    /// the connection is there still.
    async fn acknowledge(&mut self, client: &Client, events: &mut Events, position: &Position, at: usize) -> bool {
        let mut answered = std::pin::pin!(client.acknowledge(position.token(), None));
        loop {
            tokio::select! {
                answer = &mut answered => {
                    if matches!(answer, Err(Error::Timeout)) {
                        self.fault(format!("a token is not acknowledged at b{at}"));
                    }
                    return true;
                }
                event = events.next() => match event {
                    Some(Event::Message(message)) => self.note(&message, (at, self.connection), false),
                    // A roamer that could not acknowledge it does so when it comes back.
                    _ => return false,
                },
            }
        }
    }

    async fn drain(&mut self, events: &mut Events, at: (usize, u64)) {
        while let Some(Event::Message(message)) = events.next().await {
            self.note(&message, at, true);
        }
    }

    fn note(&mut self, message: &Message, (broker, connection): (usize, u64), is_late: bool) {
        if let Some(position) = &mut self.position {
            position.note(message);
        }
        let mut book = self.desk.book();
        let story = &mut book.stories[self.index];
        match message.notice() {
            Some(Notice::Silence { .. } | Notice::Overdue { .. } | Notice::Stalled { .. }) => {}
            // Streams of best effort promise nothing.
            Some(Notice::Gap(gap)) if gap.pubend.reliability() == Reliability::BestEffort => {}
            Some(Notice::Gap(gap)) => *story.gaps.entry(gap.reason.name().to_owned()).or_default() += 1,
            None => match unmark(&message.payload) {
                Some(name) => {
                    let maybe_again = message.is_maybe_repeat();
                    let (at, id, qos) = (Instant::now(), message.id(), message.qos);
                    story.came.push((name, Came { at, broker, id, maybe_again, qos, connection, is_late }));
                }
                None => story.faults.push(format!("{} comes, which nobody sent", message.topic)),
            },
        }
    }
}

pub struct Publisher {
    pub number: u32,
    pub qos: QoS,
    pub at: usize,
    pub wanders: bool,
    pub desk: Desk,
    pub up: Vec<watch::Receiver<Up>>,
    /// What it has sent, by its number in the session.
    pub names: BTreeMap<u64, Name>,
}

impl Publisher {
    /// Publishes until no client moves any more, and then until all is answered.
    pub async fn work(mut self) {
        let (session, mut used, mut at) = (Session::new(), 0, self.at);
        let mut pace = interval(RETRY);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let (there, url) = if self.wanders {
                next_up(&mut self.up, at).await
            } else {
                let up = self.up[at].wait_for(|up| up.url.is_some()).await.expect("the world outlives it");
                (at, up.url.clone().expect("it is there"))
            };
            let options = Options::new(url).client_id(format!("publisher-{}", self.number)).timeout(ANSWER);
            if let Ok((client, mut events)) = Client::connect(options.session(session.clone())).await {
                if matches!(self.publish(&client, &mut events, &mut used).await, Ok(true)) {
                    return client.disconnect().await;
                }
                client.abandon();
            }
            if self.wanders {
                at = there + 1;
            }
            pace.tick().await;
        }
    }

    /// Whether all is done; an error if the connection is over.
    async fn publish(&mut self, client: &Client, events: &mut Events, used: &mut u64) -> Result<bool, Error> {
        let mut flying: std::collections::VecDeque<Receipt> = client.resent().into();
        let mut phase = self.desk.phase.subscribe();
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let leaves = *used + PUBLISHES;
        loop {
            let is_last = *phase.borrow_and_update() != Phase::Running;
            if is_last && flying.is_empty() {
                return Ok(true);
            }
            if self.wanders && !is_last && *used >= leaves {
                return Ok(false);
            }
            tokio::select! {
                _ = pace.tick(), if !is_last => {
                    *used += 1;
                    let name = (self.number, *used);
                    let level = (*used * 7 % 10) as u8;
                    let publish = Publish::new(format!("roam/{}", self.number), mark(name)).qos(self.qos);
                    let publish = publish.property("level", level.to_string()).sequence(*used);
                    let sent = Sent { at: Instant::now(), level, acknowledged: None };
                    self.desk.book().sent.insert(name, sent);
                    self.desk.sent.send_modify(|sent| *sent += 1);
                    let receipt = client.send(publish).await?;
                    // What found its connection over has no number in the session.
                    self.names.insert(receipt.number(), name);
                    flying.push_back(receipt);
                }
                answer = async { flying[0].acknowledged().await }, if !flying.is_empty() => {
                    answer?;
                    let number = flying.pop_front().expect("it was answered").number();
                    let mut book = self.desk.book();
                    let sent = book.sent.get_mut(&self.names[&number]).expect("it was sent");
                    sent.acknowledged = Some(Instant::now());
                }
                event = events.next() => {
                    if !matches!(event, Some(Event::Message(_))) {
                        return Err(Error::Closed);
                    }
                }
                _ = phase.changed() => {}
            }
        }
    }
}
