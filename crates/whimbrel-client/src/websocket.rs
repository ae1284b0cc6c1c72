//! MQTT over WebSocket: the upgrade, and binary messages as a byte stream (MQTT 5.0, section 6).

use std::io;

use futures_util::{SinkExt, StreamExt, future};
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{Error as WsError, ProtocolError};
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

use crate::Error;
use crate::transport::{Stream, Target, closed_early};

/// The default path of MQTT over WebSocket.
pub(crate) const PATH: &str = "/mqtt";

/// The subprotocol that both sides must name (MQTT-6.0.0-3).
const SUBPROTOCOL: HeaderValue = HeaderValue::from_static("mqtt");

/// Bytes by which a WebSocket message may exceed the largest packet: a broker may put several
/// packets into one message.
const MESSAGE_SLACK: usize = 64 << 10;

/// Characters of a refusal's text that are kept.
const TEXT_MAX: usize = 200;

/// Upgrades to MQTT over WebSocket at a path; messages have at most `max_packet` bytes and
/// [`MESSAGE_SLACK`].
pub(crate) async fn open(
    stream: Box<dyn Stream>,
    target: &Target,
    path: &str,
    max_packet: u32,
) -> Result<Box<dyn Stream>, Error> {
    let address = format!("ws://{}{path}", target.authority);
    let mut request = address.clone().into_client_request().map_err(|_| Error::Address(address))?;
    request.headers_mut().insert("sec-websocket-protocol", SUBPROTOCOL);
    let limit = Some(max_packet as usize + MESSAGE_SLACK);
    // Written bytes leave with the flush that follows.
    let config = WebSocketConfig::default().write_buffer_size(0).max_message_size(limit).max_frame_size(limit);
    let upgraded = client_async_with_config(request, stream, Some(config)).await;
    let (socket, _) = upgraded.map_err(|error| refused(error, target))?;
    let (sink, messages) = socket.split();
    let chunks = messages.map(|message| match message {
        Ok(Message::Binary(bytes)) => Ok(bytes),
        Ok(Message::Text(_)) => Err(io::Error::new(io::ErrorKind::InvalidData, "a text message, and MQTT is binary")),
        // The library answers pings and closes.
        Ok(_) => Ok(Bytes::new()),
        Err(error) => Err(to_io(error)),
    });
    let sink = sink.with(|bytes: Bytes| future::ready(Ok::<_, WsError>(Message::Binary(bytes)))).sink_map_err(to_io);
    Ok(Box::new(tokio::io::join(StreamReader::new(chunks), SinkWriter::new(CopyToBytes::new(sink)))))
}

/// The reason why there is no WebSocket.
fn refused(error: WsError, target: &Target) -> Error {
    match error {
        WsError::Io(error) => error.into(),
        WsError::Http(response) => Error::Upgrade { status: response.status().as_u16(), text: text_of(&response) },
        // Neither HTTP nor an answer to the upgrade.
        error => {
            let (asked, others) =
                if target.is_secure { ("wss://", "mqtts://") } else { ("ws://", "mqtt://, with TLS wss://") };
            let found = format!("no WebSocket is spoken there ({error}); MQTT without it is {others}");
            match error {
                WsError::Protocol(ProtocolError::HandshakeIncomplete) => closed_early("WebSocket", &found),
                _ => Error::OtherProtocol { asked, found },
            }
        }
    }
}

/// The first line of the answer's body, at most [`TEXT_MAX`] characters.
fn text_of(response: &Response<Option<Vec<u8>>>) -> String {
    let body = response.body().as_deref().unwrap_or_default();
    let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).trim().chars().take(TEXT_MAX).collect()
}

fn to_io(error: WsError) -> io::Error {
    match error {
        WsError::Io(error) => error,
        WsError::ConnectionClosed | WsError::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        error => io::Error::other(error),
    }
}
