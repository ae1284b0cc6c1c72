//! A connection that is made again each time it is lost.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::{Client, Error, Event, Events, Message, pause_after};

/// A connection, or the pause until the next attempt to make one. The owner of the link makes the
/// attempt, because it knows what the connection is for.
#[derive(Debug)]
pub struct Link(State);

#[derive(Debug)]
enum State {
    Up(Client, Events),
    /// Lost, and not reported yet.
    Lost(Error),
    Down {
        /// Time of the next attempt.
        until: Instant,
        /// The pause before that attempt.
        pause: Duration,
    },
}

/// The events of a [`Link`].
#[derive(Debug)]
pub enum Linked {
    /// A message arrived.
    Message(Message),
    /// The connection is lost: [`Link::pause`] is to be called next.
    Lost(Error),
    /// An attempt to connect is due.
    Due,
}

impl Link {
    /// A link over an open connection.
    pub fn up(client: Client, events: Events) -> Link {
        Link(State::Up(client, events))
    }

    /// The next event. Cancel safe: dropping the future loses no event.
    pub async fn next(&mut self) -> Linked {
        let until = match &mut self.0 {
            State::Up(_, events) => {
                return match events.next().await {
                    Some(Event::Message(message)) => Linked::Message(message),
                    Some(Event::Disconnected { reason }) => Linked::Lost(reason),
                    None => Linked::Lost(Error::Closed),
                };
            }
            State::Lost(reason) => return Linked::Lost(reason.clone()),
            State::Down { until, .. } => *until,
        };
        sleep_until(until).await;
        Linked::Due
    }

    /// The next message, if one has arrived already.
    pub fn try_next(&mut self) -> Option<Message> {
        let State::Up(_, events) = &mut self.0 else { return None };
        match events.try_next()? {
            Event::Message(message) => Some(message),
            Event::Disconnected { reason } => {
                self.0 = State::Lost(reason);
                None
            }
        }
    }

    /// Starts the pause after a lost connection or a failed attempt, and returns its length, which
    /// grows with each attempt that fails ([`pause_after`]).
    pub fn pause(&mut self) -> Duration {
        let before = if let State::Down { pause, .. } = self.0 { Some(pause) } else { None };
        let pause = pause_after(before);
        self.0 = State::Down { until: Instant::now() + pause, pause };
        pause
    }

    /// Whether the loss of the connection has been reported, and attempts are made.
    pub fn is_down(&self) -> bool {
        matches!(self.0, State::Down { .. })
    }

    /// The connection, if there is one.
    pub fn connection(&mut self) -> Option<(&Client, &mut Events)> {
        match &mut self.0 {
            State::Up(client, events) => Some((client, events)),
            State::Lost(_) | State::Down { .. } => None,
        }
    }

    /// Disconnects, if there is a connection.
    pub async fn close(self) {
        if let State::Up(client, _) = &self.0 {
            client.disconnect().await;
        }
    }
}
