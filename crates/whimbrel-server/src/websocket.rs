//! MQTT over WebSocket: the upgrade, and the connection as a byte stream.
//!
//! MQTT packets may span frames and frames may hold several packets, so binary messages are just
//! chunks of one byte stream (MQTT 5.0, section 6). Bytes written between two flushes leave as one
//! frame.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use axum::http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use futures_util::{Sink, Stream};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::access::Access;
use crate::metrics::{Cause, ListenerMetrics};

/// The one path that speaks MQTT.
pub const PATH: &str = "/mqtt";

/// The subprotocol that both sides must name (MQTT-6.0.0-3).
const SUBPROTOCOL: &str = "mqtt";

/// The largest request of an upgrade, in bytes.
const MAX_REQUEST: usize = 16 << 10;

/// Bytes that a WebSocket message may have beyond the largest MQTT packet: clients may put several
/// packets into one message.
const MESSAGE_SLACK: usize = 64 << 10;

/// Outgoing bytes that are gathered before a frame is written even without a flush.
const MAX_FRAME: usize = 64 << 10;

/// The buffer for incoming frames, in bytes. Each connection has one.
const READ_BUFFER: usize = 4 << 10;

/// Answers the HTTP request that begins a WebSocket connection.
///
/// # Errors
/// Why it did not become one. The peer has got an HTTP answer, if it spoke HTTP.
pub async fn accept<S>(
    stream: S,
    max_packet: usize,
    metrics: ListenerMetrics,
    (access, from): (Arc<Access>, SocketAddr),
) -> Result<ByteStream<S>, Cause>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let refused = Arc::new(OnceLock::new());
    let outcome = refused.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let response = upgrade(&request, (&access, from)).unwrap_or_else(|(cause, status, why)| {
            outcome.get_or_init(|| cause);
            refusal(status, why)
        });
        std::future::ready(Ok::<_, Infallible>(response))
    });
    // Refusals carry `Connection: close`, so there is one request per connection.
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(MAX_REQUEST)
        .serve_connection(TokioIo::new(stream), service);
    let parts = connection.without_shutdown().await.map_err(|_| Cause::BadRequest)?;
    if let Some(cause) = refused.get() {
        return Err(*cause);
    }
    let early = parts.read_buf.to_vec();
    Ok(ByteStream::after_upgrade(parts.io.into_inner(), early, max_packet, metrics).await)
}

/// The answer to an upgrade.
///
/// # Errors
/// The upgrade is refused: the cause to count, the status, and the text.
pub(crate) fn upgrade<B>(
    request: &Request<B>,
    (access, from): (&Access, SocketAddr),
) -> Result<Response<String>, (Cause, StatusCode, String)> {
    if request.uri().path() != PATH {
        let why = format!("MQTT over WebSocket is at {PATH}");
        return Err((Cause::WrongPath, StatusCode::NOT_FOUND, why));
    }
    if let Err(refusal) = access.check_origin(request.headers(), &from) {
        return Err((Cause::ForeignOrigin, refusal.status(), refusal.to_string()));
    }
    let mut response = create_response_with_body(request, String::new).map_err(|error| {
        let status = match error {
            Error::Protocol(ProtocolError::MissingSecWebSocketVersionHeader) => StatusCode::UPGRADE_REQUIRED,
            _ => StatusCode::BAD_REQUEST,
        };
        (Cause::BadRequest, status, format!("this is no WebSocket upgrade: {error}"))
    })?;
    let offered = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    if !offered.flat_map(|value| value.split(',')).any(|name| name.trim() == SUBPROTOCOL) {
        let why = format!("name the subprotocol \"{SUBPROTOCOL}\" in Sec-WebSocket-Protocol");
        return Err((Cause::NoSubprotocol, StatusCode::BAD_REQUEST, why));
    }
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    Ok(response)
}

/// The answer to an upgrade that is refused; the connection ends with it.
pub(crate) fn refusal(status: StatusCode, why: String) -> Response<String> {
    let mut response = Response::new(why + "\n");
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

/// State of the reading side.
#[derive(Debug)]
enum Reading {
    /// Messages are awaited.
    Open,
    /// The peer broke the protocol: a close frame is queued, and the error follows once it is out.
    Rejecting(&'static str),
    /// No more bytes follow.
    Ended,
}

/// A WebSocket connection's binary messages as a byte stream.
#[derive(Debug)]
pub struct ByteStream<S> {
    socket: WebSocketStream<S>,
    metrics: ListenerMetrics,
    /// Bytes received and not yet read.
    incoming: Bytes,
    /// Bytes written and not yet in a frame.
    outgoing: Vec<u8>,
    reading: Reading,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream<S> {
    /// The connection once its upgrade is answered; `early` are the bytes behind the request.
    pub(crate) async fn after_upgrade(io: S, early: Vec<u8>, max_packet: usize, metrics: ListenerMetrics) -> Self {
        let limit = Some(max_packet + MESSAGE_SLACK);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(4 * MAX_FRAME)
            .max_message_size(limit)
            .max_frame_size(limit);
        let socket = WebSocketStream::from_partially_read(io, early, Role::Server, Some(config)).await;
        ByteStream { socket, metrics, incoming: Bytes::new(), outgoing: Vec::new(), reading: Reading::Open }
    }

    fn socket(&mut self) -> Pin<&mut WebSocketStream<S>> {
        Pin::new(&mut self.socket)
    }

    /// Queues a close frame after a violation by the peer.
    fn reject(&mut self, cause: Cause, code: CloseCode, why: &'static str) {
        self.metrics.failed(cause);
        let frame = CloseFrame { code, reason: why.into() };
        // If the connection is too broken to take the frame, it is dropped without one.
        self.reading = match self.socket().start_send(Message::Close(Some(frame))) {
            Ok(()) => Reading::Rejecting(why),
            Err(_) => Reading::Ended,
        };
    }

    fn receive(&mut self, message: Option<Result<Message, Error>>) -> io::Result<()> {
        match message {
            Some(Ok(Message::Binary(bytes))) => self.incoming = bytes,
            Some(Ok(Message::Text(_))) => {
                self.reject(Cause::TextFrame, CloseCode::Unsupported, "MQTT takes binary frames only");
            }
            // Tungstenite answers pings and closes; its answers leave while the next message is
            // awaited.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => {}
            Some(Err(Error::Io(error))) => return Err(error),
            Some(Err(Error::Capacity(_))) => self.reject(Cause::BadFrame, CloseCode::Size, "message too large"),
            // A client that vanishes without a closing handshake is treated as over TCP.
            None | Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => {
                self.reading = Reading::Ended;
            }
            Some(Err(_)) => self.reject(Cause::BadFrame, CloseCode::Protocol, "malformed frame"),
        }
        Ok(())
    }

    /// Hands the outgoing bytes to the socket as one frame.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.outgoing.is_empty() {
            ready!(self.socket().poll_ready(cx)).map_err(to_io)?;
            let frame = Message::Binary(std::mem::take(&mut self.outgoing).into());
            self.socket().start_send(frame).map_err(to_io)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ByteStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.incoming.is_empty() {
            match this.reading {
                Reading::Open => {
                    let message = ready!(this.socket().poll_next(cx));
                    this.receive(message)?;
                }
                Reading::Rejecting(why) => {
                    let flushed = ready!(this.socket().poll_flush(cx)).map_err(to_io);
                    this.reading = Reading::Ended;
                    flushed?;
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
                Reading::Ended => return Poll::Ready(Ok(())),
            }
        }
        let count = this.incoming.len().min(buffer.remaining());
        buffer.put_slice(&this.incoming.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ByteStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.outgoing.len() >= MAX_FRAME {
            ready!(self.poll_frame(cx))?;
        }
        let count = bytes.len().min(MAX_FRAME - self.outgoing.len());
        self.outgoing.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_frame(cx))?;
        self.socket().poll_flush(cx).map_err(to_io)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.reading, Reading::Open) {
            ready!(self.poll_frame(cx))?;
            ready!(self.socket().poll_close(cx)).map_err(to_io)?;
        }
        Pin::new(self.socket.get_mut()).poll_shutdown(cx)
    }
}

fn to_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        error => io::Error::other(error),
    }
}
