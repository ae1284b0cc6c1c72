//! The API over HTTP: what it answers, to whom, and that its description says so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{address, ask, get, soon, start};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use whimbrel_server::Server;
use whimbrel_server::config::Listener;
use whimbrel_server::config::location::Location;

const VERBS: [&str; 5] = ["get", "post", "delete", "put", "patch"];

async fn json(server: &Server, path: &str) -> Value {
    let (status, body) = get(server, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("it is JSON")
}

/// A path of the description with something in place of its variable parts.
fn filled(path: &str) -> String {
    path.replace("{event}", "10:7").replace("{client_id}", "nobody").replace("{name}", "nobody")
}

/// Whether a value is as a schema says; `None` if it is, else where it is not. Knows what the
/// description uses, and refuses anything else.
fn mismatch(value: &Value, schema: &Value, all: &Value, at: &str) -> Option<String> {
    let known = [
        "$ref",
        "type",
        "properties",
        "required",
        "items",
        "anyOf",
        "description",
        "format",
        "minimum",
        "maximum",
        "title",
        "default",
        "additionalProperties",
    ];
    let members = schema.as_object()?;
    if let Some(unknown) = members.keys().find(|key| !known.contains(&&***key)) {
        return Some(format!("{at}: the test does not know {unknown:?}"));
    }
    if let Some(name) = schema["$ref"].as_str() {
        let target = all.pointer(name.strip_prefix('#').expect("within the document"));
        return match target {
            Some(target) => mismatch(value, target, all, at),
            None => Some(format!("{at}: there is no {name}")),
        };
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let wrong: Vec<_> = any.iter().filter_map(|schema| mismatch(value, schema, all, at)).collect();
        return (wrong.len() == any.len()).then(|| wrong.join(" and "));
    }
    let is_type = |name: &Value| match name.as_str().expect("the name of a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{at}: the test does not know the type {other}"),
    };
    let fits = match &schema["type"] {
        Value::Null => true,
        Value::Array(names) => names.iter().any(is_type),
        name => is_type(name),
    };
    if !fits {
        return Some(format!("{at}: {value} is not of type {}", schema["type"]));
    }
    if let Some(items) = value.as_array() {
        let mut wrong = items
            .iter()
            .enumerate()
            .filter_map(|(number, item)| mismatch(item, &schema["items"], all, &format!("{at}[{number}]")));
        return wrong.next();
    }
    let object = value.as_object()?;
    let lacks = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|name| !object.contains_key(name.as_str().expect("a name")));
    if let Some(name) = lacks {
        return Some(format!("{at} lacks {name}"));
    }
    let properties = schema["properties"].as_object()?;
    object.iter().find_map(|(name, value)| match properties.get(name) {
        Some(schema) => mismatch(value, schema, all, &format!("{at}.{name}")),
        None => Some(format!("{at}.{name} is not in the description")),
    })
}

#[tokio::test]
async fn the_description_has_the_routes_that_there_are_and_no_others() {
    let server = start(|_| {}).await;
    let document = json(&server, "/api/v1/openapi.json").await;
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(document["openapi"], "3.1.0");
    let mut names = BTreeSet::new();
    for (path, operations) in paths {
        for verb in VERBS {
            let described = operations.get(verb);
            // Asked for in earnest, these would end the server, or the test's file.
            if path.ends_with("/drain") && described.is_some() {
                continue;
            }
            let (status, body) = ask(&server, &verb.to_uppercase(), &filled(path), "").await;
            assert_eq!(status != 405, described.is_some(), "{verb} {path}: {status} {body}");
            let Some(described) = described else { continue };
            assert!(names.insert(described["operationId"].as_str().expect("a name").to_owned()), "{path}");
            if status != 200 {
                let error: Value = serde_json::from_str(&body).expect("a refusal is JSON");
                assert!(error["error"].is_string(), "{verb} {path}: {body}");
            }
        }
    }
    let (status, body) = get(&server, "/api/v1/nothing").await;
    assert!(status == 404 && body.contains("openapi.json"), "{body}");
    assert_eq!(get(&server, "/api/v1").await.0, 404);
}

#[tokio::test]
async fn answers_are_as_the_description_says() {
    let server = start(|config| config.broker.sys_interval = None).await;
    let mut client = crate::common::tcp(&server, Listener::Mqtt).await;
    crate::common::speaks_mqtt(&mut client).await;
    let document = json(&server, "/api/v1/openapi.json").await;
    let mut seen = 0;
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let schema = &operations["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        if schema.is_null() {
            continue;
        }
        let named = path.replace("{client_id}", "a").replace("{event}", "10:7");
        let filled = if path.ends_with("/paths") { named + "?topic=a" } else { named };
        let answer = json(&server, &filled).await;
        assert_eq!(mismatch(&answer, schema, &document, path), None, "{answer}");
        seen += 1;
    }
    assert!(seen > 12, "{seen}");
    let wrong = serde_json::json!({ "principal": 1 });
    let schema = serde_json::json!({ "$ref": "#/components/schemas/WhoAmI" });
    assert!(mismatch(&wrong, &schema, &document, "wrong").is_some(), "the test finds what is wrong");
}

#[tokio::test]
async fn status_history_and_who_asks() {
    let server = start(|_| {}).await;
    let mut client = crate::common::tcp(&server, Listener::Mqtt).await;
    crate::common::speaks_mqtt(&mut client).await;
    let status = json(&server, "/api/v1/status").await;
    assert_eq!(
        (&status["name"], &status["version"], &status["phase"]),
        (&"whimbrel".into(), &"1.2.3".into(), &"ready".into())
    );
    assert_eq!((&status["connections"], &status["sessions"], &status["dev"]), (&1.into(), &1.into(), &true.into()));
    assert_eq!((&status["brokers_known"], &status["brokers_reachable"]), (&1.into(), &1.into()));
    assert_eq!(status["listeners"]["http"], address(&server, Listener::Http).to_string());
    assert!(
        status["counters"]["packets_in"].as_u64() >= Some(2)
            && status["counters"]["memory_bytes"].as_u64() > Some(1 << 20)
    );
    let sampled = async {
        loop {
            let history = json(&server, "/api/v1/history").await;
            assert_eq!(history["every_ms"], 2000);
            if let Some(at) = history["samples"][0]["at_ms"].as_u64() {
                return at;
            }
        }
    };
    let at = soon("the first sample", sampled).await;
    assert_eq!(
        json(&server, &format!("/api/v1/history?after_ms={}", at + 3_600_000)).await["samples"],
        Value::Array(vec![])
    );
    assert_eq!(get(&server, "/api/v1/history?limit=many").await.0, 400);
    let who = json(&server, "/api/v1/whoami").await;
    let at = |listener| address(&server, listener).to_string();
    let listeners = serde_json::json!({ "http": at(Listener::Http), "ws": at(Listener::Ws), "wss": at(Listener::Wss) });
    let expected = serde_json::json!({
        "principal": "anonymous", "may": ["observe", "administer"], "dev": true, "broker": "whimbrel", "deployment": "whimbrel", "listeners": listeners,
    });
    assert_eq!(who, expected);
    assert_eq!((&status["lat"], &status["lon"]), (&Value::Null, &Value::Null), "its configuration does not tell");
    let (status, body) = ask(&server, "POST", "/api/v1/reload", "Content-Length: 0\r\n").await;
    assert!(status == 409 && body.contains("--config"), "{body}");
}

#[tokio::test]
async fn a_broker_tells_where_it_is() {
    let server = start(|config| config.telling.place = Some(Location { lat: -33.86, lon: 151.21 })).await;
    let status = json(&server, "/api/v1/status").await;
    assert_eq!((status["lat"].as_f64(), status["lon"].as_f64()), (Some(-33.86), Some(151.21)));
}

#[tokio::test]
async fn without_dev_nobody_is_let_in_over_http_and_the_console_is_there() {
    let server = start(|config| {
        config.dev = false;
        config.access = Arc::default();
    })
    .await;
    for path in ["/api/v1/status", "/api/v1/whoami", "/api/v1/system/status", "/api/v1/openapi.json"] {
        let (status, body) = get(&server, path).await;
        assert!(status == 401 && body.contains("not signed in"), "{path}: {status} {body}");
    }
    let (status, _) = ask(&server, "POST", "/api/v1/drain", "Content-Length: 0\r\n").await;
    assert_eq!(status, 401);
    assert_eq!(get(&server, "/").await.0, 200);
    assert_eq!(get(&server, "/healthz").await.0, 200);
}

#[tokio::test]
async fn pages_of_other_sites_change_nothing() {
    let server = start(|_| {}).await;
    let (status, body) =
        ask(&server, "POST", "/api/v1/drain", "Origin: http://evil.example\r\nContent-Length: 0\r\n").await;
    assert!(status == 403 && body.contains("another site"), "{body}");
    let own = ask(&server, "POST", "/api/v1/reload", "Origin: http://localhost\r\nContent-Length: 0\r\n").await;
    assert_eq!(own.0, 409, "let in: {}", own.1);
}

#[tokio::test]
async fn with_dev_pages_of_this_machine_alone_open_web_sockets() {
    let server = start(|_| {}).await;
    let is_let_in = |host: &str, origin: &str| {
        let mut headers = axum::http::HeaderMap::new();
        headers.insert("host", host.parse().expect("a header"));
        headers.insert("origin", origin.parse().expect("a header"));
        server.access().check_origin(&headers, &"").is_ok()
    };
    for origin in ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:99", "http://192.168.1.7:8080"] {
        assert!(is_let_in("192.168.1.7:8083", origin), "{origin}");
    }
    for origin in ["http://evil.example", "null", "http://localhost.evil.example", "http://192.168.1.8", ""] {
        assert!(!is_let_in("192.168.1.7:8083", origin), "{origin}");
    }
    assert!(!is_let_in("evil.example:8083", "http://evil.example:8083"), "a name that leads here");
}

/// CONNECT of MQTT 5 of a client with a long id: the length of the packet has three bytes.
fn connect(id: &str) -> Vec<u8> {
    let rest =
        [b"\x00\x04MQTT\x05\x02\x00\x00\x00".as_slice(), &(id.len() as u16).to_be_bytes(), id.as_bytes()].concat();
    let length = rest.len();
    let varint = [length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8];
    [&[0x10][..], &varint, &rest].concat()
}

#[tokio::test]
async fn an_answer_that_fits_no_letter_says_so() {
    let server = start(|_| {}).await;
    let mut clients = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let mut client = crate::common::tcp(&server, Listener::Mqtt).await;
        client.write_all(&connect(&name.repeat(60_000))).await.expect("the connection is open");
        let (first, body) = soon("CONNACK", crate::common::packet(&mut client)).await.expect("an answer");
        assert_eq!((first, body[1]), (0x20, 0));
        clients.push(client);
    }
    let all = json(&server, "/api/v1/system/sessions").await;
    let error = all["brokers"][0]["answer"]["error"].as_str().expect("it is too long");
    assert!(error.contains("longer than the 262144") && error.contains("?limit="), "{error}");
    let some = json(&server, "/api/v1/system/sessions?limit=2").await;
    assert_eq!(some["brokers"][0]["answer"]["sessions"].as_array().map(Vec::len), Some(2));
    let own = json(&server, "/api/v1/sessions").await;
    assert_eq!(own["sessions"].as_array().map(Vec::len), Some(5), "over HTTP there is no such bound");
}

/// The head and the body of the next answer on a connection.
async fn next_answer(stream: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon("a head", stream.read_u8()).await.expect("the connection goes on"));
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    soon("a body", stream.read_exact(&mut body)).await.expect("the connection goes on");
    (head, String::from_utf8(body).expect("text"))
}

#[tokio::test]
async fn a_connection_answers_many_requests_and_ends_when_it_is_idle() {
    let server = start(|_| {}).await;
    let mut stream = TcpStream::connect(address(&server, Listener::Http)).await.expect("the listener accepts");
    let mut tag = String::new();
    for path in ["/api/v1/status", "/", "/healthz", "/api/v1/whoami", "/metrics"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the connection goes on");
        let (head, body) = next_answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 200") && !body.is_empty(), "{path}: {head}");
        if path == "/" {
            assert!(head.contains("content-security-policy: default-src 'self'"), "{head}");
            tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag").to_owned();
        }
    }
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the connection goes on");
    let (head, body) = next_answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
    // Nothing more is asked: the server ends it, in time for this.
    assert_eq!(tokio::time::timeout(Duration::from_secs(15), stream.read_u8()).await.expect("it ends").ok(), None);
}
