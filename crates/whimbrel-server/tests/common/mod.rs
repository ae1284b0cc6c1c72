//! A server within the test, and clients that know just enough MQTT.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod authority;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use whimbrel_core::{Persistence, Profile};
use whimbrel_server::Server;
use whimbrel_server::config::schema::KEYS;
use whimbrel_server::config::{Config, Given, Listener, Override};
use whimbrel_server::identity::authority::Made;
use whimbrel_server::store::Opening;

/// For anything that a test waits for.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// CONNECT of MQTT 5 with client id "a" and a clean start.
pub const CONNECT: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01a";
/// PINGREQ.
pub const PING: &[u8] = b"\xc0\x00";

/// A configuration on free loopback ports, changed by `adapt`.
pub fn config(adapt: impl FnOnce(&mut Config)) -> Config {
    let set = |key, text: &str| Override { key, given: Given::Flag, text: text.to_owned() };
    let listeners = KEYS.iter().filter(|key| key.name.starts_with("listen_") && !key.is_later());
    let mut overrides: Vec<Override> = listeners.map(|key| set(key, "127.0.0.1:0")).collect();
    overrides.push(set(KEYS.iter().find(|key| key.name == "dev").expect("a setting"), "true"));
    let mut config = Config::load(None, &overrides).expect("a valid configuration");
    adapt(&mut config);
    config
}

/// A server on free loopback ports.
pub async fn start(adapt: impl FnOnce(&mut Config)) -> Server {
    Server::start(&config(adapt), "1.2.3").await.expect("loopback ports are free")
}

/// Has a broker keep everything that is published in a journal in that directory.
pub fn keep_all(config: &mut Config, directory: &Path) {
    config.topics = vec![Profile { filter: "#".into(), persistence: Persistence::Persistent, ..Profile::default() }];
    config.data = Some(Opening {
        directory: directory.to_owned(),
        segment_bytes: 1 << 20,
        max_bytes: 16 << 20,
        accept_clock: false,
        topics: config.topics.clone(),
        keeps_nothing: false,
        engine: None,
    });
}

/// A user property.
pub fn user_property(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    [vec![0x26], text(name), text(value)].concat()
}

/// A PUBLISH of MQTT 5 to `t` at QoS 1, of fewer than 128 bytes.
pub fn publish(id: u16, properties: &[u8]) -> Vec<u8> {
    let body = [b"\x00\x01t", &id.to_be_bytes()[..], &[properties.len() as u8], properties, b"hello"].concat();
    [&[0x32, body.len() as u8][..], &body].concat()
}

pub fn address(server: &Server, listener: Listener) -> SocketAddr {
    server.ready().address(listener).expect("the listener is open")
}

/// Waits for `future`, but not for ever.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not come within {DEADLINE:?}"),
    }
}

pub async fn tcp(server: &Server, listener: Listener) -> TcpStream {
    TcpStream::connect(address(server, listener)).await.expect("the listener accepts")
}

pub async fn tls(server: &Server, listener: Listener) -> TlsStream<TcpStream> {
    tls_over(server, tcp(server, listener).await).await
}

/// TLS over a connection that is open already.
pub async fn tls_over(server: &Server, stream: TcpStream) -> TlsStream<TcpStream> {
    let pem = get(server, "/certificate.pem").await.1;
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate in PEM");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).expect("it can be trusted");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("the certificate is for localhost")
}

/// One MQTT packet: its first byte and what follows the length. `None` at the end of the stream.
pub async fn packet(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, Vec<u8>)> {
    let first = stream.read_u8().await.ok()?;
    let mut length = 0;
    for shift in [0, 7, 14, 21] {
        let byte = stream.read_u8().await.ok()?;
        length |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((first, body))
}

/// CONNECT, CONNACK, PINGREQ, PINGRESP.
pub async fn speaks_mqtt(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    speaks_mqtt_as(stream, b'a').await;
}

/// The same of a client with that id: one client cannot be at two brokers.
pub async fn speaks_mqtt_as(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), id: u8) {
    let (_, connect) = CONNECT.split_last().expect("a client id is its end");
    stream.write_all(&[connect, &[id]].concat()).await.expect("the connection is open");
    stream.flush().await.expect("the connection is open");
    let (first, body) = soon("CONNACK", packet(stream)).await.expect("an answer to CONNECT");
    assert_eq!((first, body[1]), (0x20, 0), "CONNACK with success");
    stream.write_all(PING).await.expect("the connection is open");
    stream.flush().await.expect("the connection is open");
    assert_eq!(soon("PINGRESP", packet(stream)).await, Some((0xd0, Vec::new())));
}

/// Sends a request as it is and reads everything up to the end of the connection.
pub async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the listener accepts");
    stream.write_all(request.as_bytes()).await.expect("the connection is open");
    let mut answer = Vec::new();
    soon("the end of the answer", stream.read_to_end(&mut answer)).await.expect("an orderly end");
    String::from_utf8(answer).expect("text")
}

/// Status and body of a page.
pub async fn get(server: &Server, path: &str) -> (u16, String) {
    ask(server, "GET", path, "").await
}

/// Status and body of what is answered to a request; further headers end with a line's end.
pub async fn ask(server: &Server, method: &str, path: &str, headers: &str) -> (u16, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    let answer = raw(address(server, Listener::Http), &request).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a header and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// Waits until a line of the metrics is there.
pub async fn metric(server: &Server, line: &str) {
    let appears = async {
        while !get(server, "/metrics").await.1.lines().any(|other| other == line) {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(DEADLINE, appears).await.is_err() {
        panic!("\"{line}\" is not among the metrics:\n{}", get(server, "/metrics").await.1);
    }
}

/// A TLS handshake in which a certificate is shown, or none, with a broker of that authority. The
/// client's certificate is judged last: also a refused one may be let through so far.
pub async fn shakes_hands(
    server: &Server,
    listener: Listener,
    authority: &authority::Authority,
    shown: Option<Made>,
) -> Option<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority::read(&authority.path().join("ca.pem"))).expect("it can be trusted");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(Made { certificate, key }) => {
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            config.with_client_auth_cert(vec![authority::read(&certificate)], key).expect("they belong together")
        }
    };
    let stream = TcpStream::connect(address(server, listener)).await.expect("the listener accepts");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
}

/// Speaks MQTT over TLS with a certificate, or without one, to a broker of that authority, each
/// time under another client id; `None`: the broker does not take it.
pub async fn speaks_tls(
    server: &Server,
    authority: &authority::Authority,
    shown: Option<Made>,
) -> Option<TlsStream<TcpStream>> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut stream = shakes_hands(server, Listener::Tls, authority, shown).await?;
    // The client's certificate is judged last: the refusal comes as the answer to what the client
    // says first.
    let id = format!("{:08}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let connect = [b"\x10\x15\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x08", id.as_bytes()].concat();
    stream.write_all(&connect).await.ok()?;
    let (_, body) = soon("an answer", packet(&mut stream)).await?;
    (body[1] == 0).then_some(stream)
}

/// Waits for a line of an audit's file that has all of this; what is null must not be there.
pub async fn audited(path: &Path, expected: &Value) {
    let is_there = || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.any(|line| expected.as_object().expect("an object").iter().all(|(key, value)| line[key] == *value))
    };
    let appears = async {
        while !is_there() {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(DEADLINE, appears).await.is_err() {
        panic!("{expected} is not in the audit:\n{}", std::fs::read_to_string(path).unwrap_or_default());
    }
}
