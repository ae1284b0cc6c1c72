//! Several brokers as one thing: what any of them tells of all, over the control socket and over
//! HTTP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use whimbrel_client::{Client, Options, Publish, QoS, Subscription};

use crate::common::{Ends, text, whimbrel};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(60);

struct Broker {
    process: Ends,
    mqtt: String,
    http: String,
    overlay: String,
    place: TempDir,
}

impl Broker {
    /// Linked to those only that it is told.
    fn start(name: &str, peers: &[&str]) -> Broker {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut serve = whimbrel(&["serve", "--dev", "--name", name, "--overlay-links", "0"]);
        serve.args(["--listen-tls=off", "--listen-ws=off", "--listen-wss=off"]);
        for listener in ["--listen-mqtt", "--listen-http", "--listen-overlay"] {
            serve.args([listener, "127.0.0.1:0"]);
        }
        for peer in peers {
            serve.args(["--peer", peer]);
        }
        serve.arg("--control").arg(place.path().join("control.sock")).current_dir(place.path());
        let process = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut process = Ends(process.expect("the broker starts"));
        let mut line = String::new();
        let out = process.0.stdout.take().expect("its output is piped");
        BufReader::new(out).read_line(&mut line).expect("it says that it is ready");
        let ready: Value = serde_json::from_str(&line).expect("the ready line is JSON");
        let at = |listener: &str| ready[listener].as_str().expect("its address").to_owned();
        let (mqtt, http, overlay) = (format!("mqtt://{}", at("mqtt")), at("http"), at("overlay"));
        Broker { process, mqtt, http, overlay, place }
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = whimbrel(arguments);
        command.arg("--control").arg(self.place.path().join("control.sock")).current_dir(self.place.path());
        command.output().expect("the command runs")
    }

    fn says(&self, arguments: &[&str]) -> String {
        let answer = self.ask(arguments);
        assert!(answer.status.success(), "{arguments:?}: {}", text(&answer.stderr));
        text(&answer.stdout)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.says(arguments)).expect("it is JSON")
    }

    /// Status and body of an answer over HTTP.
    fn http(&self, method: &str, target: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.http).expect("the listener accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a bound");
        let request = format!("{method} /api/v1/{target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http);
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).expect("it is JSON"))
    }

    fn kill(&mut self) {
        self.process.0.kill().expect("it runs");
        self.process.0.wait().expect("it has ended");
    }
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "{what}");
    }
}

/// The names of those who have answered, and of those who have not.
fn names(all: &Value) -> (Vec<&str>, Vec<&str>) {
    let answered = all["brokers"].as_array().expect("a list").iter().map(|said| said["name"].as_str().expect("a name"));
    let absent = ["silent", "missed"].into_iter().flat_map(|list| all[list].as_array().expect("a list"));
    let mut absent: Vec<_> = absent.map(|name| name.as_str().expect("a name")).collect();
    absent.sort_unstable();
    (answered.collect(), absent)
}

/// north - harbour - tower, which all know of each other.
fn line() -> [Broker; 3] {
    let a = Broker::start("north", &[]);
    let b = Broker::start("harbour", &[&a.overlay]);
    let c = Broker::start("tower", &[&b.overlay]);
    for broker in [&a, &b, &c] {
        until("all reach all", || {
            let status = broker.json(&["status", "--own", "--json"]);
            (status["brokers_reachable"] == 3).then_some(())
        });
    }
    [a, b, c]
}

#[tokio::test(flavor = "multi_thread")]
async fn any_broker_tells_of_all_and_names_the_one_that_is_dead() {
    let [a, mut b, c] = line();
    let (client, _events) = Client::connect(Options::new(&c.mqtt).client_id("crane")).await.expect("it is there");
    client.subscribe_to(&Subscription::to("load/#").qos(QoS::AtLeastOnce)).await.expect("granted");
    client.publish(Publish::new("load/1", "up").qos(QoS::AtLeastOnce)).await.expect("accepted");

    let status = a.json(&["status", "--json"]);
    assert_eq!(names(&status), (vec!["north", "harbour", "tower"], vec![]), "the one that is asked is the first");
    assert_eq!(names(&c.http("GET", "system/status").1), (vec!["tower", "harbour", "north"], vec![]));
    let tower = &status["brokers"][2]["answer"];
    assert_eq!((&tower["name"], &tower["connections"]), (&"tower".into(), &1.into()));
    assert_eq!(tower["counters"]["events_accepted"], 1, "what is published under $SYS does not count: {tower}");
    assert_eq!(tower["listeners"]["http"], *c.http);
    let words = b.says(&["status"]);
    assert!(words.contains("3 brokers, 1 client") && words.contains("3 of 3"), "{words}");

    // Over HTTP as over the socket, from another machine as well.
    let url = format!("http://{}", a.http);
    let far = whimbrel(&["sessions", "list", "--api", &url, "--json"]).output().expect("it runs");
    let sessions: Value = serde_json::from_slice(&far.stdout).expect("it is JSON");
    let of =
        |name: &str| sessions["brokers"].as_array().expect("a list").iter().find(|said| said["name"] == name).cloned();
    assert_eq!(of("tower").expect("it has answered")["answer"]["sessions"][0]["client_id"], "crane");
    assert_eq!(of("north").expect("it has answered")["answer"]["sessions"], Value::Array(vec![]));
    let table = a.says(&["sessions", "list"]);
    assert!(table.contains("crane   tower") && table.contains("1 session, 1 connected"), "{table}");
    assert!(a.says(&["sessions", "list", "--own"]).contains("0 sessions"));

    let shown = a.json(&["sessions", "show", "crane", "--json"]);
    assert_eq!((&shown["broker"], &shown["subscriptions"][0]["filter"]), (&"tower".into(), &"load/#".into()));
    assert!(a.says(&["sessions", "show", "crane"]).contains("broker      tower"));
    let far = a.ask(&["sessions", "drop", "crane"]);
    assert!(!far.status.success() && text(&far.stderr).contains("is at tower"), "{}", text(&far.stderr));
    let unknown = a.ask(&["sessions", "show", "gull"]);
    assert!(text(&unknown.stderr).contains("no session with the client id \"gull\""), "{}", text(&unknown.stderr));

    let links = a.says(&["topology"]);
    assert!(links.contains("tower    harbour") && links.contains("north    harbour"), "{links}");
    let streams = c.says(&["streams"]);
    assert_eq!(streams.matches("no data directory").count(), 3, "{streams}");
    let history = until("there are samples of all", || {
        let (_, all) = b.http("GET", "system/history?limit=5");
        let has = |said: &Value| said["answer"]["samples"].as_array().is_some_and(|samples| !samples.is_empty());
        all["brokers"].as_array().expect("a list").iter().all(has).then_some(all)
    });
    assert_eq!(names(&history).0.len(), 3);

    let (_, one) = a.http("GET", "system/status?broker=tower");
    assert_eq!(names(&one), (vec!["tower"], vec![]));
    assert_eq!(a.http("GET", "system/status?broker=nobody").0, 404);
    let long = format!("system/history?after_ms={}", "1".repeat(600));
    // Other brokers are not asked for what is this long; the one that was asked answers for itself.
    assert_eq!(a.http("GET", &format!("{long}&broker=tower")).0, 414);
    let (status, alone) = a.http("GET", &long);
    assert_eq!((status, alone["brokers"].as_array().map(Vec::len)), (200, Some(1)), "{alone}");
    assert_eq!(alone["missed"].as_array().map(Vec::len), Some(2), "{alone}");
    let (_, refused) = a.http("GET", "system/history?after_ms=x");
    assert!(
        refused["brokers"][2]["answer"]["error"].as_str().is_some_and(|error| error.contains("numbers")),
        "{refused}"
    );

    b.kill();
    let (_, at_once) = a.http("GET", "system/status");
    assert_eq!(names(&at_once), (vec!["north"], vec!["harbour", "tower"]), "silent, or missed already");
    let words = until("that there is no way is known", || {
        let words = a.says(&["status"]);
        words.contains("could not be asked, as there is no way or no room: harbour, tower").then_some(words)
    });
    assert!(words.contains("3 brokers, 0 clients") && words.contains("1 of 3"), "{words}");
}

#[test]
fn a_broker_is_drained_over_the_api_and_pages_go_on_at_their_ends() {
    let mut broker = Broker::start("solo", &[]);
    let page = broker.json(&["sessions", "list", "--json"]);
    assert_eq!(names(&page), (vec!["solo"], vec![]));
    let url = format!("http://{}", broker.http);
    let password = broker.place.path().join("password");
    fs::write(&password, "secret\n").expect("written");
    let mut command = whimbrel(&["status", "--api", &url, "--user", "ops", "--password-file"]);
    let output = command.arg(&password).output().expect("it runs");
    assert!(output.status.success() && text(&output.stdout).contains("solo"), "{}", text(&output.stderr));
    let wrong = whimbrel(&["status", "--api", &url.replace("http:", "https:")]).output().expect("it runs");
    assert!(text(&wrong.stderr).contains("no TLS is spoken"), "{}", text(&wrong.stderr));
    assert_eq!(broker.http("GET", "drain").0, 405);
    let (status, answer) = broker.http("POST", "drain");
    assert_eq!((status, &answer["connections"]), (200, &0.into()));
    assert!(broker.process.0.wait().expect("it ends").success());
}
