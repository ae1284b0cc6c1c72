//! MQTT over WebSocket: the upgrade, and frames in every shape.

use crate::common::{CONNECT, PING, address, metric, raw, soon, speaks_mqtt, start, tcp, tls};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use whimbrel_server::Server;
use whimbrel_server::config::Listener;

async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    protocols: &'static str,
) -> (WebSocketStream<S>, Response) {
    let mut request = "ws://localhost/mqtt".into_client_request().expect("a request");
    request.headers_mut().insert("sec-websocket-protocol", protocols.parse().expect("a header"));
    soon("the upgrade", client_async(request, stream)).await.expect("an upgrade")
}

async fn connected(server: &Server) -> WebSocketStream<tokio::net::TcpStream> {
    upgrade(tcp(server, Listener::Ws).await, "mqtt").await.0
}

/// Reads binary messages until `length` bytes have come.
async fn bytes<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        match soon("a message", socket.next()).await.expect("the connection is open").expect("a message") {
            Message::Binary(more) => bytes.extend_from_slice(&more),
            other => panic!("{other:?} instead of a binary message"),
        }
    }
    bytes
}

/// The code of the close frame that comes next, whatever binary messages come before.
async fn close_code(socket: &mut WebSocketStream<tokio::net::TcpStream>) -> CloseCode {
    loop {
        match soon("a close frame", socket.next()).await.expect("a close frame first").expect("a close frame") {
            Message::Close(Some(frame)) => return frame.code,
            Message::Binary(_) => {}
            other => panic!("{other:?} instead of a close frame"),
        }
    }
}

/// A single frame of a message in several.
fn frame(opcode: Data, payload: &'static [u8], last: bool) -> Message {
    Message::Frame(Frame::message(payload, OpCode::Data(opcode), last))
}

// covers: MQTT-6.0.0-4
#[tokio::test]
async fn the_subprotocol_is_answered() {
    let server = start(|_| {}).await;
    let (_, response) = upgrade(tcp(&server, Listener::Ws).await, "chat, mqtt").await;
    assert_eq!(response.headers()["sec-websocket-protocol"], "mqtt");
}

// covers: MQTT-4.2.0-1
#[tokio::test]
async fn one_packet_per_frame_and_over_tls() {
    let server = start(|_| {}).await;
    let (mut socket, _) = upgrade(tls(&server, Listener::Wss).await, "mqtt").await;
    socket.send(Message::binary(CONNECT)).await.expect("open");
    assert_eq!(bytes(&mut socket, 4).await[0], 0x20);
    socket.send(Message::binary(PING)).await.expect("open");
    assert_eq!(bytes(&mut socket, 2).await, [0xd0, 0]);
}

// covers: MQTT-6.0.0-2
#[tokio::test]
async fn packets_span_messages_and_share_them() {
    let server = start(|_| {}).await;
    let mut socket = connected(&server).await;
    let stream = [CONNECT, PING, PING].concat();
    for chunk in stream.chunks(5) {
        socket.send(Message::binary(chunk.to_vec())).await.expect("open");
    }
    socket.send(Message::binary(Vec::new())).await.expect("an empty message is no packet and no fault");
    let mut answer = Vec::new();
    while !answer.ends_with(&[0xd0, 0, 0xd0, 0]) {
        answer.extend(bytes(&mut socket, 1).await);
    }
    assert_eq!(answer[0], 0x20);
}

// covers: MQTT-6.0.0-2
#[tokio::test]
async fn messages_may_be_fragmented() {
    let server = start(|_| {}).await;
    let mut socket = connected(&server).await;
    let (start, end) = CONNECT.split_at(3);
    socket.send(frame(Data::Binary, start, false)).await.expect("open");
    socket.send(Message::Ping(Bytes::from_static(b"between"))).await.expect("open");
    let pong = soon("a pong", socket.next()).await.expect("open").expect("a message");
    assert_eq!(pong, Message::Pong(Bytes::from_static(b"between")));
    socket.send(frame(Data::Continue, end, true)).await.expect("open");
    assert_eq!(bytes(&mut socket, 4).await[0], 0x20);
}

// covers: MQTT-6.0.0-1
#[tokio::test]
async fn bytes_behind_the_upgrade_are_not_lost() {
    let server = start(|_| {}).await;
    let mut stream = tcp(&server, Listener::Ws).await;
    let mut early = request("/mqtt", "Sec-WebSocket-Protocol: mqtt\r\n").into_bytes();
    early.extend([0x82, 0x80 | CONNECT.len() as u8, 0, 0, 0, 0]);
    early.extend(CONNECT);
    stream.write_all(&early).await.expect("open");
    let mut answer = Vec::new();
    let connack = async {
        while !answer.windows(4).any(|bytes| bytes == b"\r\n\r\n") || answer.ends_with(b"\r\n\r\n") {
            tokio::io::AsyncReadExt::read_buf(&mut stream, &mut answer).await.expect("open");
        }
    };
    soon("CONNACK", connack).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    let body = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a header's end") + 4;
    assert_eq!((answer[body], answer[body + 2]), (0x82, 0x20), "a binary frame with CONNACK");
}

// covers: MQTT-6.0.0-1
#[tokio::test]
async fn text_is_not_mqtt() {
    let server = start(|_| {}).await;
    let mut socket = connected(&server).await;
    socket.send(Message::text("hello")).await.expect("open");
    assert_eq!(close_code(&mut socket).await, CloseCode::Unsupported);
    metric(&server, "whimbrel_listener_failures_total{listener=\"ws\",cause=\"text_frame\"} 1").await;
    metric(&server, "whimbrel_connections 0").await;
}

#[tokio::test]
async fn messages_have_a_bound() {
    let server = start(|config| config.broker.limits.max_packet_size = 1000).await;
    let mut socket = connected(&server).await;
    socket.send(Message::binary(vec![0; 100_000])).await.expect("open");
    assert_eq!(close_code(&mut socket).await, CloseCode::Size);
    metric(&server, "whimbrel_listener_failures_total{listener=\"ws\",cause=\"bad_frame\"} 1").await;
}

#[tokio::test]
async fn the_closing_handshake_is_answered() {
    let server = start(|_| {}).await;
    let mut socket = connected(&server).await;
    socket.close(None).await.expect("open");
    let answer = soon("the answer", socket.next()).await;
    assert!(matches!(answer, None | Some(Ok(Message::Close(_)))), "{answer:?}");
    metric(&server, "whimbrel_connections 0").await;
}

#[tokio::test]
async fn a_client_that_vanishes_is_lost_and_no_fault() {
    let server = start(|_| {}).await;
    drop(connected(&server).await);
    metric(&server, "whimbrel_connections_lost_total 1").await;
    metric(&server, "whimbrel_listener_failures_total{listener=\"ws\",cause=\"bad_frame\"} 0").await;
}

#[tokio::test]
async fn malformed_frames_are_refused() {
    let server = start(|_| {}).await;
    let mut socket = connected(&server).await;
    // Clients must mask what they send.
    socket.get_mut().write_all(&[0x82, 1, 0]).await.expect("open");
    assert_eq!(close_code(&mut socket).await, CloseCode::Protocol);
    metric(&server, "whimbrel_listener_failures_total{listener=\"ws\",cause=\"bad_frame\"} 1").await;
}

fn request(path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
}

// covers: MQTT-6.0.0-3
#[tokio::test]
async fn refused_upgrades_get_an_answer_and_are_counted() {
    let server = start(|_| {}).await;
    let ask = async |request: String| raw(address(&server, Listener::Ws), &request).await;
    let mqtt = "Sec-WebSocket-Protocol: mqtt\r\n";

    let answer = ask(request("/other", mqtt)).await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.ends_with("MQTT over WebSocket is at /mqtt\n"), "{answer}");
    for headers in ["", "Sec-WebSocket-Protocol: chat\r\n"] {
        let answer = ask(request("/mqtt", headers)).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("subprotocol \"mqtt\""), "{answer}");
    }
    let answer = ask(request("/mqtt", mqtt).replace("Version: 13", "Version: 8")).await;
    assert!(answer.starts_with("HTTP/1.1 426 ") && answer.contains("sec-websocket-version: 13"), "{answer}");
    let answer = ask("GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n".into()).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let answer = ask("nonsense\r\n\r\n".into()).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");

    for (cause, count) in [("wrong_path", 1), ("no_subprotocol", 2), ("bad_request", 3), ("handshake_timeout", 0)] {
        metric(&server, &format!("whimbrel_listener_failures_total{{listener=\"ws\",cause=\"{cause}\"}} {count}"))
            .await;
    }
    speaks_mqtt(&mut tcp(&server, Listener::Mqtt).await).await;
}
