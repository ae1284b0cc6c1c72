//! What a broker tells of itself in numbers: metrics, the status, and what is kept for other
//! brokers.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{
    DEADLINE, address, get, keep_all, metric, packet, publish, soon, speaks_mqtt_as, start, tcp, user_property,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use whimbrel_server::Server;
use whimbrel_server::access::Plan;
use whimbrel_server::config::schema::KEYS;
use whimbrel_server::config::{Config, Given, Listener, Override};
use whimbrel_server::identity::Role;
use whimbrel_server::identity::authority::{self, Wanted};

async fn json(server: &Server, path: &str) -> Value {
    let (status, body) = get(server, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("it is JSON")
}

/// The value of a metric without labels, or with all of them written out.
async fn number(server: &Server, name: &str) -> f64 {
    let page = get(server, "/metrics").await.1;
    let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    found.unwrap_or_else(|| panic!("{name} is not among the metrics:\n{page}"))
}

/// Waits until what is kept at a broker for another one, in any of its streams, is as wanted.
async fn owed(server: &Server, what: &str, is_wanted: impl Fn(&[Value]) -> bool) {
    let comes = async {
        loop {
            let answer = json(server, "/api/v1/streams").await;
            let streams = answer["streams"].as_array().expect("streams").iter();
            let all: Vec<Value> =
                streams.flat_map(|stream| stream["owed"].as_array().expect("a list").clone()).collect();
            if is_wanted(&all) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(what, comes).await;
}

/// A client with a session that outlives its connection, and a durable subscription to `t`.
async fn durable(server: &Server) -> TcpStream {
    let mut stream = tcp(server, Listener::Mqtt).await;
    let connect = b"\x10\x13\x00\x04MQTT\x05\x00\x00\x3c\x05\x11\x00\x00\x0e\x10\x00\x01d";
    stream.write_all(connect).await.expect("the connection is open");
    assert_eq!(soon("CONNACK", packet(&mut stream)).await.expect("an answer").0, 0x20);
    let property = user_property("w-durability", "durable");
    let body = [b"\x00\x01", &[property.len() as u8][..], &property, b"\x00\x01t\x01"].concat();
    stream.write_all(&[&[0x82, body.len() as u8][..], &body].concat()).await.expect("the connection is open");
    let (first, body) = soon("SUBACK", packet(&mut stream)).await.expect("an answer");
    assert_eq!((first, body.last()), (0x90, Some(&1)));
    stream
}

#[tokio::test]
async fn what_another_broker_is_owed_is_shown_until_it_is_acknowledged() {
    let (one, two) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let north = start(|config| {
        config.name = "north".into();
        keep_all(config, one.path());
    })
    .await;
    let at = address(&north, Listener::Overlay).to_string();
    let south = start(|config| {
        config.name = "south".into();
        config.overlay.peers = vec![at];
        keep_all(config, two.path());
    })
    .await;
    metric(&north, "whimbrel_brokers_known 2").await;
    metric(&north, "whimbrel_brokers_reachable 2").await;
    let mut subscriber = durable(&south).await;
    let (mut publisher, mut id) = (tcp(&north, Listener::Mqtt).await, 0);
    speaks_mqtt_as(&mut publisher, b'p').await;
    let mut first = [0];
    let came = async {
        while !matches!(subscriber.try_read(&mut first), Ok(1)) {
            id += 1;
            publisher.write_all(&publish(id, &[])).await.expect("the connection is open");
            assert_eq!(packet(&mut publisher).await.expect("an answer").0, 0x40);
        }
    };
    soon("the message", came).await;
    assert_eq!(first[0], 0x32, "a PUBLISH at QoS 1");
    let is_behind = |all: &[Value]| {
        all.iter().any(|owed| owed["broker"] == "south" && owed["gone"] == false && owed["behind_ms"].is_u64())
    };
    owed(&north, "that south is behind", is_behind).await;
    let by_all = json(&north, "/api/v1/system/streams").await;
    assert!(by_all.to_string().contains("\"broker\":\"south\""), "{by_all}");

    // All of it is acknowledged: what was begun, and what is still on its way.
    let mut is_begun = true;
    let acknowledges = async {
        loop {
            let first = if std::mem::take(&mut is_begun) { 0x32 } else { subscriber.read_u8().await? };
            let mut body = vec![0; usize::from(subscriber.read_u8().await?)];
            subscriber.read_exact(&mut body).await?;
            assert_eq!(first & 0xf6, 0x32, "a PUBLISH at QoS 1");
            subscriber.write_all(&[0x40, 2, body[3], body[4]]).await?;
        }
    };
    let is_settled = |all: &[Value]| !all.is_empty() && all.iter().all(|owed| owed["behind_ms"].is_null());
    tokio::select! {
        () = owed(&north, "that south has everything", is_settled) => {}
        ended = acknowledges => {
            let ended: std::io::Result<()> = ended;
            panic!("the connection has ended: {ended:?}");
        }
    }
}

#[tokio::test]
async fn the_journal_tells_how_long_commits_take_and_how_much_it_may_hold() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(|config| keep_all(config, directory.path())).await;
    assert_eq!(number(&server, "whimbrel_journal_max_bytes").await, f64::from(16 << 20));
    let before = number(&server, "whimbrel_journal_commit_seconds_count").await;
    let mut publisher = tcp(&server, Listener::Mqtt).await;
    speaks_mqtt_as(&mut publisher, b'p').await;
    publisher.write_all(&publish(1, &[])).await.expect("the connection is open");
    assert_eq!(soon("PUBACK", packet(&mut publisher)).await.expect("an answer").0, 0x40);
    assert!(number(&server, "whimbrel_journal_commit_seconds_count").await > before);
    assert!(number(&server, "whimbrel_journal_commit_seconds_sum").await > 0.0);
}

#[tokio::test]
async fn what_the_broker_says_of_itself_is_not_among_the_events_that_it_accepted() {
    let server = start(|config| config.broker.sys_interval = Some(Duration::from_millis(1))).await;
    let mut client = tcp(&server, Listener::Mqtt).await;
    speaks_mqtt_as(&mut client, b's').await;
    client.write_all(b"\x82\x0c\x00\x01\x00\x00\x06$SYS/#\x00").await.expect("the connection is open");
    assert_eq!(soon("SUBACK", packet(&mut client)).await.expect("an answer").0, 0x90);
    // Retained ones come at once; one that does not have that mark was published after that.
    let live = async { while packet(&mut client).await.expect("an event").0 != 0x30 {} };
    soon("an event of the broker", live).await;
    assert_eq!(number(&server, "whimbrel_events_accepted_total").await, 0.0);
    let mut publisher = tcp(&server, Listener::Mqtt).await;
    speaks_mqtt_as(&mut publisher, b'p').await;
    publisher.write_all(&publish(1, &[])).await.expect("the connection is open");
    assert_eq!(soon("PUBACK", packet(&mut publisher)).await.expect("an answer").0, 0x40);
    assert_eq!(number(&server, "whimbrel_events_accepted_total").await, 1.0);
    assert_eq!(json(&server, "/api/v1/status").await["counters"]["events_accepted"], 1);
}

#[tokio::test]
async fn it_is_told_when_certificates_end() {
    const VALID: Duration = Duration::from_secs(30 * 86_400);
    let directory = tempfile::tempdir().expect("a directory");
    authority::make_authority(directory.path(), "city", 2 * VALID).expect("an authority");
    let wanted = Wanted { role: Role::Broker, name: "north", hosts: &["localhost".to_owned()], valid: VALID };
    let made = authority::make(directory.path(), directory.path(), &wanted).expect("a certificate");
    let set = |name: &str, text: String| Override {
        key: KEYS.iter().find(|key| key.name == name).expect("a setting"),
        given: Given::Flag,
        text,
    };
    let listeners = KEYS.iter().filter(|key| key.name.starts_with("listen_") && !key.is_later());
    let mut overrides: Vec<Override> = listeners.map(|key| set(key.name, "127.0.0.1:0".into())).collect();
    overrides.extend(["listen_mqtt", "listen_ws"].map(|name| set(name, "off".into())));
    let path = |path: &std::path::Path| path.display().to_string();
    overrides.push(set("tls_cert", path(&made.certificate)));
    overrides.push(set("http_plain", "true".to_owned()));
    overrides.push(set("tls_key", path(&made.key)));
    overrides.push(set("tls_ca", path(&directory.path().join("ca.pem"))));
    let config = Config::load(None, &overrides).expect("a valid configuration");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let life = |which: &str| {
        config.certificate.not_after().into_iter().find(|(name, _)| *name == which).expect("it is told").1 - now
    };
    let valid = VALID.as_secs() as i64;
    let slack = DEADLINE.as_secs() as i64;
    assert!((life("broker") - valid).abs() <= slack, "{}", life("broker"));
    assert!((life("authority") - 2 * valid).abs() <= slack, "{}", life("authority"));
    let expected = life("broker") + now;
    let config = Config { access: Arc::new(Plan::of_development()), ..config };
    let server = Server::start(&config, "1.2.3").await.expect("loopback ports are free");
    let name = "whimbrel_tls_certificate_not_after_seconds{certificate=\"broker\"}";
    assert_eq!(number(&server, name).await as i64, expected);
}
