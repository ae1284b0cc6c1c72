//! Plain subscriptions that connect again when their connection is lost.

use std::time::Duration;

use anyhow::Result;
use whimbrel_client::{Client, Error, Events, Link, Linked, Message, Options};

/// Asks for subscriptions on a connection.
pub trait Subscribes {
    /// Subscribes. A refusal by the broker is an error.
    async fn subscribe(&self, client: &Client, events: &mut Events) -> Result<()>;

    /// A connection error, as text for the user.
    fn explained(&self, error: Error) -> anyhow::Error;
}

/// Subscriptions whose connection is made again whenever it is lost. Without a session at the
/// broker they begin anew then: retained messages are sent again, and messages published meanwhile
/// are not.
pub struct Steady<S> {
    subscribes: S,
    options: Options,
    has_session: bool,
    link: Link,
}

/// What happens to the subscriptions, in order.
pub enum Happened {
    /// A message arrived.
    Message(Message),
    /// The connection is lost, or another attempt has failed; the next attempt is after this time.
    Lost(Error, Duration),
    /// The connection is up again; whether the broker has kept the session.
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
        Ok(Steady { subscribes, options, has_session, link: Link::up(client, events) })
    }

    /// Waits for the next item. May be cancelled and called anew.
    ///
    /// # Errors
    /// A retry is useless: another connection uses the client id, or the broker refuses.
    pub async fn next(&mut self) -> Result<Happened> {
        match self.link.next().await {
            Linked::Message(message) => return Ok(Happened::Message(message)),
            Linked::Lost(reason) => return self.lost(reason),
            Linked::Due => {}
        }
        let (client, mut events) = match Client::connect(self.options.clone()).await {
            Ok(connected) => connected,
            Err(error) => return self.lost(error),
        };
        let is_kept = self.has_session && client.session_present();
        if !is_kept && let Err(error) = self.subscribes.subscribe(&client, &mut events).await {
            return match error.downcast::<Error>() {
                Ok(error) => self.lost(error),
                Err(error) => Err(error),
            };
        }
        self.link = Link::up(client, events);
        Ok(Happened::Back(is_kept))
    }

    /// A message, if one has already arrived.
    pub fn try_next(&mut self) -> Option<Message> {
        self.link.try_next()
    }

    fn lost(&mut self, reason: Error) -> Result<Happened> {
        let was_down = self.link.is_down();
        let pause = self.link.pause();
        match was_down {
            _ if reason.is_temporary() => Ok(Happened::Lost(reason, pause)),
            false => Err(anyhow::Error::new(reason).context("the connection is over")),
            true => Err(self.subscribes.explained(reason)),
        }
    }

    /// Disconnects.
    pub async fn close(self) {
        self.link.close().await;
    }
}
