//! The cost of copies at replicas: 10,000 sessions that acknowledge four deliveries a second each,
//! at a broker that is alone and at one that has a replica.
//!
//! `cargo run --release -p whimbrel-core --example copies`. The times are of both brokers together,
//! and of the links between them here.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/durable/disk.rs"]
mod disk;
#[path = "../tests/overlay/net.rs"]
#[allow(dead_code)]
mod net;

use core::time::Duration;
use std::time::Instant;

use common::{Told, event, plain};
use net::Net;
use whimbrel_core::{Attach, Input, Link, Publish, Settlement};
use whimbrel_event::Qos;

const SESSIONS: u32 = 10_000;
const SECONDS: u32 = 5;
const A_SECOND: u32 = 4;

/// The time taken, and the copies and bytes sent.
fn run(brokers: usize) -> (Duration, u64, u64) {
    let mut net = if brokers > 1 { Net::line(brokers) } else { Net::new(1) };
    net.advance(Duration::from_secs(2));
    let expiry = Duration::from_secs(7 * 24 * 3600);
    for number in 0..=SESSIONS {
        let (link, client_id) = (Link(number), &format!("client-{number}"));
        let attach = Attach {
            link,
            client_id,
            clean_start: true,
            expiry,
            window: 100,
            will: None,
            without_copy: false,
            principal: None,
        };
        net.input(0, Input::Attach(attach));
    }
    net.advance(Duration::from_secs(5));
    for number in 1..=SESSIONS {
        let filter = format!("c/{number}");
        net.input(0, Input::Subscribe { link: Link(number), tag: 1, filters: &[plain(&filter, Qos::AtLeastOnce)] });
    }
    net.advance(Duration::from_secs(10));
    net.nodes[0].side.edges.told.clear();
    let before = net.nodes[0].core.overlay_stats().unwrap_or_default();
    let topics: Vec<String> = (0..=SESSIONS).map(|number| format!("c/{number}")).collect();
    let begin = Instant::now();
    for _ in 0..SECONDS * A_SECOND {
        for number in 1..=SESSIONS {
            let event = event(&topics[number as usize], "x", Qos::AtLeastOnce);
            net.input(0, Input::Publish(Publish { link: Link(0), tag: 7, retain: false, number: None, event: &event }));
            let told = net.nodes[0].side.edges.told.remove(&number).unwrap_or_default();
            for told in told {
                if let Told::Event(got) = told {
                    net.input(0, Input::Settle { link: Link(number), tag: got.tag, by: Settlement::Acknowledged });
                }
            }
            if number % 100 == 0 {
                net.advance(Duration::from_secs(1) / A_SECOND / (SESSIONS / 100));
            }
        }
        net.nodes[0].side.edges.told.clear();
    }
    let took = begin.elapsed();
    let after = net.nodes[0].core.overlay_stats().unwrap_or_default();
    (took, after.copies_out - before.copies_out, after.copies_bytes - before.copies_bytes)
}

fn main() {
    let (alone, ..) = run(1);
    let (with, copies, bytes) = run(2);
    let share = (with.as_secs_f64() - alone.as_secs_f64()) / f64::from(SECONDS) * 100.0;
    println!("{SESSIONS} sessions, {A_SECOND} deliveries a second each, {SECONDS} s");
    println!("alone {alone:?}, with a deputy {with:?}: {share:.1} % of a processor more");
    println!("{copies} copies, {} bytes each", bytes.checked_div(copies).unwrap_or(0));
}
