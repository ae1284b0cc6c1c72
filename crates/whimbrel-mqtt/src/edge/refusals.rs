//! Refusals of the core as reason codes and texts.

use whimbrel_core::{Granted, Refusal};
use whimbrel_event::Qos;

use crate::codec::ReasonCode;

/// The reason code for one filter of a SUBSCRIBE.
pub(super) fn granted(result: &Result<Granted, Refusal>) -> ReasonCode {
    match result.as_ref().map(|granted| granted.qos) {
        Ok(Qos::AtMostOnce) => ReasonCode::SUCCESS,
        Ok(Qos::AtLeastOnce) => ReasonCode::GRANTED_QOS_1,
        Ok(Qos::ExactlyOnce) => ReasonCode::GRANTED_QOS_2,
        Err(refusal) => reason_of(*refusal),
    }
}

/// The reason code for a refusal of the core.
pub(super) fn reason_of(refusal: Refusal) -> ReasonCode {
    match refusal {
        Refusal::BadFilter(_) => ReasonCode::TOPIC_FILTER_INVALID,
        Refusal::BadTopic(_) => ReasonCode::TOPIC_NAME_INVALID,
        Refusal::SharedNoLocal => ReasonCode::PROTOCOL_ERROR,
        Refusal::OtherSelector
        | Refusal::SharedTracked
        | Refusal::SharedReplier
        | Refusal::StartNotKept
        | Refusal::OtherDeployment
        | Refusal::FutureStart
        | Refusal::TooManyStrangers
        | Refusal::NotAcknowledged => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
        Refusal::TooManySubscriptions
        | Refusal::TooManySelectors
        | Refusal::TooManySessions
        | Refusal::LogFull
        | Refusal::LogFailed
        | Refusal::TooLargeForLog
        | Refusal::TooLargeForOthers
        | Refusal::TooManyPublishers
        | Refusal::TooManyChanges
        | Refusal::NumberAfterRefused
        | Refusal::OverRate => ReasonCode::QUOTA_EXCEEDED,
        Refusal::SessionUnreachable | Refusal::ConnectedAgain => ReasonCode::SERVER_UNAVAILABLE,
        Refusal::ForeignSession | Refusal::OutsideDomains => ReasonCode::NOT_AUTHORIZED,
    }
}

/// The remedy for a refusal, which decides what happens to a publish that no acknowledgement can
/// refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusalClass {
    /// The client is not allowed to do it: depending on the configuration the publish is
    /// acknowledged and dropped, or the connection ends.
    Denied,
    /// The cause may pass: the publish is not acknowledged, and its connection is not read for a
    /// while, and then ends.
    Passing,
    /// The cause lasts while the broker runs: the connection ends.
    Never,
}

/// The class of a refusal of the core.
pub(super) fn class_of(refusal: Refusal) -> RefusalClass {
    match refusal {
        Refusal::ForeignSession | Refusal::OutsideDomains => RefusalClass::Denied,
        Refusal::LogFull
        | Refusal::TooManyPublishers
        | Refusal::TooManyChanges
        | Refusal::TooManySessions
        | Refusal::TooManySubscriptions
        | Refusal::TooManySelectors
        | Refusal::NumberAfterRefused
        | Refusal::OverRate
        | Refusal::SessionUnreachable
        | Refusal::ConnectedAgain => RefusalClass::Passing,
        Refusal::BadFilter(_)
        | Refusal::BadTopic(_)
        | Refusal::SharedNoLocal
        | Refusal::OtherSelector
        | Refusal::SharedTracked
        | Refusal::SharedReplier
        | Refusal::StartNotKept
        | Refusal::OtherDeployment
        | Refusal::FutureStart
        | Refusal::TooManyStrangers
        | Refusal::NotAcknowledged
        | Refusal::LogFailed
        | Refusal::TooLargeForLog
        | Refusal::TooLargeForOthers => RefusalClass::Never,
    }
}

/// The class of a refusal of the edge, by its reason code.
pub(super) fn class_of_code(reason: ReasonCode) -> RefusalClass {
    if reason == ReasonCode::NOT_AUTHORIZED { RefusalClass::Denied } else { RefusalClass::Never }
}

/// The text of a refusal: what is wrong, and what helps.
pub(super) fn cause_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::BadFilter(error) | Refusal::BadTopic(error) => error.why(),
        Refusal::SharedNoLocal => "a shared subscription cannot leave out the client's own messages",
        Refusal::OtherSelector => {
            "the members of this shared subscription have another selector: all must ask for the same"
        }
        Refusal::SharedTracked => {
            "a shared subscription has one position for all its members: w-from, w-ack, semi-durable and notices are not for it"
        }
        Refusal::SharedReplier => "a shared subscription cannot answer requests yet: w-replier is not for it",
        Refusal::StartNotKept => {
            "w-from is for subscriptions that get what they missed: ask for w-durability durable or semi-durable"
        }
        Refusal::OtherDeployment => "the token belongs to another deployment: begin without it",
        Refusal::FutureStart => "the position lies ahead of everything that this broker can have sent",
        Refusal::TooManyStrangers => {
            "the token names too many brokers that have ended: begin with a time or without it"
        }
        Refusal::NotAcknowledged => {
            "no subscription of the session is acknowledged by token, or several are: name one with w-subscription"
        }
        Refusal::TooManySelectors => "the session's selectors are as long together as they may be: end some",
        Refusal::TooManySubscriptions => "the session has as many subscriptions as it may: end some",
        Refusal::TooManySessions => "the broker has as many sessions as it may: try again later",
        Refusal::LogFull => "the log is full: publish again when durable subscribers have acknowledged more",
        Refusal::LogFailed => "the log has failed: the broker has to be started anew",
        Refusal::TooLargeForLog => "the message is larger than what the log takes",
        Refusal::TooLargeForOthers => {
            "the message is larger than what other brokers take, which is 2,031,616 bytes in all"
        }
        Refusal::OutsideDomains => {
            "only brokers of the topic's domains carry its messages, and this one is in none of them: publish at one that is"
        }
        Refusal::TooManyPublishers => "more publishers use w-seq than the broker can remember",
        Refusal::TooManyChanges => "the subscription was changed too often: first it has to get what it wanted before",
        Refusal::SessionUnreachable => {
            "the brokers that keep the session cannot be reached: try again, or begin anew with Clean Start"
        }
        Refusal::ForeignSession => "the session of this client id belongs to somebody else",
        Refusal::ConnectedAgain => "the client id connected again",
        Refusal::OverRate => "the topic has the events that its profile allows; QoS 1 and 2 are held back instead",
        Refusal::NumberAfterRefused => "a smaller w-seq was refused on this connection: repeat that one first",
    }
}
