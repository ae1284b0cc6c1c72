//! The HTTP listener over TLS: console, API, metrics and MQTT over WebSocket on one port, with
//! certificates of clients.

use std::path::Path;

use crate::common::authority::Authority;
use crate::common::{CONNECT, address, audited, get, metric, packet, raw, shakes_hands, soon, speaks_mqtt, start, tcp};
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error as WsError;
use whimbrel_server::config::{Config, Given, Listener, Override, schema};
use whimbrel_server::identity::Role;
use whimbrel_server::identity::authority::Made;
use whimbrel_server::{Outcome, Server};

/// A broker that knows others by certificates alone, and serves HTTP over TLS.
struct City {
    authority: Authority,
    directory: TempDir,
    server: Server,
}

fn configuration(directory: &Path, authority: &Authority) -> String {
    let path = |name: &str| directory.join(name).display().to_string();
    format!(
        "tls_cert = {:?}\ntls_key = {:?}\ntls_ca = {:?}\ntls_crl = {:?}\nlisten_tls = \"off\"\nlisten_wss = \"127.0.0.1:0\"\n\
         listen_http = \"127.0.0.1:0\"\nlisten_overlay = \"off\"\n[identity]\naudit = \"audit.jsonl\"\n\
         [[rule]]\nprincipals = [\"ops\"]\nactions = [\"observe\", \"administer\"]\n\
         [[rule]]\nprincipals = [\"bus-7\"]\nactions = [\"publish\"]\ntopics = [\"#\"]\n",
        path("broker.pem"),
        path("broker.key"),
        authority.path().join("ca.pem").display().to_string(),
        path("revoked.pem"),
    )
}

impl City {
    async fn start() -> City {
        let (authority, directory) = (Authority::new("city"), tempfile::tempdir().expect("a directory"));
        let place = directory.path();
        renew(place, &authority);
        std::fs::write(place.join("revoked.pem"), authority.revoke(&[])).expect("it can be written");
        let file = place.join("whimbrel.toml");
        std::fs::write(&file, configuration(place, &authority)).expect("it can be written");
        let config = Config::load(Some(&file), &[]);
        let config =
            config.unwrap_or_else(|problems| panic!("{:?}", problems.iter().map(|it| it.line()).collect::<Vec<_>>()));
        let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
        City { authority, directory, server }
    }

    fn client(&self, name: &str) -> Made {
        let file = |ending| self.authority.path().join(format!("client-{name}.{ending}"));
        let made = Made { certificate: file("pem"), key: file("key") };
        // Nothing is overwritten.
        if made.certificate.exists() { made } else { self.authority.make(Role::Client, name) }
    }

    async fn ask(&self, method: &str, path: &str, shown: Option<Made>) -> (u16, String) {
        let mut stream = shakes_hands(&self.server, Listener::Http, &self.authority, shown).await.expect("a handshake");
        ask(&mut stream, method, path).await
    }
}

/// Puts a new certificate where the broker has its own.
fn renew(place: &Path, authority: &Authority) {
    let new = tempfile::tempdir().expect("a directory");
    let made = authority.make_in(new.path(), Role::Broker, "north");
    std::fs::copy(made.certificate, place.join("broker.pem")).expect("it can be written");
    std::fs::copy(made.key, place.join("broker.key")).expect("it can be written");
}

async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), method: &str, path: &str) -> (u16, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("open");
    let mut answer = Vec::new();
    soon("the answer", stream.read_to_end(&mut answer)).await.expect("an orderly end");
    let answer = String::from_utf8(answer).expect("text");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer.split_once("\r\n\r\n").expect("a header and a body").1.to_owned())
}

/// Asks for MQTT over WebSocket, and speaks it; the status of a refusal.
async fn speaks_mqtt_within(stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), u16> {
    let mut request = "ws://localhost/mqtt".into_client_request().expect("a request");
    request.headers_mut().insert("sec-websocket-protocol", "mqtt".parse().expect("a header"));
    let (mut socket, _) = match soon("the upgrade", client_async(request, stream)).await {
        Ok(upgraded) => upgraded,
        Err(WsError::Http(response)) => return Err(response.status().as_u16()),
        Err(error) => panic!("no HTTP: {error}"),
    };
    socket.send(Message::binary(CONNECT)).await.expect("open");
    match soon("CONNACK", socket.next()).await.expect("open").expect("a message") {
        Message::Binary(bytes) => assert_eq!((bytes[0], bytes[3]), (0x20, 0), "CONNACK with success"),
        other => panic!("{other:?} instead of CONNACK"),
    }
    Ok(())
}

#[tokio::test]
async fn a_certificate_signs_in_and_what_no_rule_allows_is_denied() {
    let city = City::start().await;
    let (status, who) = city.ask("GET", "/api/v1/whoami", Some(city.client("ops"))).await;
    assert_eq!(status, 200, "{who}");
    let who: serde_json::Value = serde_json::from_str(&who).expect("JSON");
    assert_eq!((&who["principal"], &who["may"]), (&json!("ops"), &json!(["observe", "administer"])));
    assert_eq!(who["listeners"]["http_tls"], json!(true), "{who}");
    assert_eq!(city.ask("GET", "/metrics", Some(city.client("ops"))).await.0, 200);
    audited(
        &city.directory.path().join("audit.jsonl"),
        &json!({ "event": "signed_in", "action": "connect", "principal": "ops" }),
    )
    .await;
    for path in ["/metrics", "/api/v1/status", "/api/v1/sessions"] {
        assert_eq!(city.ask("GET", path, Some(city.client("bus-7"))).await.0, 403, "{path}");
        assert_eq!(city.ask("GET", path, None).await.0, 401, "{path}");
    }
    assert_eq!(city.ask("POST", "/api/v1/drain", Some(city.client("bus-7"))).await.0, 403);
    // Health and the page itself ask no client who it is.
    for path in ["/healthz", "/readyz", "/"] {
        assert_eq!(city.ask("GET", path, None).await.0, 200, "{path}");
    }
    let strangers = Authority::new("city");
    let refused =
        shakes_hands(&city.server, Listener::Http, &city.authority, Some(strangers.make(Role::Client, "ops")));
    if let Some(mut stream) = refused.await {
        // The client learns of it when it reads.
        assert!(stream.read_u8().await.is_err());
    }
}

#[tokio::test]
async fn mqtt_over_websocket_is_on_the_same_port_for_those_who_show_certificates() {
    let city = City::start().await;
    let hands =
        async |shown| shakes_hands(&city.server, Listener::Http, &city.authority, shown).await.expect("a handshake");
    assert_eq!(speaks_mqtt_within(hands(Some(city.client("bus-7"))).await).await, Ok(()));
    assert_eq!(speaks_mqtt_within(hands(None).await).await, Err(401));
    let (_, text) = city.ask("GET", "/metrics", Some(city.client("ops"))).await;
    for line in [
        "whimbrel_listener_failures_total{listener=\"http\",cause=\"no_certificate\"} 1",
        "whimbrel_listener_failures_total{listener=\"http\",cause=\"bad_request\"} 0",
        "whimbrel_connections_opened_total{listener=\"wss\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
    }
}

#[tokio::test]
async fn certificates_are_read_again_and_revoked_ones_are_refused_on_open_connections_too() {
    let city = City::start().await;
    let certificate = async || {
        let stream = shakes_hands(&city.server, Listener::Http, &city.authority, None).await.expect("a handshake");
        stream.get_ref().1.peer_certificates().expect("it shows one")[0].clone()
    };
    let before = certificate().await;
    let ops = city.client("ops");
    let revoked = city.authority.revoke(&[&crate::common::authority::read(&ops.certificate)]);
    let shakes = shakes_hands(&city.server, Listener::Http, &city.authority, Some(ops));
    let mut open = shakes.await.expect("a handshake");
    // The certificate is judged once the broker has answered; before, the handshake itself would be
    // refused.
    open.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("open");
    let mut answer = Vec::new();
    while !answer.ends_with(b"alive\n") {
        soon("an answer", open.read_buf(&mut answer)).await.expect("open");
    }
    renew(city.directory.path(), &city.authority);
    std::fs::write(city.directory.path().join("revoked.pem"), revoked).expect("it can be written");
    assert_eq!(city.server.reload().await, Some(Outcome::Changed));
    assert_ne!(certificate().await, before, "the new one is shown");
    assert_eq!(ask(&mut open, "GET", "/api/v1/status").await.0, 401);
}

#[tokio::test]
async fn scripts_of_pages_are_not_challenged_in_a_way_that_opens_the_browsers_own_window() {
    let city = City::start().await;
    let challenge = async |headers: &str| {
        let mut stream = shakes_hands(&city.server, Listener::Http, &city.authority, None).await.expect("a handshake");
        let request = format!("GET /api/v1/whoami HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("open");
        let mut answer = Vec::new();
        soon("the answer", stream.read_to_end(&mut answer)).await.expect("an orderly end");
        let answer = String::from_utf8(answer).expect("text");
        answer.lines().find_map(|line| line.strip_prefix("www-authenticate: ")).expect("a challenge").to_owned()
    };
    assert_eq!(challenge("").await, "Basic realm=\"whimbrel\", charset=\"UTF-8\"");
    assert_eq!(challenge("Sec-Fetch-Dest: empty\r\n").await, "Bearer realm=\"whimbrel\"");
}

#[tokio::test]
async fn http_without_tls_is_told_to_use_it() {
    let city = City::start().await;
    let answer = raw(address(&city.server, Listener::Http), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
}

#[tokio::test]
async fn with_dev_http_is_plain_and_takes_mqtt_over_websocket() {
    let server = start(|_| {}).await;
    assert_eq!(speaks_mqtt_within(tcp(&server, Listener::Http).await).await, Ok(()));
    metric(&server, "whimbrel_connections_opened_total{listener=\"ws\"} 1").await;
    let answer = get(&server, "/mqtt").await;
    assert_eq!(answer.0, 400, "{}", answer.1);
    metric(&server, "whimbrel_listener_failures_total{listener=\"http\",cause=\"bad_request\"} 1").await;
    // The other listeners stay.
    speaks_mqtt(&mut tcp(&server, Listener::Mqtt).await).await;
    let mut old = tcp(&server, Listener::Ws).await;
    old.write_all(b"x\r\n\r\n").await.expect("open");
    let mut answer = Vec::new();
    soon("an answer", old.read_to_end(&mut answer)).await.expect("an orderly end");
    assert!(answer.starts_with(b"HTTP/1.1 400 "));
}

#[tokio::test]
async fn a_full_broker_refuses_websockets_at_the_http_listener() {
    let server = start(|config| config.limits.max_connections = Some(1)).await;
    let mut first = tcp(&server, Listener::Mqtt).await;
    first.write_all(CONNECT).await.expect("open");
    assert_eq!(soon("CONNACK", packet(&mut first)).await.expect("an answer").0, 0x20);
    assert_eq!(speaks_mqtt_within(tcp(&server, Listener::Http).await).await, Err(503));
    assert_eq!(get(&server, "/healthz").await.0, 200);
    metric(&server, "whimbrel_listener_failures_total{listener=\"http\",cause=\"connection_limit\"} 1").await;
}

#[test]
fn whether_http_is_plain_follows_from_the_certificate_unless_it_is_said() {
    let authority = Authority::new("city");
    let made = authority.make(Role::Broker, "north");
    let load = |given: &[(&str, &str)]| {
        let set = |(name, text): &(&str, &str)| Override {
            key: schema::find("", name).expect("a setting"),
            given: Given::Flag,
            text: (*text).to_owned(),
        };
        Config::load(None, &given.iter().map(set).collect::<Vec<_>>())
    };
    let (cert, key) = (made.certificate.display().to_string(), made.key.display().to_string());
    let ca = authority.path().join("ca.pem").display().to_string();
    let files = [("tls_cert", &*cert), ("tls_key", &*key), ("tls_ca", &*ca)];
    assert!(load(&[("dev", "true")]).expect("all right").http_plain, "browsers do not trust what --dev makes");
    assert!(!load(&[("dev", "true"), ("http_plain", "false")]).expect("all right").http_plain);
    assert!(!load(&files).expect("all right").http_plain);
    assert!(load(&[&files[..], &[("http_plain", "true")]].concat()).expect("all right").http_plain);
}
