//! What operators look at and do: sessions with their clients, peers that are not reached, metrics
//! in both formats and before anything has happened, and mistakes of a configuration that is read
//! again.

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use whimbrel_server::Server;
use whimbrel_server::config::schema::KEYS;
use whimbrel_server::config::{Config, Given, Listener, Override};

use crate::common::{address, ask, get, metric, packet, raw, soon, start, tcp};

const POST: &str = "Content-Length: 0\r\n";

async fn json(server: &Server, path: &str) -> Value {
    let (status, body) = get(server, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("it is JSON")
}

fn names(sessions: &Value) -> Vec<&str> {
    let sessions = sessions["sessions"].as_array().expect("a list");
    sessions.iter().map(|session| session["client_id"].as_str().expect("a client id")).collect()
}

/// A client of MQTT 5 whose session outlives its connection by a quarter of an hour.
async fn connect(server: &Server, client_id: &str) -> tokio::net::TcpStream {
    let mut stream = tcp(server, Listener::Mqtt).await;
    let (id, mut body) = (client_id.as_bytes(), b"\x00\x04MQTT\x05\x02\x00\x3c\x05\x11\x00\x00\x03\x84\x00".to_vec());
    body.push(id.len() as u8);
    body.extend(id);
    stream.write_all(&[&[0x10, body.len() as u8][..], &body].concat()).await.expect("the connection is open");
    let (first, answer) = soon("CONNACK", packet(&mut stream)).await.expect("the connection is open");
    assert_eq!((first, answer[1]), (0x20, 0));
    stream
}

#[tokio::test]
async fn sessions_are_searched_by_the_beginning_of_their_client_ids() {
    let server = start(|_| {}).await;
    let mut clients = Vec::new();
    for number in 0..30 {
        clients.push(connect(&server, &format!("bus-{number}")).await);
        clients.push(connect(&server, &format!("tram-{number}")).await);
    }
    assert_eq!(names(&json(&server, "/api/v1/sessions").await).len(), 60);
    let mut found = json(&server, "/api/v1/sessions?prefix=bus-1").await;
    assert_eq!(names(&found)[0], "bus-1", "that of exactly this client id comes first");
    let mut all: Vec<_> = names(&found).into_iter().map(str::to_owned).collect();
    while let Some(next) = found["next"].as_u64() {
        found = json(&server, &format!("/api/v1/sessions?prefix=bus-1&after={next}")).await;
        all.extend(names(&found).into_iter().map(str::to_owned));
    }
    all.sort();
    let mut expected: Vec<_> = (10..20).map(|number| format!("bus-{number}")).collect();
    expected.insert(0, "bus-1".into());
    assert_eq!(all, expected, "each once");
    assert_eq!(names(&json(&server, "/api/v1/sessions?prefix=bus%2D29").await), ["bus-29"]);
    assert!(
        names(&json(&server, "/api/v1/sessions?prefix=us-").await).is_empty(),
        "an id that has it within does not begin so"
    );
    let system = json(&server, "/api/v1/system/sessions?prefix=tram-2&limit=1").await;
    assert_eq!(names(&system["brokers"][0]["answer"])[0], "tram-2");
}

#[tokio::test]
async fn a_client_is_shown_with_its_connection_and_kicked_while_its_session_stays() {
    let server = start(|_| {}).await;
    let mut stream = connect(&server, "scanner").await;
    stream.write_all(b"\x30\x06\x00\x01t\x00hi").await.expect("the connection is open");
    let local = stream.local_addr().expect("it is connected").to_string();
    let connection = loop {
        let shown = json(&server, "/api/v1/sessions/scanner").await;
        let connection = shown["session"]["connection"].clone();
        if connection["publishes_in"] == 1 {
            break connection;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((connection["address"].as_str(), &connection["listener"]), (Some(&*local), &Value::from("mqtt")));
    assert_eq!((&connection["protocol"], &connection["bridge"]), (&Value::from("5.0"), &Value::from(false)));
    assert_eq!((&connection["user"], &connection["publishes_out"]), (&Value::Null, &Value::from(0)));
    assert!(connection["bytes_in"].as_u64() > Some(20) && connection["since_ms"].as_u64() > Some(1_700_000_000_000));

    let (status, body) = ask(&server, "POST", "/api/v1/sessions/scanner/kick", POST).await;
    assert_eq!(status, 200, "{body}");
    let (first, reason) = soon("DISCONNECT", packet(&mut stream)).await.expect("it is told");
    assert_eq!((first, reason[0]), (0xe0, 0x98), "Administrative action");
    let session = json(&server, "/api/v1/sessions/scanner").await["session"].clone();
    assert_eq!((&session["connected"], &session["connection"]), (&Value::from(false), &Value::Null));
    let (status, body) = ask(&server, "POST", "/api/v1/sessions/scanner/kick", POST).await;
    assert!(status == 409 && body.contains("is not connected here"), "{status} {body}");
    let (status, body) = ask(&server, "POST", "/api/v1/sessions/nobody/kick", POST).await;
    assert!(status == 404 && body.contains("there is no session"), "{status} {body}");
}

#[tokio::test]
async fn a_peer_that_is_not_reached_is_told_with_the_reason() {
    let alone = start(|_| {}).await;
    assert_eq!(get(&alone, "/readyz").await, (200, "ready\n".to_owned()), "there are no peers to speak of");
    // A port of this machine that no socket has: the one that had it is closed.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let other = start(|config| config.name = "south".into()).await;
    let there = address(&other, Listener::Overlay);
    let server = start(|config| {
        config.overlay.peers = vec!["no-such-host.invalid:7117".into(), there.to_string(), silent.to_string()];
    })
    .await;
    let peer = async |address: &str| {
        let status = json(&server, "/api/v1/status").await;
        let peers = status["peers"].as_array().expect("a list").clone();
        assert_eq!(peers.len(), 3);
        peers.into_iter().find(|peer| peer["address"] == address).expect("it is configured")
    };
    let told = async {
        loop {
            let [lost, linked] = [peer("no-such-host.invalid:7117").await, peer(&there.to_string()).await];
            if lost["error"].is_string() && linked["reached"] == true {
                break [lost, linked];
            }
            tokio::task::yield_now().await;
        }
    };
    let [lost, linked] = soon("a state of each peer", told).await;
    assert!(lost["error"].as_str().is_some_and(|error| error.contains("does not resolve")), "{lost}");
    assert_eq!((&lost["reached"], &linked["error"]), (&Value::from(false), &Value::Null));
    assert_eq!(peer(&silent.to_string()).await["reached"], false);
    assert_eq!(get(&server, "/readyz").await, (200, "ready\npeers: 1 of 3 reached\n".to_owned()));
    metric(&server, "whimbrel_peers_configured 3").await;
    metric(&server, "whimbrel_peers_reached 1").await;
}

#[tokio::test]
async fn links_are_known_by_name_also_where_certificates_prove_none() {
    let named = |name: &str| {
        let name = name.to_owned();
        move |config: &mut Config| config.name = name
    };
    let south = start(named("south")).await;
    let there = address(&south, Listener::Overlay);
    let north = start(|config| {
        named("north")(config);
        config.overlay.peers = vec![there.to_string()];
    })
    .await;
    metric(&north, &format!("whimbrel_link_up{{peer=\"south\",address=\"{there}\"}} 1")).await;
    metric(&south, "whimbrel_link_event_age_seconds_count{peer=\"north\"} 0").await;
}

#[tokio::test]
async fn metrics_come_in_the_classic_format_to_who_asks_for_it() {
    let server = start(|_| {}).await;
    let asked = async |accept: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{accept}\r\n");
        raw(address(&server, Listener::Http), &request).await
    };
    for accept in ["", "Accept: */*\r\n", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n"] {
        let answer = asked(accept).await;
        assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{accept}: {answer}");
        assert!(answer.contains("\n# TYPE whimbrel_takeovers counter\n") && answer.ends_with("# EOF\n"));
    }
    let answer = asked("Accept: text/plain;version=0.0.4;q=0.9, */*;q=0.1\r\n").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\n# TYPE whimbrel_takeovers_total counter\nwhimbrel_takeovers_total 0\n"), "{answer}");
    assert!(answer.contains("\n# TYPE whimbrel_build_info gauge\nwhimbrel_build_info{") && !answer.contains("# EOF"));
    assert!(answer.contains("whimbrel_delivery_seconds_bucket{le=\"+Inf\",class=\"durable\"} 0\n"), "{answer}");
}

/// A rate needs the 0 before the first event. What is known by what there is (a link, a selector, a
/// client, a partition) has no number before that.
#[tokio::test]
async fn counters_are_there_before_their_first_event() {
    const OF_WHAT_THERE_IS: [&str; 5] =
        ["whimbrel_link_", "whimbrel_selector_", "whimbrel_client_gaps", "whimbrel_tls_", "whimbrel_deliveries_"];
    let server = start(|_| {}).await;
    let page = get(&server, "/metrics").await.1;
    let mut families: Vec<(&str, &str, usize)> = Vec::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) {
            families.push((name, kind, 0));
        } else if !line.starts_with('#') {
            families.last_mut().expect("a type comes first").2 += 1;
        }
    }
    assert!(families.len() > 100, "{}", families.len());
    let is_missing = |(name, _, samples): &&(&str, &str, usize)| {
        *samples == 0 && !OF_WHAT_THERE_IS.iter().any(|prefix| name.starts_with(prefix))
    };
    assert_eq!(families.iter().filter(is_missing).collect::<Vec<_>>(), Vec::<&(&str, &str, usize)>::new());
    for line in [
        "whimbrel_connections_refused_total{reason=\"0x87\"} 0",
        "whimbrel_connections_refused_total{reason=\"0xa0\"} 0",
        "whimbrel_connections_ended_total{reason=\"0x98\"} 0",
        "whimbrel_publishes_refused_total{reason=\"0x97\"} 0",
        "whimbrel_delivery_seconds_count{class=\"semi_durable\"} 0",
        "whimbrel_link_failures_total{cause=\"name\"} 0",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} is not in:\n{page}");
    }
}

#[tokio::test]
async fn a_refused_reload_names_all_mistakes_in_its_answer() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("whimbrel.toml");
    std::fs::write(&file, "dev = true\n").expect("the file can be written");
    let set = |key, text: &str| Override { key, given: Given::Flag, text: text.to_owned() };
    let listeners = KEYS.iter().filter(|key| key.name.starts_with("listen_") && !key.is_later());
    let overrides: Vec<_> = listeners.map(|key| set(key, "127.0.0.1:0")).collect();
    let config = Config::load(Some(&file), &overrides).unwrap_or_else(|problems| panic!("{problems:?}"));
    let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
    let reload = async || ask(&server, "POST", "/api/v1/reload", POST).await;
    assert_eq!(reload().await, (200, "{\"changed\":false}\n".to_owned()));

    let wrong = "dev = true\n[[rule]]\nprincipals = []\nactions = [\"publsh\", \"subscribe\"]\ntopics = [\"a/#/b\", \"c#\"]\n\
                 [[topic]]\nfiltr = \"a\"\npersistence = \"sometimes\"\n";
    std::fs::write(&file, wrong).expect("the file can be written");
    let (status, body) = reload().await;
    let error = serde_json::from_str::<Value>(&body).expect("JSON")["error"].as_str().expect("words").to_owned();
    assert_eq!(status, 409, "{error}");
    let lines: Vec<_> = error.lines().collect();
    for (place, words) in [
        (":3:", "names no `principals`"),
        (":4:", "there is no action \"publsh\""),
        (":5:", "a/#/b"),
        (":5:", "c#"),
        (":7:", "there is no setting `filtr`"),
        (":6:", "has no `filter`"),
        (":8:", "`persistence` is not known"),
    ] {
        let is_told = lines.iter().any(|line| line.contains(words));
        assert!(is_told, "{words} (at {place}) is not in:\n{error}");
    }
    assert_eq!(lines.len(), 1 + 7, "each is told once:\n{error}");
}
