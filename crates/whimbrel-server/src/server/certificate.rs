//! The certificates that the listeners show in TLS handshakes.

use std::net::IpAddr;

use tokio_rustls::TlsAcceptor;

use super::Error;
use crate::config::{Certificate, Config};
use crate::tls;

/// Certificate of the listeners, if there is one. Later certificates replace it in all of them.
pub(super) struct Presented {
    /// For the MQTT listeners.
    pub(super) clients: Option<TlsAcceptor>,
    /// For the HTTP listener; `None`: it speaks no TLS.
    pub(super) http: Option<TlsAcceptor>,
    /// The certificate that was made on the spot, in PEM, if one was.
    pub(super) made: Option<String>,
}

impl Presented {
    /// Certificate of the listeners by the configuration.
    pub(super) fn of(config: &Config) -> Result<Presented, Error> {
        let (clients, http, made) = match &config.certificate {
            Certificate::Files(own) => (own.config.clone(), tls::for_http(&own.config), None),
            Certificate::Known(known) => (known.clients.clone(), known.http.clone(), None),
            Certificate::None => return Ok(Presented { clients: None, http: None, made: None }),
            Certificate::Made => {
                let addresses: Vec<IpAddr> = config.listen.iter().map(|(_, address)| address.ip()).collect();
                let made = tls::make(&addresses).map_err(Error::Certificate)?;
                (made.config.clone(), tls::for_http(&made.config), Some(made.pem))
            }
        };
        let http = (!config.http_plain).then(|| TlsAcceptor::from(http));
        Ok(Presented { clients: Some(TlsAcceptor::from(clients)), http, made })
    }
}
