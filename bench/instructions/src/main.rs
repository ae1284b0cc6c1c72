//! Messages through brokers without sockets: bytes of publishers in, bytes for subscribers out.
//! What is counted runs in [`counted`], and nothing else does: see `scripts/instructions.sh`.
//!
//! `instructions ROUNDS deliver PUBLISHERS SUBSCRIBERS QOS VERSION`: in each round each publisher
//! sends one message of 64 bytes on a topic that all subscribers want; at QoS 1 everything is
//! acknowledged. `full`: one to one, QoS 0, with a full cache. `durable SUBSCRIBERS`: one
//! publisher, QoS 1, and subscribers whose broker has a log that is always durable at once. `hop
//! NODE`: each message goes over three brokers, and the work of one of them is counted. Prints how
//! many deliveries there were.

mod deliver;
mod hop;
mod packets;

use std::env;

use whimbrel_event::Time;
use whimbrel_mqtt::{Input, MqttBroker, Output};

/// The work that is counted.
#[inline(never)]
fn counted(broker: &mut MqttBroker, now: Time, input: Input<'_>, out: &mut impl Output) {
    broker.handle(now, input, out);
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |text: &String| text.parse().unwrap_or_else(|_| panic!("{text:?} is not a whole number"));
    let [rounds, case, rest @ ..] = &arguments[..] else {
        panic!("instructions ROUNDS deliver|full|durable|hop NUMBER…")
    };
    let numbers: Vec<u64> = rest.iter().map(number).collect();
    let delivered = match (case.as_str(), &numbers[..]) {
        ("deliver", &[publishers, subscribers, qos, version]) => {
            let shape = deliver::Shape { publishers, subscribers, qos, version, ..deliver::PLAIN };
            deliver::run(number(rounds), &shape)
        }
        ("full", &[]) => deliver::run(number(rounds), &deliver::Shape { has_small_cache: true, ..deliver::PLAIN }),
        ("durable", &[subscribers]) => {
            let shape = deliver::Shape { subscribers, qos: 1, has_log: true, ..deliver::PLAIN };
            deliver::run(number(rounds), &shape)
        }
        ("hop", &[node]) => hop::run(number(rounds), node),
        _ => panic!("deliver PUBLISHERS SUBSCRIBERS QOS VERSION, full, durable SUBSCRIBERS, or hop NODE"),
    };
    println!("{delivered}");
}
