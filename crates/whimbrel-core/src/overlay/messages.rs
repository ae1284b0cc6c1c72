//! Messages of other brokers to this one, and of this one to others.
//!
//! Among them are operators' questions, and the answers. The overlay does not interpret them: the
//! driver of the other broker answers. They may be lost, doubled or late. The asker numbers its
//! questions, and repeats them if need be.

use whimbrel_event::{HostId, Time};
use whimbrel_net::rpc::MessageContent;
use whimbrel_wire::{BrokerMessage, MessageFrame, Question, Reply};
pub use whimbrel_wire::{QUESTION_BYTES_MAX, REPLY_BYTES_MAX};

use crate::api::Output;
use crate::broker::Broker;

/// The sender of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sender {
    pub(crate) host: HostId,
    /// The incarnation in which the host sent it.
    pub(crate) incarnation: u64,
}

impl Broker {
    /// Sends a message to another broker. A bulk message gives way to all other traffic. Returns
    /// `false` if there is no path or no room at present.
    pub(crate) fn send_to(
        &mut self,
        now: Time,
        to: HostId,
        (message, is_bulk): (&BrokerMessage<'_>, bool),
        out: &mut dyn Output,
    ) -> bool {
        let overlay = &mut self.overlay;
        let mut body = Vec::with_capacity(64);
        let kind = message.encode(&mut body);
        overlay.net.send_to(now, to, MessageContent { kind, body: &body, is_bulk }, out)
    }

    /// Handles a message for this broker.
    pub(super) fn on_message(&mut self, now: Time, routed: &MessageFrame<'_>, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        // Brokers that pass a message on do not decode it, so an invalid one is no fault of the
        // link.
        match BrokerMessage::decode(routed.kind, routed.body) {
            Ok(message) => {
                let from = Sender { host: routed.from, incarnation: routed.incarnation };
                overlay.record_incarnation(now, from);
                if let BrokerMessage::ReadTold(told) = &message {
                    self.answer_passes(now, routed.to, from, (told, routed.body), out);
                }
                self.dispatch_message(now, from, message, out);
            }
            Err(_) => overlay.net.refuse_message(),
        }
    }

    /// Dispatches a message for this broker.
    fn dispatch_message(&mut self, now: Time, from: Sender, message: BrokerMessage<'_>, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        match message {
            BrokerMessage::HoldReport(holds) => self.on_hold_report(now, from, &holds, out),
            BrokerMessage::TakenOver(took) => self.on_taken_over(now, took.owner, from.host),
            BrokerMessage::HoldGrant(grant) => self.on_hold_grant(now, from, grant, out),
            BrokerMessage::ReadAsk(ask) => self.read_asked(now, from, &ask),
            BrokerMessage::ReadTold(told) => self.read_told(now, from, &told),
            BrokerMessage::Question(asked) => out.asked(from.host, asked.number, asked.text),
            BrokerMessage::Reply(reply) => out.answered(from.host, reply.number, reply.text),
            BrokerMessage::Unknown(..) => overlay.net.refuse_message(),
            other => {
                self.dispatch_shared_message(now, from, &other, out);
                self.dispatch_roaming(now, from, other, out);
            }
        }
    }
}

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
