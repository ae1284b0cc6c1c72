//! One connection: publishing, subscribing, ending.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::TestBroker;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use whimbrel_client::{
    Client, Error, Event, Events, Message, Options, Publish, QoS, ReasonCode, Receipt, Version, Will,
};
use whimbrel_mqtt::Config;

async fn connect(broker: &TestBroker, client_id: &str) -> (Client, Events) {
    Client::connect(options(broker, client_id)).await.expect("accepted")
}

fn options(broker: &TestBroker, client_id: &str) -> Options {
    Options::new(format!("mqtt://{}", broker.address)).client_id(client_id)
}

async fn message(events: &mut Events) -> Message {
    match tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("in time") {
        Some(Event::Message(message)) => message,
        other => panic!("not a message: {other:?}"),
    }
}

async fn end(events: &mut Events) -> Error {
    loop {
        match tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("in time") {
            Some(Event::Disconnected { reason }) => return reason,
            Some(Event::Message(_)) => {}
            None => panic!("the end is told"),
        }
    }
}

#[tokio::test]
async fn every_qos_goes_both_ways_in_both_versions() {
    let broker = TestBroker::start(Config::default()).await;
    for version in [Version::V4, Version::V5] {
        let (client, mut events) = Client::connect(options(&broker, "c").version(version)).await.expect("accepted");
        let granted = client.subscribe(&[("a/#", QoS::ExactlyOnce)]).await.expect("answered");
        assert_eq!(granted, [ReasonCode::GRANTED_QOS_2]);
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            client.publish(Publish::new("a/b", "hello").qos(qos)).await.expect("accepted");
            let got = message(&mut events).await;
            assert_eq!((got.topic.as_str(), got.payload.as_slice(), got.qos), ("a/b", &b"hello"[..], qos));
        }
        assert_eq!(client.session().unacknowledged(), 0);
        client.disconnect().await;
        assert!(matches!(end(&mut events).await, Error::Closed));
    }
}

#[tokio::test]
async fn properties_arrive_as_they_were_sent() {
    let broker = TestBroker::start(Config::default()).await;
    let (client, mut events) = connect(&broker, "c").await;
    client.subscribe(&[("t", QoS::AtLeastOnce)]).await.expect("answered");
    let publish = Publish::new("t", "x")
        .qos(QoS::AtLeastOnce)
        .expiry(60)
        .content_type("text/plain")
        .respond_to("answers", Some(vec![1, 2]))
        .property("b", "2")
        .property("a", "1");
    client.publish(publish).await.expect("accepted");
    let got = message(&mut events).await;
    assert_eq!(got.properties, [("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]);
    assert_eq!((got.content_type.as_deref(), got.response_topic.as_deref()), (Some("text/plain"), Some("answers")));
    assert_eq!((got.correlation.as_deref(), got.expiry), (Some(&[1, 2][..]), Some(60)));
}

#[tokio::test]
async fn topic_aliases_of_the_broker_are_understood() {
    let broker = TestBroker::start(Config::default()).await;
    let (client, mut events) = connect(&broker, "c").await;
    client.subscribe(&[("#", QoS::AtMostOnce)]).await.expect("answered");
    for n in 0..200 {
        client.publish(Publish::new(format!("t/{}", n % 100), n.to_string())).await.expect("written");
    }
    for n in 0..200 {
        let got = message(&mut events).await;
        assert_eq!((got.topic, got.payload), (format!("t/{}", n % 100), n.to_string().into_bytes()));
    }
}

#[tokio::test]
async fn many_publishes_are_on_their_way_at_once_and_arrive_in_order() {
    let broker = TestBroker::start(Config::default()).await;
    let (client, mut events) = connect(&broker, "c").await;
    client.subscribe(&[("t", QoS::AtLeastOnce)]).await.expect("answered");
    let tasks: Vec<_> = (0..3000)
        .map(|n: u32| {
            let client = client.clone();
            tokio::spawn(async move { client.publish(Publish::new("t", n.to_string()).qos(QoS::AtLeastOnce)).await })
        })
        .collect();
    let mut seen = Vec::new();
    for _ in 0..3000 {
        seen.push(String::from_utf8(message(&mut events).await.payload).expect("text"));
    }
    for task in tasks {
        task.await.expect("no panic").expect("accepted");
    }
    seen.sort_by_key(|n| n.parse::<u32>().expect("a number"));
    assert!(seen.iter().enumerate().all(|(n, text)| n.to_string() == *text));
}

#[tokio::test]
async fn refusals_carry_the_brokers_words() {
    let broker = TestBroker::start(Config::default()).await;
    let (client, _events) = connect(&broker, "c").await;
    let refused = client.publish(Publish::new("$SYS/mine", "x").qos(QoS::AtLeastOnce)).await;
    assert!(
        matches!(refused, Err(Error::Refused { reason: ReasonCode::NOT_AUTHORIZED, text: Some(_) })),
        "{refused:?}"
    );
    let deep = "/".repeat(200);
    let codes = client.subscribe(&[("good", QoS::AtMostOnce), (&deep, QoS::AtMostOnce)]).await.expect("answered");
    assert_eq!(codes, [ReasonCode::SUCCESS, ReasonCode::TOPIC_FILTER_INVALID]);
    let none = client.publish(Publish::new("nobody", "x").qos(QoS::AtLeastOnce)).await.expect("accepted");
    assert_eq!(none.reason, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(client.unsubscribe(&["good", "good"]).await.expect("answered")[0], ReasonCode::SUCCESS);
}

#[tokio::test]
async fn a_taken_over_client_learns_why() {
    let broker = TestBroker::start(Config::default()).await;
    let (first, mut events) = connect(&broker, "same").await;
    let (_second, _events) = connect(&broker, "same").await;
    let reason = end(&mut events).await;
    assert!(matches!(reason, Error::Ended { reason: ReasonCode::SESSION_TAKEN_OVER, .. }), "{reason:?}");
    assert!(first.publish(Publish::new("t", "x").qos(QoS::AtLeastOnce)).await.is_err());
}

#[tokio::test]
async fn a_dropped_client_leaves_its_will_and_a_departing_one_does_not() {
    let broker = TestBroker::start(Config::default()).await;
    let (watcher, mut events) = connect(&broker, "watcher").await;
    watcher.subscribe(&[("will/#", QoS::AtLeastOnce)]).await.expect("answered");
    for (id, leaves) in [("polite", true), ("gone", false)] {
        let will = Will::new(Publish::new(format!("will/{id}"), "x").qos(QoS::AtLeastOnce));
        let (client, _) = Client::connect(options(&broker, id).will(will)).await.expect("accepted");
        if leaves {
            client.disconnect().await;
        }
    }
    assert_eq!(message(&mut events).await.topic, "will/gone");
}

#[tokio::test]
async fn what_was_not_acknowledged_is_sent_again_on_the_next_connection() {
    let broker = TestBroker::start(Config::default()).await;
    let (watcher, mut seen) = connect(&broker, "watcher").await;
    watcher.subscribe(&[("t", QoS::AtLeastOnce)]).await.expect("answered");
    let kept = |broker: &TestBroker| options(broker, "p").clean_start(false).session_expiry(60);
    let (client, mut events) = Client::connect(kept(&broker)).await.expect("accepted");
    // Its own connection ends before it can have been acknowledged; the watcher's too, so it comes
    // back.
    let publish = client.publish(Publish::new("t", "precious").qos(QoS::AtLeastOnce));
    tokio::pin!(publish);
    assert!(futures_poll_once(publish.as_mut()).await.is_none(), "nothing is acknowledged at once");
    broker.cut_all();
    end(&mut events).await;
    end(&mut seen).await;
    assert!(publish.await.is_err());
    let session = client.session();
    let (watcher, mut seen) = connect(&broker, "watcher").await;
    watcher.subscribe(&[("t", QoS::AtLeastOnce)]).await.expect("answered");
    if session.unacknowledged() == 1 {
        let (again, _events) = Client::connect(kept(&broker).session(session.clone())).await.expect("accepted");
        assert_eq!(message(&mut seen).await.payload, b"precious");
        assert!(again.session_present());
        let mut resent = again.resent();
        assert_eq!(resent.iter().map(|receipt| receipt.number()).collect::<Vec<_>>(), [1]);
        assert!(resent[0].acknowledged().await.is_ok(), "what is sent again is answered too");
        assert!(again.resent().is_empty(), "each is given once");
        again.publish(Publish::new("t", "next").qos(QoS::ExactlyOnce)).await.expect("accepted");
        assert_eq!(session.unacknowledged(), 0);
    } else {
        panic!("the publish was neither acknowledged nor kept");
    }
}

/// Numbers that come until the one that is sought, itself included.
async fn numbers_until(events: &mut Events, last: u32) -> Vec<u32> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        numbers.push(String::from_utf8(message(events).await.payload).expect("digits").parse().expect("a number"));
    }
    numbers
}

#[tokio::test]
async fn what_was_not_taken_comes_on_the_next_connection_and_nothing_else() {
    let broker = TestBroker::start(Config::default()).await;
    for (qos, says_goodbye) in [(QoS::AtLeastOnce, true), (QoS::ExactlyOnce, true), (QoS::ExactlyOnce, false)] {
        let options = options(&broker, "desk").clean_start(false).session_expiry(60);
        let (client, mut events) = Client::connect(options.clone()).await.expect("accepted");
        client.subscribe(&[("order", qos)]).await.expect("answered");
        let (publisher, _events) = connect(&broker, "clerk").await;
        for n in 1..=30 {
            publisher.publish(Publish::new("order", n.to_string()).qos(qos)).await.expect("accepted");
        }
        assert_eq!(numbers_until(&mut events, 10).await, Vec::from_iter(1..=10));
        // Behind this answer all of them wait in the client.
        events.during(client.subscribe(&[("another", qos)])).await.expect("answered");
        if says_goodbye {
            client.disconnect().await;
        } else {
            // What the client has acknowledged may not have been written.
            client.abandon();
        }
        let (client, mut later) = Client::connect(options.session(client.session())).await.expect("accepted");
        assert_eq!(numbers_until(&mut later, 30).await, Vec::from_iter(11..=30), "{qos:?}, goodbye: {says_goodbye}");
        let left = events.next().await;
        assert!(matches!(left, Some(Event::Disconnected { .. })), "it came there, and from here once more: {left:?}");
        client.disconnect().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_sent_is_not_in_the_session() {
    let broker = TestBroker::start(Config::default()).await;
    let (client, mut events) = connect(&broker, "c").await;
    let (sender, taken) = (client.clone(), tokio::sync::watch::Sender::new(0_usize));
    let mut first = taken.subscribe();
    let sending = tokio::spawn(async move {
        let mut receipts = Vec::new();
        while let Ok(receipt) = sender.send(Publish::new("t", "x").qos(QoS::AtLeastOnce)).await {
            receipts.push(receipt);
            taken.send_replace(receipts.len());
        }
        receipts
    });
    first.wait_for(|taken| *taken > 100).await.expect("it goes on");
    client.abandon();
    end(&mut events).await;
    let taken: BTreeSet<u64> = sending.await.expect("it ends").iter().map(Receipt::number).collect();
    let again = options(&broker, "c").session(client.session());
    let (again, _events) = Client::connect(again).await.expect("accepted");
    assert!(again.resent().iter().all(|receipt| taken.contains(&receipt.number())), "nobody was told of it");
}

#[tokio::test]
async fn an_abandoned_connection_ends_without_a_goodbye() {
    let broker = TestBroker::start(Config::default()).await;
    let (watcher, mut seen) = connect(&broker, "watcher").await;
    watcher.subscribe(&[("gone", QoS::AtMostOnce)]).await.expect("answered");
    let will = Will::new(Publish::new("gone", "c"));
    let (client, mut events) = Client::connect(options(&broker, "c").will(will)).await.expect("accepted");
    client.abandon();
    assert!(matches!(end(&mut events).await, Error::Closed));
    assert!(matches!(client.publish(Publish::new("t", "x")).await, Err(Error::Closed)));
    assert_eq!(message(&mut seen).await.payload, b"c", "the broker publishes the will");
}

#[tokio::test]
async fn a_publishers_own_number_is_a_property() {
    let broker = TestBroker::start(Config::default()).await;
    let (client, mut events) = connect(&broker, "c").await;
    client.subscribe(&[("t", QoS::AtMostOnce)]).await.expect("answered");
    client.publish(Publish::new("t", "x").qos(QoS::AtLeastOnce).sequence(7)).await.expect("accepted");
    let properties = message(&mut events).await.properties;
    assert!(properties.contains(&("w-seq".to_owned(), "7".to_owned())), "{properties:?}");
}

/// Polls a future once.
async fn futures_poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut future = Some(future);
    std::future::poll_fn(move |cx| {
        let polled = future.take().expect("polled once").poll(cx);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn addresses_that_make_no_sense_say_so() {
    for address in ["http://localhost", "mqtt://", "mqtts://127.0.0.1:1"] {
        let error = Client::connect(Options::new(address).timeout(Duration::from_secs(2))).await.expect_err("refused");
        assert!(!error.to_string().is_empty(), "{address}: {error:?}");
    }
}

/// A broker that sends this number of messages before it answers a SUBSCRIBE, as one may.
async fn eager_broker(messages: u32) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let (mut heard, mut is_known, mut answered) = (vec![0; 4096], false, false);
        while let Ok(1..) = stream.read(&mut heard).await {
            let mut said = Vec::new();
            if !is_known {
                is_known = true;
                said.extend([0x20, 3, 0, 0, 0]);
            } else if !answered {
                answered = true;
                // QoS 0, topic "t", no properties, four bytes.
                for number in 0..messages {
                    said.extend([0x30, 8, 0, 1, b't', 0]);
                    said.extend(number.to_be_bytes());
                }
                said.extend([0x90, 4, heard[2], heard[3], 0, 0]);
            }
            stream.write_all(&said).await.expect("the client reads");
        }
    });
    address
}

#[tokio::test]
async fn an_answer_is_found_behind_whatever_comes_before_it() {
    let messages = 5_000;
    let address = eager_broker(messages).await;
    let options = Options::new(format!("mqtt://{address}")).client_id("c");
    let (client, mut events) = Client::connect(options).await.expect("accepted");
    let granted = events.during(client.subscribe(&[("t", QoS::AtMostOnce)])).await.expect("answered");
    assert_eq!(granted, [ReasonCode::SUCCESS]);
    for number in 0..messages {
        assert_eq!(message(&mut events).await.payload, number.to_be_bytes());
    }
}
