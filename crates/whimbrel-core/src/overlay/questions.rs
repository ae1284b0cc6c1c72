//! Questions to other brokers, and their answers, on their way. What they mean is not known here:
//! an operator asks, and whoever drives the other broker answers.
//!
//! They are messages, so they may be lost, come twice or late. Who asks numbers its questions, and
//! asks again if need be.

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{BrokerMessage, Question, Reply};
pub use whimbrel_wire::{QUESTION_BYTES_MAX, REPLY_BYTES_MAX};

use crate::api::Output;
use crate::broker::Broker;

/// A longer answer gives way to everything else on its way.
pub const REPLY_LITTLE: usize = 16 << 10;

impl Broker {
    /// All other brokers that are known, with their names.
    pub fn others(&self) -> Vec<(HostId, Box<str>)> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let others = overlay.topology.hosts().filter(|host| *host != overlay.host);
        others.map(|host| (host, overlay.name_of(host))).collect()
    }

    /// Asks another broker something; [`Output::answered`] tells what it answers. `false`: there is
    /// no way to it, or no room on it at present.
    ///
    /// # Panics
    /// When the question has more than [`QUESTION_BYTES_MAX`] bytes.
    pub fn ask_broker(&mut self, now: Time, to: HostId, question: (u64, &str), out: &mut dyn Output) -> bool {
        let (number, text) = question;
        self.send_to(now, to, (&BrokerMessage::Question(Question { number, text }), false), out)
    }

    /// Answers what another broker has asked. `false`: as [`Broker::ask_broker`].
    ///
    /// # Panics
    /// When the answer has more than [`REPLY_BYTES_MAX`] bytes.
    pub fn answer_broker(&mut self, now: Time, to: HostId, answer: (u64, &str), out: &mut dyn Output) -> bool {
        let (number, text) = answer;
        self.send_to(now, to, (&BrokerMessage::Reply(Reply { number, text }), text.len() > REPLY_LITTLE), out)
    }
}
