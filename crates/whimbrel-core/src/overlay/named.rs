//! Which events of the own log another broker may want is known beforehand: as it is owed them,
//! filter records name it for each.
//!
//! That holds for what was owed when an event came. So a question is looked for among what is owed,
//! entry by entry, and what lies before the part for which all of it was there is looked at as if
//! there were no records; so is everything of a question that is not among it.

use whimbrel_event::{HostId, Tick};
use whimbrel_selector::{Selector, TopicFilter};

use super::destinations::understood;
use crate::broker::Broker;
use crate::cursor::NOTHING;
use crate::store::{
    DurableNo, FETCH_BYTES, HeldInterest, HoldGiven, LENDER, LogPlan, RECORDS_BYTES, WantedPart, stream_of,
};

/// Pairs of selectors of which it is found out, for one question, whether one covers the other.
const COMPARISONS_MAX: usize = 256;

/// What is wanted at least so often, one of so many events that somebody wants, is read in large
/// parts.
const DENSE: usize = 16;

/// What is known of the part of an own stream that another broker asks for.
#[derive(Debug)]
pub(super) struct Foresight {
    own: usize,
    /// Records name the asker under this.
    number: DurableNo,
    /// They do for all that it asks for after this tick.
    since: Tick,
    plan: LogPlan,
}

/// What another broker may want next of an own stream.
pub(super) enum NextWanted {
    /// It has to be read first.
    Unknown,
    /// Nothing up to that tick.
    Nothing(Tick),
    /// Something behind `after`, and perhaps more up to `upto`: so much of the log is worth reading
    /// at once.
    Something { after: Tick, upto: Tick, bytes: usize },
}

impl Foresight {
    /// Whether an event may be wanted.
    pub(super) fn wants(&self, tick: Tick) -> bool {
        self.plan.wants(tick)
    }

    /// Whether any event of a range, its first tick excluded, may be wanted.
    pub(super) fn wants_any(&self, (from, to): (Tick, Tick)) -> bool {
        self.plan.next(from).is_some_and(|tick| tick <= to)
    }

    /// So many events of a part that was read may be wanted.
    pub(super) fn record_found(&mut self, found: usize) {
        self.plan.record_found(found);
    }
}

/// Whether all that `narrow` lets through is let through by `wide`. May say no where it is yes.
fn covers(wide: Option<&str>, narrow: Option<&Selector>) -> bool {
    match (understood(wide), narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide.covers(narrow),
    }
}

/// After which tick of an own stream all that is asked for was owed; [`NOTHING`]: something of it
/// is not, or that cannot be seen.
///
/// An entry that is in the index now has been since it began, so whatever came since then was
/// looked at under it. What becomes of it later does not touch the events up to now.
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
    /// What is known of the part behind a tick of an own stream that another broker asks for.
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

    /// Finds out what another broker may want next of a part of an own stream; what has to be read
    /// for that is.
    pub(super) fn look_ahead_for(&mut self, known: &mut Foresight, (from, upto): (Tick, Tick)) -> NextWanted {
        let Foresight { own, number, since, plan } = known;
        if plan.upto <= from && from < *since {
            plan.extend((*since).min(upto), None);
            plan.bytes = FETCH_BYTES;
        } else if plan.upto <= from {
            let stream = stream_of(*own, *number);
            let slice = self.store.reads.slice(stream, from);
            // Looking through these records is a turn.
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
