//! Operators' questions to other brokers, and the answers. The overlay does not interpret them: the
//! driver of the other broker answers.
//!
//! They are routed messages, so they may be lost, doubled or late. The asker numbers its questions,
//! and repeats them if need be.

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{BrokerMessage, Question, Reply};
pub use whimbrel_wire::{QUESTION_BYTES_MAX, REPLY_BYTES_MAX};

use crate::api::Output;
use crate::broker::Broker;

/// Bytes of an answer above which it is sent as a bulk message.
pub const REPLY_LITTLE: usize = 16 << 10;

impl Broker {
    /// All other brokers that are known, with their names.
    pub fn others(&self) -> Vec<(HostId, Box<str>)> {
        let overlay = &self.overlay;
        let others = overlay.net.topology().hosts().filter(|host| *host != overlay.net.host());
        others.map(|host| (host, overlay.net.name_of(host))).collect()
    }

    /// Sends a question to another broker; [`Output::answered`] reports the answer. Returns `false`
    /// if there is no path or no room at present.
    ///
    /// # Panics
    /// When the question has more than [`QUESTION_BYTES_MAX`] bytes.
    pub fn ask_broker(&mut self, now: Time, to: HostId, question: (u64, &str), out: &mut dyn Output) -> bool {
        let (number, text) = question;
        self.send_to(now, to, (&BrokerMessage::Question(Question { number, text }), false), out)
    }

    /// Answers a question of another broker. Returns `false` as [`Broker::ask_broker`] does.
    ///
    /// # Panics
    /// When the answer has more than [`REPLY_BYTES_MAX`] bytes.
    pub fn answer_broker(&mut self, now: Time, to: HostId, answer: (u64, &str), out: &mut dyn Output) -> bool {
        let (number, text) = answer;
        self.send_to(now, to, (&BrokerMessage::Reply(Reply { number, text }), text.len() > REPLY_LITTLE), out)
    }
}
