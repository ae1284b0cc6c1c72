//! The errors of the client.

use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError};
use whimbrel_mqtt::codec::{DecodeError, EncodeError, ReasonCode};

/// The reason for a failure. Cheap to clone: every call that waits on a connection gets the same
/// one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be read.
    #[error("{0:?} is no broker address; write mqtt://HOST:PORT, mqtts:// (TLS), ws:// or wss:// (WebSocket)")]
    Address(String),
    /// The certificate authority's file cannot be used.
    #[error("cannot use {file} as certificate authority: {cause}")]
    Authority {
        /// The file.
        file: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The own certificate, or its key, cannot be used.
    #[error("cannot use {file} to show a certificate: {cause}")]
    Certificate {
        /// The file.
        file: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The certificate that the broker shows is not trusted.
    #[error("the broker's certificate is not trusted: {0}")]
    Untrusted(String),
    /// The broker does not accept this client's certificate, or wants one and got none.
    #[error("the broker does not take this client's certificate, or wants one: {0}")]
    NotBelieved(String),
    /// The peer speaks another protocol.
    #[error("this port is not one for {asked}: {found}")]
    OtherProtocol {
        /// The scheme of the address.
        asked: &'static str,
        /// The protocol that was found, and the address to use instead.
        found: String,
    },
    /// The peer speaks HTTP, and refuses the WebSocket.
    #[error("no WebSocket: HTTP status {status}{}", if text.is_empty() { String::new() } else { format!(": {text}") })]
    Upgrade {
        /// The HTTP status.
        status: u16,
        /// The text of the answer; may be empty.
        text: String,
    },
    /// The connection could not be made, or broke.
    #[error("connection: {0}")]
    Connection(Arc<io::Error>),
    /// No answer arrived in time.
    #[error("the broker did not answer in time")]
    Timeout,
    /// The broker refused the connection or a message.
    #[error("refused by the broker: {reason}{}", text.as_ref().map(|t| format!(": {t}")).unwrap_or_default())]
    Refused {
        /// The broker's reason code.
        reason: ReasonCode,
        /// The broker's reason string.
        text: Option<String>,
    },
    /// The broker refused a subscription.
    #[error("not subscribed: {reason}{}", text.as_ref().map(|t| format!(": {t}")).unwrap_or_default())]
    NotSubscribed {
        /// The broker's reason code.
        reason: ReasonCode,
        /// The broker's reason string.
        text: Option<String>,
    },
    /// The broker ended the connection.
    #[error("ended by the broker: {reason}{}", text.as_ref().map(|t| format!(": {t}")).unwrap_or_default())]
    Ended {
        /// The broker's reason code.
        reason: ReasonCode,
        /// The broker's reason string.
        text: Option<String>,
    },
    /// The broker closed the connection without a reason, or this side closed it.
    #[error("the connection is closed")]
    Closed,
    /// The broker violated the protocol.
    #[error("the broker broke the protocol: {0}")]
    Protocol(DecodeError),
    /// The packet cannot be sent.
    #[error("cannot be sent: {0}")]
    Encode(EncodeError),
}

impl Error {
    /// Whether another attempt may succeed: the broker is away, busy, or has closed the connection.
    /// Not if it refuses for good, if another connection uses the client id, or if one side
    /// violated the protocol.
    pub fn is_temporary(&self) -> bool {
        match self {
            Error::Connection(_) | Error::Timeout | Error::Closed => true,
            Error::Refused { reason, .. } | Error::Ended { reason, .. } => PASSING.contains(reason),
            Error::Upgrade { status, .. } => AWAY.contains(status),
            Error::NotSubscribed { .. } | Error::Address(_) | Error::Authority { .. } => false,
            Error::Certificate { .. } | Error::Untrusted(_) | Error::NotBelieved(_) => false,
            Error::OtherProtocol { .. } => false,
            Error::Protocol(_) | Error::Encode(_) => false,
        }
    }
}

/// Alerts with which a broker refuses this client's certificate, or the lack of one.
const REFUSALS: [AlertDescription; 8] = [
    AlertDescription::CertificateRequired,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
];

/// HTTP statuses of a broker that accepts no connections now (503), and of a proxy in front of a
/// broker that is away (502, 504).
const AWAY: [u16; 3] = [502, 503, 504];

/// Reason codes for ending or refusing a connection that another attempt may not meet.
const PASSING: [ReasonCode; 9] = [
    ReasonCode::SUCCESS,
    ReasonCode::UNSPECIFIED_ERROR,
    ReasonCode::SERVER_UNAVAILABLE,
    ReasonCode::SERVER_BUSY,
    ReasonCode::SERVER_SHUTTING_DOWN,
    ReasonCode::KEEP_ALIVE_TIMEOUT,
    ReasonCode::QUOTA_EXCEEDED,
    ReasonCode::CONNECTION_RATE_EXCEEDED,
    ReasonCode::MAXIMUM_CONNECT_TIME,
];

impl From<io::Error> for Error {
    /// Errors of TLS, and alerts of its peer, arrive inside errors of the transport.
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(why)) => Error::Untrusted(match why {
                CertificateError::UnknownIssuer => "no authority that is trusted here has signed it".to_owned(),
                why => why.to_string(),
            }),
            Some(rustls::Error::AlertReceived(alert)) if REFUSALS.contains(alert) => {
                Error::NotBelieved(format!("TLS alert {alert:?}"))
            }
            _ => Error::Connection(Arc::new(error)),
        }
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Error::Protocol(error)
    }
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Self {
        Error::Encode(error)
    }
}
