//! All listeners for clients, on real sockets.

use std::time::Duration;

use crate::common::{CONNECT, address, config, metric, packet, soon, speaks_mqtt, start, tcp, tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use whimbrel_server::Server;
use whimbrel_server::config::Listener;

#[tokio::test]
async fn the_ready_line_tells_what_is_open() {
    let server = start(|config| config.listen.retain(|(listener, _)| *listener != Listener::Wss)).await;
    let port = |listener| address(&server, listener).port();
    assert_eq!(
        server.ready().line(),
        format!(
            "{{\"ready\":true,\"name\":\"whimbrel\",\"mqtt\":\"127.0.0.1:{}\",\"tls\":\"127.0.0.1:{}\",\
             \"ws\":\"127.0.0.1:{}\",\"http\":\"127.0.0.1:{}\",\"overlay\":\"127.0.0.1:{}\"}}",
            port(Listener::Mqtt),
            port(Listener::Tls),
            port(Listener::Ws),
            port(Listener::Http),
            port(Listener::Overlay)
        )
    );
}

// covers: MQTT-4.2.0-1
#[tokio::test]
async fn mqtt_over_tcp_and_tls() {
    let server = start(|_| {}).await;
    speaks_mqtt(&mut tcp(&server, Listener::Mqtt).await).await;
    speaks_mqtt(&mut tls(&server, Listener::Tls).await).await;
    metric(&server, "whimbrel_listener_accepted_total{listener=\"mqtt\"} 1").await;
    metric(&server, "whimbrel_listener_accepted_total{listener=\"tls\"} 1").await;
}

#[tokio::test]
async fn a_tls_handshake_may_not_take_for_ever() {
    let server = start(|config| config.limits.handshake_timeout = Duration::from_millis(100)).await;
    let mut silent = tcp(&server, Listener::Tls).await;
    assert_eq!(soon("the end", silent.read(&mut [0; 16])).await.expect("an orderly end"), 0);
    metric(&server, "whimbrel_listener_failures_total{listener=\"tls\",cause=\"handshake_timeout\"} 1").await;
}

#[tokio::test]
async fn garbage_instead_of_tls_is_counted() {
    let server = start(|_| {}).await;
    let mut stream = tcp(&server, Listener::Tls).await;
    stream.write_all(CONNECT).await.expect("the connection is open");
    let mut rest = Vec::new();
    // An alert may come, and the end may be a reset: the broker leaves unread what the client sent.
    let _ = soon("the end", stream.read_to_end(&mut rest)).await;
    metric(&server, "whimbrel_listener_failures_total{listener=\"tls\",cause=\"tls\"} 1").await;
    speaks_mqtt(&mut tls(&server, Listener::Tls).await).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_and_counted() {
    let server = start(|config| config.limits.max_connections = Some(2)).await;
    let mut first = tcp(&server, Listener::Mqtt).await;
    speaks_mqtt(&mut first).await;
    let mut second = tcp(&server, Listener::Mqtt).await;
    second
        .write_all(&CONNECT.iter().map(|b| if *b == b'a' { b'b' } else { *b }).collect::<Vec<_>>())
        .await
        .expect("open");
    soon("CONNACK", packet(&mut second)).await.expect("the second is served");
    for listener in [Listener::Mqtt, Listener::Tls] {
        let mut refused = tcp(&server, listener).await;
        assert_eq!(soon("the end", refused.read(&mut [0; 16])).await.unwrap_or(0), 0);
        let line = format!(
            "whimbrel_listener_failures_total{{listener=\"{}\",cause=\"connection_limit\"}} 1",
            listener.name()
        );
        metric(&server, &line).await;
    }
    drop(second);
    metric(&server, "whimbrel_connections 1").await;
    speaks_mqtt(&mut tcp(&server, Listener::Mqtt).await).await;
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let server = start(|_| {}).await;
    let taken = address(&server, Listener::Mqtt);
    let config = config(|config| config.listen = vec![(Listener::Ws, taken)]);
    let error = Server::start(&config, "1.2.3").await.expect_err("the address is taken").to_string();
    assert!(error.starts_with(&format!("cannot listen on {taken} (`listen_ws`)")), "{error}");
    assert!(error.contains("choose another port"), "{error}");
}

#[tokio::test]
async fn draining_takes_leave_of_clients() {
    let server = start(|_| {}).await;
    let mut client = tcp(&server, Listener::Mqtt).await;
    speaks_mqtt(&mut client).await;
    let mqtt = address(&server, Listener::Mqtt);
    let drained = tokio::spawn(server.drain(Duration::from_secs(10)));
    let (first, body) = soon("DISCONNECT", packet(&mut client)).await.expect("a goodbye");
    assert_eq!((first, body[0]), (0xe0, 0x8b), "DISCONNECT, server shutting down");
    assert_eq!(soon("the end", packet(&mut client)).await, None);
    drop(client);
    soon("the end of draining", drained).await.expect("draining does not panic");
    assert!(tokio::net::TcpStream::connect(mqtt).await.is_err(), "nobody listens any more");
}
