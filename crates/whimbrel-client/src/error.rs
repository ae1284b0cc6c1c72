//! What can go wrong.

use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError};
use whimbrel_mqtt::codec::{DecodeError, EncodeError, ReasonCode};

/// Why something was not done. Cheap to clone: everyone who waits on a connection learns the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The address makes no sense.
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
    /// The broker does not believe this side's certificate, or wants one and got none.
    #[error("the broker does not take this client's certificate, or wants one: {0}")]
    NotBelieved(String),
    /// What answers speaks another protocol.
    #[error("this port is not one for {asked}: {found}")]
    OtherProtocol {
        /// The scheme of the address.
        asked: &'static str,
        /// What was found, and what to ask for instead.
        found: String,
    },
    /// What answers speaks HTTP, and refuses the WebSocket.
    #[error("no WebSocket: HTTP status {status}{}", if text.is_empty() { String::new() } else { format!(": {text}") })]
    Upgrade {
        /// Its status.
        status: u16,
        /// Its words; empty if there are none.
        text: String,
    },
    /// The connection could not be made, or broke.
    #[error("connection: {0}")]
    Connection(Arc<io::Error>),
    /// No answer came in time.
    #[error("the broker did not answer in time")]
    Timeout,
    /// The broker refused.
    #[error("refused by the broker: {reason}{}", text.as_ref().map(|t| format!(": {t}")).unwrap_or_default())]
    Refused {
        /// Its reason code.
        reason: ReasonCode,
        /// Its words.
        text: Option<String>,
    },
    /// The broker refused a subscription.
    #[error("not subscribed: {reason}{}", text.as_ref().map(|t| format!(": {t}")).unwrap_or_default())]
    NotSubscribed {
        /// Its reason code.
        reason: ReasonCode,
        /// Its words.
        text: Option<String>,
    },
    /// The broker ended the connection.
    #[error("ended by the broker: {reason}{}", text.as_ref().map(|t| format!(": {t}")).unwrap_or_default())]
    Ended {
        /// Its reason code.
        reason: ReasonCode,
        /// Its words.
        text: Option<String>,
    },
    /// The broker closed the connection without saying why, or this side closed it.
    #[error("the connection is closed")]
    Closed,
    /// The broker broke the protocol.
    #[error("the broker broke the protocol: {0}")]
    Protocol(DecodeError),
    /// The packet cannot be sent.
    #[error("cannot be sent: {0}")]
    Encode(EncodeError),
}

impl Error {
    /// Whether the same may go well later: the broker is away, busy, or has closed the connection.
    /// Not so where it refuses, where another connection uses the client id, and where one side
    /// broke the protocol.
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

/// Alerts with which a broker refuses what this side has shown, or has not.
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

/// HTTP statuses of a broker that takes no more connections now (503), and of a proxy before one
/// that is away (502, 504).
const AWAY: [u16; 3] = [502, 503, 504];

/// Reasons for which a broker ends or refuses a connection that another attempt may not meet.
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
    /// TLS tells what it refuses, and what the other side does, within errors of the transport.
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
