//! Storms with and without kills.

use std::time::Duration;

use whimbrel_client::QoS;

use crate::book::{Book, Condition, Keeper};
use crate::broker::{Plan, Store};
use crate::judge::{Fault, Verdict, demand, judge};
use crate::publisher;
use crate::rig::Storm;
use crate::subscriber;

/// Kills of the long run, unless `STORM_KILLS` says otherwise.
const KILLS: u32 = 50;

/// The seed of the long run, unless `STORM_SEED` says otherwise.
const SEED: u64 = 3;

/// A number from the environment.
fn chosen<T: std::str::FromStr>(variable: &str, default: T) -> T {
    std::env::var(variable).map_or(default, |text| text.parse().ok().expect("a number"))
}

/// Publishers of every kind: by number, by tag, by both, by neither, and with a mixture of QoS 1
/// and 2.
pub fn publishers() -> Vec<publisher::Habits> {
    let habits = publisher::Habits::new;
    vec![
        publisher::Habits { numbered: true, ..habits(1, QoS::AtLeastOnce) },
        publisher::Habits { numbered: true, session: false, ..habits(2, QoS::AtLeastOnce) },
        habits(3, QoS::ExactlyOnce),
        publisher::Habits { numbered: true, qos: None, ..habits(4, QoS::ExactlyOnce) },
        habits(5, QoS::AtLeastOnce),
        publisher::Habits { qos: None, ..habits(6, QoS::AtLeastOnce) },
    ]
}

/// Subscribers by every rule.
pub fn subscribers() -> Vec<subscriber::Habits> {
    use Condition::{Any, AtLeast, Below};
    use Keeper::{AtLeastOnce, Client, ExactlyOnce};
    let habits = subscriber::Habits::new;
    vec![
        habits("i-all", Client, &[("storm/#", Any)]),
        habits("i-overlapping", Client, &[("storm/+/a", AtLeast(4)), ("storm/#", Below(7))]),
        habits("ii-all", ExactlyOnce, &[("storm/#", Any)]),
        habits("ii-selector", ExactlyOnce, &[("storm/+/b", Below(5))]),
        subscriber::Habits { changes: true, ..habits("ii-changing", ExactlyOnce, &[("storm/#", AtLeast(2))]) },
        habits("iii-all", AtLeastOnce, &[("storm/#", Any)]),
        habits("iii-overlapping", AtLeastOnce, &[("storm/+/a", Any), ("storm/1/#", AtLeast(5))]),
        subscriber::Habits { changes: true, ..habits("iii-changing", AtLeastOnce, &[("storm/+/b", Below(9))]) },
        subscriber::Habits { leaves: true, ..habits("iii-leaving", AtLeastOnce, &[("storm/#", Any)]) },
        subscriber::Habits { vanishes: 0, ..habits("iii-faithful", AtLeastOnce, &[("storm/#", Any)]) },
    ]
}

fn storm(store: Store, seed: u64, rounds: u32, kills: bool) -> Storm {
    let limit = Duration::from_secs(60) + Duration::from_secs(4) * rounds;
    let (publishers, mut subscribers) = (publishers(), subscribers());
    // A selector of a subscription that is not durable is exchanged at once, also for what came
    // before.
    subscribers.retain(|habits| store.is_durable() || !habits.changes);
    Storm { plan: Plan::new(store), seed, rounds, kills, publishers, subscribers, limit }
}

/// Prints what there was to judge, so that a run that proves nothing shows.
fn account(book: &Book) -> Vec<Verdict> {
    let accepted = book.published.iter().filter(|event| event.is_accepted()).count();
    let repeated = book.published.iter().filter(|event| event.sends > 1).count();
    println!("{} events, {accepted} accepted, {repeated} sent again", book.published.len());
    let verdicts = judge(book);
    for verdict in &verdicts {
        let Verdict { subscription, due, delivered, repeated, faults } = verdict;
        println!("{subscription}: {due} due, {delivered} delivered, {repeated} again, {} faults", faults.len());
    }
    verdicts
}

/// The run must have been one: events were accepted, and every subscription had many due.
fn was_a_storm(book: &Book, verdicts: &[Verdict], rounds: u32) {
    let enough = (rounds * 4) as usize;
    assert!(verdicts.iter().all(|verdict| verdict.due >= enough), "too little was due: {verdicts:?}");
    let unknown = book.published.iter().filter(|event| !event.is_accepted()).count();
    assert!(unknown * 10 < book.published.len(), "{unknown} events were never acknowledged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vanishing_subscribers_lose_nothing_while_the_broker_lives() {
    let book = storm(Store::Memory, 1, 4, false).rage().await;
    let verdicts = account(&book);
    was_a_storm(&book, &verdicts, 4);
    demand(&verdicts, |_| false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_data_directory_kills_lose_and_the_judge_says_so() {
    let mut storm = storm(Store::Memory, 2, 3, true);
    // No subscriber gets everything here, so all wait for the end.
    storm.limit = Duration::from_secs(15);
    let book = storm.rage().await;
    let verdicts = account(&book);
    for verdict in verdicts.iter().filter(|verdict| verdict.subscription.contains("-all")) {
        let lost = verdict.count(|fault| matches!(fault, Fault::Lost(_) | Fault::Reported(_)));
        assert!(lost > 0, "{} has lost nothing in 3 kills: this judge sees nothing", verdict.subscription);
    }
    let forgotten = verdicts.iter().filter(|verdict| verdict.count(|fault| matches!(fault, Fault::Forgotten(_))) > 0);
    assert!(forgotten.count() > 0, "sessions that end with the broker are not noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_lose_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (kills, seed) = (chosen("STORM_KILLS", KILLS), chosen("STORM_SEED", SEED));
    let book = storm(Store::at(directory.path()), seed, kills, true).rage().await;
    let verdicts = account(&book);
    was_a_storm(&book, &verdicts, kills);
    demand(&verdicts, |_| false);
}
