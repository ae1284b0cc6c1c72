//! Brokers of a world that have a disk: what they have written is there when another process is
//! started on their machine.

use std::time::Duration;

use whimbrel_core::store::{Disk, Fetched, Restoring};
use whimbrel_core::{Profile, TopicPaths};
use whimbrel_event::Time;
use whimbrel_journal::twin::Twin;
use whimbrel_mqtt::{Config, Input, MqttBroker};

use super::net::{Fabric, Item};
use crate::disk::{Driver, EVENT_BYTES_MAX, News, Pace};
use crate::engine::{BrokerStream, LogDisk, TwinMark};
use crate::random::Random;

/// How long commits take.
const PACES: [Pace; 3] = [
    Pace { least: Duration::from_micros(100), most: Duration::from_micros(200) },
    Pace { least: Duration::from_millis(1), most: Duration::from_millis(5) },
    Pace { least: Duration::from_millis(1), most: Duration::from_millis(100) },
];

/// How many of 1,000 processes with a stream end with their disk.
const WITH_DISK_PERMILLE: u64 = 600;

/// Called before a broker reads what was written.
pub(super) type Prepare = dyn Fn(&mut Restoring);

/// The disk of a machine, and the driver that writes to it.
pub(super) struct Log {
    disk: State,
    /// The stream that has all that is written, if there is an engine.
    stream: Option<BrokerStream>,
    /// The mark of the disk.
    mark: TwinMark,
    profiles: Vec<Profile>,
    pace: Pace,
    random: Random,
}

enum State {
    /// No process runs.
    Off(Twin),
    On(Box<Driver>),
    /// While changing from one state to the other.
    Between,
}

/// What holds for all topics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TopicTerms {
    /// Their deadline, if they have one.
    pub(super) deadline: Option<Duration>,
    /// The paths of their events, if they have one.
    pub(super) paths: TopicPaths,
}

impl TopicTerms {
    /// Profiles by which these terms hold for all topics.
    fn of_all(self, mut profiles: Vec<Profile>) -> Vec<Profile> {
        let TopicTerms { deadline, paths } = self;
        if deadline.is_some() {
            if profiles.iter().all(|profile| &*profile.filter != "#") {
                profiles.push(Profile { filter: "#".into(), ..Profile::default() });
            }
            profiles.iter_mut().for_each(|profile| (profile.deadline, profile.paths) = (deadline, paths));
        }
        profiles
    }
}

/// A broker without a disk, for all of whose topics these terms hold.
pub(super) fn diskless(config: Config, seed: u64, now: Time, terms: TopicTerms) -> MqttBroker {
    let mut broker = MqttBroker::new(config, seed, now);
    broker.set_profiles(terms.of_all(Vec::new()));
    broker
}

impl Log {
    /// An empty disk. `profiles`: the topics whose events are logged in any case.
    pub(super) fn new(profiles: Vec<Profile>, mut random: Random) -> Log {
        let pace = *random.pick(&PACES);
        Log { disk: State::Off(Twin::new()), stream: None, mark: TwinMark::default(), profiles, pace, random }
    }

    /// An empty disk for a log that has that stream, too.
    pub(super) fn on(stream: BrokerStream, profiles: Vec<Profile>, random: Random) -> Log {
        Log { stream: Some(stream), ..Log::new(profiles, random) }
    }

    /// Another disk for the log of this one's stream.
    pub(super) fn successor(&mut self) -> Log {
        let stream = self.stream.clone().expect("only a log on an engine has a successor");
        Log::on(stream, self.profiles.clone(), self.random.fork())
    }

    /// Whether an engine has it, too.
    pub(super) fn is_on_engine(&self) -> bool {
        self.stream.is_some()
    }

    /// The disk of a broker for all of whose topics these terms hold.
    pub(super) fn with_terms(&mut self, terms: TopicTerms) -> &mut Log {
        self.profiles = terms.of_all(core::mem::take(&mut self.profiles));
        self
    }

    /// A broker restored from what was written.
    pub(super) fn open(&mut self, mut config: Config, (seed, now): (u64, Time), prepare: &Prepare) -> MqttBroker {
        let State::Off(twin) = core::mem::replace(&mut self.disk, State::Between) else {
            panic!("one process at a time has the disk");
        };
        config.core.logged_event_bytes = EVENT_BYTES_MAX;
        config.core.has_successors = self.stream.is_some();
        let disk = match &self.stream {
            Some(stream) => stream.take(twin, &self.mark, &mut self.random),
            None => LogDisk::plain(twin),
        };
        let (driver, found) = Driver::open(disk, self.pace, self.random.fork());
        self.disk = State::On(Box::new(driver));
        let mut restoring = Restoring::default();
        restoring.set_profiles(self.profiles.clone());
        prepare(&mut restoring);
        for (key, value) in &found.entries {
            restoring.entry(key, value).expect("what a broker writes, another reads");
        }
        let broker = MqttBroker::restored(config, seed, now, restoring, &found.state);
        let mut broker = broker.expect("what was written makes sense");
        broker.set_profiles(self.profiles.clone());
        broker
    }

    /// The process ends, and what was not synced may be lost. With a stream the disk may be.
    pub(super) fn crash(&mut self) {
        if let State::On(driver) = core::mem::replace(&mut self.disk, State::Between) {
            let is_lost = self.stream.is_some() && self.random.chance(WITH_DISK_PERMILLE);
            let mut twin = driver.crash();
            if is_lost {
                (twin, self.mark) = (Twin::new(), TwinMark::default());
            }
            self.disk = State::Off(twin);
        }
    }

    pub(super) fn driver(&mut self) -> Option<&mut Driver> {
        match &mut self.disk {
            State::On(driver) => Some(driver),
            State::Off(_) | State::Between => None,
        }
    }
}

impl Fabric {
    /// Whether a broker takes no bytes of clients at present.
    pub(super) fn is_congested(&self, node: usize) -> bool {
        let known = &self.nodes[node];
        !known.held.is_empty() || known.broker.as_ref().is_some_and(MqttBroker::is_congested)
    }

    /// The end of a turn: submits what the broker wants written.
    pub(super) fn submit(&mut self, node: usize) {
        let now = self.now;
        let known = &mut self.nodes[node];
        if known.log.is_none() {
            return;
        }
        let clock = known.clock(now);
        if let Some(broker) = &mut known.broker {
            broker.flush(clock);
        }
        loop {
            let known = &mut self.nodes[node];
            let (Some(broker), Some(log)) = (&mut known.broker, &mut known.log) else { return };
            let Some(news) = log.driver().and_then(|driver| driver.submit(now, broker)) else { break };
            self.tell_news(node, news);
        }
        let next = self.nodes[node].log.as_mut().and_then(Log::driver).and_then(|driver| driver.next_change());
        self.plan(Item::Disk(node), next);
        self.plan_node(node);
    }

    /// A disk has made progress.
    pub(super) fn disk_changed(&mut self, node: usize) {
        let now = self.now;
        let driver = self.nodes[node].log.as_mut().and_then(Log::driver);
        let news = driver.map_or(Vec::new(), |driver| driver.change(now));
        if let (Some(logged), Some(driver)) = (&mut self.logged, self.nodes[node].log.as_mut().and_then(Log::driver)) {
            logged.extend(driver.logged().into_iter().map(|record| (node, record)));
        }
        for news in news {
            self.tell_news(node, news);
        }
        self.submit(node);
        // The bytes that clients sent meanwhile, in order.
        while self.nodes[node].broker.as_ref().is_some_and(|broker| !broker.is_congested())
            && let Some((conn, bytes)) = self.nodes[node].held.pop_front()
        {
            self.handle_once(node, Input::Bytes { conn, bytes: &bytes });
            self.submit(node);
        }
    }

    fn tell_news(&mut self, node: usize, news: News) {
        let is_on_engine = self.nodes[node].log.as_ref().is_some_and(Log::is_on_engine);
        match news {
            // The process ends.
            News::Disk(Disk::Poisoned) if is_on_engine => self.owners.ended.push(node),
            News::Committed(upto) => self.handle_once(node, Input::Committed { upto }),
            News::Disk(disk) => self.handle_once(node, Input::Disk(disk)),
            News::Fetched(slice) => {
                let records: Vec<_> = slice.records.iter().map(|(tick, body)| (*tick, body.as_slice())).collect();
                let fetched = Fetched { number: slice.number, records: &records, upto: slice.upto, lost: None };
                self.handle_once(node, Input::Fetched(fetched));
            }
        }
    }
}
