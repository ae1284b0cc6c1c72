//! A subscription that survives the loss of its connection.

use std::time::Duration;

use whimbrel_event::CheckpointToken;
use whimbrel_mqtt::codec::{ReasonCode, RetainHandling};

use crate::subscription::{Start, Subscription};
use crate::{Client, Durability, Error, Events, Link, Linked, Message, Notice, Options, Position, Published};

/// A semi-durable subscription that outlives its connections: when one is lost, the next resumes at
/// the position after the last message that [`Follower::next`] has given. As far back as the
/// broker's cache reaches, no message is missed and none is repeated; the rest is told as gaps.
///
/// ```no_run
/// use whimbrel_client::{CheckpointStore, FileStore, Followed, Follower, Options, QoS, Start, Subscription};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut store = FileStore::new("positions.token");
/// let mut subscription = Subscription::to("fleet/+/position").qos(QoS::AtLeastOnce);
/// if let Some(position) = store.load()? {
///     subscription = subscription.from(Start::After(position));
/// }
/// let mut follower = Follower::start(Options::new("mqtt://127.0.0.1:1883"), subscription).await?;
/// loop {
///     match follower.next().await? {
///         Followed::Message(message) => println!("{}: {} bytes", message.topic, message.payload.len()),
///         Followed::Notice(notice) => println!("{notice:?}"),
///         Followed::Lost { reason, pause } => println!("{reason}; the next attempt is in {pause:?}"),
///         Followed::Resumed => println!("back"),
///     }
///     // Only now: should this program end before, the message comes again.
///     store.save(follower.position())?;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Follower {
    options: Options,
    subscription: Subscription,
    position: Position,
    link: Link,
}

/// The events of a [`Follower`], in order.
#[derive(Clone, Debug)]
pub enum Followed {
    /// A message arrived.
    Message(Message),
    /// The broker tells a gap, or that nothing is missing.
    Notice(Notice),
    /// The connection is lost, or an attempt to make one has failed.
    Lost {
        /// The reason.
        reason: Error,
        /// Time until the next attempt.
        pause: Duration,
    },
    /// There is a connection again, and the subscription has resumed.
    Resumed,
}

impl Follower {
    /// Connects and subscribes: semi-durable, with notices, and without a session at the broker,
    /// because the position is kept here. The subscription's own start applies to this first time;
    /// without one it begins now.
    ///
    /// # Errors
    /// The broker cannot be reached, refuses the connection or the subscription
    /// ([`Error::NotSubscribed`]), or is not one of Whimbrel's.
    pub async fn start(options: Options, subscription: Subscription) -> Result<Follower, Error> {
        let options = options.clean_start(true);
        let subscription = subscription.durability(Durability::SemiDurable).notices();
        let (client, events, begins) = open(&options, &subscription).await?;
        let position = match subscription.start() {
            Some(Start::After(position)) => {
                let mut position = position.clone();
                position.resumed(begins);
                position
            }
            _ => Position::at(begins),
        };
        // Messages retained at the start are not sent again at each connection.
        let subscription = subscription.retained(RetainHandling::DoNotSend);
        Ok(Follower { options, subscription, position, link: Link::up(client, events) })
    }

    /// The next event. When the connection is lost it connects again, with no limit of attempts.
    /// Cancel safe: dropping the future loses no event.
    ///
    /// # Errors
    /// Another attempt is of no use: another connection uses the client id, or the broker refuses
    /// ([`Error::is_temporary`]).
    pub async fn next(&mut self) -> Result<Followed, Error> {
        match self.link.next().await {
            Linked::Message(message) => return Ok(self.take(message)),
            Linked::Lost(reason) => return self.lost(reason),
            Linked::Due => {}
        }
        let subscription = self.subscription.clone().from(Start::After(self.position.clone()));
        match open(&self.options, &subscription).await {
            Ok((client, events, begins)) => {
                self.position.resumed(begins);
                self.link = Link::up(client, events);
                Ok(Followed::Resumed)
            }
            Err(error) => self.lost(error),
        }
    }

    /// The next message or notice, if one has arrived already.
    pub fn try_next(&mut self) -> Option<Followed> {
        let message = self.link.try_next()?;
        Some(self.take(message))
    }

    fn take(&mut self, message: Message) -> Followed {
        self.position.note(&message);
        match message.notice() {
            Some(notice) => Followed::Notice(notice),
            None => Followed::Message(message),
        }
    }

    fn lost(&mut self, reason: Error) -> Result<Followed, Error> {
        let pause = self.link.pause();
        if reason.is_temporary() { Ok(Followed::Lost { reason, pause }) } else { Err(reason) }
    }

    /// The position after everything that was given out.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Tells the broker that everything given out has been processed. With a subscription that is
    /// acknowledged by token, and a session, the broker keeps the position, too.
    ///
    /// # Errors
    /// There is no connection at this moment, the broker refuses the token, or it does not answer
    /// in time ([`Error::Timeout`]).
    pub async fn acknowledge(&mut self) -> Result<Published, Error> {
        let (client, events) = self.link.connection().ok_or(Error::Closed)?;
        events.during(client.acknowledge(self.position.token(), self.subscription.identifier)).await
    }

    /// Disconnects, and returns the position.
    pub async fn close(self) -> Position {
        self.link.close().await;
        self.position
    }
}

/// Connects and subscribes; returns the token at which the subscription begins.
async fn open(options: &Options, subscription: &Subscription) -> Result<(Client, Events, CheckpointToken), Error> {
    let (client, mut events) = Client::connect(options.clone()).await?;
    let answer = events.during(client.subscribe_to(subscription)).await?;
    let refused = answer.reasons.iter().find(|reason| reason.is_error()).copied();
    let begins = answer.tokens().next().flatten();
    let (reason, text) = match (refused, begins) {
        (None, Some(token)) => return Ok((client, events, token)),
        (None, None) => (ReasonCode::UNSPECIFIED_ERROR, Some("the broker gives no positions".to_owned())),
        (Some(reason), _) => (reason, answer.text),
    };
    client.disconnect().await;
    Err(Error::NotSubscribed { reason, text })
}
