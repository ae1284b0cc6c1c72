//! Listeners behind proxies that speak the PROXY protocol, on real sockets.

use std::path::Path;
use std::time::Duration;

use crate::common::{CONNECT, DEADLINE, address, config, metric, packet, raw, soon, speaks_mqtt, tcp, tls_over};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use whimbrel_server::Server;
use whimbrel_server::config::schema::KEYS;
use whimbrel_server::config::{Certificate, Config, Given, Listener, Override};

const TEXT: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 1883\r\n";

/// Version 2: TCP over IPv6 from 2001:db8::7, port 4711, with a TLV of no meaning behind the
/// addresses.
fn binary() -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x28".to_vec();
    header.extend(b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x07");
    header.extend(b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x12\x67\x07\x5b");
    header.extend(b"\xe0\0\x01x");
    header
}

/// The proxy of version 2 speaks for itself.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Stands all of these behind a proxy on loopback.
fn behind(config: &mut Config, listeners: &[Listener]) {
    config.proxy.listeners = listeners.to_vec();
    config.proxy.from = vec!["127.0.0.0/8".parse().expect("a network")];
}

async fn start(adapt: impl FnOnce(&mut Config)) -> Server {
    crate::common::start(|config| {
        behind(config, &[Listener::Mqtt, Listener::Tls, Listener::Ws, Listener::Wss]);
        adapt(config);
    })
    .await
}

async fn connect(server: &Server, listener: Listener, first: &[u8]) -> TcpStream {
    let mut stream = tcp(server, listener).await;
    stream.write_all(first).await.expect("the connection is open");
    stream
}

/// Waits until the broker has ended the connection, in whichever way.
async fn is_ended(mut stream: TcpStream) {
    let ended = soon("the end", stream.read(&mut [0; 16])).await;
    assert_eq!(ended.unwrap_or(0), 0);
}

async fn refused(server: &Server, listener: Listener, cause: &str, times: u64) {
    let name = listener.name();
    metric(server, &format!("whimbrel_listener_failures_total{{listener=\"{name}\",cause=\"{cause}\"}} {times}")).await;
}

#[tokio::test]
async fn mqtt_follows_a_header_of_either_version() {
    let server = start(|_| {}).await;
    for header in [TEXT, &binary(), LOCAL, b"PROXY UNKNOWN\r\n"] {
        speaks_mqtt(&mut connect(&server, Listener::Mqtt, header).await).await;
    }
    // Whatever a header is cut into, and with MQTT in the same packet.
    let mut stream = tcp(&server, Listener::Mqtt).await;
    stream.set_nodelay(true).expect("a socket");
    for byte in TEXT {
        stream.write_all(&[*byte]).await.expect("the connection is open");
        tokio::task::yield_now().await;
    }
    speaks_mqtt(&mut stream).await;
    let mut stream = connect(&server, Listener::Mqtt, &[&binary(), CONNECT].concat()).await;
    assert_eq!(soon("CONNACK", packet(&mut stream)).await.expect("an answer").0, 0x20);
}

#[tokio::test]
async fn tls_and_websocket_follow_a_header() {
    let server = start(|_| {}).await;
    let stream = connect(&server, Listener::Tls, &binary()).await;
    speaks_mqtt(&mut tls_over(&server, stream).await).await;
    let request = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    let mut answer = [0; 12];
    let mut stream = connect(&server, Listener::Ws, &[TEXT, request.as_bytes()].concat()).await;
    soon("an answer", stream.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 101");
    let mut stream = tls_over(&server, connect(&server, Listener::Wss, TEXT).await).await;
    stream.write_all(request.as_bytes()).await.expect("the connection is open");
    soon("an answer", stream.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 101");
}

#[tokio::test]
async fn what_does_not_begin_with_a_header_is_refused_and_counted() {
    let server = start(|_| {}).await;
    let endless = [b"PROXY TCP4 ", &[b'1'; 200][..]].concat();
    let long = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
    let wrong = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 65536\r\n".to_vec();
    let all = [CONNECT.to_vec(), b"\x16\x03\x01\0\0".to_vec(), endless, long, wrong];
    for (bytes, times) in all.iter().zip(1..) {
        is_ended(connect(&server, Listener::Mqtt, bytes).await).await;
        refused(&server, Listener::Mqtt, "proxy_header", times).await;
    }
    is_ended(connect(&server, Listener::Tls, b"\x16\x03\x01\0\0").await).await;
    refused(&server, Listener::Tls, "proxy_header", 1).await;
    // One that says nothing and goes, as a check of its port does.
    drop(tcp(&server, Listener::Ws).await);
    refused(&server, Listener::Ws, "proxy_header", 1).await;
    speaks_mqtt(&mut connect(&server, Listener::Mqtt, TEXT).await).await;
}

#[tokio::test]
async fn a_header_may_not_take_for_ever() {
    let server = start(|config| config.limits.handshake_timeout = Duration::from_millis(100)).await;
    for (listener, first) in [(Listener::Mqtt, &TEXT[..20]), (Listener::Wss, &[]), (Listener::Tls, &LOCAL[..14])] {
        is_ended(connect(&server, listener, first).await).await;
        refused(&server, listener, "proxy_timeout", 1).await;
    }
    // What follows a header has its own time.
    is_ended(connect(&server, Listener::Tls, TEXT).await).await;
    refused(&server, Listener::Tls, "handshake_timeout", 1).await;
}

#[tokio::test]
async fn a_header_from_elsewhere_is_not_believed() {
    let server = start(|config| config.proxy.from = vec!["192.0.2.0/24".parse().expect("a network")]).await;
    for listener in [Listener::Mqtt, Listener::Tls] {
        is_ended(connect(&server, listener, TEXT).await).await;
        refused(&server, listener, "proxy_untrusted", 1).await;
    }
}

#[tokio::test]
async fn listeners_that_are_not_named_take_no_header() {
    let server = start(|config| behind(config, &[Listener::Tls])).await;
    is_ended(connect(&server, Listener::Mqtt, TEXT).await).await;
    speaks_mqtt(&mut tcp(&server, Listener::Mqtt).await).await;
}

/// A broker that knows people by tokens, lets no client in, lets everybody look, and takes notes.
fn strict(directory: &Path) -> Config {
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).expect("it can be written");
    write("secret", "a secret of the sign-in service, long enough");
    let text = "[identity]\naudit = \"audit.jsonl\"\n[[identity.key]]\nalgorithm = \"HS256\"\nfile = \"secret\"\n\
                [[rule]]\nprincipals = [\"anonymous\"]\nactions = [\"observe\"]\n";
    write("whimbrel.toml", text);
    let set = |name: &str| {
        let key = KEYS.iter().find(|key| key.name == name).expect("a setting");
        Override { key, given: Given::Flag, text: "127.0.0.1:0".into() }
    };
    let given = ["listen_mqtt", "listen_ws", "listen_http"].map(set);
    let mut config = Config::load(Some(&directory.join("whimbrel.toml")), &given).expect("a configuration");
    behind(&mut config, &[Listener::Mqtt, Listener::Tls, Listener::Http]);
    config.certificate = Certificate::Made;
    config.listen.push((Listener::Tls, "127.0.0.1:0".parse().expect("an address")));
    config
}

/// Waits for a line of the audit: `action` was refused to a client at the address `from`.
async fn audited(directory: &Path, action: &str, from: &str) {
    let read = || std::fs::read_to_string(directory.join("audit.jsonl")).unwrap_or_default();
    let is_it = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        line["event"] == "refused" && line["action"] == action && line["from"] == from
    };
    let appears = async {
        while !read().lines().any(is_it) {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, appears).await.is_ok(), "{from} is not in the audit:\n{}", read());
}

#[tokio::test]
async fn the_audit_names_the_client_and_not_the_proxy() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(&strict(directory.path()), "1.2.3").await.expect("loopback ports are free");
    let mut stream = connect(&server, Listener::Mqtt, &[TEXT, CONNECT].concat()).await;
    assert_eq!(soon("CONNACK", packet(&mut stream)).await.expect("an answer").1[1], 0x87);
    audited(directory.path(), "connect", "192.0.2.7:4711").await;

    let head = "PROXY TCP4 192.0.2.9 198.51.100.1 4712 8080\r\n";
    let request = |path: &str| format!("{head}GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let http = address(&server, Listener::Http);
    let drain = format!("{head}POST /api/v1/drain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(raw(http, &drain).await.starts_with("HTTP/1.1 401"));
    audited(directory.path(), "administer", "192.0.2.9:4712").await;

    let local = connect(&server, Listener::Mqtt, &[LOCAL, CONNECT].concat()).await;
    let own = local.local_addr().expect("a connected socket").to_string();
    audited(directory.path(), "connect", &own).await;

    let page = raw(http, &request("/metrics")).await;
    assert!(page.contains("whimbrel_listener_accepted_total{listener=\"http\"} 2"), "{page}");
    is_ended(connect(&server, Listener::Http, b"GET /healthz HTTP/1.1\r\n\r\n").await).await;
    let refused = async {
        let line = "whimbrel_listener_failures_total{listener=\"http\",cause=\"proxy_header\"} 1";
        while !raw(http, &request("/metrics")).await.lines().any(|other| other == line) {
            tokio::task::yield_now().await;
        }
    };
    soon("the counter", refused).await;
}

#[tokio::test]
async fn the_audit_names_the_client_behind_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = strict(directory.path());
    behind(&mut config, &[Listener::Tls]);
    let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
    let mut stream = tls_over(&server, connect(&server, Listener::Tls, &binary()).await).await;
    stream.write_all(CONNECT).await.expect("the connection is open");
    assert_eq!(soon("CONNACK", packet(&mut stream)).await.expect("an answer").1[1], 0x87);
    audited(directory.path(), "connect", "[2001:db8::7]:4711").await;
}

#[tokio::test]
async fn a_broker_with_the_usual_configuration_stands_behind_nobody() {
    assert_eq!(config(|_| {}).proxy, Default::default());
}
