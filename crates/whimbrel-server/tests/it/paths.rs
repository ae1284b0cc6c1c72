//! The paths of a topic's events from one broker to others, as the API tells them.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use whimbrel_server::Server;
use whimbrel_server::config::Listener;

use crate::common::{address, ask, get, packet, soon, speaks_mqtt_as, start, tcp};

const POST: &str = "Content-Length: 0\r\n";

async fn linked(name: &str, peers: &[&Server]) -> Server {
    start(|config| {
        config.name = name.into();
        config.overlay.links_wanted = 0;
        config.overlay.peers = peers.iter().map(|peer| address(peer, Listener::Overlay).to_string()).collect();
    })
    .await
}

async fn told(server: &Server, path: &str) -> Value {
    let (status, body) = get(server, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("it is JSON")
}

/// The brokers of each path to the only destination.
fn ways(answer: &Value) -> Vec<String> {
    let paths = answer["destinations"][0]["paths"].as_array().cloned().unwrap_or_default();
    let name = |name: &Value| name.as_str().expect("a name").to_owned();
    let way = |path: &Value| path["brokers"].as_array().expect("a list").iter().map(name).collect::<Vec<_>>().join(" ");
    paths.iter().map(way).collect()
}

/// Asks until an answer fits.
async fn until(server: &Server, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let found = async {
        loop {
            let answer = told(server, path).await;
            if fits(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(path, found).await
}

#[tokio::test]
async fn two_paths_of_a_topic_are_told_with_their_times_and_what_they_share() {
    let north = linked("north", &[]).await;
    let harbour = linked("harbour", &[&north]).await;
    let tower = linked("tower", &[&north]).await;
    let ferry = linked("ferry", &[&harbour, &tower]).await;
    let (status, body) = ask(&north, "POST", "/api/v1/topics/alarm%2F%23?deadline=5s&paths=2", POST).await;
    assert_eq!(status, 200, "{body}");
    let mut subscriber = tcp(&ferry, Listener::Mqtt).await;
    speaks_mqtt_as(&mut subscriber, b's').await;
    subscriber.write_all(b"\x82\x0d\x00\x01\x00\x00\x07alarm/#\x00").await.expect("the connection is open");
    assert_eq!(soon("SUBACK", packet(&mut subscriber)).await.expect("an answer").0, 0x90);

    let of_topic = "/api/v1/paths?topic=alarm%2F1";
    let mut answer = until(&north, of_topic, |answer| ways(answer).len() == 2).await;
    let mut pair = ways(&answer);
    pair.sort();
    assert_eq!(pair, ["north harbour ferry", "north tower ferry"]);
    let to = &mut answer["destinations"][0];
    for path in to["paths"].as_array_mut().expect("a list") {
        let path = path.as_object_mut().expect("an object");
        let time_us = path.remove("time_us").and_then(|time_us| time_us.as_u64()).expect("a time");
        assert!(time_us >= 600, "0.3 ms for each link: {time_us}");
        assert_eq!(path.remove("in_time"), Some(json!(true)));
    }
    for field in ["host", "paths"] {
        to.as_object_mut().expect("an object").remove(field);
    }
    let destination = json!({"broker": "ferry", "filter": "alarm/#", "selector": null, "shared_brokers": [], "shared_links": [],
        "direct_us": null});
    let expected = json!({"topic": "alarm/1", "from": "north", "deadline_ms": 5_000, "setting": "2",
        "destinations": [destination], "more": 0});
    assert_eq!(answer, expected);

    // Another broker is asked, too: no other one wants what is published there.
    let system = told(&north, "/api/v1/system/paths?topic=alarm%2F1&broker=ferry").await;
    assert_eq!(
        (&system["brokers"][0]["name"], &system["brokers"][0]["answer"]["from"]),
        (&json!("ferry"), &json!("ferry"))
    );
    assert_eq!(system["brokers"][0]["answer"]["destinations"], json!([]));

    // A topic without a profile has one path and no deadline; what is no topic is refused.
    assert_eq!(told(&north, "/api/v1/paths?topic=other").await["destinations"], json!([]));
    for (query, words) in [("", "say which topic"), ("?topic=alarm%2F%23", "write one without wildcards")] {
        let (status, body) = get(&north, &format!("/api/v1/paths{query}")).await;
        assert!(status == 400 && body.contains(words), "{query}: {status} {body}");
    }

    // With the broker of one path the other one is left.
    tower.drain(std::time::Duration::from_secs(5)).await;
    let answer = until(&north, of_topic, |answer| ways(answer) == ["north harbour ferry"]).await;
    assert_eq!(answer["destinations"][0]["shared_brokers"], json!([]), "there is no other one");
}

#[tokio::test]
async fn a_broker_without_an_overlay_has_no_paths() {
    let alone = start(|config| config.listen.retain(|(listener, _)| *listener != Listener::Overlay)).await;
    let (status, body) = get(&alone, "/api/v1/paths?topic=a").await;
    assert!(status == 409 && body.contains("has no overlay"), "{status} {body}");
}
