//! Metrics and health.

use crate::common::{address, get, raw, start};
use whimbrel_server::config::Listener;

#[tokio::test]
async fn pages() {
    let server = start(|_| {}).await;
    assert_eq!(get(&server, "/healthz").await, (200, "alive\n".to_owned()));
    assert_eq!(get(&server, "/readyz").await, (200, "ready\n".to_owned()));
    let (status, index) = get(&server, "/").await;
    assert!(status == 200 && index.contains("<title>Whimbrel</title>"), "{index}");
    assert_eq!(get(&server, "/nothing").await.0, 404);
}

#[tokio::test]
async fn metrics_tell_of_broker_and_process() {
    let server = start(|_| {}).await;
    let (status, text) = get(&server, "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains("whimbrel_build_info{name=\"whimbrel\",version=\"1.2.3\"} 1\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let number = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("{name} is not in:\n{text}"))
    };
    assert_eq!(number("whimbrel_connections"), 0.0);
    assert!(number("whimbrel_connections_max") >= 1.0);
    assert!(number("process_resident_memory_bytes") > 1e6);
    assert!(number("process_cpu_seconds_total") > 0.0);
    assert!(number("process_open_fds") >= 5.0);
    assert!(number("process_max_fds") >= number("process_open_fds"));
}

#[tokio::test]
async fn requests_have_a_bound() {
    let server = start(|_| {}).await;
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let mut stream = tokio::net::TcpStream::connect(address(&server, Listener::Http)).await.expect("open");
    // The server may close before it has read all of it.
    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = crate::common::soon("the end", tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    let posted = raw(
        address(&server, Listener::Http),
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
}
