//! Sessions and positions wander over three real brokers with disks, which are killed and started
//! again: what comes, what comes twice, and how long it takes until everybody is served again.

mod clients;
mod ghost;
mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use whimbrel_client::{EventId, QoS};

use crate::broker::Broker;
use crate::world::{LINK, World};
use clients::{Publisher, Roamer};

/// How often clients go to another broker, all together.
const MOVES: u64 = 200;

/// A broker is killed after this number of moves.
const KILL_AFTER: u64 = 20;

/// It is started again after this number of further events at the other brokers.
const DOWN: u64 = 200;

/// What must come comes by then; at the end, counted anew whenever something due has come.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is still due at the end is counted once in that time.
const COUNTED: Duration = Duration::from_millis(250);

/// What is due at the end has come by then, however steadily it comes.
const LAST_MAX: Duration = Duration::from_secs(120);

/// The time for all moves, whatever happens.
const MOVES_MAX: Duration = Duration::from_secs(60);

/// What a broker logs when a session goes on from what it kept of it while another broker had it.
const COPY_USED: &str = "a session goes on from a copy";

/// Who keeps the position of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The client, by token.
    Client,
    /// The broker, at QoS 2.
    Exactly,
    /// The broker, at QoS 1.
    AtLeast,
}

/// One event as its publisher knows it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Instant,
    pub level: u8,
    pub acknowledged: Option<Instant>,
}

/// How an event came.
#[derive(Clone, Debug)]
pub struct Came {
    pub at: Instant,
    pub broker: usize,
    pub id: Option<EventId>,
    /// The publisher may have repeated it.
    pub maybe_again: bool,
    pub qos: QoS,
    /// In which of the subscriber's connections.
    pub connection: u64,
    /// The connection was about to end, so that it cannot be acknowledged there.
    pub is_late: bool,
}

/// Its publisher, and the publisher's number.
pub type Name = (u32, u64);

/// A connection of a subscriber.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    pub broker: usize,
    /// Since it tried to be there, or anywhere, after the connection before: its session may have
    /// gone from there at once.
    pub sought: Instant,
    /// Its CONNECT was answered.
    pub at: Instant,
}

/// What a subscription got.
#[derive(Clone, Debug)]
pub struct Story {
    pub who: String,
    pub keeper: Keeper,
    pub least: u8,
    pub granted: Option<Instant>,
    /// In the order in which it came.
    pub came: Vec<(Name, Came)>,
    pub gaps: BTreeMap<String, usize>,
    /// Connections that ended with DISCONNECT: what came before that was acknowledged.
    pub clean: BTreeSet<u64>,
    pub attached: BTreeMap<u64, Attached>,
    pub moves: u64,
    /// How often it was refused as no broker knew its session.
    pub refused: u64,
    /// What must not be: a session that is gone, an older connection that stays.
    pub faults: Vec<String>,
}

impl Story {
    fn new(who: String, keeper: Keeper, least: u8) -> Story {
        Story {
            who,
            keeper,
            least,
            granted: None,
            came: Vec::new(),
            gaps: BTreeMap::new(),
            clean: BTreeSet::new(),
            attached: BTreeMap::new(),
            moves: 0,
            refused: 0,
            faults: Vec::new(),
        }
    }
}

/// How brokers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// By `kill -9`; and some connections are lost without their broker noticing.
    Killed,
    /// By SIGTERM, as in a rolling restart.
    Asked,
}

/// What happened to a broker.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    pub broker: usize,
    pub ends: Ends,
    pub at: Instant,
    pub back: Option<Instant>,
}

/// A session went on from a copy.
#[derive(Clone, Debug)]
pub struct CopyUsed {
    /// Its client.
    pub who: String,
    pub at: Instant,
    /// When the copy was made, or a little later: it has a way to its deputy.
    pub made: Instant,
}

#[derive(Clone, Debug, Default)]
pub struct Book {
    pub sent: BTreeMap<Name, Sent>,
    pub stories: Vec<Story>,
    pub kills: Vec<Kill>,
    /// As the brokers have logged it; known at the end.
    pub copies: Vec<CopyUsed>,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Running,
    /// No client moves any more, and publishers wait for their last answers.
    Last,
    Over,
}

/// What all clients of a run share.
#[derive(Clone)]
pub struct Desk {
    book: Arc<Mutex<Book>>,
    pub sent: Arc<watch::Sender<u64>>,
    pub moved: Arc<watch::Sender<u64>>,
    pub phase: Arc<watch::Sender<Phase>>,
    pub ends: Ends,
}

impl Desk {
    fn new(ends: Ends) -> Desk {
        let (sent, moved, phase) = (watch::Sender::new(0), watch::Sender::new(0), watch::Sender::new(Phase::Running));
        Desk { book: Arc::default(), sent: Arc::new(sent), moved: Arc::new(moved), phase: Arc::new(phase), ends }
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nobody panics while writing")
    }

    async fn reach(counter: &watch::Sender<u64>, more: u64) {
        let mut counter = counter.subscribe();
        let until = *counter.borrow() + more;
        counter.wait_for(|count| *count >= until).await.expect("the desk outlives its clients");
    }
}

/// Three brokers with disks, each joined to the others.
async fn brokers() -> World {
    let with_data = |number| {
        let mut broker = Broker::new(number);
        broker.has_data = true;
        broker
    };
    World::join((0..3).map(with_data).collect(), &[(0, 1), (1, 2), (0, 2)], LINK, 41).await
}

/// Three of each kind wander; two publishers stay, and one wanders, too.
async fn populate(world: &World, desk: &Desk) -> [JoinSet<()>; 2] {
    let (mut roamers, mut publishers) = (JoinSet::new(), JoinSet::new());
    let kinds =
        [(Keeper::Client, QoS::AtLeastOnce), (Keeper::Exactly, QoS::ExactlyOnce), (Keeper::AtLeast, QoS::AtLeastOnce)];
    for (home, least) in [0, 3, 0].into_iter().enumerate() {
        for (keeper, qos) in kinds {
            let who = format!("roamer-{home}-{keeper:?}");
            let story = Story::new(who.clone(), keeper, least);
            let index = desk.book().stories.len();
            desk.book().stories.push(story);
            roamers.spawn(Roamer::new(who, (index, home), (keeper, qos, least), desk.clone(), world.up()).work());
        }
    }
    let granted = |desk: &Desk| desk.book().stories.iter().all(|story| story.granted.is_some());
    let all = async {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        while !granted(desk) {
            pace.tick().await;
        }
    };
    timeout(PATIENCE, all).await.expect("all are granted in time");
    for number in 0..3 {
        // What is published at most at QoS 1 is delivered so.
        let qos = if number == 1 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        let (at, wanders, names) = (number as usize, number == 2, BTreeMap::new());
        let publisher = Publisher { number, qos, at, wanders, desk: desk.clone(), up: world.up(), names };
        publishers.spawn(publisher.work());
    }
    [roamers, publishers]
}

/// Kills one broker after the other, or asks it to end, until everybody together has moved often
/// enough.
async fn storm(world: &mut World, desk: &Desk) {
    let mut victim = 0;
    while *desk.moved.borrow() < MOVES {
        Desk::reach(&desk.moved, KILL_AFTER).await;
        let at = Instant::now();
        match desk.ends {
            Ends::Killed => world.kill(victim),
            Ends::Asked => world.end(victim),
        }
        desk.book().kills.push(Kill { broker: victim, ends: desk.ends, at, back: None });
        Desk::reach(&desk.sent, DOWN).await;
        world.restart(victim);
        desk.book().kills.last_mut().expect("just killed").back = Some(Instant::now());
        victim = (victim + 1) % world.brokers.len();
    }
}

/// Waits until all subscriptions have what they are due, or for [`PATIENCE`] none has got any of
/// it.
async fn await_due(desk: &Desk) {
    let mut pace = tokio::time::interval(COUNTED);
    let begun = Instant::now();
    let mut last = (usize::MAX, begun);
    loop {
        pace.tick().await;
        let missing = judge::missing(&desk.book());
        if missing == 0 {
            return;
        }
        if missing < last.0 {
            last = (missing, Instant::now());
        }
        if last.1.elapsed() > PATIENCE || begun.elapsed() > LAST_MAX {
            println!("{missing} deliveries are still due after {:?}", begun.elapsed());
            return;
        }
    }
}

/// Publishers end, and then everybody waits for what is still due.
async fn finish(desk: &Desk, [mut roamers, mut publishers]: [JoinSet<()>; 2]) -> Book {
    desk.phase.send_replace(Phase::Last);
    let all = async {
        while let Some(ended) = publishers.join_next().await {
            ended.expect("no publisher panics");
        }
    };
    let mut faults = Vec::new();
    if timeout(PATIENCE, all).await.is_err() {
        faults.push("not all events are acknowledged".to_owned());
    }
    await_due(desk).await;
    desk.phase.send_replace(Phase::Over);
    let all = async {
        while let Some(ended) = roamers.join_next().await {
            ended.expect("no roamer panics");
        }
    };
    if timeout(PATIENCE, all).await.is_err() {
        faults.push(format!("{} roamers do not end", roamers.len()));
        roamers.shutdown().await;
    }
    let mut book = desk.book();
    book.stories[0].faults.extend(faults);
    book.clone()
}

/// The sessions that went on from copies, as a broker's log says.
fn copies_used(log: &str) -> Vec<CopyUsed> {
    let (now, present) = (Instant::now(), SystemTime::now());
    let used = log.lines().filter(|line| line.contains(COPY_USED)).map(|line| {
        let moment = line.split_whitespace().next().and_then(|moment| humantime::parse_rfc3339(moment).ok());
        let ago = present.duration_since(moment.expect("a line begins with its moment")).unwrap_or_default();
        let value = |name: &str| line.split_once(name).expect("it says so").1.split([' ', '"']).next().unwrap_or("");
        let at = now - ago;
        let age = value("age_ms=").parse().expect("a number");
        CopyUsed { who: value("client=\"").to_owned(), at, made: at - Duration::from_millis(age) }
    });
    used.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_roams_over_brokers_that_are_killed_misses_nothing() {
    roam(Ends::Killed).await;
}

/// Each broker ends and begins again several times: a rolling restart, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_roams_over_brokers_that_are_restarted_one_by_one_misses_nothing_and_gets_nothing_twice() {
    let book = roam(Ends::Asked).await;
    let again: usize = judge::judge(&book).iter().map(|verdict| verdict.again_exactly).sum();
    assert_eq!(again, 0, "nothing comes twice at QoS 2: whoever goes on has all that was known");
}

async fn roam(ends: Ends) -> Book {
    let mut world = brokers().await;
    let desk = Desk::new(ends);
    let clients = populate(&world, &desk).await;
    let is_done = timeout(MOVES_MAX, storm(&mut world, &desk)).await.is_ok();
    if !is_done {
        println!("only {} moves in {MOVES_MAX:?}", *desk.moved.borrow());
        world.tell_logs();
    }
    if is_done {
        world.converge("at the end").await;
    }
    let mut book = finish(&desk, clients).await;
    book.copies = world.brokers.iter().flat_map(|broker| copies_used(&broker.log())).collect();
    let report = judge::report(&book);
    let is_twice = ends == Ends::Asked && judge::judge(&book).iter().any(|verdict| verdict.again_exactly > 0);
    if is_done && (is_twice || !report.is_empty()) {
        world.tell_logs();
    }
    assert!(report.is_empty(), "\n{report}");
    assert!(is_done, "too few moves");
    book
}

#[test]
fn a_broker_says_in_its_log_which_sessions_went_on_from_copies() {
    let log = "2026-11-24T22:58:17.496749Z  INFO whimbrel starts name=\"b0\"\n\
        2026-11-24T22:58:24.172666Z DEBUG a session goes on from a copy client=\"roamer-1-Exactly\" age_ms=250\n";
    let used = copies_used(log);
    assert_eq!(used.len(), 1);
    assert_eq!((&*used[0].who, used[0].at - used[0].made), ("roamer-1-Exactly", Duration::from_millis(250)));
}
