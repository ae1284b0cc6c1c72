//! A subscription that survives the loss of its connection.

use std::time::Duration;

use whimbrel_event::CheckpointToken;
use whimbrel_mqtt::codec::{ReasonCode, RetainHandling};

use crate::subscription::{Start, Subscription};
use crate::{Client, Durability, Error, Events, Link, Linked, Message, Notice, Options, Position, Published};

/// A semi-durable subscription over as many connections as it takes: when one is lost, the next
/// goes on from the position after the last message that [`Follower::next`] has given. So nothing
/// is missed and nothing comes twice, as long as the broker's cache has it; the rest is told as
/// gaps.
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

/// What happens to a [`Follower`], in order.
#[derive(Clone, Debug)]
pub enum Followed {
    /// A message arrived.
    Message(Message),
    /// The broker tells a gap, or that nothing is missing.
    Notice(Notice),
    /// There is no connection any more, or another attempt to have one has failed.
    Lost {
        /// Why.
        reason: Error,
        /// How long until the next attempt.
        pause: Duration,
    },
    /// There is a connection again, and the subscription goes on.
    Resumed,
}

impl Follower {
    /// Connects and subscribes: semi-durable, with notices, and without a session at the broker,
    /// for the position is kept here. The subscription's own start counts for this first time;
    /// without one it begins now.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses the connection or the subscription
    /// ([`Error::NotSubscribed`]), or it is none of Whimbrel's.
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
        // What was retained then is not sent again and again.
        let subscription = subscription.retained(RetainHandling::DoNotSend);
        Ok(Follower { options, subscription, position, link: Link::up(client, events) })
    }

    /// What happens next. When the connection is lost it connects again, for as long as it takes.
    /// It may be given up and called anew: nothing is lost by that.
    ///
    /// # Errors
    /// Going on makes no sense: another connection uses the client id, or the broker refuses
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

    /// A message or notice, if there is one already.
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

    /// Tells the broker that all that was given out has been processed. With a subscription that is
    /// acknowledged so, and a session, the broker keeps the position, too.
    ///
    /// # Errors
    /// There is no connection at this moment, the broker refuses, or does not answer in time
    /// ([`Error::Timeout`]).
    pub async fn acknowledge(&mut self) -> Result<Published, Error> {
        let (client, events) = self.link.connection().ok_or(Error::Closed)?;
        events.during(client.acknowledge(self.position.token(), self.subscription.identifier)).await
    }

    /// Says goodbye, and gives the position.
    pub async fn close(self) -> Position {
        self.link.close().await;
        self.position
    }
}

/// Connects and subscribes; gives the token with which the subscription begins.
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
