//! What an operator sees of clients with `whimbrel sessions`, and of those that are not let in, and
//! of peers that are not reached, in the log.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use whimbrel_client::{Client, Events, Options};

use crate::common::{Ends, ready_logging, text, url_of, whimbrel};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(60);

struct Place {
    place: tempfile::TempDir,
    _broker: Ends,
    url: String,
}

impl Place {
    /// A broker whose log is kept, with a peer whose name does not resolve.
    fn start() -> Place {
        let place = tempfile::tempdir().expect("a temporary directory");
        let log = File::create(place.path().join("log")).expect("a file");
        let mut serve = whimbrel(&["serve", "--dev", "--name", "north", "--peer", "no-such-host.invalid:7117"]);
        for listener in ["mqtt", "overlay"] {
            serve.args([format!("--listen-{listener}"), "127.0.0.1:0".into()]);
        }
        for listener in ["tls", "ws", "wss", "http"] {
            serve.args([format!("--listen-{listener}"), "off".into()]);
        }
        serve.arg("--data").arg(place.path().join("data")).stdin(Stdio::null());
        let (broker, ready) = ready_logging(serve, log);
        Place { place, _broker: broker, url: url_of(&ready) }
    }

    fn ask(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let answer = whimbrel(arguments).arg("--data").arg(self.place.path().join("data")).output().expect("it runs");
        (answer.status.code(), text(&answer.stdout) + &text(&answer.stderr))
    }

    /// The lines of the log with these words, once there is one.
    fn logged(&self, words: &str) -> Vec<String> {
        let began = Instant::now();
        loop {
            let log = std::fs::read_to_string(self.place.path().join("log")).expect("it is there");
            let lines: Vec<_> = log.lines().filter(|line| line.contains(words)).map(str::to_owned).collect();
            if !lines.is_empty() {
                return lines;
            }
            assert!(began.elapsed() < DEADLINE, "{words:?} is not in:\n{log}");
            std::thread::yield_now();
        }
    }
}

async fn connect(url: &str, name: &str, expiry: u32) -> (Client, Events) {
    let options = Options::new(url).client_id(name).clean_start(true).session_expiry(expiry);
    Client::connect(options).await.expect("the broker is there")
}

#[tokio::test]
async fn clients_are_listed_searched_and_kicked() {
    let place = Place::start();
    let (_client, mut events) = connect(&place.url, "scanner-7", 3600).await;
    let _others = [connect(&place.url, "scanner-8", 0).await, connect(&place.url, "desk", 0).await];
    let (code, shown) = place.ask(&["sessions", "list", "--clients", "--prefix", "scanner-"]);
    assert_eq!(code, Some(0), "{shown}");
    let lines: Vec<_> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines[0], ["CLIENT", "BROKER", "ADDRESS", "OVER", "MQTT", "USER", "SINCE", "MESSAGES", "IN", "OUT"]);
    let row = &lines[1];
    assert_eq!([row[0], row[1], row[3], row[4], row[5]], ["scanner-7", "north", "mqtt", "5.0", "-"], "{shown}");
    assert!(row[2].starts_with("127.0.0.1:") && shown.ends_with("2 clients connected\n"), "{shown}");
    let (_, shown) = place.ask(&["sessions", "show", "scanner-7"]);
    assert!(shown.contains("over mqtt, MQTT 5.0") && shown.contains("0 in, 0 out since then"), "{shown}");

    let (code, said) = place.ask(&["sessions", "kick", "scanner-7"]);
    assert_eq!((code, &*said), (Some(0), "scanner-7: disconnected; its session stays for 1h\n"));
    let end = async { while events.next().await.is_some() {} };
    tokio::time::timeout(DEADLINE, end).await.expect("the connection has ended");
    let (_, shown) = place.ask(&["sessions", "list"]);
    assert!(shown.lines().any(|line| line.starts_with("scanner-7") && line.contains("away")), "{shown}");
    let (code, said) = place.ask(&["sessions", "kick", "scanner-7"]);
    assert!(code == Some(1) && said.contains("is not connected here"), "{said}");
    let (_, said) = place.ask(&["sessions", "kick", "desk"]);
    assert_eq!(said, "desk: disconnected; its session ended with the connection\n");
}

#[test]
fn who_is_not_let_in_and_what_is_not_reached_is_logged_with_the_reason() {
    let place = Place::start();
    let [peer] = &place.logged("a configured peer is not reached")[..] else { panic!("it is told once") };
    for words in ["WARN", "no-such-host.invalid:7117", "its name does not resolve", "getent hosts"] {
        assert!(peer.contains(words), "{words:?} is not in {peer}");
    }
    let (_, status) = place.ask(&["status"]);
    assert!(
        status.contains("north: its peer no-such-host.invalid:7117 is not reached: its name does not resolve"),
        "{status}"
    );

    let address = place.url.trim_start_matches("mqtt://").to_owned();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        // A will on a topic of the broker.
        let connect = b"\x10\x23\x00\x04MQTT\x04\x06\x00\x3c\x00\x08intruder\x00\x0a$SYS/x/y/z\x00\x01x";
        stream.write_all(connect).expect("the connection is open");
        std::io::copy(&mut stream, &mut std::io::sink()).expect("it ends");
    }
    let lines = place.logged("a client is not let in");
    assert_eq!(lines.len(), 1, "once for each kind in 5 s: {lines:?}");
    for words in ["WARN", "from=\"127.0.0.1:", "client_id=\"intruder\"", "0x87", "topics that begin with $ are"] {
        assert!(lines[0].contains(words), "{words:?} is not in {}", lines[0]);
    }
}
