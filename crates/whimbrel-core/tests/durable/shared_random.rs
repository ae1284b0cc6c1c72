//! Random worlds of one shared subscription: members that come, go, subscribe and unsubscribe, and
//! crashes at every moment.

use std::collections::BTreeMap;

use super::random::Random;
use super::*;

const SHARE: &str = "$share/g/t/#";

struct Member {
    link: u32,
    name: &'static str,
    client: Client,
    qos: Qos,
    here: bool,
    /// Deliveries that it has not answered.
    open: Vec<Got>,
    /// Tags that it is to forget.
    released: Vec<u16>,
}

impl Member {
    fn enter(&mut self, world: &mut Logged) {
        world.rig.attach(self.link, self.name, self.client.clone());
        self.here = true;
        self.forget();
        self.subscribe(world);
    }

    fn leave(&mut self, world: &mut Logged) {
        self.take(world);
        world.rig.detach(self.link, false);
        world.rig.take(self.link);
        self.here = false;
    }

    /// A connection has ended: unanswered deliveries come again, or go to other members.
    fn forget(&mut self) {
        self.open.clear();
        self.released.clear();
    }

    fn subscribe(&mut self, world: &mut Logged) {
        let filters = [plain(SHARE, self.qos)];
        world.rig.input(Input::Subscribe { link: Link(self.link), tag: 1, filters: &filters });
    }

    fn take(&mut self, world: &mut Logged) {
        for told in world.rig.take(self.link) {
            match told {
                Told::Event(got) => {
                    self.open.retain(|open| open.tag != got.tag);
                    self.open.push(got);
                }
                Told::Release { tag, .. } => self.released.push(tag),
                Told::Subscribed(results) => assert!(results[0].is_ok(), "{results:?}"),
                _ => {}
            }
        }
    }

    /// Answers one delivery; returns the event if that confirms that the member has it.
    fn answer(&mut self, world: &mut Logged, random: &mut Random) -> Option<u64> {
        if let Some(tag) = self.released.pop() {
            world.rig.settle(self.link, tag, Settlement::Completed);
            return None;
        }
        if self.open.is_empty() {
            return None;
        }
        let got = self.open.remove(random.below(self.open.len() as u64) as usize);
        match got.qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => world.rig.settle(self.link, got.tag, Settlement::Acknowledged),
            Qos::ExactlyOnce => world.rig.settle(self.link, got.tag, Settlement::Received),
        }
        Some(got.payload.parse().expect("a number"))
    }
}

struct World {
    seed: u64,
    world: Logged,
    random: Random,
    members: [Member; 4],
    published: u64,
    /// Publishes without an answer, in order, and those with one.
    waiting: Vec<u64>,
    sure: Vec<u64>,
    /// How often members confirmed each event.
    had: BTreeMap<u64, usize>,
}

impl World {
    fn new(seed: u64, qos: Qos) -> World {
        let member = |name, link, client: Client, qos| {
            let (here, open, released) = (false, vec![], vec![]);
            Member { link, name, client, qos, here, open, released }
        };
        let few = |client: Client| Client { window: 3, ..client };
        let mut members = [
            member("anchor", 11, few(KEPT), qos),
            member("kept", 12, KEPT, qos),
            member("fleeting", 13, few(CLEAN), Qos::AtLeastOnce),
            member("other", 14, few(KEPT), Qos::AtLeastOnce),
        ];
        let mut world = Logged::new();
        members[0].enter(&mut world);
        world.settle();
        world.rig.attach(PUB, "publisher", CLEAN);
        let (random, had) = (Random(seed), BTreeMap::new());
        World { seed, world, random, members, published: 0, waiting: vec![], sure: vec![], had }
    }

    fn publish(&mut self, number: u64) {
        let payload = number.to_string();
        let qos = if number.is_multiple_of(2) { Qos::AtLeastOnce } else { Qos::ExactlyOnce };
        let event = event("t/a", &payload, qos);
        let tag = number as u16 + 1;
        let publish = Publish { link: Link(PUB), tag, retain: false, number: Some(number), event: &event };
        self.world.rig.input(Input::Publish(publish));
    }

    fn crash(&mut self) {
        self.world.crash();
        for member in &mut self.members {
            member.here = false;
            member.forget();
        }
        self.world.rig.attach(PUB, "publisher", CLEAN);
        self.waiting.clone().into_iter().for_each(|number| self.publish(number));
    }

    fn step(&mut self, crashes: bool) {
        let World { world, random, members, .. } = self;
        match random.below(13) {
            0..=2 => {
                self.published += 1;
                self.waiting.push(self.published);
                self.publish(self.published);
            }
            3 => world.submit(),
            4 => world.commit_some(random.below(4) as usize),
            5 => drop(world.serve()),
            6 => world.rig.advance(Duration::from_millis(random.below(30))),
            7 if crashes && random.below(6) == 0 => self.crash(),
            which => {
                let at = random.below(4) as usize;
                let member = &mut members[at];
                match which {
                    _ if !member.here => {
                        if random.below(3) == 0 {
                            member.enter(world);
                        }
                    }
                    12 if random.below(4) == 0 => member.leave(world),
                    11 if at > 0 && random.below(4) == 0 => {
                        world.rig.input(Input::Unsubscribe { link: Link(member.link), tag: 1, filters: &[SHARE] });
                    }
                    11 => member.subscribe(world),
                    // Its unacknowledged at-least-once deliveries go to other members; exactly-once
                    // ones might go to none.
                    10 if at == 3 && random.below(4) == 0 => {
                        world.rig.input(Input::DropSession { client_id: member.name });
                        world.rig.take(member.link);
                        member.here = false;
                    }
                    _ => {
                        member.take(world);
                        let had = member.answer(world, random);
                        had.into_iter().for_each(|number| *self.had.entry(number).or_default() += 1);
                    }
                }
            }
        }
        self.hear();
    }

    /// The answers to the publisher.
    fn hear(&mut self) {
        for told in self.world.rig.take(PUB) {
            if let Told::Accepted { tag, result: Accepted::Routed { .. } | Accepted::Repeat } = told {
                let number = u64::from(tag - 1);
                self.waiting.retain(|waiting| *waiting != number);
                self.sure.push(number);
            }
        }
    }

    /// All that are kept come back, and settle everything.
    fn finish(&mut self) {
        for member in &mut self.members {
            if !member.here {
                member.enter(&mut self.world);
            }
        }
        for round in 0.. {
            assert!(round < 10_000, "seed {}: it never ends", self.seed);
            self.world.settle();
            let mut any = false;
            for member in &mut self.members {
                member.take(&mut self.world);
                any |= !(member.open.is_empty() && member.released.is_empty());
                let had = member.answer(&mut self.world, &mut self.random);
                had.into_iter().for_each(|number| *self.had.entry(number).or_default() += 1);
            }
            if !any {
                break;
            }
        }
        self.hear();
        self.world.advance(Duration::from_secs(2));
        let (seed, stats) = (self.seed, self.world.rig.core.stats());
        assert_eq!(self.world.disk.events(), 0, "seed {seed}: everything was acknowledged");
        assert_eq!(self.world.disk.keys(b'i'), 0, "seed {seed}: nothing is in flight");
        assert_eq!((stats.queued_events, stats.queued_bytes), (0, 0), "seed {seed}");
    }
}

fn run(seed: u64, qos: Qos, crashes: bool) {
    let mut world = World::new(seed, qos);
    (0..400).for_each(|_| world.step(crashes));
    world.finish();
    for number in &world.sure {
        let times = world.had.get(number).copied().unwrap_or(0);
        assert!(times >= 1, "seed {seed}: {number} of {} is lost", world.published);
        assert!(crashes || times == 1, "seed {seed}: {number} was acknowledged {times} times");
    }
    for member in &mut world.members {
        world.world.rig.detach(member.link, false);
        world.world.rig.input(Input::DropSession { client_id: member.name });
    }
    world.world.advance(Duration::from_secs(1));
    let left = [b'd', b'p', b'i', b's'].map(|message| world.world.disk.keys(message));
    assert_eq!(left, [0; 4], "seed {seed}: it ends with its last member");
}

#[test]
fn each_event_is_acknowledged_once_while_the_broker_lives() {
    (0..400).for_each(|seed| run(seed, Qos::AtLeastOnce, false));
    (0..400).for_each(|seed| run(seed, Qos::ExactlyOnce, false));
}

#[test]
fn no_event_is_lost_however_often_the_broker_dies() {
    (0..400).for_each(|seed| run(seed, Qos::AtLeastOnce, true));
    (0..400).for_each(|seed| run(seed, Qos::ExactlyOnce, true));
}
