//! `whimbrel serve --data` as its users meet it: who may use a directory, and what is there after a
//! restart.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use whimbrel_client::{Client, Event, Events, Message, Options, Publish, QoS, Subscription};

use crate::common::{Ends, ready, text, whimbrel};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(30);

fn serve(data: &Path) -> Command {
    let mut serve = whimbrel(&["serve", "--dev", "--listen-mqtt=127.0.0.1:0", "--data"]);
    serve.arg(data).args(["tls", "ws", "wss", "http", "overlay"].map(|listener| format!("--listen-{listener}=off")));
    serve.stdin(Stdio::null());
    serve
}

/// A broker with that data directory, and its URL.
fn broker(data: &Path) -> (Ends, String) {
    ready(serve(data))
}

async fn client(url: &str, name: &str) -> (Client, Events) {
    let options = Options::new(url).client_id(name).clean_start(false).session_expiry(3600);
    Client::connect(options).await.expect("the broker is there")
}

async fn message(events: &mut Events) -> Message {
    match tokio::time::timeout(DEADLINE, events.next()).await.expect("in time") {
        Some(Event::Message(message)) => message,
        other => panic!("no message: {other:?}"),
    }
}

#[test]
fn a_second_broker_on_the_directory_says_who_has_it() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let (first, _) = broker(data.path());
    let second = serve(data.path()).output().expect("it starts");
    let err = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{err}");
    assert_eq!(text(&second.stdout), "", "it is not ready");
    let owner = format!("in use by the broker with process number {}", first.0.id());
    let said: String = err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&owner) && said.contains("--data"), "{err}");
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("file");
    std::fs::write(&file, "").expect("written");
    for data in [file.clone(), file.join("below")] {
        let refused = serve(&data).output().expect("it starts");
        let err = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{err}");
        assert!(err.contains("cannot use the data directory") && err.contains(&data.display().to_string()), "{err}");
    }
}

#[tokio::test]
async fn a_restart_keeps_sessions_subscriptions_and_retained_messages() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let (serve, url) = broker(data.path());
    let (reader, _events) = client(&url, "reader").await;
    assert!(!reader.session_present());
    let answer = reader.subscribe_to(&Subscription::to("room/+").qos(QoS::AtLeastOnce)).await.expect("granted");
    assert!(answer.reasons.iter().all(|reason| !reason.is_error()), "{answer:?}");
    reader.disconnect().await;
    let (writer, _events) = client(&url, "writer").await;
    for (text, retain) in [("first", false), ("second", true)] {
        let publish = Publish::new("room/1", text).qos(QoS::AtLeastOnce).retain(retain);
        writer.publish(publish).await.expect("accepted");
    }
    // Without a word, as a process that is killed.
    drop(serve);

    let (_serve, url) = broker(data.path());
    let (reader, mut events) = client(&url, "reader").await;
    assert!(reader.session_present(), "the session is there");
    for text in ["first", "second"] {
        let message = message(&mut events).await;
        assert_eq!((&message.topic[..], &message.payload[..]), ("room/1", text.as_bytes()));
    }
    let (late, mut events) = client(&url, "late").await;
    late.subscribe_to(&Subscription::to("room/#").qos(QoS::AtLeastOnce)).await.expect("granted");
    let message = message(&mut events).await;
    assert_eq!((&message.payload[..], message.retain), (&b"second"[..], true), "the retained message is there");
}

/// A client that sends everything at once, as a gateway does that subscribes on connect.
#[test]
fn more_subscribes_than_may_wait_are_all_answered_though_they_come_at_once() {
    const ASKED: u16 = 1600;
    let place = tempfile::tempdir().expect("a temporary directory");
    let (_broker, url) = broker(&place.path().join("data"));
    let mut stream = TcpStream::connect(url.trim_start_matches("mqtt://")).expect("the broker listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
    // CONNECT with a session of an hour, and no keep-alive.
    let mut sent = b"\x10\x13\x00\x04MQTT\x05\x00\x00\x00\x05\x11\x00\x00\x0e\x10\x00\x01g".to_vec();
    for tag in 1..=ASKED {
        let [high, low] = tag.to_be_bytes();
        // Longer together than several reads.
        sent.extend([0x82, 0xd0, 1, high, low, 0, 0, 202]);
        sent.extend(format!("t/{:0200}", tag % 100).bytes());
        sent.push(1);
    }
    let mut writing = stream.try_clone().expect("a second handle");
    let writer = std::thread::spawn(move || writing.write_all(&sent));
    let mut answered = 0;
    while answered < ASKED {
        let mut head = [0; 2];
        stream.read_exact(&mut head).unwrap_or_else(|error| panic!("{answered} are answered: {error}"));
        let (mut length, mut shift) = (usize::from(head[1] & 0x7f), 7);
        while head[1] & 0x80 != 0 {
            stream.read_exact(&mut head[1..]).expect("the length goes on");
            length |= usize::from(head[1] & 0x7f) << shift;
            shift += 7;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("the packet has an end");
        match head[0] {
            0x20 => assert_eq!(body[1], 0, "accepted"),
            0x90 => {
                answered += 1;
                assert_eq!(body[..2], answered.to_be_bytes(), "in their order");
                assert_eq!(body.last(), Some(&1), "granted");
            }
            other => panic!("{answered} are answered, and then comes {other:#x} {body:?}"),
        }
    }
    writer.join().expect("it ends").expect("the broker takes it all");
}
