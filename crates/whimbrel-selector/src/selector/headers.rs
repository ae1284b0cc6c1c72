//! Names of Jakarta Messaging for the headers of a message.

use super::expr::Field;

/// The field of a name without quotes.
pub(super) fn named(name: &str) -> Field {
    match name {
        "JMSPriority" => Field::Priority,
        "JMSTimestamp" => Field::Timestamp,
        "JMSMessageID" => Field::MessageId,
        "JMSDestination" | "JMSReplyTo" | "JMSRedelivered" | "JMSExpiration" | "JMSDeliveryTime"
        | "JMSDeliveryMode" => Field::Header(name.into()),
        _ => header(name).unwrap_or_else(|| Field::Attribute(name.into())),
    }
}

/// The field of a header that canonical text writes as `header('name')`.
pub(super) fn header(name: &str) -> Option<Field> {
    match name {
        "JMSCorrelationID" => Some(Field::CorrelationId),
        "JMSType" => Some(Field::ContentType),
        _ => None,
    }
}
