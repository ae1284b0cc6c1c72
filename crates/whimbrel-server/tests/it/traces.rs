//! Traces of events, as a collector gets them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{address, get, keep_all, metric, packet, publish, soon, speaks_mqtt_as, start, tcp, user_property};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use whimbrel_server::Server;
use whimbrel_server::config::{Config, Listener};
use whimbrel_server::telemetry::Plan;

/// A span that the publisher says it has.
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that keeps what it gets: each span with the name of the broker that sent it.
#[derive(Default)]
struct Collector {
    spans: Mutex<Vec<(String, Span)>>,
    news: Notify,
}

impl Collector {
    async fn start() -> (Arc<Collector>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (collector, at) = (Arc::new(Collector::default()), listener.local_addr().expect("it is bound"));
        let serving = collector.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.clone().take(stream).await;
            }
        });
        (collector, at)
    }

    /// Takes one request.
    async fn take(self: Arc<Self>, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a whole header"));
        }
        let head = String::from_utf8(head).expect("text").to_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        stream.read_exact(&mut body).await.expect("a whole body");
        let request = ExportTraceServiceRequest::decode(&body[..]).expect("a request");
        for part in request.resource_spans {
            let resource = part.resource.expect("who has sent them");
            assert_eq!(value(&resource.attributes, "service.name"), "whimbrel");
            let name = value(&resource.attributes, "service.instance.id");
            let spans = part.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.spans.lock().extend(spans.map(|span| (name.clone(), span)));
        }
        self.news.notify_waiters();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("it is read");
    }

    /// Waits until there are that many spans of a trace.
    async fn trace(&self, id: &str, count: usize) -> Vec<(String, Span)> {
        let comes = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                let of_trace = |(_, span): &&(String, Span)| hex(&span.trace_id) == id;
                let found: Vec<_> = self.spans.lock().iter().filter(of_trace).cloned().collect();
                if found.len() >= count {
                    return found;
                }
                news.await;
            }
        };
        soon("the spans", comes).await
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn value(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.clone()?.value);
    match found {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

/// A broker with a journal that keeps everything, which sends its traces there.
async fn broker(name: &str, plan: Plan, peers: Vec<String>) -> (Server, TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = start(|config: &mut Config| {
        config.name = name.to_owned();
        config.overlay.peers = peers;
        config.telling.telemetry = Some(plan);
        keep_all(config, directory.path());
    })
    .await;
    (server, directory)
}

/// What a PUBLISH says of the trace that it belongs to.
fn traced(traceparent: Option<&str>) -> Vec<u8> {
    traceparent.map(|text| user_property("traceparent", text)).unwrap_or_default()
}

/// Subscribes at one broker and publishes at the other until something comes; what came,
/// acknowledged.
async fn pass(from: &Server, to: &Server, traceparent: impl Fn(u16) -> Option<String>) -> Vec<u8> {
    let (mut subscriber, mut publisher) = (tcp(to, Listener::Mqtt).await, tcp(from, Listener::Mqtt).await);
    speaks_mqtt_as(&mut subscriber, b's').await;
    speaks_mqtt_as(&mut publisher, b'p').await;
    subscriber.write_all(b"\x82\x07\x00\x01\x00\x00\x01t\x01").await.expect("the connection is open");
    assert_eq!(soon("SUBACK", packet(&mut subscriber)).await.expect("an answer").0, 0x90);
    // What is published before the brokers have told each other what is wanted stays where it is.
    let came = async {
        for id in 1.. {
            publisher
                .write_all(&publish(id, &traced(traceparent(id).as_deref())))
                .await
                .expect("the connection is open");
            assert_eq!(packet(&mut publisher).await.expect("an answer").0, 0x40);
            let mut first = [0];
            if let Ok(1) = subscriber.try_read(&mut first) {
                assert_eq!(first[0], 0x32, "a PUBLISH at QoS 1");
                break;
            }
        }
        let mut body = vec![0; usize::from(subscriber.read_u8().await.expect("a length"))];
        subscriber.read_exact(&mut body).await.expect("a whole packet");
        subscriber.write_all(&[0x40, 2, body[3], body[4]]).await.expect("the connection is open");
        // It is read before what is acknowledged then.
        subscriber.write_all(b"\xc0\x00").await.expect("the connection is open");
        while packet(&mut subscriber).await.expect("an answer").0 != 0xd0 {}
        body
    };
    soon("the message", came).await
}

/// The spans of a trace, by broker and name: their ids and parents.
fn by_name(spans: &[(String, Span)]) -> BTreeMap<(&str, &str), (String, String)> {
    let ids = |span: &Span| (hex(&span.span_id), hex(&span.parent_span_id));
    spans.iter().map(|(broker, span)| ((&broker[..], &span.name[..]), ids(span))).collect()
}

/// Whether the spans are those of one event that was published at `north` and delivered at `south`;
/// the parent of the first.
fn check(spans: &[(String, Span)]) -> String {
    let named = by_name(spans);
    let span = |broker: &'static str, name: &'static str| {
        named.get(&(broker, name)).unwrap_or_else(|| panic!("no {name} of {broker}: {named:?}"))
    };
    let (accept, forward, receive) = (span("north", "accept"), span("north", "forward"), span("south", "receive"));
    let deliver = span("south", "deliver");
    assert_eq!(span("north", "commit").1, accept.0);
    assert_eq!(forward.1, accept.0);
    assert_eq!(receive.1, forward.0);
    assert_eq!(deliver.1, receive.0);
    assert_eq!(span("south", "settle").1, deliver.0);
    assert_eq!(named.len(), 6, "{named:?}");
    for (_, span) in spans {
        assert_eq!(value(&span.attributes, "messaging.destination.name"), "t");
        assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano);
    }
    accept.1.clone()
}

#[tokio::test]
async fn a_publishers_trace_goes_on_through_two_brokers() {
    let (collector, at) = Collector::start().await;
    let plan = Plan { endpoint: format!("http://{at}"), sample: 0.0 };
    let (north, _north) = broker("north", plan.clone(), Vec::new()).await;
    let peers = vec![address(&north, Listener::Overlay).to_string()];
    let (south, _south) = broker("south", plan, peers).await;
    metric(&south, "whimbrel_links 1").await;
    let came = pass(&north, &south, |id| Some(format!("00-{:032x}-{PARENT}-01", 0xabc_0000 + u128::from(id)))).await;
    let text = String::from_utf8_lossy(&came).into_owned();
    let begin = text.find("00-").expect("what the publisher has set comes unaltered");
    let trace = &text[begin + 3..][..32];
    assert!(text[begin..].contains(PARENT), "{text}");
    let spans = collector.trace(trace, 6).await;
    assert_eq!(check(&spans), PARENT);
    let is_of_publisher = |(_, span): &(String, Span)| hex(&span.trace_id).contains("abc");
    assert!(collector.spans.lock().iter().all(is_of_publisher), "nothing else was traced");
    let page = get(&south, "/metrics").await.1;
    assert!(page.contains("whimbrel_spans_dropped_total{reason=\"queue_full\"} 0"), "{page}");
}

#[tokio::test]
async fn without_a_publishers_trace_both_brokers_choose_the_same_one() {
    let (collector, at) = Collector::start().await;
    let plan = Plan { endpoint: format!("http://{at}/"), sample: 1.0 };
    let (north, _north) = broker("north", plan.clone(), Vec::new()).await;
    let peers = vec![address(&north, Listener::Overlay).to_string()];
    let (south, _south) = broker("south", plan, peers).await;
    metric(&south, "whimbrel_links 1").await;
    // A flag that says no, and what is no trace at all, are as if there were nothing.
    let asked = |id| if id % 2 == 0 { Some(format!("00-{:032x}-{PARENT}-00", id)) } else { Some("nonsense".into()) };
    pass(&north, &south, asked).await;
    let comes = async {
        loop {
            let news = collector.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let settled = collector.spans.lock().iter().find(|(_, span)| span.name == "settle").cloned();
            if let Some((_, span)) = settled {
                return hex(&span.trace_id);
            }
            news.await;
        }
    };
    let trace = soon("the last span", comes).await;
    let spans = collector.trace(&trace, 6).await;
    assert_eq!(check(&spans), "", "it begins the trace");
    // What waits is sent before a broker ends.
    let before = collector.spans.lock().len();
    let mut publisher = tcp(&north, Listener::Mqtt).await;
    speaks_mqtt_as(&mut publisher, b'q').await;
    publisher.write_all(&publish(1, &[])).await.expect("the connection is open");
    assert_eq!(soon("PUBACK", packet(&mut publisher)).await.expect("an answer").0, 0x40);
    north.drain(crate::common::DEADLINE).await;
    assert!(collector.spans.lock().len() > before, "the last spans were not sent");
}

#[tokio::test]
async fn a_collector_that_is_away_harms_nobody() {
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let at = closed.local_addr().expect("it is bound");
    drop(closed);
    let (server, _directory) =
        broker("north", Plan { endpoint: format!("http://{at}"), sample: 1.0 }, Vec::new()).await;
    pass(&server, &server, |_| None).await;
    let is_counted = async {
        let head = "whimbrel_spans_dropped_total{reason=\"unreachable\"} ";
        let count = |page: String| page.lines().find_map(|line| line.strip_prefix(head)?.parse().ok());
        while count(get(&server, "/metrics").await.1).is_none_or(|count: u64| count < 4) {
            tokio::task::yield_now().await;
        }
    };
    soon("the count of dropped spans", is_counted).await;
    pass(&server, &server, |_| None).await;
}
