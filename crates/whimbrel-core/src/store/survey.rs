//! After a restart nobody knows which of the logged events a subscription still wants: chains of
//! filter records are followed from their ends, and the ends were in memory. Until somebody comes
//! back who is away, the log would be held for it, whatever it wants.
//!
//! So the filter records of that time are looked through once, in the background: one part after
//! another, one pass for all subscriptions of a shard. What was logged before the restart is held
//! until that is known; what comes later is held for those who want it, as ever.

use std::ops::Range;

use whimbrel_event::Tick;

use super::filter::{names, stream_of};
use super::keys::{DurableNo, OWN, OwnTicks};
use super::reads::{Slice, WantedPart};
use crate::broker::Broker;

/// Stands for the survey where sessions wait for what is read.
pub(crate) const SURVEYOR: u32 = u32::MAX;

/// Bytes of filter records that are looked through in a turn, about: at most 7,300 names.
const SURVEY_BYTES: usize = 64 << 10;

/// One subscription that may lack something.
#[derive(Debug)]
struct SurveyCursor {
    number: DurableNo,
    cursor: u32,
    /// The last event of the present stream for which it was named so far.
    newest: Tick,
}

/// How far the filter records have been looked through. Over when nobody is left to ask.
#[derive(Debug, Default)]
pub(crate) struct FilterSurvey {
    /// Ascending by number.
    askers: Vec<SurveyCursor>,
    /// Up to where the streams had been given up at the restart.
    begin: OwnTicks,
    /// The last events that were logged before it.
    end: OwnTicks,
    /// The pubend of which the records are looked through, and for whom: those of one shard.
    own: usize,
    shard: Range<usize>,
    /// Up to where.
    upto: Tick,
    /// The last event that anybody may want: there is no record of it, or none that can be read.
    blind: Tick,
}

impl FilterSurvey {
    /// Goes on to the next stream that has something for somebody; false: there is none.
    fn advance(&mut self) -> bool {
        let FilterSurvey { askers, begin, end, .. } = self;
        let mut first = self.shard.end;
        if first == askers.len() {
            (self.own, first) = (self.own + 1, 0);
        }
        while self.own < OWN && begin[self.own] >= end[self.own] {
            self.own += 1;
        }
        if self.own >= OWN {
            return false;
        }
        let stream = stream_of(self.own, askers[first].number);
        let others = askers[first..].iter().position(|asker| stream_of(self.own, asker.number) != stream);
        self.shard = first..others.map_or(askers.len(), |others| first + others);
        self.upto = begin[self.own];
        true
    }

    /// Looks through a part behind `after`.
    fn look_through(&mut self, after: Tick, slice: &Slice) {
        let upto = slice.upto.min(self.end[self.own]);
        if let Some((_, to)) = slice.lost {
            self.blind = to.min(upto).max(self.blind);
        }
        let askers = &mut self.askers[self.shard.clone()];
        let first = slice.records.partition_point(|(tick, _)| *tick <= after);
        for (tick, body) in slice.records[first..].iter().take_while(|(tick, _)| *tick <= upto) {
            let Some(names) = names(body) else {
                self.blind = *tick;
                continue;
            };
            for name in names {
                if let Ok(at) = askers.binary_search_by_key(&name, |asker| asker.number.0 as u16) {
                    askers[at].newest = *tick;
                }
            }
        }
        self.upto = upto;
    }
}

impl Broker {
    /// Finds out what subscriptions want of the log that is there; ascending by number, with their
    /// cursors.
    pub(super) fn begin_survey(&mut self, subscriptions: impl Iterator<Item = (DurableNo, u32)>) {
        let (begin, end) = (self.store.release.chopped, self.store.release.logged);
        let lacks = |cursor: u32| self.durable_position(cursor).acked.iter().zip(&end).any(|(acked, end)| acked < end);
        let askers = subscriptions.filter(|(_, cursor)| lacks(*cursor));
        let askers: Vec<_> = askers.map(|(number, cursor)| SurveyCursor { number, cursor, newest: Tick(0) }).collect();
        if askers.is_empty() {
            return;
        }
        self.store.survey = FilterSurvey { askers, begin, end, ..FilterSurvey::default() };
        self.survey_next();
    }

    /// Something was read for the survey: it goes on by one part.
    pub(crate) fn survey(&mut self) {
        let store = &mut self.store;
        let survey = &mut store.survey;
        let Some(asker) = survey.askers.get(survey.shard.start) else { return };
        let after = survey.upto.max(store.release.chopped[survey.own]);
        if let Some(slice) = store.reads.slice(stream_of(survey.own, asker.number), after) {
            survey.look_through(after, slice);
        }
        if survey.upto.max(store.release.chopped[survey.own]) < survey.end[survey.own] {
            self.survey_part();
        } else {
            self.record_surveyed();
            self.survey_next();
        }
    }

    /// Goes on with the next stream.
    fn survey_next(&mut self) {
        let survey = &mut self.store.survey;
        if !survey.advance() {
            self.store.survey = FilterSurvey::default();
            return;
        }
        let since = self.store.filters.since[survey.own];
        survey.blind = if since > survey.begin[survey.own] { since } else { Tick(0) };
        self.survey_part();
    }

    /// Has the next part read.
    fn survey_part(&mut self) {
        let survey = &self.store.survey;
        let (own, upto) = (survey.own, survey.end[survey.own]);
        let stream = stream_of(own, survey.askers[survey.shard.start].number);
        // What was given up meanwhile cannot be read. If that is all, the read brings nothing, and
        // the stream is done.
        let after = survey.upto.max(self.store.release.chopped[own]).min(Tick(upto.0 - 1));
        self.store.reads.ask(SURVEYOR, WantedPart { stream, after, upto, bytes: SURVEY_BYTES });
    }

    /// Everything is known of the stream.
    fn record_surveyed(&mut self) {
        let Broker { store, cursors, .. } = self;
        let FilterSurvey { askers, begin, end, own, shard, blind, .. } = &mut store.survey;
        for asker in &mut askers[shard.clone()] {
            let newest = core::mem::take(&mut asker.newest).max(*blind).max(begin[*own]);
            // It may have ended, another may have its place, and what came since is newer.
            let durable = cursors.durable_mut(asker.cursor).filter(|durable| durable.number == asker.number);
            if let Some(durable) = durable.filter(|durable| durable.newest[*own] <= end[*own]) {
                durable.newest[*own] = newest.max(durable.remote.unnamed[*own]);
                cursors.touch(asker.cursor);
            }
        }
    }
}
