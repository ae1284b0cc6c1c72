//! Acknowledgement by token: a client that keeps its position tells how far it has processed.

use whimbrel_core::{Input as CoreInput, Link};
use whimbrel_event::{CheckpointToken, InvalidToken, Time};

use super::following::ids;
use super::refusals::class_of_code;
use super::refuse::RefusedPublish;
use super::{MqttBroker, Output};
use crate::codec::{PacketId, Publish, ReasonCode, SUBSCRIPTION_ID_MAX, UserProperties};

/// The topic to which a client publishes the token up to which it has processed messages, with or
/// without later event ids. No subscriber ever gets it.
pub(super) const ACK_TOPIC: &str = "$whimbrel/ack";

/// The user property that names the subscription, where the client has several.
const SUBSCRIPTION: &str = "w-subscription";

impl MqttBroker {
    /// Handles a PUBLISH to [`ACK_TOPIC`]; its retain flag does not matter.
    pub(super) fn acknowledge(&mut self, now: Time, id: u32, publish: &Publish<'_>, out: &mut impl Output) {
        let user = publish.properties.user;
        let unknown = |name: &str| name.starts_with("w-") && name != SUBSCRIPTION;
        self.edge.stats.reserved_properties_unknown += user.iter().filter(|(name, _)| unknown(name)).count() as u64;
        let read = token(publish.payload).and_then(|token| Ok((token, identifier(user)?)));
        let (token, identifier) = match read {
            Ok(read) => read,
            Err((reason, cause)) => {
                self.edge.stats.tokens_refused += 1;
                let refused = RefusedPublish { class: class_of_code(reason), reason, cause: &cause };
                return self.refuse_publish(now, id, publish, (ACK_TOPIC, refused), out);
            }
        };
        let (link, tag) = (Link(id), publish.packet_id.map_or(0, PacketId::get));
        let input = CoreInput::Acknowledge { link, tag, qos: publish.qos, identifier, token: &token };
        self.core_input(now, input, out);
    }
}

/// The name of a payload in errors.
const PAYLOAD: &str = "the payload";

/// Parses a payload as a token, advanced by the event ids that may follow it.
fn token(payload: &[u8]) -> Result<CheckpointToken, (ReasonCode, String)> {
    let invalid = |cause: String| (ReasonCode::PAYLOAD_FORMAT_INVALID, cause);
    let text = core::str::from_utf8(payload).map_err(|_| {
        invalid("the payload is no checkpoint token: give its text as the broker printed it".to_owned())
    })?;
    let first = text.split(',').next().unwrap_or_default();
    let mut token: CheckpointToken = first.parse().map_err(|error: InvalidToken| invalid(error.to_string()))?;
    for id in ids(PAYLOAD, text, 1).map_err(invalid)? {
        token.advance(id).map_err(|error| invalid(format!("{PAYLOAD}: {id} cannot be added to the token: {error}")))?;
    }
    Ok(token)
}

/// The identifier of the subscription that user properties name; 0: none.
fn identifier(user: UserProperties<'_>) -> Result<u32, (ReasonCode, String)> {
    let mut values = user.iter().filter(|(name, _)| *name == SUBSCRIPTION).map(|(_, value)| value);
    let Some(value) = values.next() else { return Ok(0) };
    let named = value.parse().ok().filter(|identifier| (1..=SUBSCRIPTION_ID_MAX).contains(identifier));
    match (named, values.next()) {
        (Some(identifier), None) => Ok(identifier),
        (_, another) => {
            let wrong = if another.is_some() { "is given more than once" } else { "is no subscription identifier" };
            Err((ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, format!("{SUBSCRIPTION} {wrong}")))
        }
    }
}
