//! What an operator sees of several brokers: `whimbrel topology`, `interest` and `trace`, of
//! brokers that run and are linked.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use whimbrel_client::{Client, Durability, Event, Events, Options, Publish, QoS, Subscription};

use crate::common::{Ends, text, whimbrel};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(60);

/// A broker that runs, and where it is to be found.
struct Broker {
    process: Ends,
    mqtt: String,
    overlay: String,
    place: TempDir,
}

impl Broker {
    /// Linked to those only that it is told.
    fn start(name: &str, peers: &[&str]) -> Broker {
        Broker::start_with(name, "127.0.0.1:0", peers)
    }

    fn start_with(name: &str, overlay: &str, peers: &[&str]) -> Broker {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut serve = whimbrel(&["serve", "--dev", "--name", name, "--listen-mqtt", "127.0.0.1:0"]);
        serve.args(["--listen-tls=off", "--listen-ws=off", "--listen-wss=off", "--listen-http=off"]);
        serve.args(["--overlay-links", "0", "--listen-overlay", overlay]);
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
        let mqtt = format!("mqtt://{}", ready["mqtt"].as_str().expect("its address"));
        let overlay = ready["overlay"].as_str().unwrap_or_default().to_owned();
        Broker { process, mqtt, overlay, place }
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

    /// What it says against it.
    fn refuses(&self, arguments: &[&str]) -> String {
        let answer = self.ask(arguments);
        assert_eq!((answer.status.code(), &*text(&answer.stdout)), (Some(1), ""), "{arguments:?}");
        text(&answer.stderr)
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

async fn connect(broker: &Broker, name: &str) -> (Client, Events) {
    Client::connect(Options::new(&broker.mqtt).client_id(name)).await.expect("the broker is there")
}

/// The name of the next message, as text.
async fn id_of_next(events: &mut Events) -> String {
    loop {
        let event = tokio::time::timeout(DEADLINE, events.next()).await.expect("in time");
        if let Event::Message(message) = event.expect("the connection has an end") {
            // Silence comes as a message, too.
            if message.notice().is_none() {
                return message.id().expect("it has a name").to_string();
            }
        }
    }
}

/// The names of an array's members, or of that field of theirs.
fn names(list: &Value, field: Option<&str>) -> Vec<String> {
    let all = list.as_array().expect("a list").iter();
    let one = |value: &Value| field.map_or(value, |field| &value[field]).as_str().expect("a name").to_owned();
    all.map(one).collect()
}

#[test]
fn one_broker_stands_for_itself() {
    let broker = Broker::start("solo", &[]);
    let topology = broker.says(&["topology"]);
    assert!(
        topology.contains("solo") && topology.contains("1 broker\n") && topology.contains("no links"),
        "{topology}"
    );
    let interest = broker.says(&["interest"]);
    assert!(
        interest.contains("this broker's own: nothing is wanted") && interest.contains("0 events of others"),
        "{interest}"
    );
    let unknown = broker.refuses(&["interest", "elsewhere"]);
    assert!(unknown.contains("no broker with the name \"elsewhere\"") && unknown.contains("topology"), "{unknown}");
    // The same event, as it was written before and as it is written now.
    for id in ["70:1795000000123456789", "gggggggggh2:hPVn17Pr66B"] {
        let nothing = broker.refuses(&["trace", id]);
        assert!(nothing.contains("nothing is known of gggggggggh2:hPVn17Pr66B"), "{nothing}");
    }
    let wrong = broker.refuses(&["trace", "70-1"]);
    assert!(wrong.contains("\"70-1\" is no event id") && wrong.contains("w-id"), "{wrong}");
    let unwritable = broker.refuses(&["topology", "--svg", "no/such/place.svg"]);
    assert!(unwritable.contains("cannot write the drawing"), "{unwritable}");
}

#[test]
fn a_broker_without_an_overlay_says_what_to_do() {
    let broker = Broker::start_with("alone", "off", &[]);
    for arguments in [&["topology"][..], &["interest"], &["trace", "10:7"]] {
        let said = broker.refuses(arguments);
        assert!(said.contains("has no overlay") && said.contains("--listen-overlay"), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_brokers_in_a_line_are_seen_from_their_ends() {
    let a = Broker::start("north", &[]);
    let b = Broker::start("harbour", &[&a.overlay]);
    let c = Broker::start("tower", &[&b.overlay]);
    let seen = until("all reach all", || {
        let seen = a.json(&["topology", "--own", "--json"]);
        let brokers = seen["brokers"].as_array().expect("a list");
        let is_measured = seen["links"][0]["delay_us"].is_u64();
        (brokers.iter().filter(|broker| broker["reachable"] == true).count() == 3 && is_measured).then_some(seen)
    });
    let tower = seen["brokers"].as_array().expect("a list").iter().find(|broker| broker["name"] == "tower");
    let tower = tower.expect("it is there");
    assert_eq!(names(&tower["path"], None), ["north", "harbour", "tower"]);
    assert_eq!(names(&tower["links"], Some("name")), ["harbour"]);
    assert_eq!(names(&seen["links"], Some("peer")), ["harbour"]);
    assert_eq!(seen["links"][0]["dialed"], false);

    let drawing = a.place.path().join("brokers.svg");
    let said = a.says(&["topology", "--svg", drawing.to_str().expect("a path")]);
    assert!(said.starts_with("3 brokers in "), "{said}");
    let drawing = fs::read_to_string(drawing).expect("written");
    assert_eq!((drawing.matches("<circle").count(), drawing.matches("<line class=\"way").count()), (3, 2), "{drawing}");

    let (subscriber, mut events) = connect(&c, "s").await;
    let subscription = Subscription::to("fleet/+")
        .qos(QoS::AtLeastOnce)
        .durability(Durability::SemiDurable)
        .selector("JMSPriority > 2");
    subscriber.subscribe_to(&subscription).await.expect("granted");
    let (publisher, _publisher_events) = connect(&a, "p").await;
    publisher.publish(Publish::new("fleet/7", "here").qos(QoS::AtLeastOnce)).await.expect("accepted");
    let id = id_of_next(&mut events).await;

    let interest = a.json(&["interest", "tower", "--json"]);
    assert_eq!(names(&interest["brokers"], Some("name")), ["tower"]);
    assert_eq!(names(&interest["brokers"][0]["entries"], Some("filter")), ["fleet/+"]);
    let own = c.says(&["interest"]);
    assert!(own.contains("in force everywhere") && own.contains("JMSPriority > 2"), "{own}");
    assert!(own.contains("1 event of others came for this broker: 0 wanted by nobody here"), "{own}");

    for broker in [&a, &b, &c] {
        let trace = broker.json(&["trace", &id, "--json"]);
        assert_eq!(names(&trace["brokers"], Some("broker")), ["north", "harbour", "tower"], "{trace}");
        assert_eq!((&trace["silent"], &trace["missed"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    }
    let words = b.says(&["trace", &id]);
    for part in ["accepted here, on fleet/7", "for tower, which wants fleet/+ with JMSPriority > 2", "sent to tower"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(words.contains("way north > harbour > tower") && words.contains("taken for subscriptions"), "{words}");

    let Broker { process: mut dead, .. } = b;
    dead.0.kill().expect("it runs");
    dead.0.wait().expect("it has ended");
    let words = until("the way is gone", || {
        let words = a.says(&["topology"]);
        words.contains("2 of them cannot be reached").then_some(words)
    });
    assert!(words.contains("no way") && words.contains("no links"), "{words}");
    let trace = a.json(&["trace", &id, "--json"]);
    assert_eq!(names(&trace["brokers"], Some("broker")), ["north"]);
    let mut missed = names(&trace["missed"], None);
    missed.sort();
    assert_eq!(missed, ["harbour", "tower"]);
    let interest = a.says(&["interest"]);
    assert!(interest.contains("there is no way to it"), "{interest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_over_two_ways_is_traced_on_both() {
    let north = Broker::start("north", &[]);
    let harbour = Broker::start("harbour", &[&north.overlay]);
    let tower = Broker::start("tower", &[&north.overlay]);
    let ferry = Broker::start("ferry", &[&harbour.overlay, &tower.overlay]);
    until("both ways are known", || {
        let seen = north.json(&["topology", "--own", "--json"]);
        let links = |broker: &Value| names(&broker["links"], Some("name")).len();
        seen["brokers"].as_array().expect("a list").iter().all(|broker| links(broker) == 2).then_some(())
    });
    north.says(&["topics", "make", "alarm/#", "--deadline", "20 s", "--paths", "2"]);
    let (subscriber, mut events) = connect(&ferry, "s").await;
    let subscription = Subscription::to("alarm/#").qos(QoS::AtLeastOnce).durability(Durability::SemiDurable);
    subscriber.subscribe_to(&subscription).await.expect("granted");
    let (publisher, _publisher_events) = connect(&north, "p").await;
    publisher.publish(Publish::new("alarm/1", "fire").qos(QoS::AtLeastOnce)).await.expect("accepted");
    let id = id_of_next(&mut events).await;

    let states = |trace: &Value| {
        let mut states = names(&trace["destinations"][0]["paths"], Some("state"));
        states.sort();
        states
    };
    let trace = until("both copies have come", || {
        let trace = tower.json(&["trace", &id, "--json"]);
        (states(&trace) == ["first", "later"]).then_some(trace)
    });
    let to = &trace["destinations"][0];
    let mut ways: Vec<_> = (0..2).map(|at| names(&to["paths"][at]["brokers"], None).join(" ")).collect();
    ways.sort();
    assert_eq!(ways, ["north harbour ferry", "north tower ferry"]);
    assert_eq!((&to["taken"], &trace["deadline_ms"]), (&Value::Bool(true), &Value::from(20_000)));
    for path in to["paths"].as_array().expect("a list") {
        assert_eq!((&path["in_time"], &path["at"]), (&Value::Bool(true), &Value::from("ferry")));
        assert!(path["ages_us"].as_array().expect("a list").iter().all(Value::is_u64), "{path}");
        let is_later = path["state"] == "later";
        assert_eq!(path["behind_us"].is_u64(), is_later, "{path}");
    }
    let words = harbour.says(&["trace", &id]);
    for part in [
        "for ferry, which wants alarm/#; 2 ways\n",
        "ferry: 2 ways within 20.0 s, nothing in common\n",
        ": came first, ",
        " later, ",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(words.lines().all(|line| line.chars().count() <= 80), "{words}");
}
