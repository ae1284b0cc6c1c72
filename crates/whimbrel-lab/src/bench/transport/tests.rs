//! Against servers of other implementations: rustls and tungstenite.

use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};
use tokio_tungstenite::tungstenite::{Message, accept_hdr};

use super::*;
use crate::bench::closed_loop::{self, Load, Timing};
use crate::bench::target::Target;
use crate::bench::test_broker::{Fault, TestBroker};
use crate::bench::wire::QoS;

/// More than a frame, a record of TLS, and what a socket takes at once.
const BYTES: usize = websocket::FRAME_MAX + 40_000;

/// How long a test waits for what it reads.
const PATIENCE: Duration = Duration::from_secs(20);

#[expect(clippy::result_large_err, reason = "tungstenite's type")]
fn with_subprotocol(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    let offered = request.headers().get("sec-websocket-protocol");
    assert_eq!((request.uri().path(), offered), ("/mqtt", Some(&HeaderValue::from_static("mqtt"))));
    response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("mqtt"));
    Ok(response)
}

fn secured(stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a configuration");
    StreamOwned::new(ServerConnection::new(Arc::new(config)).expect("a connection"), stream)
}

/// Reads a message over WebSocket and sends its bytes back in frames of 10,000 bytes, with pings in
/// between, and waits until the last one is answered.
fn echo_message(stream: impl Read + Write) {
    let mut socket = accept_hdr(stream, with_subprotocol).expect("an upgrade");
    let Message::Binary(bytes) = socket.read().expect("a message") else { panic!("MQTT is binary") };
    send_in_frames(&mut socket, &bytes, 10_000).expect("a client that reads");
    // Earlier pings may have answers, too.
    while socket.read().expect("an answer") != Message::Pong("last".into()) {}
}

/// Sends a message in frames of up to `each` bytes; after every frame there is a ping.
fn send_in_frames(socket: &mut WebSocket<impl Read + Write>, bytes: &[u8], each: usize) -> Result<()> {
    let count = bytes.chunks(each).len();
    for (index, chunk) in bytes.chunks(each).enumerate() {
        let kind = if index == 0 { Data::Binary } else { Data::Continue };
        let (is_last, chunk) = (index + 1 == count, chunk.to_vec());
        socket.send(Message::Frame(Frame::message(chunk, OpCode::Data(kind), is_last)))?;
        socket.send(Message::Ping(if is_last { "last".into() } else { "more".into() }))?;
    }
    Ok(())
}

/// Reads [`BYTES`] and sends them back.
fn echo_bytes(mut stream: impl Read + Write) {
    let mut bytes = vec![0; BYTES];
    stream.read_exact(&mut bytes).expect("all bytes");
    stream.write_all(&bytes).expect("all bytes");
    stream.flush().expect("all bytes");
}

fn echo(transport: Transport) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        match transport {
            Transport::Tcp => echo_bytes(stream),
            Transport::Tls => echo_bytes(secured(stream)),
            Transport::Ws => echo_message(stream),
            Transport::Wss => echo_message(secured(stream)),
        }
    });
    (address, server)
}

#[test]
fn bytes_come_back_over_every_transport_however_reads_cut_them() {
    let bytes: Vec<u8> = (0..BYTES).map(|index| (index % 253) as u8).collect();
    for transport in [Transport::Tls, Transport::Ws, Transport::Wss] {
        let (address, server) = echo(transport);
        let mut stream = TcpStream::connect(address).expect("listening");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let coding = Coding::open(transport, &mut stream, address).expect("a handshake");
        let mut coding = coding.expect("something to code");
        coding.encode(&bytes).expect("encoded");
        stream.write_all(&coding.wire).expect("sent");
        coding.wire.clear();
        let (mut found, mut chunk) = (Vec::new(), [0; 4096]);
        for size in [1, 2, 3, 5, 1000, 4096].into_iter().cycle() {
            let read = stream.read(&mut chunk[..size]).expect("bytes");
            // The server ends once the last ping, which follows all bytes, is answered.
            if read == 0 {
                break;
            }
            if let Err(error) = coding.decode(&chunk[..read], &mut found) {
                assert!(error.to_string().contains("closed TLS"), "{error}");
            }
            coding.encode(b"").expect("answers");
            if !coding.wire.is_empty() && stream.write_all(&coding.wire).is_err() {
                break;
            }
            coding.wire.clear();
            if found.len() == BYTES && transport == Transport::Tls {
                break;
            }
        }
        assert!(found == bytes, "{transport:?}: {} bytes came", found.len());
        server.join().expect("the server has seen what it waits for");
    }
}

#[test]
fn plain_tcp_needs_no_coding() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut stream = TcpStream::connect(address).expect("listening");
    assert!(Coding::open(Transport::Tcp, &mut stream, address).expect("nothing to do").is_none());
}

#[test]
fn what_speaks_neither_tls_nor_websocket_is_told() {
    for transport in [Transport::Tls, Transport::Ws] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            assert!(stream.read(&mut [0; 1024]).expect("a greeting") > 0);
            stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\n").expect("an answer");
        });
        let mut stream = TcpStream::connect(address).expect("listening");
        let error = Coding::open(transport, &mut stream, address).expect_err("no handshake");
        let told = if transport == Transport::Ws { "404 Not Found" } else { "the TLS handshake" };
        assert!(format!("{error:#}").contains(told), "{error:#}");
        server.join().expect("the server ends");
    }
}

/// Upgrades `clients` connections and passes their messages to a broker at `broker`, and what that
/// sends back in messages of two frames.
fn relay(broker: SocketAddr, clients: usize) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let acceptor = std::thread::spawn(move || {
        let mut passing = Vec::new();
        for client in listener.incoming().take(clients) {
            let client = client.expect("a client");
            let back = client.try_clone().expect("a second handle");
            let mut socket = accept_hdr(client, with_subprotocol).expect("an upgrade");
            let mut upstream = TcpStream::connect(broker).expect("a broker");
            let mut downstream = upstream.try_clone().expect("a second handle");
            passing.push(std::thread::spawn(move || {
                while let Ok(message) = socket.read() {
                    if let Message::Binary(bytes) = message {
                        upstream.write_all(&bytes).expect("the broker reads");
                    }
                }
                // The other thread reads from the same socket: it ends, too.
                upstream.shutdown(Shutdown::Both).expect("the broker is there");
            }));
            passing.push(std::thread::spawn(move || {
                let mut socket = WebSocket::from_raw_socket(back, Role::Server, None);
                let mut chunk = vec![0; 10_000];
                while let Ok(read @ 1..) = downstream.read(&mut chunk) {
                    // A client that has all it wanted may be gone before the last ping.
                    if send_in_frames(&mut socket, &chunk[..read], read.div_ceil(2)).is_err() {
                        return;
                    }
                }
            }));
        }
        passing.into_iter().for_each(|thread| thread.join().expect("it passes all on"));
    });
    (address, acceptor)
}

#[test]
fn a_load_over_websocket_loses_nothing() {
    let broker = TestBroker::start(Fault::None);
    let (address, relay) = relay(broker.target().address, 2);
    let target = Target { address, transport: Transport::Ws, ..broker.target() };
    let load = Load {
        publishers: 1,
        subscribers: 1,
        qos: QoS::AtMostOnce,
        body: 100,
        window: 200,
        unacknowledged: 1,
        user: &[],
        lasting: false,
    };
    let timing = Timing { warm_up: Duration::ZERO, measure: Duration::from_millis(50) };
    let outcome = closed_loop::run(target, &load, &timing, None).expect("a run");
    relay.join().expect("the relay ends");
    let seen = broker.stop();
    assert_eq!((outcome.lost, outcome.repeated, seen.delivered), (0, 0, seen.published));
    assert!(outcome.delivered > 0);
}
