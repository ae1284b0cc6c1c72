//! Subscriptions that survive their connections, against the real state machine.

use std::time::Duration;

use crate::common::TestBroker;
use whimbrel_client::{
    Client, Durability, Error, Event, Followed, Follower, Options, Position, Publish, QoS, ReasonCode, Start,
    Subscription,
};
use whimbrel_mqtt::Config;

fn options(broker: &TestBroker, client_id: &str) -> Options {
    Options::new(format!("mqtt://{}", broker.address)).client_id(client_id)
}

fn subscription() -> Subscription {
    Subscription::to("t/#").qos(QoS::AtLeastOnce)
}

async fn publisher(broker: &TestBroker) -> Client {
    Client::connect(options(broker, "publisher")).await.expect("accepted").0
}

async fn publish(client: &Client, n: u32) {
    let message = Publish::new(format!("t/{}", n % 3), n.to_string()).qos(QoS::AtLeastOnce);
    client.publish(message).await.expect("accepted");
}

async fn next(follower: &mut Follower) -> Followed {
    let next = tokio::time::timeout(Duration::from_secs(20), follower.next()).await;
    next.expect("in time").expect("it goes on")
}

/// The next message; connections may be lost and found before.
async fn message(follower: &mut Follower) -> u32 {
    loop {
        if let Followed::Message(message) = next(follower).await {
            assert!(message.id().is_some(), "{message:?}");
            return String::from_utf8(message.payload).expect("text").parse().expect("a number");
        }
    }
}

#[tokio::test]
async fn nothing_is_missed_or_repeated_however_often_the_connection_breaks() {
    let broker = TestBroker::start(Config::default()).await;
    let mut follower = Follower::start(options(&broker, "f"), subscription()).await.expect("subscribed");
    let mut expected = 0;
    for round in 0..5 {
        let publisher = publisher(&broker).await;
        for n in round * 10..round * 10 + 5 {
            publish(&publisher, n).await;
        }
        // Some are taken, some have arrived here and are not taken, and some are on their way.
        for _ in 0..3 {
            assert_eq!(message(&mut follower).await, expected);
            expected += 1;
        }
        broker.cut_all();
        let publisher = self::publisher(&broker).await;
        for n in round * 10 + 5..(round + 1) * 10 {
            publish(&publisher, n).await;
        }
    }
    while expected < 50 {
        assert_eq!(message(&mut follower).await, expected);
        expected += 1;
    }
    let silent = tokio::time::timeout(Duration::from_millis(100), follower.next()).await;
    assert!(silent.is_err(), "{silent:?}");
}

#[tokio::test]
async fn a_position_goes_on_in_another_program() {
    let broker = TestBroker::start(Config::default()).await;
    let publisher = publisher(&broker).await;
    let mut first = Follower::start(options(&broker, "a"), subscription()).await.expect("subscribed");
    for n in 0..4 {
        publish(&publisher, n).await;
    }
    assert_eq!((message(&mut first).await, message(&mut first).await), (0, 1));
    let text = first.close().await.to_string();
    publish(&publisher, 4).await;
    let position: Position = text.parse().expect("what was printed is read");
    let from = subscription().from(Start::After(position));
    let mut second = Follower::start(options(&broker, "b"), from).await.expect("subscribed");
    for n in 2..5 {
        assert_eq!(message(&mut second).await, n);
    }
}

#[tokio::test]
async fn what_was_read_ahead_and_not_taken_is_not_part_of_the_position() {
    let broker = TestBroker::start(Config::default()).await;
    let publisher = publisher(&broker).await;
    let mut follower = Follower::start(options(&broker, "f"), subscription()).await.expect("subscribed");
    let before = follower.position().clone();
    publish(&publisher, 0).await;
    publish(&publisher, 1).await;
    assert_eq!(*follower.position(), before);
    assert_eq!(message(&mut follower).await, 0);
    let one = follower.position().clone();
    assert_ne!(one, before);
    assert_eq!(message(&mut follower).await, 1);
    assert_ne!(*follower.position(), one);
}

#[tokio::test]
async fn a_client_id_that_is_used_elsewhere_ends_it() {
    let broker = TestBroker::start(Config::default()).await;
    let mut follower = Follower::start(options(&broker, "same"), subscription()).await.expect("subscribed");
    let _other = Client::connect(options(&broker, "same")).await.expect("accepted");
    let error = follower.next().await.expect_err("two would take it from each other for ever");
    assert!(matches!(error, Error::Ended { reason: ReasonCode::SESSION_TAKEN_OVER, .. }), "{error:?}");
}

#[tokio::test]
async fn a_refused_start_carries_the_brokers_words() {
    let broker = TestBroker::start(Config::default()).await;
    let from = subscription().from(Start::Since("yesterday".to_owned()));
    let error = Follower::start(options(&broker, "f"), from).await.expect_err("no time");
    let Error::NotSubscribed { reason: ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, text: Some(text) } = &error else {
        panic!("{error:?}")
    };
    assert!(text.contains("w-from") && !error.is_temporary(), "{text}");
}

#[tokio::test]
async fn positions_are_acknowledged_where_the_subscription_says_so() {
    let broker = TestBroker::start(Config::default()).await;
    let publisher = publisher(&broker).await;
    let by_token = subscription().acknowledged_by_token().identifier(7);
    let mut follower = Follower::start(options(&broker, "f"), by_token).await.expect("subscribed");
    publish(&publisher, 0).await;
    assert_eq!(message(&mut follower).await, 0);
    follower.acknowledge().await.expect("the broker takes it");
    let mut plain = Follower::start(options(&broker, "g"), subscription()).await.expect("subscribed");
    let refused = plain.acknowledge().await.expect_err("nobody asked for that");
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
}

#[tokio::test]
async fn an_answer_comes_behind_more_than_waits_in_the_client() {
    let broker = TestBroker::start(Config::default()).await;
    let publisher = publisher(&broker).await;
    let by_token = subscription().acknowledged_by_token().identifier(7);
    let mut follower = Follower::start(options(&broker, "f"), by_token).await.expect("subscribed");
    // More than wait in the client until it reads no more.
    let count = 3_000;
    for n in 0..count {
        publish(&publisher, n).await;
    }
    follower.acknowledge().await.expect("the broker takes it");
    for n in 0..count {
        assert_eq!(message(&mut follower).await, n);
    }
    follower.acknowledge().await.expect("the broker takes it");
}

#[tokio::test]
async fn the_parts_are_enough_to_come_back_without_a_follower() {
    let broker = TestBroker::start(Config::default()).await;
    let publisher = publisher(&broker).await;
    let asked = subscription().durability(Durability::SemiDurable).notices();
    let (client, mut events) = Client::connect(options(&broker, "c")).await.expect("accepted");
    let answer = client.subscribe_to(&asked).await.expect("answered");
    let mut position = Position::at(answer.tokens().next().flatten().expect("a token"));
    publish(&publisher, 0).await;
    let Some(Event::Message(message)) = events.next().await else { panic!("not a message") };
    position.note(&message);
    drop((client, events));
    publish(&publisher, 1).await;
    let (client, mut events) = Client::connect(options(&broker, "d")).await.expect("accepted");
    client.subscribe_to(&asked.from(Start::After(position))).await.expect("answered");
    let Some(Event::Message(message)) = events.next().await else { panic!("not a message") };
    assert_eq!(message.payload, b"1");
}
