//! Plain subscriptions over as many connections as it takes.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep_until};
use whimbrel_client::{Client, Error, Event, Events, Message, Options, pause_after};

/// Asks for subscriptions on a connection.
pub trait Subscribes {
    /// Subscribes; an answer that says no is an error.
    async fn subscribe(&self, client: &Client, events: &mut Events) -> Result<()>;

    /// An error of connecting, in words for the user.
    fn explained(&self, error: Error) -> anyhow::Error;
}

/// Subscriptions whose connection is made again whenever it is lost. Without a session at the broker
/// they begin anew then: what is retained comes again, and what was published meanwhile does not.
pub struct Steady<S> {
    subscribes: S,
    options: Options,
    has_session: bool,
    link: Link,
}

enum Link {
    Up(Client, Events),
    /// Just lost, and not told yet.
    Lost(Error),
    Down {
        until: Instant,
        pause: Duration,
    },
}

/// What happens, in order.
pub enum Happened {
    /// A message arrived.
    Message(Message),
    /// There is no connection any more, or another attempt has failed; so long until the next.
    Lost(Error, Duration),
    /// There is a connection again; whether the broker has kept the session.
    Back(bool),
}

impl<S: Subscribes> Steady<S> {
    /// Connects and subscribes.
    ///
    /// # Errors
    /// The broker cannot be reached, or refuses.
    pub async fn start(subscribes: S, options: Options, has_session: bool) -> Result<Steady<S>> {
        let connected = Client::connect(options.clone()).await;
        let (client, mut events) = connected.map_err(|error| subscribes.explained(error))?;
        subscribes.subscribe(&client, &mut events).await?;
        Ok(Steady { subscribes, options, has_session, link: Link::Up(client, events) })
    }

    /// What happens next. It may be given up and called anew.
    ///
    /// # Errors
    /// Going on makes no sense: another connection uses the client id, or the broker refuses.
    pub async fn next(&mut self) -> Result<Happened> {
        let (until, pause) = match &mut self.link {
            Link::Up(_, events) => {
                return match events.next().await {
                    Some(Event::Message(message)) => Ok(Happened::Message(message)),
                    Some(Event::Disconnected { reason }) => self.lost(reason, None),
                    None => self.lost(Error::Closed, None),
                };
            }
            Link::Lost(reason) => {
                let reason = reason.clone();
                return self.lost(reason, None);
            }
            Link::Down { until, pause } => (*until, *pause),
        };
        sleep_until(until).await;
        let (client, mut events) = match Client::connect(self.options.clone()).await {
            Ok(connected) => connected,
            Err(error) => return self.lost(error, Some(pause)),
        };
        let is_kept = self.has_session && client.session_present();
        if !is_kept && let Err(error) = self.subscribes.subscribe(&client, &mut events).await {
            return match error.downcast::<Error>() {
                Ok(error) => self.lost(error, Some(pause)),
                Err(error) => Err(error),
            };
        }
        self.link = Link::Up(client, events);
        Ok(Happened::Back(is_kept))
    }

    /// A message, if there is one already.
    pub fn try_next(&mut self) -> Option<Message> {
        let Link::Up(_, events) = &mut self.link else { return None };
        match events.try_next()? {
            Event::Message(message) => Some(message),
            Event::Disconnected { reason } => {
                self.link = Link::Lost(reason);
                None
            }
        }
    }

    fn lost(&mut self, reason: Error, before: Option<Duration>) -> Result<Happened> {
        let pause = pause_after(before);
        self.link = Link::Down { until: Instant::now() + pause, pause };
        match before {
            _ if reason.is_temporary() => Ok(Happened::Lost(reason, pause)),
            None => Err(anyhow::Error::new(reason).context("the connection is over")),
            Some(_) => Err(self.subscribes.explained(reason)),
        }
    }

    /// Says goodbye.
    pub async fn close(self) {
        if let Link::Up(client, _) = &self.link {
            client.disconnect().await;
        }
    }
}
