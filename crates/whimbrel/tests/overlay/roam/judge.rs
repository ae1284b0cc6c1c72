//! What is to be said of those who wandered: what they lacked, what they got twice and in which order, and how long they waited.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use whimbrel_client::QoS;

use super::{Book, Came, Keeper, Name, Story};

/// How old the copy of a session may be that is used when its keeper is gone, and a little.
const COPY: Duration = Duration::from_millis(1_000);

/// So long after a broker was killed others may still be going there, and not be found, where that is not judged strictly.
const AFTERWARDS: Duration = Duration::from_secs(12);

/// So long after it is killed a broker's last words may arrive.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What a client says may be on its way for so long while it goes to another broker.
const ON_THE_WAY: Duration = Duration::from_millis(200);

/// Kills are told with a fault from so long before it on.
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
        if let Some(first) = known.get(name) {
            match may_repeat(book, story, (first, came)) {
                true => verdict.again += 1,
                false => {
                    verdict.twice.push((*name, spans(book, story, (first, came))));
                }
            }
            continue;
        }
        known.insert(*name, came);
        // What came by an older connection while a newer one was there has no order with what came by that.
        if let Some(id) = came.id.filter(|_| !came.is_late) {
            let (tick, before) = ticks.insert(id.pubend, (id.tick, *name)).unwrap_or((id.tick, *name));
            if tick > id.tick {
                verdict.disordered.push((*name, before));
            }
        }
    }
    let granted = story.granted;
    for (name, sent) in &book.sent {
        let is_due = sent.acknowledged.is_some() && sent.level >= story.least && granted.is_some_and(|at| at < sent.at);
        verdict.due += usize::from(is_due);
        if is_due && !known.contains_key(name) {
            verdict.lost.push(*name);
        }
    }
    verdict
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
    let is_between =
        |(number, _): &(&u64, &(usize, Instant))| (first.connection + 1..again.connection).contains(*number);
    let between = story.attached.iter().filter(is_between);
    let between: Vec<String> = between.map(|(_, (broker, at))| format!("b{broker} {}", since(*at))).collect();
    let is_around = |kill: &&super::Kill| kill.at + AROUND >= first.at && kill.at <= again.at;
    let of = |kill: &super::Kill| format!("b{} {}", kill.broker, since(kill.at));
    let kills: Vec<String> = book.kills.iter().filter(is_around).map(of).collect();
    format!(
        "{}, and {} {}; it was at {between:?} in between, and killed were {kills:?}",
        by(first),
        by(again),
        since(again.at)
    )
}

/// Whether an event may come a second time.
fn may_repeat(book: &Book, story: &Story, (first, again): (&Came, &Came)) -> bool {
    if first.id != again.id {
        return first.maybe_again || again.maybe_again;
    }
    // A broker was killed soon after that, with what its deputy did not know yet.
    let is_near = |broker: usize, at: Instant| {
        let mut of = book.kills.iter().filter(|kill| kill.broker == broker);
        of.any(|kill| kill.at <= at + COPY && at <= kill.at + LAST_WORDS)
    };
    let since = |connection: u64| story.attached.get(&connection).copied();
    // Nothing orders the acknowledgements of one connection and the client's coming to another broker.
    let is_on_the_way = since(first.connection + 1).is_some_and(|(_, at)| at <= first.at + ON_THE_WAY);
    let is_open = first.is_late || !story.clean.contains(&first.connection) || is_on_the_way;
    let is_open = is_open && again.connection != first.connection;
    // At QoS 1 what was not acknowledged comes again. At QoS 2 it is known by its packet identifier, until that was released, at this broker or another one.
    let between = (first.connection + 1..again.connection).filter_map(since);
    let was_released = || is_open && between.into_iter().any(|(broker, at)| is_near(broker, at));
    let is_open = is_open && again.qos == QoS::AtLeastOnce;
    // Any broker that was killed soon after, or had been shortly before.
    let is_after = |kill: &super::Kill| {
        let over = kill.back.map_or(Instant::now(), |back| back + AFTERWARDS);
        kill.at <= first.at + COPY && first.at <= over
    };
    let is_excused = || !book.is_strict && book.kills.iter().any(is_after);
    story.keeper != Keeper::Client && (is_open || is_near(first.broker, first.at) || was_released() || is_excused())
}

/// How long it took after each kill, and after each start, until everybody had something that was sent since then.
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

/// Judges, prints all, and panics with all faults if there is one.
pub fn demand(book: &Book) {
    let verdicts = judge(book);
    println!(
        "{:<22}{:>7}{:>7}{:>7}{:>7}{:>7}{:>9}{:>7}{:>8}  gaps",
        "", "moves", "due", "came", "lost", "twice", "disorder", "again", "refused"
    );
    let mut report = String::new();
    for (verdict, story) in verdicts.iter().zip(&book.stories) {
        let Verdict { who, due, lost, twice, again, disordered, faults } = verdict;
        let [lost_count, twice_count, disorder] = [lost.len(), twice.len(), disordered.len()];
        let (came, refused) = (story.came.len(), story.refused);
        println!(
            "{who:<22}{:>7}{due:>7}{came:>7}{lost_count:>7}{twice_count:>7}{disorder:>9}{again:>7}{refused:>8}  {:?}",
            story.moves, story.gaps
        );
        let is_good = lost.is_empty() && twice.is_empty() && disordered.is_empty() && faults.is_empty();
        if !lost.is_empty() {
            let of = |publisher| lost.iter().filter(|(from, _)| *from == publisher).count();
            let last = story.came.last().map(|(name, came)| (name, came.broker, came.at.elapsed()));
            let at = story.attached.last_key_value().map(|(number, (broker, at))| (number, broker, at.elapsed()));
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
        println!("b{broker} was killed: all had something new after {live:?}; it was back: after {back:?}");
    }
    assert!(verdicts.iter().all(|verdict| verdict.due > 100), "there was no load");
    assert!(report.is_empty(), "\n{report}");
}
