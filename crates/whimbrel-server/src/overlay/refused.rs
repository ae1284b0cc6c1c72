//! Reasons for which another broker refuses this one, and advice for the operator.

use std::borrow::Cow;

use quinn::{ConnectionError, TransportErrorCode, VarInt};
use whimbrel_core::HangUp;

use super::channel::NOT_ALLOWED;
use super::output::HUNG_UP;
use crate::identity::trust::Refusal;

/// Bytes of another broker's words that are logged; the rest is left out.
const WORDS_MAX: usize = 200;

/// Reason given by the other broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Its core hung up the link.
    HangUp(HangUp),
    /// It does not accept the certificate.
    Refusal(Refusal),
    /// It takes no connection at present: it is ending, or has no room.
    NotNow,
    /// Another reason, in its words.
    Words(String),
}

impl Said {
    /// The reason, if the other end has closed the connection.
    pub(super) fn of(error: &ConnectionError) -> Option<Said> {
        let reason = match error {
            ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(NOT_ALLOWED) => {
                return Some(Said::Refusal(Refusal::NotAllowed));
            }
            ConnectionError::ApplicationClosed(close) => match hung_up(error) {
                Some(why) => return Some(Said::HangUp(why)),
                None => &close.reason,
            },
            ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::CONNECTION_REFUSED => {
                return Some(Said::NotNow);
            }
            ConnectionError::ConnectionClosed(close) => &close.reason,
            _ => return None,
        };
        let words = words(reason);
        // A refusal within the handshake comes in the words of TLS, which contain ours.
        let known = Refusal::ALL.into_iter().find(|refusal| words.contains(refusal.text()));
        Some(known.map_or(Said::Words(words), Said::Refusal))
    }

    /// Whether only an operator can change it. A reason in other words may be the end of the broker
    /// that gives it.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            Said::HangUp(why) => !why.is_passing(),
            Said::Refusal(_) => true,
            Said::NotNow | Said::Words(_) => false,
        }
    }

    /// The reason as text.
    pub(super) fn text(&self) -> &str {
        match self {
            Said::HangUp(why) => why.text(),
            Said::Refusal(why) => why.text(),
            Said::NotNow => "it takes no connection at present",
            Said::Words(words) if words.is_empty() => "it does not say why",
            Said::Words(words) => words,
        }
    }

    /// Advice for this broker's operator.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Said::HangUp(why) => of_hang_up(*why),
            Said::Refusal(why) => of_refusal(*why),
            Said::NotNow => "nothing: it is ending, or has no room, and is dialled again",
            Said::Words(_) => "look into the log of the other broker",
        }
    }
}

/// Why the core of the other end hung up, if it did.
pub(super) fn hung_up(error: &ConnectionError) -> Option<HangUp> {
    let ConnectionError::ApplicationClosed(close) = error else { return None };
    let place = u64::from(close.error_code).checked_sub(u64::from(HUNG_UP))?;
    HangUp::ALL.get(usize::try_from(place).ok()?).copied()
}

/// Untrusted words made fit for a log: one line, at most [`WORDS_MAX`] bytes.
fn words(reason: &[u8]) -> String {
    let text: Cow<'_, str> = String::from_utf8_lossy(&reason[..reason.len().min(WORDS_MAX)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Advice where two brokers will not have a link, for both ends.
pub(super) fn of_hang_up(why: HangUp) -> &'static str {
    match why {
        HangUp::NotOpen => "open the overlay of the other broker (--listen-overlay, or --peer)",
        HangUp::Garbage => "see that the address is that of a broker, and of the same version as this one",
        HangUp::OtherVersion => "run versions of whimbrel that can be linked with each other",
        HangUp::OtherDeployment => "give both brokers the same --deployment, or take the address out of the peers",
        HangUp::ForgedName => "leave --name out, so that the broker has the name of its certificate",
        HangUp::NameTaken => {
            "give each broker a --name of its own. If this one replaces another of its name, stop that; brokers that have lost \
             it let the new one in within seconds"
        }
        HangUp::Itself => {
            "take the broker's own address out of its peers. If it is another one, both run on copies of one data directory: \
             give one of them an empty one, or its own backup"
        }
        HangUp::TooMany => "give it other peers",
        HangUp::Double | HangUp::Silent | HangUp::Stuck | HangUp::Rehosted | HangUp::Left => {
            "nothing: the address is dialled again"
        }
    }
}

fn of_refusal(why: Refusal) -> &'static str {
    match why {
        Refusal::NoCertificate | Refusal::Development => {
            "start this broker with a certificate of the other's authority (--tls-ca, --tls-cert, --tls-key) and without --dev"
        }
        Refusal::Invalid | Refusal::NoName | Refusal::OtherRole => {
            "give this broker a certificate that `whimbrel cert broker` has made"
        }
        Refusal::OtherAuthority => {
            "give both brokers certificates of one authority, or let both believe both authorities (--tls-ca)"
        }
        Refusal::Expired => {
            "make this broker a new certificate (`whimbrel cert broker`), and see that both clocks are right"
        }
        Refusal::OtherDeployment => "make this broker a certificate for the deployment of the other",
        Refusal::OwnName => "make each broker a certificate with a name of its own; none needs itself among its peers",
        Refusal::NoDevelopment => "run either both brokers with --dev, or both with certificates",
        Refusal::Revoked => "make this broker a new certificate, if it is to be let in",
        Refusal::NotAllowed => "name this broker in a [[rule]] with the action peer at the other one",
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn::{ApplicationClose, ConnectionClose};

    use super::*;

    fn closed(code: u32, reason: &[u8]) -> ConnectionError {
        let reason = Bytes::copy_from_slice(reason);
        ConnectionError::ApplicationClosed(ApplicationClose { error_code: VarInt::from_u32(code), reason })
    }

    #[test]
    fn what_another_broker_says_is_known_by_its_code() {
        for (place, why) in (0..).zip(HangUp::ALL) {
            assert_eq!(Said::of(&closed(HUNG_UP + place, b"whatever")), Some(Said::HangUp(why)));
        }
        assert_eq!(Said::of(&closed(0x403, b"")), Some(Said::Refusal(Refusal::NotAllowed)));
        assert_eq!(Said::of(&ConnectionError::TimedOut), None);
        let error_code = TransportErrorCode::CONNECTION_REFUSED;
        let refused = ConnectionClose { error_code, frame_type: None, reason: Bytes::new() };
        assert_eq!(Said::of(&ConnectionError::ConnectionClosed(refused)), Some(Said::NotNow));
    }

    #[test]
    fn words_of_strangers_are_one_line_of_bounded_length() {
        let said = Said::of(&closed(7, &[b"look\n\x1b[2J\xff".as_slice(), &[b'x'; 900]].concat()));
        let said = said.expect("it was the other end");
        assert!(said.text().len() <= WORDS_MAX + "\u{fffd}".len() && said.text().starts_with("look  [2J"), "{said:?}");
        assert_eq!(Said::of(&closed(7, b"")).expect("it was the other end").text(), "it does not say why");
    }
}
