//! Brokers, the links between them, and clients at all of them.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use whimbrel_client::{Client, Event, Events, Options, Publish, QoS};
use whimbrel_lab::relay::Relay;
use whimbrel_sim::wan::{Jitter, Loss, WanProfile};

use crate::book::{Book, Desk, History, Kind, Phase};
use crate::broker::Broker;
use crate::publisher::Publisher;
use crate::subscriber::Subscriber;

/// What must come comes by then. A machine whose processors are all taken loses datagrams on its
/// own loopback: a megabyte was seen to wait behind a link, and took longer than 20 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two questions whether everybody reaches everybody.
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// Between two events of one publisher.
const PACE: Duration = Duration::from_millis(16);

/// What a link is like: 5 ms and up to 4 ms more, each way, and one in a hundred datagrams lost.
pub const LINK: WanProfile = WanProfile {
    delay: Duration::from_millis(5),
    jitter: Jitter::Uniform(Duration::from_millis(4)),
    reorders: true,
    loss: Loss::independent(10_000),
    ..WanProfile::PERFECT
};

/// Whether a broker is there for its clients.
#[derive(Clone, Debug)]
pub struct Up {
    /// Which start of it this is, or was.
    pub life: u32,
    /// Where, if it runs.
    pub url: Option<String>,
    /// It was seen to reach all others. A broker that has just begun does not know their streams,
    /// and takes them for lost: roamers wait for this.
    pub whole: bool,
}

/// Several brokers and their clients.
pub struct World {
    pub brokers: Vec<Broker>,
    pub desk: Desk,
    up: Vec<watch::Sender<Up>>,
    /// Which two brokers each joins, the one that dials first.
    relays: Vec<((usize, usize), Relay)>,
    publishers: JoinSet<()>,
    subscribers: JoinSet<()>,
    probes: u32,
}

impl World {
    /// Starts brokers, joined by relays as `edges` say, each from the one that dials to one of a
    /// greater number, and waits until all reach all.
    pub async fn start(count: usize, edges: &[(usize, usize)], profile: WanProfile, seed: u64) -> World {
        World::join((0..count).map(Broker::new).collect(), edges, profile, seed).await
    }

    /// The same of these brokers, none of which runs yet.
    pub async fn join(mut brokers: Vec<Broker>, edges: &[(usize, usize)], profile: WanProfile, seed: u64) -> World {
        let mut relays = Vec::new();
        for from in (0..brokers.len()).rev() {
            for &(_, to) in edges.iter().filter(|(dialing, _)| *dialing == from) {
                assert!(from < to, "who is dialled is started first");
                let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
                let seed = seed + relays.len() as u64;
                let relay = Relay::start(any, brokers[to].overlay, profile, profile, seed).await.expect("a free port");
                brokers[from].peers.push(relay.addr().to_string());
                relays.push(((from, to), relay));
            }
            tokio::task::block_in_place(|| brokers[from].start());
        }
        World::of(brokers, relays).await
    }

    /// Of brokers that run; waits until all reach all.
    pub async fn of(brokers: Vec<Broker>, relays: Vec<((usize, usize), Relay)>) -> World {
        let up = |broker: &Broker| watch::Sender::new(Up { life: broker.life, url: Some(broker.url()), whole: true });
        let up = brokers.iter().map(up).collect();
        let (publishers, subscribers) = (JoinSet::new(), JoinSet::new());
        let desk = Desk::new();
        desk.book().began = (0..brokers.len()).map(|site| ((site, brokers[site].life), Instant::now())).collect();
        let mut world = World { brokers, desk, up, relays, publishers, subscribers, probes: 0 };
        world.converge("at the start").await;
        world
    }

    /// Which brokers are there, as it changes.
    pub fn up(&self) -> Vec<watch::Receiver<Up>> {
        self.up.iter().map(watch::Sender::subscribe).collect()
    }

    /// The relay between two brokers.
    pub fn relay(&self, from: usize, to: usize) -> &Relay {
        let found = self.relays.iter().find(|(edge, _)| *edge == (from, to));
        &found.expect("they are joined").1
    }

    /// A publisher of each kind, and a subscriber of each kind, at every broker. Returns when all
    /// subscriptions are granted.
    pub async fn load(&mut self) {
        for site in 0..self.brokers.len() {
            let of = |kind, qos, filter, least| (kind, qos, filter, least);
            let kinds = [
                of(Kind::Plain, QoS::AtMostOnce, "load/#", None),
                of(Kind::Plain, QoS::AtLeastOnce, "load/+/a", None),
                of(Kind::Notices, QoS::AtLeastOnce, "load/#", None),
                of(Kind::Notices, QoS::AtLeastOnce, "load/+/b", Some(5)),
                of(Kind::Roamer, QoS::AtLeastOnce, "load/#", None),
                of(Kind::Roamer, QoS::AtLeastOnce, "load/#", Some(3)),
            ];
            for (kind, qos, filter, least) in kinds {
                let begun = self.subscribe(site, (kind, qos), (filter, least));
                timeout(PATIENCE, begun).await.expect("it is granted in time").expect("it does not panic");
            }
        }
        for site in 0..self.brokers.len() {
            for (kind, qos) in [QoS::AtMostOnce, QoS::AtLeastOnce].into_iter().enumerate() {
                let number = (2 * site + kind) as u32;
                let (desk, up) = (self.desk.clone(), self.up[site].subscribe());
                let publisher = Publisher { number, site, qos, pace: PACE, desk, up, used: 0 };
                self.publishers.spawn(publisher.work());
            }
        }
    }

    fn subscribe(
        &mut self,
        home: usize,
        (kind, qos): (Kind, QoS),
        (filter, least): (&'static str, Option<u8>),
    ) -> oneshot::Receiver<()> {
        let (begun, receiver) = oneshot::channel();
        let mut book = self.desk.book();
        let index = book.histories.len();
        let condition = least.map_or(String::new(), |least| format!(" >={least}"));
        let subscription = format!("b{home} {kind:?} QoS {} {filter}{condition}", qos as u8);
        book.histories.push(History { subscription, kind, filter, least, seen: Vec::new() });
        drop(book);
        let up = self.up.iter().map(watch::Sender::subscribe).collect();
        let (desk, begun) = (self.desk.clone(), Some(begun));
        let (position, last) = (None, BTreeSet::new());
        self.subscribers.spawn(Subscriber { index, kind, qos, home, desk, up, begun, position, last }.work());
        receiver
    }

    /// `kill -9`.
    pub fn kill(&mut self, site: usize) {
        self.up[site].send_modify(|up| up.url = None);
        tokio::task::block_in_place(|| self.brokers[site].kill());
        self.desk.book().ended.insert((site, self.brokers[site].life));
    }

    /// SIGTERM, and waits until it has ended.
    pub fn end(&mut self, site: usize) {
        self.up[site].send_modify(|up| up.url = None);
        tokio::task::block_in_place(|| self.brokers[site].end());
        self.desk.book().ended.insert((site, self.brokers[site].life));
    }

    /// A broker that was killed, or has ended, begins its next life.
    pub fn restart(&mut self, site: usize) {
        tokio::task::block_in_place(|| self.brokers[site].start());
        let (life, url) = (self.brokers[site].life, Some(self.brokers[site].url()));
        self.desk.book().began.insert((site, life), Instant::now());
        self.up[site].send_replace(Up { life, url, whole: false });
    }

    /// Waits until a client at each broker gets what is published at any broker.
    pub async fn converge(&mut self, when: &str) {
        let begun = Instant::now();
        self.probes += 1;
        let (round, count) = (self.probes, self.brokers.len());
        let mut clients: Vec<(Client, Events)> = Vec::new();
        for up in &self.up {
            let url = up.borrow().url.clone().expect("all brokers run");
            let (client, events) = Client::connect(Options::new(url)).await.expect("it takes clients");
            client.subscribe(&[("probe/#", QoS::AtMostOnce)]).await.expect("granted");
            clients.push((client, events));
        }
        let seen: Arc<watch::Sender<BTreeSet<(usize, String)>>> = Arc::default();
        let mut listeners = JoinSet::new();
        let mut senders = Vec::new();
        for (site, (client, mut events)) in clients.into_iter().enumerate() {
            senders.push(client);
            let seen = seen.clone();
            listeners.spawn(async move {
                while let Some(Event::Message(message)) = events.next().await {
                    seen.send_if_modified(|seen| seen.insert((site, message.topic.clone())));
                }
            });
        }
        let all = async {
            let mut pace = interval(PROBE_EVERY);
            let mut news = seen.subscribe();
            while news.borrow_and_update().iter().filter(|(_, topic)| topic.contains(&format!("/{round}/"))).count()
                < count * count
            {
                pace.tick().await;
                for (site, client) in senders.iter().enumerate() {
                    let publish = Publish::new(format!("probe/{round}/{site}"), "?").qos(QoS::AtLeastOnce);
                    client.publish(publish).await.expect("its broker lives");
                }
            }
        };
        if timeout(PATIENCE, all).await.is_err() {
            self.tell_logs();
            self.brokers.iter().for_each(|broker| println!("--- {} knows:\n{}", broker.name, broker.knowledge()));
            panic!("{when} not everybody reaches everybody: {:?}", seen.borrow());
        }
        self.desk.book().whole.push(Instant::now());
        self.up.iter().for_each(|up| up.send_modify(|up| up.whole = true));
        println!("{when} all reach all after {:.1} s", begun.elapsed().as_secs_f64());
    }

    /// Lets publishers and subscribers end; gives what they saw.
    pub async fn finish(&mut self) -> Book {
        self.converge("at the end").await;
        self.desk.phase.send_replace(Phase::Last);
        let publishers = async { while self.publishers.join_next().await.is_some_and(|ended| ended.is_ok()) {} };
        timeout(PATIENCE, publishers).await.expect("the last events are acknowledged in time");
        let last = |book: &Book| {
            let last = book.published.iter().filter(|(_, event)| event.last && event.reliable);
            last.map(|(name, _)| *name).collect()
        };
        let last = last(&self.desk.book());
        self.desk.phase.send_replace(Phase::Over(last));
        let subscribers = async {
            while let Some(ended) = self.subscribers.join_next().await {
                ended.expect("a subscriber does not panic");
            }
        };
        if timeout(PATIENCE, subscribers).await.is_err() {
            println!("{} subscribers do not have all last events", self.subscribers.len());
            self.subscribers.shutdown().await;
        }
        self.desk.book().clone()
    }

    /// Prints what the brokers have logged.
    pub fn tell_logs(&self) {
        for broker in &self.brokers {
            println!("--- log of {}:\n{}", broker.name, broker.log());
        }
    }
}
