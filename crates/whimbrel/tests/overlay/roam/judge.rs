//! What is to be said of those who wandered: what they lacked, what they got twice and in which
//! order, and how long they waited.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use whimbrel_client::QoS;

use super::{Attached, Book, Came, Ends, Keeper, Name, Sent, Story};

/// What a client says is known by then to the broker that has its session, and in the copies that
/// come to its deputy from then on: that it says PUBACK is answered by nothing, and a broker reads
/// it when it has processor time. Nothing orders that and the same client's CONNECT elsewhere.
const KNOWN: Duration = Duration::from_millis(1_000);

/// A broker's last words may arrive up to this time after it is killed.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Kills are told with a fault from this time before it on.
const AROUND: Duration = Duration::from_secs(10);

/// Faults of one kind that are shown.
const SHOWN: usize = 4;

/// What is to be said of one subscription.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub who: String,
    pub due: usize,
    pub lost: Vec<Name>,
    pub twice: Vec<(Name, String)>,
    /// Came again as it may: not durably acknowledged, or not known to a deputy.
    pub again: usize,
    /// Of these at QoS 2.
    pub again_exactly: usize,
    pub disordered: Vec<(Name, Name)>,
    pub faults: Vec<String>,
}

/// Judges every subscription.
pub fn judge(book: &Book) -> Vec<Verdict> {
    book.stories.iter().map(|story| of(book, story)).collect()
}

fn of(book: &Book, story: &Story) -> Verdict {
    let mut verdict = Verdict { who: story.who.clone(), faults: story.faults.clone(), ..Verdict::default() };
    let mut known: BTreeMap<Name, &Came> = BTreeMap::new();
    let mut ticks = BTreeMap::new();
    for (name, came) in &story.came {
        if book.sent.get(name).is_none_or(|sent| sent.level < story.least) {
            verdict.faults.push(format!("{name:?} comes and is not wanted"));
        }
        // Each repeat is judged by what came last: one copy excuses one repeat.
        if let Some(before) = known.insert(*name, came) {
            match may_repeat(book, story, (before, came)) {
                true => {
                    verdict.again += 1;
                    // Under another name it is its publisher's repeat, marked as one.
                    let is_same = before.id == came.id;
                    verdict.again_exactly += usize::from(is_same && came.qos == QoS::ExactlyOnce);
                }
                false => {
                    verdict.twice.push((*name, spans(book, story, (before, came))));
                }
            }
            continue;
        }
        // What came by an older connection while a newer one was there has no order with what came
        // by that.
        if let Some(id) = came.id.filter(|_| !came.is_late) {
            let (tick, before) = ticks.insert(id.pubend, (id.tick, *name)).unwrap_or((id.tick, *name));
            if tick > id.tick {
                verdict.disordered.push((*name, before));
            }
        }
    }
    for name in due(book, story) {
        verdict.due += 1;
        if !known.contains_key(name) {
            verdict.lost.push(*name);
        }
    }
    verdict
}

/// The events that a subscription must get.
fn due<'a>(book: &'a Book, story: &'a Story) -> impl Iterator<Item = &'a Name> {
    let is_after = |sent: &Sent| story.granted.is_some_and(|at| at < sent.at);
    let is_due = move |sent: &Sent| sent.acknowledged.is_some() && sent.level >= story.least && is_after(sent);
    book.sent.iter().filter(move |(_, sent)| is_due(sent)).map(|(name, _)| name)
}

/// How many deliveries are still due, over all subscriptions. Costs one look at each event and
/// delivery, which matters while clients and relays share the processor with it.
pub fn missing(book: &Book) -> usize {
    let of = |story: &Story| {
        let came: HashSet<&Name> = story.came.iter().map(|(name, _)| name).collect();
        due(book, story).filter(|name| !came.contains(name)).count()
    };
    book.stories.iter().map(of).sum()
}

/// How what came twice came.
fn spans(book: &Book, story: &Story, (first, again): (&Came, &Came)) -> String {
    let since = |at: Instant| match at >= first.at {
        true => format!("{:?} later", at - first.at),
        false => format!("{:?} before", first.at - at),
    };
    let by = |came: &Came| {
        let (is_clean, late) = (story.clean.contains(&came.connection), if came.is_late { ", late" } else { "" });
        let end = if is_clean { ", DISCONNECT" } else { "" };
        format!("at b{} by connection {}{end}{late} as {:?}", came.broker, came.connection, came.id)
    };
    let is_between = |(number, _): &(&u64, &Attached)| (first.connection + 1..again.connection).contains(*number);
    let between = story.attached.iter().filter(is_between);
    let between: Vec<String> = between.map(|(_, there)| format!("b{} {}", there.broker, since(there.at))).collect();
    let is_around = |kill: &&super::Kill| kill.at + AROUND >= first.at && kill.at <= again.at;
    let of = |kill: &super::Kill| format!("b{} {}", kill.broker, since(kill.at));
    let kills: Vec<String> = book.kills.iter().filter(is_around).map(of).collect();
    let its = book.copies.iter().filter(|used| used.who == story.who && used.at + AROUND >= first.at);
    let copies: Vec<String> = its.map(|used| format!("made {}, used {}", since(used.made), since(used.at))).collect();
    format!(
        "{}, and {} {}; it was at {between:?} in between, killed were {kills:?}, and copies {copies:?}",
        by(first),
        by(again),
        since(again.at)
    )
}

/// Whether an event may come a second time, by `semantics.md`, 4:
///
/// - Where the client keeps the position: never. Under another name: if its publisher may have
///   repeated it, which must be said.
/// - "(iii) the broker, QoS 1: MQTT redelivers what was not durably acknowledged (after a crash at
///   most one group commit's worth)". What was not acknowledged is what a connection brought so
///   shortly before the client was elsewhere that nothing orders the two.
/// - "When a deputy takes over, (ii) and (iii) repeat at most what was delivered or acknowledged
///   since its last copy": when that was made the brokers say. A keeper that lives, and is out of
///   reach of those who are asked, is dead to them: "cut-off sides may both be live".
fn may_repeat(book: &Book, story: &Story, (first, again): (&Came, &Came)) -> bool {
    if first.id != again.id {
        return first.maybe_again || again.maybe_again;
    }
    if story.keeper == Keeper::Client {
        return false;
    }
    let attached = |connection: u64| story.attached.get(&connection);
    let is_on_the_way = attached(first.connection + 1).is_some_and(|next| next.sought <= first.at + KNOWN);
    // How a connection ended says nothing of what was acknowledged long before.
    let is_open = (first.is_late || is_on_the_way) && again.connection != first.connection;
    let is_crash = |kill: &super::Kill| {
        kill.ends == Ends::Killed
            && kill.broker == first.broker
            && kill.at <= first.at + KNOWN
            && first.at <= kill.at + LAST_WORDS
    };
    let is_redelivered = || again.qos == QoS::AtLeastOnce && (is_open || book.kills.iter().any(is_crash));
    // What was open was acknowledged, or released, by the next connection that lasted.
    let mut last = first.at;
    for (number, there) in story.attached.range(first.connection + 1..=again.connection).filter(|_| is_open) {
        last = there.at;
        if attached(number + 1).is_none_or(|next| next.sought > last + KNOWN) {
            break;
        }
    }
    let is_of = |used: &&super::CopyUsed| {
        used.who == story.who && used.at <= again.at && used.made <= last + KNOWN && first.at <= used.at + KNOWN
    };
    is_redelivered() || book.copies.iter().any(|used| is_of(&used))
}

/// How long it took after each kill, and after each start, until everybody had something that was
/// sent since then.
fn recoveries(book: &Book) -> Vec<(usize, Duration, Option<Duration>)> {
    let after = |moment: Instant| {
        let fresh: BTreeSet<Name> =
            book.sent.iter().filter(|(_, sent)| sent.at > moment).map(|(name, _)| *name).collect();
        let first = |story: &Story| {
            let came = story.came.iter().find(|(name, came)| came.at > moment && fresh.contains(name));
            came.map(|(_, came)| came.at - moment)
        };
        book.stories.iter().map(first).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max())
    };
    let of = |kill: &super::Kill| {
        let live = after(kill.at).unwrap_or(Duration::MAX);
        (kill.broker, live, kill.back.and_then(after))
    };
    book.kills.iter().map(of).collect()
}

/// The longest time between two events that a client got, while some were published all the time.
fn longest_pause(book: &Book, story: &Story) -> Duration {
    let last = book.sent.values().map(|sent| sent.at).max();
    let came = story.came.iter().map(|(_, came)| came.at).filter(|at| last.is_some_and(|last| *at <= last));
    let came: Vec<Instant> = came.collect();
    came.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0])).max().unwrap_or_default()
}

/// Judges and prints all; gives all faults, nothing if there is none.
pub fn report(book: &Book) -> String {
    let verdicts = judge(book);
    println!(
        "{:<22}{:>7}{:>7}{:>7}{:>7}{:>7}{:>9}{:>7}{:>10}{:>8}{:>9}  gaps",
        "", "moves", "due", "came", "lost", "twice", "disorder", "again", "at QoS 2", "refused", "pause"
    );
    let mut report = String::new();
    for (verdict, story) in verdicts.iter().zip(&book.stories) {
        let Verdict { who, due, lost, twice, again, again_exactly, disordered, faults } = verdict;
        let [lost_count, twice_count, disorder] = [lost.len(), twice.len(), disordered.len()];
        let (came, refused) = (story.came.len(), story.refused);
        println!(
            "{who:<22}{:>7}{due:>7}{came:>7}{lost_count:>7}{twice_count:>7}{disorder:>9}{again:>7}{again_exactly:>10}{refused:>8}{:>7.2} s  {:?}",
            story.moves,
            longest_pause(book, story).as_secs_f64(),
            story.gaps
        );
        let is_good = lost.is_empty() && twice.is_empty() && disordered.is_empty() && faults.is_empty();
        if !lost.is_empty() {
            let of = |publisher| lost.iter().filter(|(from, _)| *from == publisher).count();
            let last = story.came.last().map(|(name, came)| (name, came.broker, came.at.elapsed()));
            let at = story.attached.last_key_value().map(|(number, there)| (number, there.broker, there.at.elapsed()));
            report += &format!(
                "{who} lost {:?} of each publisher; last came {last:?}, last was at {at:?}\n",
                [0, 1, 2].map(of)
            );
        }
        if !is_good || !story.gaps.is_empty() {
            let short = (&lost[..lost.len().min(SHOWN)], &twice[..twice.len().min(SHOWN)]);
            let also = (&disordered[..disordered.len().min(SHOWN)], &faults[..faults.len().min(SHOWN)], &story.gaps);
            report += &format!("{who}: lost and twice {short:?}; disordered, faults and gaps {also:?}\n");
        }
    }
    for (broker, live, back) in recoveries(book) {
        println!("b{broker} ended: all had something new after {live:?}; it was back: after {back:?}");
    }
    println!("{} sessions went on from copies", book.copies.len());
    assert!(verdicts.iter().all(|verdict| verdict.due > 100), "there was no load");
    report
}

/// A session that a copy took over, a second old, five seconds after the run began, and events that
/// came twice.
#[test]
fn what_comes_again_is_what_the_copy_lacks() {
    let begun = Instant::now();
    let at = |ms: u64| begun + Duration::from_millis(ms);
    let story = |keeper| {
        let attached = [(1, 0, 0), (2, 1, 5_000)];
        let attached = attached.map(|(number, broker, ms)| (number, Attached { broker, sought: at(ms), at: at(ms) }));
        let (clean, who) = (BTreeSet::from([1]), "roamer".to_owned());
        Story { clean, attached: attached.into(), ..Story::new(who, keeper, 0) }
    };
    let came = |connection: u64, ms: u64, qos| Came {
        at: at(ms),
        broker: connection as usize - 1,
        id: None,
        maybe_again: false,
        qos,
        connection,
        is_late: false,
    };
    let used = super::CopyUsed { who: "roamer".to_owned(), at: at(5_000), made: at(3_500) };
    let book = |copies: Vec<super::CopyUsed>| Book { copies, ..Book::default() };
    let (with, without) = (book(vec![used]), book(Vec::new()));
    let repeats = |book, keeper, qos, ms| may_repeat(book, &story(keeper), (&came(1, ms, qos), &came(2, 5_100, qos)));
    assert!(repeats(&with, Keeper::Exactly, QoS::ExactlyOnce, 3_600), "the copy does not have it");
    assert!(!repeats(&with, Keeper::Exactly, QoS::ExactlyOnce, 2_000), "it has that");
    assert!(!repeats(&without, Keeper::Exactly, QoS::ExactlyOnce, 4_900));
    assert!(repeats(&without, Keeper::AtLeast, QoS::AtLeastOnce, 4_900), "its PUBACK was on its way");
    assert!(!repeats(&without, Keeper::AtLeast, QoS::AtLeastOnce, 3_600));
    let lost = Story { clean: BTreeSet::new(), ..story(Keeper::AtLeast) };
    let pair = (&came(1, 2_000, QoS::AtLeastOnce), &came(2, 5_100, QoS::AtLeastOnce));
    assert!(!may_repeat(&without, &lost, pair), "it was acknowledged long before the connection was lost");
    assert!(!repeats(&with, Keeper::Client, QoS::AtLeastOnce, 4_900));
}
