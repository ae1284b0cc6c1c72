//! Brokers that are linked with each other, and clients that are known by certificates, on real
//! sockets.

use std::time::Duration;

use crate::common::authority::Authority;
use crate::common::{address, config, get, metric, packet, soon, speaks_mqtt, speaks_mqtt_as, speaks_tls, start, tcp};
use tokio::io::AsyncWriteExt;
use whimbrel_server::Server;
use whimbrel_server::config::{Certificate, Listener};
use whimbrel_server::identity::Role;

#[tokio::test]
async fn brokers_are_linked_and_linked_again_after_one_was_away() {
    let north = start(|_| {}).await;
    let at = address(&north, Listener::Overlay);
    assert!(north.ready().line().ends_with(&format!(",\"overlay\":\"{at}\"}}")), "{}", north.ready().line());
    let south = start(|config| {
        config.name = "south".into();
        config.overlay.peers = vec![at.to_string()];
    })
    .await;
    metric(&north, "whimbrel_links 1").await;
    metric(&south, "whimbrel_links 1").await;
    // By its name as soon as it has told that, although no certificate proves it.
    let labels = format!("{{peer=\"whimbrel\",address=\"{at}\"}}");
    metric(&south, &format!("whimbrel_link_up{labels} 1")).await;
    let page = get(&south, "/metrics").await.1;
    assert!(page.contains(&format!("whimbrel_link_rtt_seconds{labels} ")), "{page}");

    north.drain(Duration::from_secs(5)).await;
    metric(&south, "whimbrel_links 0").await;
    let again = config(|config| {
        let overlay = config.listen.iter_mut().find(|(listener, _)| *listener == Listener::Overlay);
        overlay.expect("it is open").1 = at;
    });
    // The system has the port back once the endpoint's own task has ended.
    let again = loop {
        match Server::start(&again, "1.2.3").await {
            Ok(again) => break again,
            Err(error) => assert!(error.to_string().contains("listen_overlay"), "{error}"),
        }
        tokio::task::yield_now().await;
    };
    metric(&south, "whimbrel_link_reconnects_total 1").await;
    metric(&again, "whimbrel_links 1").await;
}

#[tokio::test]
async fn what_is_published_at_one_broker_reaches_a_subscriber_at_another() {
    let north = start(|config| config.name = "north".into()).await;
    let at = address(&north, Listener::Overlay).to_string();
    let south = start(|config| {
        config.name = "south".into();
        config.overlay.peers = vec![at];
    })
    .await;
    metric(&south, "whimbrel_links 1").await;
    let (mut subscriber, mut publisher) = (tcp(&south, Listener::Mqtt).await, tcp(&north, Listener::Mqtt).await);
    speaks_mqtt_as(&mut subscriber, b's').await;
    speaks_mqtt_as(&mut publisher, b'p').await;
    subscriber.write_all(b"\x82\x07\x00\x01\x00\x00\x01t\x00").await.expect("the connection is open");
    assert_eq!(soon("SUBACK", packet(&mut subscriber)).await.expect("an answer").0, 0x90);
    // What is published before the brokers have told each other what is wanted stays where it is.
    let came = async {
        loop {
            publisher.write_all(b"\x32\x0b\x00\x01t\x00\x07\x00hello").await.expect("the connection is open");
            assert_eq!(packet(&mut publisher).await.expect("an answer").0, 0x40);
            let mut first = [0];
            if let Ok(1) = subscriber.try_read(&mut first) {
                return first[0];
            }
        }
    };
    assert_eq!(soon("the message", came).await, 0x30, "a PUBLISH at QoS 0");
    let page = get(&south, "/metrics").await.1;
    let head = "whimbrel_link_received_bytes_total{";
    let received = |line: &str| line.starts_with(head) && line.contains("reliable") && !line.ends_with(" 0");
    assert!(page.lines().any(received), "{page}");
}

#[tokio::test]
async fn a_broker_that_listens_everywhere_is_dialled_where_it_says() {
    let hub = start(|config| config.name = "hub".into()).await;
    let peers = vec![address(&hub, Listener::Overlay).to_string()];
    // What is told must be known before the socket is bound.
    let port =
        std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
    let everywhere = start(|config| {
        config.name = "everywhere".into();
        let overlay = config.listen.iter_mut().find(|(listener, _)| *listener == Listener::Overlay);
        overlay.expect("it is open").1 = ([0, 0, 0, 0], port).into();
        config.overlay.peers.clone_from(&peers);
        config.overlay.advertise = vec![format!("127.0.0.1:{port}"), "everywhere.example:7117".into()];
    })
    .await;
    metric(&hub, "whimbrel_links 1").await;
    // It knows the hub only, and dials the other because it was told where.
    let late = start(|config| {
        config.name = "late".into();
        config.overlay.peers = peers;
    })
    .await;
    for server in [&hub, &everywhere, &late] {
        metric(server, "whimbrel_links 2").await;
    }
    let known = async |server: &Server, name: &str| {
        let page = get(server, "/api/v1/topology").await.1;
        let topology: serde_json::Value = serde_json::from_str(&page).expect("it is JSON");
        let brokers = topology["brokers"].as_array().expect("a list").clone();
        let broker = brokers.into_iter().find(|broker| broker["name"] == name).expect("it is known");
        broker["addresses"].clone()
    };
    let told = serde_json::json!([format!("127.0.0.1:{port}"), "everywhere.example:7117"]);
    assert_eq!(known(&late, "everywhere").await, told);
    assert_eq!(known(&everywhere, "late").await, serde_json::json!([address(&late, Listener::Overlay).to_string()]));
}

async fn broker(authority: &Authority, name: &str, peers: Vec<String>) -> Server {
    let known = authority.broker(name);
    start(|config| {
        config.dev = false;
        config.name = name.to_owned();
        config.certificate = Certificate::Known(Box::new(known));
        config.listen.retain(|(listener, _)| !matches!(listener, Listener::Mqtt | Listener::Ws));
        config.overlay.peers = peers;
    })
    .await
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_authority_are_let_in() {
    let (city, other) = (Authority::new("city"), Authority::new("city"));
    let is_let_in = async |server: &Server, of: &Authority, shown| speaks_tls(server, of, shown).await.is_some();
    let server = broker(&city, "north", Vec::new()).await;
    assert!(is_let_in(&server, &city, Some(city.make(Role::Client, "bus-7"))).await);
    assert!(!is_let_in(&server, &city, None).await);
    assert!(!is_let_in(&server, &city, Some(other.make(Role::Client, "bus-7"))).await);
    assert!(!is_let_in(&server, &city, Some(city.make(Role::Broker, "south"))).await);
    metric(&server, "whimbrel_listener_failures_total{listener=\"tls\",cause=\"tls\"} 3").await;
}

#[tokio::test]
async fn brokers_with_an_authority_are_known_by_name_and_others_are_refused() {
    let (city, other) = (Authority::new("city"), Authority::new("city"));
    let north = broker(&city, "north", Vec::new()).await;
    let at = vec![address(&north, Listener::Overlay).to_string()];
    let south = broker(&city, "south", at.clone()).await;
    metric(&south, "whimbrel_links 1").await;
    let page = get(&north, "/metrics").await.1;
    assert!(page.contains("whimbrel_link_up{peer=\"south\","), "{page}");

    let stranger = broker(&other, "south", at.clone()).await;
    let refused = |page: String, cause: &str| {
        let head = format!("whimbrel_link_failures_total{{cause=\"{cause}\"}} ");
        page.lines().any(|line| line.strip_prefix(&head).is_some_and(|count| count != "0"))
    };
    while !refused(get(&stranger, "/metrics").await.1, "other_authority") {}
    let developer = start(|config| config.overlay.peers = at).await;
    while !refused(get(&developer, "/metrics").await.1, "no_development") {}
    while !refused(get(&north, "/metrics").await.1, "refused_by_peer") {}
    metric(&north, "whimbrel_links 1").await;
    speaks_mqtt(&mut tcp(&developer, Listener::Mqtt).await).await;
}
