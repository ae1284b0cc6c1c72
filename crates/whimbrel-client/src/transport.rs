//! Byte streams to a broker: TCP, TLS, and WebSocket over either.

use std::io;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Error, Options, tls_config, websocket};

/// A byte stream to a broker.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A broker's address, and the protocol there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `HOST:PORT`.
    pub(crate) authority: String,
    /// Host without the brackets of an IPv6 address.
    host: String,
    pub(crate) is_secure: bool,
    /// Path of the WebSocket, if there is one.
    pub(crate) path: Option<String>,
}

impl Target {
    /// Reads `mqtt://HOST:PORT`, `mqtts://…` (TLS), `ws://HOST:PORT/PATH`, `wss://…` or
    /// `HOST:PORT`. The ports are 1883, 8883, 8083 and 8084 unless they are named, the path is
    /// `/mqtt`.
    ///
    /// # Errors
    /// The address has none of these forms.
    pub(crate) fn parse(address: &str) -> Result<Target, Error> {
        let invalid = || Error::Address(without_name(address));
        let (scheme, rest) = address.split_once("://").unwrap_or(("mqtt", address));
        let (is_secure, is_websocket, port) = match scheme {
            "mqtt" | "tcp" => (false, false, 1883),
            "mqtts" | "ssl" | "tls" => (true, false, 8883),
            "ws" => (false, true, 8083),
            "wss" => (true, true, 8084),
            _ => return Err(invalid()),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = match path {
            "" | "/" => is_websocket.then(|| websocket::PATH.to_owned()),
            path if is_websocket => Some(path.to_owned()),
            _ => return Err(invalid()),
        };
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        let host = authority.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']).to_owned());
        let host = host.filter(|host| !host.is_empty() && !host.contains(['@', '?', '#', ' '])).ok_or_else(invalid)?;
        Ok(Target { authority, host, is_secure, path })
    }
}

/// The address without the user name and password that it may contain.
fn without_name(address: &str) -> String {
    address.rsplit_once('@').map_or_else(|| address.to_owned(), |(_, host)| format!("…@{host}"))
}

/// Connects up to the point where MQTT begins.
pub(crate) async fn open(options: &Options) -> Result<Box<dyn Stream>, Error> {
    let target = Target::parse(&options.address)?;
    let config = match target.is_secure {
        true => Some(tls_config(&options.tls, options.identity.as_ref())?),
        false => None,
    };
    let socket = TcpStream::connect(&target.authority).await?;
    socket.set_nodelay(true)?;
    let stream: Box<dyn Stream> = match config {
        None => Box::new(socket),
        Some(config) => {
            let name =
                ServerName::try_from(target.host.clone()).map_err(|_| Error::Address(options.address.clone()))?;
            let secured = TlsConnector::from(config).connect(name, socket).await;
            Box::new(secured.map_err(|error| without_tls(error, &target))?)
        }
    };
    match &target.path {
        None => Ok(stream),
        Some(path) => websocket::open(stream, &target, path, options.max_packet_size).await,
    }
}

/// The error of a failed handshake: a peer that speaks no TLS is named as the cause. A peer that
/// only closes may do so because it is busy or about to end.
fn without_tls(error: io::Error, target: &Target) -> Error {
    let (asked, other) = if target.path.is_some() { ("wss://", "ws://") } else { ("mqtts://", "mqtt://") };
    let found = format!("no TLS is spoken there; without TLS it is {other}");
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => Error::OtherProtocol { asked, found },
        _ if error.kind() == io::ErrorKind::UnexpectedEof => closed_early("TLS", &found),
        _ => error.into(),
    }
}

/// The peer has closed the connection within a handshake.
pub(crate) fn closed_early(handshake: &str, perhaps: &str) -> Error {
    let text = format!("closed by the peer within the handshake of {handshake}: it is busy or ending, or {perhaps}");
    io::Error::new(io::ErrorKind::ConnectionAborted, text).into()
}

/// The protocol of a peer that is no MQTT broker, if its first bytes tell.
pub(crate) fn other_protocol(first: &[u8]) -> Option<Error> {
    let found = if first.starts_with(b"HTTP/") {
        "HTTP is spoken there; MQTT over WebSocket is ws://"
    } else if matches!(first, [0x15 | 0x16, 0x03, ..]) {
        "TLS is spoken there; with TLS it is mqtts://"
    } else {
        return None;
    };
    Some(Error::OtherProtocol { asked: "mqtt://", found: found.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_what_is_spoken_where() {
        let target = |text: &str| Target::parse(text).expect(text);
        let plain = target("mqtt://a.example");
        assert_eq!((&*plain.authority, plain.is_secure, plain.path), ("a.example:1883", false, None));
        assert_eq!(target("10.0.0.1:99").authority, "10.0.0.1:99");
        let secure = target("mqtts://[::1]/");
        assert_eq!((&*secure.authority, &*secure.host, secure.is_secure), ("[::1]:8883", "::1", true));
        let ws = target("ws://a");
        assert_eq!((&*ws.authority, ws.is_secure, ws.path.as_deref()), ("a:8083", false, Some("/mqtt")));
        let wss = target("wss://a:8080/other");
        assert_eq!((&*wss.authority, wss.is_secure, wss.path.as_deref()), ("a:8080", true, Some("/other")));
        for wrong in ["", "mqtt://", "ftp://a", "http://a", "mqtt://a/path", "mqtt://user:word@a", "ws://:80"] {
            let told = Target::parse(wrong).err().map(|error| error.to_string());
            assert!(told.as_deref().is_some_and(|told| told.contains("no broker address")), "{wrong}: {told:?}");
            assert!(!told.is_some_and(|told| told.contains("word")), "{wrong}: a password is not shown");
        }
    }

    #[test]
    fn what_answers_in_another_protocol_is_named() {
        let told = |first: &[u8]| other_protocol(first).map(|error| error.to_string());
        assert!(told(b"HTTP/1.1 400 Bad Request").is_some_and(|text| text.contains("HTTP is spoken there")));
        assert!(told(b"\x15\x03\x03\x00\x02\x02\x32").is_some_and(|text| text.contains("mqtts://")));
        assert_eq!(told(b"\x20\x03\x00"), None, "CONNACK");
        assert_eq!(told(b"HT"), None, "not enough to tell");
    }
}
