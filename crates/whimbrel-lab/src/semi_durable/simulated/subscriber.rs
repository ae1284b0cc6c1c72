//! A subscriber that keeps its own position and checks its deliveries.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use whimbrel_event::{CheckpointToken, EventId, PubendId, Tick, Time};

use super::tally::{Outage, Tally};

/// A published event, shared by all subscribers to its class.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Its tick in the only stream.
    pub tick: Tick,
    /// Its importance, 1 to 10.
    pub importance: u8,
}

/// A range of the stream in which the subscriber was told that it may have missed something.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Exclusive.
    from: Tick,
    /// Inclusive.
    to: Tick,
}

/// The notices that this subscriber understands.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Notice {
    Gap { pubend: String, from: String, to: String },
    Silence {},
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Subscriber {
    /// The class of events that it wants.
    pub class: usize,
    /// Its position, except `last`.
    pub token: Option<CheckpointToken>,
    last: Option<EventId>,
    /// The first of the class's events whose fate is not known.
    next: usize,
    /// Gaps told since the last event.
    gaps: Vec<Gap>,
    /// When it went away, and the first event that it had not received then.
    away: Option<(Time, usize)>,
    /// The events that it missed in the latest outage.
    missed: Range<usize>,
    /// The class's events that are counted.
    pub counted: Range<usize>,
    /// The number of events that its partition holds if the oldest are overwritten; `None`: another
    /// policy.
    covered: Option<usize>,
    /// The counts of its events.
    pub tally: Tally,
}

impl Subscriber {
    /// A subscriber that has received nothing. The counted range is set later.
    pub fn new(class: usize, covered: Option<usize>) -> Subscriber {
        Subscriber {
            class,
            token: None,
            last: None,
            next: 0,
            gaps: Vec::new(),
            away: None,
            missed: 0..0,
            counted: usize::MAX..usize::MAX,
            covered,
            tally: Tally::default(),
        }
    }

    /// An event was received. `log`: all published events of its class.
    pub fn receive(&mut self, id: EventId, log: &[Published]) {
        let index = match log.get(self.next) {
            Some(next) if next.tick == id.tick => self.next,
            _ => log.partition_point(|event| event.tick < id.tick),
        };
        if index < self.next {
            self.tally.repeated += 1;
            return;
        }
        assert!(log.get(index).is_some_and(|event| event.tick == id.tick), "{id} was not published for this class");
        self.give_up(index, log);
        if self.counted.contains(&index) {
            self.tally.expected += 1;
            self.tally.delivered += 1;
            self.tally.expected_importance += u64::from(log[index].importance);
        }
        self.next = index + 1;
        self.last = Some(id);
        self.gaps.clear();
    }

    /// A notice of a gap in the stream `pubend` was received.
    ///
    /// # Errors
    /// When the notice is malformed.
    pub fn notice(&mut self, text: &[u8], pubend: PubendId) -> Result<()> {
        let notice = serde_json::from_slice(text);
        if let Notice::Gap { pubend: of, from, to } = notice.context("reading a notice")? {
            let tick = |text: &str| text.parse().map(Tick).with_context(|| format!("{text} is no tick"));
            let gap = Gap { from: tick(&from)?, to: tick(&to)? };
            ensure!(gap.from < gap.to, "{gap:?} is empty");
            if of == pubend.to_string() {
                self.gaps.push(gap);
            }
        }
        Ok(())
    }

    /// The subscriber goes away.
    pub fn leave(&mut self, now: Time) {
        if let (Some(token), Some(last)) = (&mut self.token, self.last) {
            token.advance(last).expect("one stream is within what a token covers");
        }
        self.away = Some((now, self.next));
    }

    /// The subscriber returns.
    pub fn arrive(&mut self, now: Time, log: &[Published]) {
        let Some((since, from)) = self.away.take() else { return };
        self.missed = from..log.len();
        if now > since && self.counted.start <= from {
            let length = now.since(since).as_secs_f64();
            let missed = self.missed.clone().filter(|index| self.counted.contains(index)).count() as u64;
            self.tally.outages.push(Outage { length, missed, lost: 0 });
        }
    }

    /// The end: events that it has not received are lost.
    pub fn end(&mut self, log: &[Published]) {
        self.give_up(self.counted.end.min(log.len()), log);
    }

    /// Counts events up to `end` that were not received as lost.
    fn give_up(&mut self, end: usize, log: &[Published]) {
        let rest = log.iter().enumerate().take(end).skip(self.next);
        for (index, &Published { tick, importance }) in rest {
            if !self.counted.contains(&index) {
                continue;
            }
            self.tally.expected += 1;
            self.tally.lost += 1;
            self.tally.expected_importance += u64::from(importance);
            self.tally.lost_importance += u64::from(importance);
            let told = self.gaps.iter().any(|gap| gap.from < tick && tick <= gap.to);
            self.tally.silent += u64::from(!told);
            let missed = self.missed.contains(&index);
            let behind = self.missed.end.saturating_sub(index);
            self.tally.uncovered += u64::from(self.covered.is_some_and(|held| !missed || behind <= held));
            if let Some(outage) = self.tally.outages.last_mut().filter(|_| missed) {
                outage.lost += 1;
            }
        }
        self.next = self.next.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PubendId = PubendId(0xab0);

    fn log(count: u64) -> Vec<Published> {
        (1..=count).map(|tick| Published { tick: Tick(10 * tick), importance: 2 }).collect()
    }

    fn id(tick: u64) -> EventId {
        EventId { pubend: P, tick: Tick(tick) }
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn gap(from: u64, to: u64) -> Vec<u8> {
        format!(r#"{{"kind":"gap","pubend":"{P}","from":"{from}","to":"{to}","reason":"overwritten"}}"#).into_bytes()
    }

    fn subscriber() -> Subscriber {
        Subscriber { counted: 0..100, ..Subscriber::new(0, Some(2)) }
    }

    #[test]
    fn events_that_did_not_come_are_lost_and_silently_so_outside_of_gaps() {
        let (mut one, log) = (subscriber(), log(9));
        one.receive(id(10), &log);
        one.leave(at(1));
        one.arrive(at(3), &log[..7]);
        one.notice(&gap(10, 30), P).expect("a notice");
        one.receive(id(50), &log);
        let Tally { expected, delivered, lost, silent, uncovered, .. } = one.tally;
        assert_eq!((expected, delivered, lost, silent), (5, 2, 3, 1), "20, 30 and 40 did not come");
        assert_eq!(uncovered, 0, "five, four and three newer events were there, of which two are kept");
        assert_eq!(one.tally.outages, [Outage { length: 2.0, missed: 6, lost: 3 }]);
        one.receive(id(70), &log);
        assert_eq!((one.tally.lost, one.tally.silent, one.tally.uncovered), (4, 2, 1), "60 should have been kept");
        one.receive(id(60), &log);
        assert_eq!(one.tally.repeated, 1);
    }

    #[test]
    fn what_is_missing_at_the_end_is_lost_and_only_what_counts_is_counted() {
        let (mut one, log) = (Subscriber { counted: 1..4, ..subscriber() }, log(9));
        one.receive(id(10), &log);
        one.receive(id(20), &log);
        one.end(&log);
        let Tally { expected, delivered, lost, expected_importance, lost_importance, .. } = one.tally;
        assert_eq!((expected, delivered, lost, expected_importance, lost_importance), (3, 1, 2, 6, 4));
    }

    #[test]
    fn a_token_goes_with_what_came() {
        let (mut one, log) = (subscriber(), log(9));
        one.token = Some(CheckpointToken::new(whimbrel_event::Deployment::named("test"), Tick(1)));
        one.receive(id(30), &log);
        one.leave(at(1));
        assert_eq!(one.token.and_then(|token| token.position(P)), Some(Tick(30)));
    }
}
