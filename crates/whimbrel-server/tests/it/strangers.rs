//! Strangers, and the example of docs/trust.md: a client without permission is refused with the
//! right code, and that is noted.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{audited, packet, raw, soon};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use whimbrel_access::Action;
use whimbrel_server::Server;
use whimbrel_server::access::HttpRefusal;
use whimbrel_server::access::passwords;
use whimbrel_server::api::access::Action as Asking;
use whimbrel_server::config::schema::KEYS;
use whimbrel_server::config::{Config, Given, Listener, Override};
use whimbrel_server::control;

const SECRET: &str = "a secret of the sign-in service, long enough";

/// The broker of docs/trust.md, as it stands there.
struct Example {
    directory: tempfile::TempDir,
    server: Server,
}

fn example() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/trust.md");
    let text = std::fs::read_to_string(path).expect("the guide exists");
    let (_, rest) = text.split_once("```toml\n").expect("an example");
    rest.split_once("```").expect("its end").0.to_owned()
}

fn load(directory: &Path) -> Config {
    let set = |key, text: &str| Override { key, given: Given::Flag, text: text.to_owned() };
    let key = |name: &str| KEYS.iter().find(|key| key.name == name).expect("a setting");
    let given = ["listen_mqtt", "listen_ws", "listen_http"].map(|name| set(key(name), "127.0.0.1:0"));
    let config = Config::load(Some(&directory.join("whimbrel.toml")), &given);
    config.unwrap_or_else(|problems| panic!("{:?}", problems.iter().map(|problem| problem.line()).collect::<Vec<_>>()))
}

impl Example {
    async fn start() -> Example {
        Example::start_with(|_| ()).await
    }

    async fn start_with(change: impl FnOnce(&mut Config)) -> Example {
        Example::start_of(&example(), change).await
    }

    /// The same with another configuration.
    async fn start_of(text: &str, change: impl FnOnce(&mut Config)) -> Example {
        let directory = tempfile::tempdir().expect("a directory");
        let write =
            |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("it can be written");
        write("whimbrel.toml", text);
        write("token.secret", SECRET);
        for (user, password) in [("bus-7", "seven"), ("bus-8", "eight"), ("dispatcher", "boss")] {
            let path = directory.path().join("passwords");
            passwords::change(&path, user, Some(password.as_bytes())).expect("a new user");
        }
        let mut config = load(directory.path());
        config.control = Some(control::Place { path: directory.path().join("control.sock"), is_guarded: false });
        assert!(!config.dev);
        change(&mut config);
        let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
        Example { directory, server }
    }

    fn address(&self, listener: Listener) -> SocketAddr {
        self.server.ready().address(listener).expect("the listener is open")
    }

    async fn connect(&self, client_id: &str, credentials: Option<(&str, &str)>) -> (TcpStream, u8) {
        let mut stream = TcpStream::connect(self.address(Listener::Mqtt)).await.expect("the listener accepts");
        stream.write_all(&connect(client_id, credentials)).await.expect("the connection is open");
        let (first, body) = soon("CONNACK", packet(&mut stream)).await.expect("an answer to CONNECT");
        assert_eq!(first, 0x20);
        (stream, body[1])
    }

    async fn code(&self, client_id: &str, credentials: Option<(&str, &str)>) -> u8 {
        self.connect(client_id, credentials).await.1
    }

    /// Waits for a line of the audit that has all of this.
    async fn audited(&self, expected: Value) {
        audited(&self.directory.path().join("audit.jsonl"), &expected).await;
    }

    async fn ask(&self, authorization: Option<&str>, action: Action) -> Result<String, HttpRefusal> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value.parse().expect("a header"));
        }
        let asked = self.server.access().authorize_http(&headers, ("", None), action);
        soon("an answer", asked).await.map(|principal| principal.name().to_owned())
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn packet_of(first: u8, body: &[u8]) -> Vec<u8> {
    let length = match body.len() {
        len if len < 128 => vec![len as u8],
        len => vec![(len % 128) as u8 | 0x80, (len / 128) as u8],
    };
    [vec![first], length, body.to_vec()].concat()
}

fn connect(client_id: &str, credentials: Option<(&str, &str)>) -> Vec<u8> {
    let flags = if credentials.is_some() { 0xc2 } else { 0x02 };
    let mut body = [text("MQTT"), vec![5, flags, 0, 60, 0], text(client_id)].concat();
    if let Some((user, password)) = credentials {
        body.extend([text(user), text(password)].concat());
    }
    packet_of(0x10, &body)
}

/// A token of the sign-in service, with these claims beside those that the example asks for.
fn token(more: Value) -> String {
    token_by(SECRET, "HS256", more)
}

fn token_by(secret: &str, algorithm: &str, more: Value) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let mut claims = json!({
        "sub": "console-1", "iss": "https://login.example.org", "aud": "whimbrel", "exp": now + 600,
    });
    for (key, value) in more.as_object().expect("an object") {
        match value {
            Value::Null => drop(claims.as_object_mut().expect("an object").remove(key)),
            value => claims[key] = value.clone(),
        }
    }
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&json!({ "alg": algorithm, "typ": "JWT" })), encode(&claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[tokio::test]
async fn passwords_let_in_whom_they_are_of() {
    let world = Example::start().await;
    assert_eq!(world.code("bus-7", Some(("bus-7", "seven"))).await, 0);
    assert_eq!(world.code("bus-7", Some(("bus-7", "seven"))).await, 0, "remembered");
    for (user, password) in [("bus-7", "eight"), ("bus-9", "seven"), ("anonymous", "seven"), ("bus-7", "")] {
        assert_eq!(world.code("bus-7", Some((user, password))).await, 0x86, "{user} {password}");
    }
    let expected =
        json!({ "event": "refused", "action": "identify", "about": "bus-9", "client_id": "bus-7", "code": 0x86 });
    world.audited(expected).await;
    assert_eq!(world.code("bus-8", Some(("bus-7", "seven"))).await, 0x87, "another node's client id");
    world.audited(json!({ "action": "connect", "principal": "bus-7", "client_id": "bus-8", "code": 0x87 })).await;
    // Without saying who one is, there is the news and nothing else.
    let (mut stream, code) = world.connect("reader", None).await;
    assert_eq!(code, 0);
    let subscribe = [vec![0, 1, 0], text("news/#"), vec![0], text("fleet/#"), vec![0]].concat();
    stream.write_all(&packet_of(0x82, &subscribe)).await.expect("the connection is open");
    let (_, body) = soon("SUBACK", packet(&mut stream)).await.expect("an answer");
    assert_eq!(body[body.len() - 2..], [0, 0x87]);
    let publish = [text("news/x"), vec![0, 2, 0], b"false".to_vec()].concat();
    stream.write_all(&packet_of(0x32, &publish)).await.expect("the connection is open");
    let (first, body) = soon("PUBACK", packet(&mut stream)).await.expect("an answer");
    assert_eq!((first, body[2]), (0x40, 0x87));
    let expected =
        json!({ "action": "publish", "principal": "anonymous", "about": "news/x", "why": "no rule allows it" });
    world.audited(expected).await;
}

#[tokio::test]
async fn tokens_are_believed_by_their_key_alone() {
    let world = Example::start().await;
    let bearer = |token: String| format!("Bearer {token}");
    let ask = async |token: String| world.ask(Some(&bearer(token)), Action::Observe).await;
    assert_eq!(ask(token(json!({}))).await.as_deref(), Ok("console-1"));
    assert_eq!(world.ask(Some(&basic("any", &token(json!({})))), Action::Observe).await.as_deref(), Ok("console-1"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let wrong = [
        ("expired", token(json!({ "exp": now - 60 }))),
        ("without an end", token(json!({ "exp": null }))),
        ("an end that is no number", token(json!({ "exp": "never" }))),
        ("not valid yet", token(json!({ "nbf": now + 60 }))),
        ("a beginning that is no number", token(json!({ "nbf": "later" }))),
        ("of another issuer", token(json!({ "iss": "https://elsewhere.example.org" }))),
        ("of no issuer", token(json!({ "iss": null }))),
        ("for somebody else", token(json!({ "aud": "another" }))),
        ("for nobody", token(json!({ "aud": null }))),
        ("of nobody", token(json!({ "sub": null }))),
        ("of anonymous", token(json!({ "sub": "anonymous" }))),
        ("with another secret", token_by("another secret that is long enough as well", "HS256", json!({}))),
        ("that says it is not signed", token_by(SECRET, "none", json!({}))),
        ("that says it is signed otherwise", token_by(SECRET, "RS256", json!({}))),
        ("that is longer than tokens are", token(json!({ "x": "y".repeat(20_000) }))),
    ];
    for (what, token) in wrong {
        assert_eq!(ask(token.clone()).await, Err(HttpRefusal::NotSignedIn), "{what}");
        if token.len() < 10_000 {
            assert_eq!(world.code("x", Some(("console-1", &token))).await, 0x86, "{what}");
        }
    }
    // Known, but no rule lets it connect.
    assert_eq!(world.code("x", Some(("", &token(json!({}))))).await, 0x87);
    assert_eq!(world.code("bus-7", Some(("", &token(json!({ "sub": "bus-7" }))))).await, 0);
}

#[tokio::test]
async fn http_knows_the_same_principals() {
    let world = Example::start().await;
    let boss = basic("dispatcher", "boss");
    assert_eq!(world.ask(Some(&boss), Action::Observe).await.as_deref(), Ok("dispatcher"));
    world.audited(json!({ "event": "signed_in", "principal": "dispatcher" })).await;
    assert_eq!(world.ask(Some(&boss), Action::Administer).await, Err(HttpRefusal::Forbidden));
    world.audited(json!({ "action": "administer", "principal": "dispatcher", "code": 403 })).await;
    assert_eq!(world.ask(None, Action::Observe).await, Err(HttpRefusal::NotSignedIn));
    for wrong in [basic("dispatcher", "seven"), "Basic ?".into(), "Digest x".into(), "Bearer".into(), "Bearer x".into()]
    {
        assert_eq!(world.ask(Some(&wrong), Action::Observe).await, Err(HttpRefusal::NotSignedIn), "{wrong}");
    }
    assert_eq!(world.ask(Some(&basic("bus-7", "seven")), Action::Observe).await, Err(HttpRefusal::Forbidden));
}

#[tokio::test]
async fn whoever_is_signed_in_is_told_what_it_may_also_if_that_is_nothing() {
    let world = Example::start().await;
    let ask = async |authorization: Option<String>| {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value.parse().expect("a header"));
        }
        let told = soon("an answer", world.server.access().who_asks(&headers, ("", None))).await;
        told.map(|(principal, may)| (principal.name().to_owned(), may))
    };
    assert_eq!(ask(Some(basic("dispatcher", "boss"))).await, Ok(("dispatcher".into(), vec![Asking::Observe])));
    assert_eq!(ask(Some(basic("bus-7", "seven"))).await, Ok(("bus-7".into(), vec![])));
    for wrong in [None, Some(basic("bus-7", "eight")), Some("Bearer x".into())] {
        assert_eq!(ask(wrong.clone()).await, Err(HttpRefusal::NotSignedIn), "{wrong:?}");
    }
    world.audited(json!({ "event": "signed_in", "principal": "bus-7" })).await;
    let audit = std::fs::read_to_string(world.directory.path().join("audit.jsonl")).expect("it is there");
    assert!(!audit.contains("\"code\":403"), "asking is no use of a right: {audit}");
}

/// Every action that rules can allow, and every way to it: without a rule no client gets there,
/// known or not. That a broker may link is what its certificate says, until a rule is about that:
/// see `links` and `certificates` for those who have none.
#[tokio::test]
async fn without_rules_nobody_may_do_anything_at_any_door() {
    let (identity, _) =
        example().split_once("[[rule]]").map(|(before, after)| (before.to_owned(), after.len())).expect("rules");
    let world = Example::start_of(&identity, |_| ()).await;
    for action in Action::ALL {
        match action {
            Action::Publish | Action::Subscribe => {
                assert_eq!(
                    world.code("bus-8", Some(("bus-8", "eight"))).await,
                    0x87,
                    "{action}: it may not even connect"
                );
                assert_eq!(world.code("reader", None).await, 0x87, "{action}, anonymous");
            }
            Action::Peer => {
                let stranger = "[[rule]]\nprincipals = [\"south\"]\nactions = [\"peer\"]\n";
                std::fs::write(world.directory.path().join("whimbrel.toml"), identity.clone() + stranger)
                    .expect("written");
                world.server.reload().await.expect("there is a file");
                assert!(
                    world.server.access().peer("north", "127.0.0.1:1").is_err()
                        && world.server.access().peer("south", "").is_ok()
                );
                world
                    .audited(
                        json!({ "event": "refused", "action": "peer", "principal": "north", "from": "127.0.0.1:1" }),
                    )
                    .await;
            }
            Action::Observe | Action::Administer => {
                assert_eq!(world.ask(None, action).await, Err(HttpRefusal::NotSignedIn), "{action}");
                assert_eq!(
                    world.ask(Some(&basic("bus-8", "eight")), action).await,
                    Err(HttpRefusal::Forbidden),
                    "{action}"
                );
            }
        }
    }
    let address = world.address(Listener::Http);
    let ask = async |method: &str, path: &str, credentials: Option<(&str, &str)>| {
        let signed = credentials.map(|(user, password)| format!("Authorization: {}\r\n", basic(user, password)));
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{}", signed.unwrap_or_default());
        let answer = raw(address, &format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n")).await;
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).expect("a status")
    };
    // All that the description names, and the metrics.
    let described = Example::start().await;
    let page = raw(
        described.address(Listener::Http),
        &format!(
            "GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: {}\r\nConnection: close\r\n\r\n",
            basic("dispatcher", "boss")
        ),
    )
    .await;
    let description: Value = serde_json::from_str(page.split_once("\r\n\r\n").expect("a body").1).expect("it is JSON");
    let mut asked = 0;
    let paths = description["paths"].as_object().expect("paths").iter();
    let routes = paths.flat_map(|(path, verbs)| {
        verbs.as_object().expect("verbs").keys().map(move |verb| (verb.to_uppercase(), path.clone()))
    });
    for (method, path) in routes.chain([("GET".to_owned(), "/metrics".to_owned())]) {
        let path = if path.starts_with("/api/v1") || path == "/metrics" { path } else { format!("/api/v1{path}") };
        let path = path.replace("{client_id}", "a").replace("{event}", "1").replace("{name}", "north");
        assert_eq!(ask(&method, &path, None).await, 401, "{method} {path}");
        // A client that is signed in is told so, and that it may do nothing.
        let known = if path.ends_with("/whoami") { 200 } else { 403 };
        assert_eq!(ask(&method, &path, Some(("bus-8", "eight"))).await, known, "{method} {path}");
        asked += 1;
    }
    assert!(asked >= 22, "{asked} routes");
}

#[tokio::test]
async fn by_default_every_action_is_denied() {
    let world = Example::start().await;
    for action in Action::ALL {
        let allowed = world.ask(Some(&basic("bus-8", "eight")), action).await.is_ok();
        assert_eq!(allowed, action.is_of_clients(), "{action}: rules speak of buses as clients only");
        assert_eq!(world.ask(None, action).await.is_ok(), action == Action::Subscribe, "{action}, anonymous");
    }
}

#[tokio::test]
async fn foreign_web_pages_open_no_web_sockets() {
    let world = Example::start().await;
    let address = world.address(Listener::Ws);
    let upgrade = |origin: Option<&str>| {
        let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
        format!(
            "GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{origin}Connection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            address.port()
        )
    };
    // Without the subprotocol the answer ends; what is judged before that is the origin.
    for origin in ["https://evil.example.org", "null", "https://console.example.org.evil.org", ""] {
        let answer = raw(address, &upgrade(Some(origin))).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{origin}: {answer}");
    }
    world.audited(json!({ "event": "refused", "action": "upgrade", "about": "https://evil.example.org" })).await;
    for origin in [None, Some("http://127.0.0.1:8080"), Some("https://console.example.org")] {
        let answer = raw(address, &upgrade(origin)).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("subprotocol"), "{origin:?}: {answer}");
    }
    let mut headers = HeaderMap::new();
    headers.insert(HOST, "[::1]:8083".parse().expect("a header"));
    headers.insert(ORIGIN, "http://[::1]:8080".parse().expect("a header"));
    assert!(world.server.access().check_origin(&headers, &"").is_ok());
}

#[tokio::test]
async fn a_reload_is_all_or_nothing_and_closes_whom_it_must() {
    let world = Example::start().await;
    let (mut bus, code) = world.connect("bus-7", Some(("bus-7", "seven"))).await;
    let (mut other, other_code) = world.connect("bus-8", Some(("bus-8", "eight"))).await;
    assert_eq!((code, other_code), (0, 0));
    let passwords = world.directory.path().join("passwords");
    passwords::change(&passwords, "bus-7", None).expect("it is removed");
    // A mistake somewhere else: nothing changes.
    let file = world.directory.path().join("whimbrel.toml");
    std::fs::write(&file, example() + "\n[[rule]]\nprincipals = [\"x\"]\n").expect("it can be written");
    world.server.reload().await.expect("there is a file");
    assert_eq!(world.code("bus-7-b", Some(("bus-7", "seven"))).await, 0);
    std::fs::write(&file, example()).expect("it can be written");
    world.server.reload().await.expect("there is a file");
    let (first, body) = soon("a goodbye", packet(&mut bus)).await.expect("a packet");
    assert_eq!((first, body[0]), (0xe0, 0x87));
    assert_eq!(world.code("bus-7", Some(("bus-7", "seven"))).await, 0x86, "nor is the password remembered");
    world.audited(json!({ "event": "reloaded", "why": "users gone: \"bus-7\"" })).await;
    other.write_all(b"\xc0\x00").await.expect("the connection is open");
    assert_eq!(soon("PINGRESP", packet(&mut other)).await, Some((0xd0, Vec::new())));
}

#[tokio::test]
async fn who_came_by_a_key_that_is_removed_has_to_go_and_the_log_says_which() {
    let world = Example::start().await;
    let file = world.directory.path().join("whimbrel.toml");
    let rule = "\n[[rule]]\nprincipals = [\"console-1\"]\nactions = [\"subscribe\"]\ntopics = [\"fleet/#\"]\n";
    std::fs::write(&file, example() + rule).expect("it can be written");
    world.server.reload().await.expect("there is a file");
    world.audited(json!({ "event": "reloaded", "why": "new or changed rules 6 (console-1)" })).await;
    let (mut console, code) = world.connect("c", Some(("any", &token(json!({}))))).await;
    let (mut bus, bus_code) = world.connect("bus-8", Some(("bus-8", "eight"))).await;
    assert_eq!((code, bus_code), (0, 0));
    std::fs::write(world.directory.path().join("token.secret"), "another secret of the service, long enough")
        .expect("written");
    world.server.reload().await.expect("there is a file");
    let (first, body) = soon("a goodbye", packet(&mut console)).await.expect("a packet");
    assert_eq!((first, body[0]), (0xe0, 0x87));
    let why = "new keys of tokens one without an id; keys of tokens gone: one without an id";
    world.audited(json!({ "event": "reloaded", "why": why })).await;
    world.audited(json!({ "event": "refused", "action": "connect", "principal": "console-1", "client_id": "c" })).await;
    bus.write_all(b"\xc0\x00").await.expect("the connection is open");
    assert_eq!(soon("PINGRESP", packet(&mut bus)).await, Some((0xd0, Vec::new())));
}

#[tokio::test]
async fn pages_of_others_and_strangers_are_refused_over_http_and_noted_with_their_address() {
    let world = Example::start().await;
    let address = world.address(Listener::Http);
    let ask = async |request: &str, headers: &str| {
        raw(address, &format!("{request} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n")).await
    };
    let signed_in = format!("Authorization: {}\r\n", basic("dispatcher", "boss"));
    let foreign = ask("POST /api/v1/reload", &format!("{signed_in}Origin: https://evil.example.org\r\n")).await;
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let expected = json!({ "event": "refused", "action": "administer", "about": "POST /reload", "code": 403 });
    world.audited(expected).await;
    let text = std::fs::read_to_string(world.directory.path().join("audit.jsonl")).expect("it is there");
    let noted = text.lines().find(|line| line.contains("evil.example.org")).expect("the origin is named");
    assert!(noted.contains("\"from\":\"127.0.0.1:"), "{noted}");

    assert!(ask("GET /metrics", "").await.starts_with("HTTP/1.1 401"));
    assert!(ask("GET /metrics", &signed_in).await.starts_with("HTTP/1.1 200"));
    for page in ["/healthz", "/readyz"] {
        assert!(ask(&format!("GET {page}"), "").await.starts_with("HTTP/1.1 200"), "{page}");
    }
    let wrong = format!("Authorization: {}\r\n", basic("dispatcher", "wrong"));
    assert!(ask("GET /metrics", &wrong).await.starts_with("HTTP/1.1 401"));
    world.audited(json!({ "event": "refused", "action": "identify", "about": "dispatcher", "code": 401 })).await;
}

#[tokio::test]
async fn many_who_sign_in_at_once_are_served_or_told_to_come_again() {
    // A client that waits for its turn is not given up: how long that takes depends on the machine.
    let patient = |config: &mut Config| config.broker.limits.connect_timeout = Duration::from_secs(60);
    let world = Example::start_with(patient).await;
    let mut streams = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(world.address(Listener::Mqtt)).await.expect("the listener accepts");
        let password = format!("wrong-{number}");
        stream.write_all(&connect("bus-7", Some(("bus-7", &password)))).await.expect("the connection is open");
        streams.push(stream);
    }
    let mut codes = std::collections::BTreeMap::new();
    for mut stream in streams {
        let answer = tokio::time::timeout(Duration::from_secs(60), packet(&mut stream)).await.expect("an answer");
        *codes.entry(answer.expect("CONNACK").1[1]).or_insert(0) += 1;
    }
    // A client that has a place is looked at, or has waited too long for that: how many do depends
    // on the machine as well.
    let had_a_place = codes.get(&0x86).unwrap_or(&0) + codes.get(&0x89).unwrap_or(&0);
    assert!(had_a_place >= 100 && codes.contains_key(&0x86), "{codes:?}");
    assert!(codes.keys().all(|code| [0x86, 0x97, 0x89].contains(code)) && codes.contains_key(&0x97), "{codes:?}");
}

#[tokio::test]
async fn what_is_changed_over_the_control_socket_is_noted_with_its_user() {
    let world = Example::start().await;
    let from = format!("uid {}", rustix::process::getuid().as_raw());
    for (method, path, status) in [
        ("GET", "/status", "200"),
        ("DELETE", "/sessions/bus-7", "404"),
        ("POST", "/backup", "409"),
        ("DELETE", "/brokers/south", "409"),
        ("POST", "/reload", "200"),
        ("POST", "/drain", "200"),
    ] {
        let socket = world.directory.path().join("control.sock");
        let mut stream = UnixStream::connect(socket).await.expect("the broker listens");
        let request = format!("{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the connection is open");
        let mut answer = String::new();
        soon("an answer", stream.read_to_string(&mut answer)).await.expect("text");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        if method != "GET" {
            let about = format!("{method} {path}");
            let line = json!({ "event": "changed", "action": "administer", "principal": "control socket", "from": from, "about": about });
            world.audited(line).await;
        }
    }
    let audit = std::fs::read_to_string(world.directory.path().join("audit.jsonl")).expect("it is there");
    assert!(!audit.contains("/status"), "who only looks changes nothing: {audit}");
}
