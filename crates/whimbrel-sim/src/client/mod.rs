//! Virtual clients: state machines without IO that speak MQTT as a scenario drew it.
//!
//! A client is given the time and the bytes that it receives, and returns [`Act`]s on its one
//! connection. All its decisions come from its own random sequence.

mod follower;
mod habits;
mod honest;
mod hostile;
mod persona;

pub(crate) use follower::ACKNOWLEDGED;
pub use follower::Follower;
pub use habits::{Class, Habit, Habits, Plan};
pub use honest::Honest;
pub use hostile::Hostile;
pub use persona::{Action, Persona, WillPlan, random_filter, random_topic};

use whimbrel_event::Time;

/// An act of a client on its connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Opens a connection. One that is still open is abandoned: the broker is not told.
    Open,
    /// Sends bytes.
    Send(Vec<u8>),
    /// Closes after the bytes that were sent.
    Finish,
    /// Resets: bytes in flight may be lost, both ways.
    Reset,
    /// Vanishes: nothing is sent or read any more, and the broker is not told.
    Vanish,
    /// Stops reading.
    Stall,
    /// Reads again.
    Resume,
}

/// A client of any kind.
#[derive(Debug)]
pub enum Client {
    /// One that follows the protocol.
    Honest(Box<Honest>),
    /// One that breaks it.
    Hostile(Hostile),
    /// One that follows it, and the streams.
    Follower(Box<Follower>),
}

impl Client {
    /// When it next acts by itself.
    pub fn next_wake(&self) -> Option<Time> {
        match self {
            Client::Honest(client) => client.next_wake(),
            Client::Hostile(client) => client.next_wake(),
            Client::Follower(client) => client.next_wake(),
        }
    }

    /// Acts when its wake time has come.
    pub fn wake(&mut self, now: Time, acts: &mut Vec<Act>) {
        match self {
            Client::Honest(client) => client.wake(now, acts),
            Client::Hostile(client) => client.wake(now, acts),
            Client::Follower(client) => client.wake(now, acts),
        }
    }

    /// Bytes have arrived over its connection.
    pub fn hear(&mut self, now: Time, bytes: &[u8], acts: &mut Vec<Act>) {
        match self {
            Client::Honest(client) => client.hear(now, bytes, acts),
            Client::Hostile(_) => {}
            Client::Follower(client) => client.hear(now, bytes, acts),
        }
    }

    /// Its connection has ended.
    pub fn closed(&mut self, now: Time) {
        match self {
            Client::Honest(client) => client.closed(now),
            Client::Hostile(client) => client.closed(now),
            Client::Follower(client) => client.closed(now),
        }
    }

    /// The client behaves from now on: no more faults, no more publishing; one with a session keeps
    /// or resumes it.
    pub fn calm(&mut self, now: Time, acts: &mut Vec<Act>) {
        match self {
            Client::Honest(client) => client.calm(now, acts),
            Client::Hostile(client) => client.calm(acts),
            Client::Follower(client) => client.calm(now, acts),
        }
    }
}
