//! Reason codes of MQTT 5 and the return codes of MQTT 3.1.1.

use core::fmt;

use super::PacketType;

/// The outcome of an operation. Codes from 0x80 are failures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReasonCode(pub u8);

/// Declares the codes once: constant, number, name.
macro_rules! reason_codes {
    ($($(#[$doc:meta])* $constant:ident = $code:literal, $name:literal;)*) => {
        impl ReasonCode {
            $($(#[$doc])* pub const $constant: ReasonCode = ReasonCode($code);)*

            /// The specification's name in lower case; "unknown reason" for codes it does not
            /// define.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => $name,)*
                    _ => "unknown reason",
                }
            }
        }
    };
}

reason_codes! {
    /// Success, normal disconnection, or QoS 0 granted.
    SUCCESS = 0x00, "success";
    /// QoS 1 granted.
    GRANTED_QOS_1 = 0x01, "granted QoS 1";
    /// QoS 2 granted.
    GRANTED_QOS_2 = 0x02, "granted QoS 2";
    /// The client leaves and wants its will published.
    DISCONNECT_WITH_WILL = 0x04, "disconnect with will message";
    /// Accepted, but no subscription matches.
    NO_MATCHING_SUBSCRIBERS = 0x10, "no matching subscribers";
    /// There was no such subscription.
    NO_SUBSCRIPTION_EXISTED = 0x11, "no subscription existed";
    /// Another step of authentication follows.
    CONTINUE_AUTHENTICATION = 0x18, "continue authentication";
    /// Authentication begins anew on an open connection.
    RE_AUTHENTICATE = 0x19, "re-authenticate";
    /// A failure for which no other code fits, or whose cause is not told.
    UNSPECIFIED_ERROR = 0x80, "unspecified error";
    /// The packet cannot be parsed.
    MALFORMED_PACKET = 0x81, "malformed packet";
    /// The packet is not permitted by the protocol.
    PROTOCOL_ERROR = 0x82, "protocol error";
    /// Valid, but not accepted by this implementation.
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83, "implementation specific error";
    /// The server does not speak this version.
    UNSUPPORTED_PROTOCOL_VERSION = 0x84, "unsupported protocol version";
    /// The client identifier is not acceptable.
    CLIENT_IDENTIFIER_NOT_VALID = 0x85, "client identifier not valid";
    /// User name or password are wrong.
    BAD_USER_NAME_OR_PASSWORD = 0x86, "bad user name or password";
    /// Not permitted.
    NOT_AUTHORIZED = 0x87, "not authorized";
    /// The server is not available.
    SERVER_UNAVAILABLE = 0x88, "server unavailable";
    /// The server is busy; try later.
    SERVER_BUSY = 0x89, "server busy";
    /// The client has been banned by an administrator.
    BANNED = 0x8A, "banned";
    /// The server ends.
    SERVER_SHUTTING_DOWN = 0x8B, "server shutting down";
    /// The authentication method is not supported or not the one in use.
    BAD_AUTHENTICATION_METHOD = 0x8C, "bad authentication method";
    /// No packet was received for one and a half times the keep-alive.
    KEEP_ALIVE_TIMEOUT = 0x8D, "keep alive timeout";
    /// Another connection uses the same client identifier.
    SESSION_TAKEN_OVER = 0x8E, "session taken over";
    /// The topic filter is well-formed but not accepted.
    TOPIC_FILTER_INVALID = 0x8F, "topic filter invalid";
    /// The topic name is not accepted.
    TOPIC_NAME_INVALID = 0x90, "topic name invalid";
    /// The packet identifier is in use.
    PACKET_IDENTIFIER_IN_USE = 0x91, "packet identifier in use";
    /// The packet identifier is not known.
    PACKET_IDENTIFIER_NOT_FOUND = 0x92, "packet identifier not found";
    /// More unacknowledged publishes than the receive maximum.
    RECEIVE_MAXIMUM_EXCEEDED = 0x93, "receive maximum exceeded";
    /// The topic alias is zero or above its maximum.
    TOPIC_ALIAS_INVALID = 0x94, "topic alias invalid";
    /// The packet is larger than the maximum packet size.
    PACKET_TOO_LARGE = 0x95, "packet too large";
    /// Data arrive faster than they are accepted.
    MESSAGE_RATE_TOO_HIGH = 0x96, "message rate too high";
    /// A limit of the implementation or the administrator is reached.
    QUOTA_EXCEEDED = 0x97, "quota exceeded";
    /// The administrator ended the connection.
    ADMINISTRATIVE_ACTION = 0x98, "administrative action";
    /// The payload is not what its format indicator says.
    PAYLOAD_FORMAT_INVALID = 0x99, "payload format invalid";
    /// Retained messages are not supported.
    RETAIN_NOT_SUPPORTED = 0x9A, "retain not supported";
    /// The QoS is above the maximum.
    QOS_NOT_SUPPORTED = 0x9B, "QoS not supported";
    /// Use another server for now.
    USE_ANOTHER_SERVER = 0x9C, "use another server";
    /// Use another server from now on.
    SERVER_MOVED = 0x9D, "server moved";
    /// Shared subscriptions are not supported.
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E, "shared subscriptions not supported";
    /// Connections arrive too fast.
    CONNECTION_RATE_EXCEEDED = 0x9F, "connection rate exceeded";
    /// The longest time a connection may last is over.
    MAXIMUM_CONNECT_TIME = 0xA0, "maximum connect time";
    /// Subscription identifiers are not supported.
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1, "subscription identifiers not supported";
    /// Wildcard subscriptions are not supported.
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2, "wildcard subscriptions not supported";
}

impl ReasonCode {
    /// True for failures.
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// The nearest CONNACK return code of MQTT 3.1.1.
    pub const fn to_return_code(self) -> u8 {
        match self {
            ReasonCode::SUCCESS => 0,
            ReasonCode::UNSUPPORTED_PROTOCOL_VERSION => 1,
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID => 2,
            ReasonCode::BAD_USER_NAME_OR_PASSWORD => 4,
            ReasonCode::NOT_AUTHORIZED | ReasonCode::BANNED | ReasonCode::BAD_AUTHENTICATION_METHOD => 5,
            _ => 3,
        }
    }

    /// The meaning of a CONNACK return code of MQTT 3.1.1, if it has one.
    pub const fn from_return_code(code: u8) -> Option<ReasonCode> {
        match code {
            0 => Some(ReasonCode::SUCCESS),
            1 => Some(ReasonCode::UNSUPPORTED_PROTOCOL_VERSION),
            2 => Some(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID),
            3 => Some(ReasonCode::SERVER_UNAVAILABLE),
            4 => Some(ReasonCode::BAD_USER_NAME_OR_PASSWORD),
            5 => Some(ReasonCode::NOT_AUTHORIZED),
            _ => None,
        }
    }

    /// Whether MQTT 5 defines this code for packets of this type.
    pub const fn is_defined_for(self, packet: PacketType) -> bool {
        let code = self.0;
        match packet {
            PacketType::ConnAck => matches!(
                code,
                0x00 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F
            ),
            PacketType::PubAck | PacketType::PubRec => {
                matches!(code, 0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
            }
            PacketType::PubRel | PacketType::PubComp => matches!(code, 0x00 | 0x92),
            PacketType::SubAck => {
                matches!(code, 0x00..=0x02 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2)
            }
            PacketType::UnsubAck => matches!(code, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91),
            PacketType::Disconnect => matches!(
                code,
                0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B | 0x8D..=0x90 | 0x93..=0xA2
            ),
            PacketType::Auth => matches!(code, 0x00 | 0x18 | 0x19),
            _ => false,
        }
    }
}

impl fmt::Debug for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X} {}", self.0, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_codes_survive_the_way_there_and_back() {
        for code in 0..=5 {
            let reason = ReasonCode::from_return_code(code).expect("3.1.1 defines 0 to 5");
            assert_eq!(reason.to_return_code(), code);
        }
        assert_eq!(ReasonCode::from_return_code(6), None);
    }

    #[test]
    fn every_code_of_a_packet_has_a_name() {
        for number in 1..=15 {
            let packet = PacketType::from_first_byte(number << 4).expect("1 to 15 are packet types");
            for code in 0..=u8::MAX {
                let code = ReasonCode(code);
                assert!(!code.is_defined_for(packet) || code.name() != "unknown reason", "{packet:?} {code}");
            }
        }
    }
}
