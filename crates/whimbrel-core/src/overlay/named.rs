//! Filter records tell beforehand which events of the own log another broker may want: a retention
//! hold has a number, under which the records name the events of its durable interest.
//!
//! That is true of the entries that the hold had when an event was accepted. So each entry of a
//! question is looked up in the hold. The part of the log before all entries were there is read
//! without records; so is everything if an entry is not in the hold.

use whimbrel_event::{HostId, Tick};
use whimbrel_selector::{Selector, TopicFilter};

use super::destinations::understood;
use crate::broker::Broker;
use crate::cursor::NOTHING;
use crate::store::{
    DurableNo, FETCH_BYTES, HeldInterest, HoldGiven, LENDER, LogPlan, RECORDS_BYTES, WantedPart, stream_of,
};

/// Most pairs of selectors that are compared for one question, to find whether one covers the
/// other.
const COMPARISONS_MAX: usize = 256;

/// If at least one of this many events with records may be wanted, the log is read in large parts.
const DENSE: usize = 16;

/// Knowledge of the part of an own stream that another broker asks for.
#[derive(Debug)]
pub(super) struct Foresight {
    own: usize,
    /// The number of the asker's hold in the records.
    number: DurableNo,
    /// The tick after which the records name everything that the asker wants.
    since: Tick,
    plan: LogPlan,
}

/// The next events of an own stream that another broker may want.
pub(super) enum NextWanted {
    /// Unknown until records have been read.
    Unknown,
    /// There are none up to this tick.
    Nothing(Tick),
    /// There is one behind `after`, and perhaps more up to `upto`; `bytes` of the log are worth
    /// reading at once.
    Something { after: Tick, upto: Tick, bytes: usize },
}

impl Foresight {
    /// Whether an event may be wanted.
    pub(super) fn wants(&self, tick: Tick) -> bool {
        self.plan.wants(tick)
    }

    /// Whether any event of a range may be wanted; its first tick is excluded.
    pub(super) fn wants_any(&self, (from, to): (Tick, Tick)) -> bool {
        self.plan.next(from).is_some_and(|tick| tick <= to)
    }

    /// Records the number of events of a part just read that may be wanted.
    pub(super) fn record_found(&mut self, found: usize) {
        self.plan.record_found(found);
    }
}

/// Whether `wide` lets everything through that `narrow` does. May be false where it does.
fn covers(wide: Option<&str>, narrow: Option<&Selector>) -> bool {
    match (understood(wide), narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide.covers(narrow),
    }
}

/// The tick of an own stream after which all entries asked for were in the hold; [`NOTHING`] if one
/// is not, or if that cannot be decided.
///
/// An entry that is in the index now has been there since it began, so all events since then were
/// matched against it. Later changes of the entry do not affect the events up to now.
fn held_since(hold_given: &HoldGiven, own: usize, asked: &[(&str, Option<&str>)]) -> Tick {
    let mut looks = COMPARISONS_MAX;
    let mut since_when = |(filter, selector): &(&str, Option<&str>)| {
        let Ok(filter) = TopicFilter::new(filter) else { return Tick(0) };
        let narrow = understood(*selector);
        let mut since = NOTHING;
        for ((held, wide), HeldInterest { begin, .. }) in &hold_given.entries {
            if begin[own] >= since || !TopicFilter::checked(held).covers(filter) {
                continue;
            }
            let mut is_covered = wide.is_none() || wide.as_deref() == *selector;
            if !is_covered && looks > 0 {
                looks -= 1;
                is_covered = covers(wide.as_deref(), narrow.as_ref());
            }
            since = if is_covered { begin[own] } else { since };
        }
        since
    };
    asked.iter().fold(Tick(0), |since, entry| since.max(since_when(entry)))
}

impl Broker {
    /// Creates the knowledge of the part behind a tick of an own stream that another broker asks
    /// for.
    pub(super) fn foresee(
        &self,
        (asker, own): (HostId, usize),
        from: Tick,
        asked: &[(&str, Option<&str>)],
    ) -> Foresight {
        let hold_given = self.store.holds_given.of.get(&asker);
        let named = hold_given.and_then(|hold_given| {
            let since = held_since(hold_given, own, asked).max(hold_given.record.named[own]);
            Some((hold_given.record.number?.among_durable(), since))
        });
        let (number, since) = named.unwrap_or((DurableNo::default(), NOTHING));
        Foresight { own, number, since, plan: LogPlan::new(own, from) }
    }

    /// Finds the next events of a part of an own stream that another broker may want, and requests
    /// the records that have to be read for that.
    pub(super) fn look_ahead_for(&mut self, known: &mut Foresight, (from, upto): (Tick, Tick)) -> NextWanted {
        let Foresight { own, number, since, plan } = known;
        if plan.upto <= from && from < *since {
            plan.extend((*since).min(upto), None);
            plan.bytes = FETCH_BYTES;
        } else if plan.upto <= from {
            let stream = stream_of(*own, *number);
            let slice = self.store.reads.slice(stream, from);
            // One look through these records takes a turn.
            let mut budget = usize::MAX;
            if plan.read_on((from, upto), *number, slice, &mut budget).is_some() {
                self.store.reads.ask(LENDER, WantedPart { stream, after: from, upto, bytes: RECORDS_BYTES });
                return NextWanted::Unknown;
            }
            plan.bytes = if plan.is_dense(DENSE) { FETCH_BYTES } else { plan.bytes };
        }
        let ends = plan.upto.min(upto);
        match plan.next(from).filter(|tick| *tick <= ends) {
            Some(tick) => NextWanted::Something { after: Tick(tick.0 - 1), upto: ends, bytes: plan.bytes },
            None => NextWanted::Nothing(ends),
        }
    }
}
