//! The judge: from what clients saw, what the brokers owed them and did not do. It is a pure
//! function of a [`Book`].
//!
//! A reliable event is *due* to a subscription if it was acknowledged, was sent after the
//! subscription had been granted and before its connection ended (a roamer's subscription does not
//! end with its connection), and it wants it. Three things no broker can be asked for: what was on
//! its way when a subscriber's own connection ended; the end of a broker's life, of which only who
//! is told of gaps and stays connected must hear what others have seen; and what others sent before
//! a broker that had just begun knew of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use whimbrel_client::{EventId, PubendId, Tick};

use crate::book::{Book, History, Kind, Life, Name, Published, Seen};

/// What is to be said of one subscription.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub subscription: String,
    /// Events that were due.
    pub due: usize,
    /// Different events that came.
    pub came: usize,
    /// Due, did not come, and a gap says so.
    pub told: usize,
    /// Due, did not come, and was the end of a broker's life.
    pub died: usize,
    /// Due, did not come, and no gap says so.
    pub lost: Vec<Name>,
    pub twice: Vec<Name>,
    /// Each with the one that came before it and should not have.
    pub disordered: Vec<(Name, Name)>,
    /// Came although it was not wanted, or no publisher had sent it.
    pub unwanted: Vec<String>,
    /// In which lives of brokers it was, and how many events came there.
    pub stays: Vec<(Life, usize)>,
    /// Gaps by reason.
    pub gaps: BTreeMap<String, usize>,
}

impl Verdict {
    pub fn is_good(&self) -> bool {
        self.lost.is_empty() && self.twice.is_empty() && self.disordered.is_empty() && self.unwanted.is_empty()
    }
}

/// Under which ids any subscriber has seen an event.
type Ids = BTreeMap<Name, BTreeSet<EventId>>;

/// Judges every subscription.
pub fn judge(book: &Book) -> Vec<Verdict> {
    let mut ids = Ids::new();
    for (_, seen) in book.histories.iter().flat_map(|history| &history.seen) {
        if let Seen::Delivered { name, id: Some(id) } = seen {
            ids.entry(*name).or_default().insert(*id);
        }
    }
    book.histories.iter().map(|history| Trial::new(book, history, &ids).judge()).collect()
}

/// Prints all verdicts as a table.
pub fn print(verdicts: &[Verdict]) {
    let head = ["due", "came", "told", "died", "lost", "twice", "disorder", "unwanted"];
    println!("{:<36}{}  gaps", "subscription", head.map(|word| format!("{word:>9}")).concat());
    for verdict in verdicts {
        let Verdict { due, came, told, died, lost, twice, disordered, unwanted, .. } = verdict;
        let counts = [*due, *came, *told, *died, lost.len(), twice.len(), disordered.len(), unwanted.len()];
        let counts = counts.map(|count| format!("{count:>9}")).concat();
        println!("{:<36}{counts}  {:?}", verdict.subscription, verdict.gaps);
    }
}

/// Judges, prints the table, and panics with all faults if there is one.
pub fn demand(book: &Book) -> Vec<Verdict> {
    let verdicts = judge(book);
    print(&verdicts);
    let mut report = String::new();
    for verdict in verdicts.iter().filter(|verdict| !verdict.is_good()) {
        let Verdict { lost, twice, disordered, unwanted, .. } = verdict;
        let shown = (&lost[..lost.len().min(4)], &twice[..twice.len().min(4)]);
        let also = (&disordered[..disordered.len().min(4)], &unwanted[..unwanted.len().min(4)]);
        report += &format!("{}: lost and twice {shown:?}, disordered and unwanted {also:?}; ", verdict.subscription);
        report += &format!("it was at {:?}\n", verdict.stays);
        let first = [lost.first(), twice.first(), disordered.first().map(|(name, _)| name)];
        for name in first.into_iter().flatten() {
            report += &format!("  {name:?}:\n{}", trail(book, &verdict.subscription, *name));
        }
    }
    assert!(report.is_empty(), "\n{report}");
    verdicts
}

/// What a subscription saw about an event's publisher and stream before the event came for the last
/// time, or up to the end: it helps to find the cause of a fault.
pub fn trail(book: &Book, subscription: &str, name: Name) -> String {
    const LINES: usize = 16;
    let ids = |seen: &Seen| match seen {
        Seen::Delivered { name: other, id } if *other == name => id.map(|id| id.pubend),
        _ => None,
    };
    let all = book.histories.iter().flat_map(|history| &history.seen);
    let pubend = all.filter_map(|(_, seen)| ids(seen)).next();
    let history = book.histories.iter().find(|history| history.subscription == subscription).expect("it was judged");
    let is_near = |seen: &Seen| match seen {
        Seen::Granted { .. } | Seen::Away => true,
        Seen::Delivered { name: other, .. } => other.publisher == name.publisher,
        Seen::Gap { pubend: of, .. } => Some(*of) == pubend,
        Seen::Stray(_) => false,
    };
    let of_it = |seen: &Seen| matches!(seen, Seen::Delivered { name: other, .. } if *other == name);
    let near: Vec<&(Instant, Seen)> = history.seen.iter().filter(|(_, seen)| is_near(seen)).collect();
    let end = near.iter().rposition(|(_, seen)| of_it(seen)).map_or(near.len(), |at| at + 1);
    let sent = book.published.get(&name).map(|event| event.sent);
    let line = |(at, seen): &&(Instant, Seen)| {
        let after = sent.map(|sent| at.saturating_duration_since(sent).as_millis());
        format!("    {after:?} ms after it was sent: {seen:?}\n")
    };
    near[end.saturating_sub(LINES)..end].iter().map(line).collect()
}

/// One connection, or with a roamer all of them.
struct Era {
    granted: Instant,
    ended: Option<Instant>,
    pending: BTreeSet<String>,
    /// Its broker had just begun, and did not know all others yet: when it was seen to reach them,
    /// if ever.
    alone: Option<Option<Instant>>,
    /// The least and greatest number of each publisher, in each life of its broker, that came.
    came: BTreeMap<(u32, Life), (u32, u32)>,
}

struct Trial<'a> {
    book: &'a Book,
    history: &'a History,
    ids: &'a Ids,
    eras: Vec<Era>,
    came: BTreeSet<Name>,
    gaps: Vec<(PubendId, Tick, Tick)>,
    verdict: Verdict,
}

impl<'a> Trial<'a> {
    fn new(book: &'a Book, history: &'a History, ids: &'a Ids) -> Trial<'a> {
        let verdict = Verdict { subscription: history.subscription.clone(), ..Verdict::default() };
        Trial { book, history, ids, eras: Vec::new(), came: BTreeSet::new(), gaps: Vec::new(), verdict }
    }

    fn judge(mut self) -> Verdict {
        // The last of each publisher and life, and of each stream.
        let (mut numbers, mut ticks) = (BTreeMap::new(), BTreeMap::new());
        for (at, seen) in &self.history.seen {
            match seen {
                Seen::Granted { life, pending } => self.begin(*at, *life, pending),
                Seen::Away if self.history.kind == Kind::Roamer => {}
                Seen::Away => self.eras.last_mut().expect("it was granted").ended = Some(*at),
                Seen::Delivered { name, id } => {
                    self.deliver(*name);
                    let Some(event) = self.book.published.get(name) else { continue };
                    let before = numbers.insert((name.publisher, event.life), *name);
                    self.in_order(*name, before.filter(|before| before.number > name.number));
                    if let Some(id) = id {
                        let before: Option<(Tick, Name)> = ticks.insert(id.pubend, (id.tick, *name));
                        self.in_order(*name, before.filter(|(tick, _)| *tick > id.tick).map(|(_, before)| before));
                    }
                }
                Seen::Gap { pubend, from, to, reason } => {
                    self.gaps.push((*pubend, *from, *to));
                    *self.verdict.gaps.entry(reason.clone()).or_default() += 1;
                }
                Seen::Stray(what) => self.verdict.unwanted.push(what.clone()),
            }
        }
        self.missing();
        self.verdict.came = self.came.len();
        self.verdict
    }

    fn begin(&mut self, at: Instant, life: Life, pending: &[String]) {
        self.verdict.stays.push((life, 0));
        if self.history.kind != Kind::Roamer || self.eras.is_empty() {
            let pending = pending.iter().cloned().collect();
            let began = self.book.began[&life];
            let whole = self.book.whole.iter().find(|whole| **whole > began).copied();
            let alone = whole.is_none_or(|whole| whole > at).then_some(whole);
            self.eras.push(Era { granted: at, ended: None, pending, alone, came: BTreeMap::new() });
        }
    }

    fn in_order(&mut self, name: Name, before: Option<Name>) {
        self.verdict.disordered.extend(before.map(|before| (name, before)));
    }

    fn deliver(&mut self, name: Name) {
        self.verdict.stays.last_mut().expect("nothing comes before it is granted").1 += 1;
        match self.book.published.get(&name) {
            Some(event) if self.history.wants(event) => {
                let era = self.eras.last_mut().expect("nothing comes before it is granted");
                let range = era.came.entry((name.publisher, event.life)).or_insert((name.number, name.number));
                *range = (range.0.min(name.number), range.1.max(name.number));
            }
            _ => self.verdict.unwanted.push(format!("{name:?}")),
        }
        if !self.came.insert(name) {
            self.verdict.twice.push(name);
        }
    }

    /// What was due and did not come.
    fn missing(&mut self) {
        for (name, event) in &self.book.published {
            let (Some(acknowledged), true) = (event.acknowledged, event.reliable && self.history.wants(event)) else {
                continue;
            };
            let is_due = |era: &&Era| is_due(era, *name, event, acknowledged);
            let Some(era) = self.eras.iter().find(is_due) else { continue };
            self.verdict.due += 1;
            if self.came.contains(name) {
                continue;
            }
            let later = era.came.get(&(name.publisher, event.life)).is_some_and(|(_, last)| *last > name.number);
            if self.is_told(*name, event) {
                self.verdict.told += 1;
            } else if self.book.ended.contains(&event.life)
                && !later
                && (self.history.kind != Kind::Notices || !self.ids.contains_key(name))
            {
                self.verdict.died += 1;
            } else {
                self.verdict.lost.push(*name);
            }
        }
    }

    /// Whether a gap tells that it is missing: it covers the event's tick, or where no client saw
    /// that, a part of the stream between its publisher's events before and after in the same life.
    fn is_told(&self, name: Name, event: &Published) -> bool {
        if let Some(ids) = self.ids.get(&name) {
            let is_covered = |id: &EventId| {
                self.gaps.iter().any(|(of, from, to)| *of == id.pubend && *from < id.tick && id.tick <= *to)
            };
            return ids.iter().any(is_covered);
        }
        let same = |other: &Name| self.book.published.get(other).is_some_and(|other| other.life == event.life);
        let (least, last) = (Name { number: 0, ..name }, Name { number: u32::MAX, ..name });
        let before = self.ids.range(least..name).rfind(|(other, _)| same(other)).and_then(|(_, ids)| ids.first());
        let after = self.ids.range(name..=last).find(|(other, _)| same(other)).and_then(|(_, ids)| ids.last());
        self.gaps.iter().any(|(of, from, to)| {
            before.is_none_or(|id| *of == id.pubend && id.tick < *to)
                && after.is_none_or(|id| *of == id.pubend && *from < id.tick)
                && (before.is_some() || after.is_some())
        })
    }
}

/// Whether an era can ask for an event.
fn is_due(era: &Era, name: Name, event: &Published, acknowledged: Instant) -> bool {
    let range = era.came.get(&(name.publisher, event.life));
    let was_granted = era.granted < event.sent;
    // When a broker that had not confirmed did so is seen by the first event that came from it.
    let is_confirmed = !era.pending.contains(&format!("b{}", event.life.0));
    let is_known = era.alone.is_none_or(|whole| whole.is_some_and(|whole| whole < event.sent));
    let began = (is_confirmed && is_known) || range.is_some_and(|(first, _)| *first < name.number);
    // Of what was on its way when the connection ended, only that is owed after which something
    // else came.
    let lasted =
        era.ended.is_none_or(|ended| acknowledged < ended && range.is_some_and(|(_, last)| *last > name.number));
    was_granted && began && lasted
}
