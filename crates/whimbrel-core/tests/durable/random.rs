//! Random worlds: publishers that repeat, subscribers that come and go, crashes at every moment.

use std::collections::BTreeMap;

use super::*;
use whimbrel_event::EventId;

/// A small generator: SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

struct Subscriber {
    link: u32,
    name: &'static str,
    qos: Qos,
    here: bool,
    /// Deliveries that it has not answered, and whether they are only to be completed.
    open: Vec<(Got, bool)>,
    /// Its events, in order.
    had: Vec<(EventId, String)>,
    /// The events that it has acknowledged.
    acknowledged: BTreeMap<EventId, u32>,
}

fn take(world: &mut Logged, subscriber: &mut Subscriber) {
    for told in world.rig.take(subscriber.link) {
        match told {
            Told::Event(got) if got.qos == Qos::ExactlyOnce => {
                let known = subscriber.open.iter().any(|(open, _)| open.tag == got.tag);
                if !known {
                    subscriber.had.push((got.id, got.payload.clone()));
                    subscriber.open.push((got, false));
                }
            }
            Told::Event(got) => {
                if subscriber.had.iter().all(|(id, _)| *id != got.id) {
                    subscriber.had.push((got.id, got.payload.clone()));
                }
                subscriber.open.push((got, false));
            }
            Told::Release { tag, .. } => {
                if let Some(open) = subscriber.open.iter_mut().find(|(got, _)| got.tag == tag) {
                    open.1 = true;
                } else {
                    world.rig.settle(subscriber.link, tag, Settlement::Completed);
                }
            }
            _ => {}
        }
    }
}

fn run(seed: u64, qos: Qos) {
    let mut random = Random(seed);
    let mut world = Logged::new();
    let mut published = 0;
    // Publishes without an answer, in order, and those with one.
    let mut waiting: Vec<u64> = Vec::new();
    let mut sure: Vec<u64> = Vec::new();
    let mut publisher_here = false;
    let mut subscribers = [("one", 2), ("two", 3)].map(|(name, link)| Subscriber {
        link,
        name,
        qos,
        here: false,
        open: vec![],
        had: vec![],
        acknowledged: BTreeMap::new(),
    });
    for subscriber in &mut subscribers {
        world.rig.attach(subscriber.link, subscriber.name, KEPT);
        let filters = [plain("t/#", subscriber.qos)];
        world.rig.input(Input::Subscribe { link: Link(subscriber.link), tag: 1, filters: &filters });
        world.settle();
        world.rig.take(subscriber.link);
        subscriber.here = true;
    }
    let publish = |world: &mut Logged, number: u64| {
        let payload = number.to_string();
        let event = event("t/a", &payload, Qos::AtLeastOnce);
        let publish = Publish {
            link: Link(PUB),
            tag: (number % 60_000) as u16 + 1,
            retain: false,
            number: Some(number),
            event: &event,
        };
        world.rig.input(Input::Publish(publish));
    };
    for step in 0..400 {
        if !publisher_here {
            world.rig.attach(PUB, "publisher", CLEAN);
            publisher_here = true;
            for number in waiting.clone() {
                publish(&mut world, number);
            }
        }
        match random.below(12) {
            0..=3 => {
                published += 1;
                waiting.push(published);
                publish(&mut world, published);
            }
            4 => world.submit(),
            5 => world.commit_some(random.below(4) as usize),
            6 => drop(world.serve()),
            7 => world.rig.advance(Duration::from_millis(random.below(30))),
            8 if step % 3 == 0 => {
                world.crash();
                publisher_here = false;
                for subscriber in &mut subscribers {
                    subscriber.here = false;
                    if subscriber.qos == Qos::AtLeastOnce {
                        subscriber.open.clear();
                    }
                }
            }
            which => {
                let subscriber = &mut subscribers[random.below(2) as usize];
                if !subscriber.here {
                    let told = world.rig.attach(subscriber.link, subscriber.name, KEPT);
                    assert_eq!(told, Told::Attached { present: true }, "seed {seed}");
                    subscriber.here = true;
                    if subscriber.qos == Qos::AtLeastOnce {
                        subscriber.open.clear();
                    }
                } else if which == 11 && random.below(4) == 0 {
                    world.rig.detach(subscriber.link, false);
                    world.rig.take(subscriber.link);
                    subscriber.here = false;
                } else {
                    take(&mut world, subscriber);
                    answer(&mut world, subscriber, &mut random);
                }
            }
        }
        for told in world.rig.take(PUB) {
            if let Told::Accepted { tag, result: Accepted::Routed { .. } | Accepted::Repeat } = told {
                let number = u64::from(tag - 1);
                assert!(waiting.contains(&number) || sure.contains(&number), "seed {seed}");
                waiting.retain(|waiting| *waiting != number);
                sure.push(number);
            }
        }
    }
    finish(&mut world, &mut subscribers, &mut sure, seed);
    for subscriber in &subscribers {
        judge(subscriber, &sure, seed);
    }
}

fn answer(world: &mut Logged, subscriber: &mut Subscriber, random: &mut Random) {
    if subscriber.open.is_empty() {
        return;
    }
    let at = random.below(subscriber.open.len().min(3) as u64) as usize;
    let (got, released) = subscriber.open[at].clone();
    match (got.qos, released) {
        (Qos::ExactlyOnce, false) => world.rig.settle(subscriber.link, got.tag, Settlement::Received),
        (Qos::ExactlyOnce, true) => {
            subscriber.open.remove(at);
            world.rig.settle(subscriber.link, got.tag, Settlement::Completed);
        }
        _ => {
            subscriber.open.remove(at);
            world.rig.settle(subscriber.link, got.tag, Settlement::Acknowledged);
        }
    }
    *subscriber.acknowledged.entry(got.id).or_default() += 1;
}

fn finish(world: &mut Logged, subscribers: &mut [Subscriber], sure: &mut Vec<u64>, seed: u64) {
    let mut random = Random(1);
    for subscriber in &mut *subscribers {
        if !subscriber.here {
            world.rig.attach(subscriber.link, subscriber.name, KEPT);
            if subscriber.qos == Qos::AtLeastOnce {
                subscriber.open.clear();
            }
        }
    }
    for round in 0.. {
        assert!(round < 10_000, "seed {seed}: it never ends");
        world.settle();
        let mut any = false;
        for subscriber in &mut *subscribers {
            take(world, subscriber);
            any |= !subscriber.open.is_empty();
            answer(world, subscriber, &mut random);
        }
        if !any {
            break;
        }
    }
    for told in world.rig.take(PUB) {
        if let Told::Accepted { tag, .. } = told {
            sure.push(u64::from(tag - 1));
        }
    }
    world.advance(Duration::from_secs(2));
    assert_eq!(world.disk.events(), 0, "seed {seed}: everything was acknowledged");
    assert_eq!(world.disk.keys(b'i'), 0, "seed {seed}: nothing is in flight");
}

fn judge(subscriber: &Subscriber, sure: &[u64], seed: u64) {
    let name = subscriber.name;
    let had: Vec<u64> = subscriber.had.iter().map(|(_, payload)| payload.parse().unwrap()).collect();
    for number in sure {
        let times = had.iter().filter(|had| *had == number).count();
        assert_eq!(times, 1, "seed {seed}: {name} had {number} {times} times: {had:?}");
    }
    let ids: Vec<_> = subscriber.had.iter().map(|(id, _)| *id).collect();
    assert!(ids.is_sorted(), "seed {seed}: {name} had them out of order: {had:?}");
}

#[test]
fn at_least_once_nothing_is_lost_in_random_worlds() {
    (0..400).for_each(|seed| run(seed, Qos::AtLeastOnce));
}

#[test]
fn exactly_once_nothing_is_lost_or_repeated_in_random_worlds() {
    (0..400).for_each(|seed| run(seed, Qos::ExactlyOnce));
}
