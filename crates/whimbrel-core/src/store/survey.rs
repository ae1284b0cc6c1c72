//! After a restart it is unknown which logged events a subscription still wants: chains of filter
//! records are followed from their ends, and the ends were in memory. Until the client of an absent
//! subscription comes back, the log would be held for it, wanted or not.
//!
//! So the filter records of that time are searched once, in the background: part by part, one pass
//! for all subscriptions of a shard. Events from before the restart are held until that is done;
//! later ones only for subscriptions that want them, as ever.

use std::ops::Range;

use whimbrel_event::Tick;

use super::filter::{names, stream_of};
use super::keys::DurableNo;
use super::own_ticks::{OWN, OwnTicks};
use super::reads::{Slice, WantedPart};
use crate::broker::Broker;

/// Stands for the survey among the sessions that wait for a read.
pub(crate) const SURVEYOR: u32 = u32::MAX;

/// Bytes of filter records that are searched in a turn, about: at most 7,300 names.
const SURVEY_BYTES: usize = 64 << 10;

/// A subscription that may lack events.
#[derive(Debug)]
struct SurveyCursor {
    number: DurableNo,
    cursor: u32,
    /// The last event of the present stream whose record names it so far.
    newest: Tick,
}

/// Progress of the search. It is over when no subscription is left to search for.
#[derive(Debug, Default)]
pub(crate) struct FilterSurvey {
    /// Subscriptions to search for, ascending by number.
    askers: Vec<SurveyCursor>,
    /// Up to where the streams had been given up at the restart.
    begin: OwnTicks,
    /// The last event of each stream that was logged before the restart.
    end: OwnTicks,
    /// The present stream: index of the pubend, and the subscriptions of one shard in `askers`.
    own: usize,
    shard: Range<usize>,
    /// Up to where it was searched.
    upto: Tick,
    /// The last event that any subscription may want: its record is missing, or cannot be read.
    blind: Tick,
}

impl FilterSurvey {
    /// Moves to the next stream to search; false if there is none.
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

    /// Searches a part behind `after`.
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
    /// Begins to search for the events that these subscriptions want; ascending by number, with
    /// their cursors.
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

    /// Continues the survey by one part, when a read for it is done.
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

    /// Continues with the next stream.
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

    /// Asks for the next part.
    fn survey_part(&mut self) {
        let survey = &self.store.survey;
        let (own, upto) = (survey.own, survey.end[survey.own]);
        let stream = stream_of(own, survey.askers[survey.shard.start].number);
        // Parts that were given up meanwhile cannot be read. If no other part is left, the read
        // brings nothing, and the stream is done.
        let after = survey.upto.max(self.store.release.chopped[own]).min(Tick(upto.0 - 1));
        self.store.reads.ask(SURVEYOR, WantedPart { stream, after, upto, bytes: SURVEY_BYTES });
    }

    /// The stream is done: sets the newest wanted event of its subscriptions.
    fn record_surveyed(&mut self) {
        let Broker { store, cursors, .. } = self;
        let FilterSurvey { askers, begin, end, own, shard, blind, .. } = &mut store.survey;
        for asker in &mut askers[shard.clone()] {
            let newest = core::mem::take(&mut asker.newest).max(*blind).max(begin[*own]);
            // The subscription may have ended, another may have its place, or a newer event is
            // known.
            let durable = cursors.durable_mut(asker.cursor).filter(|durable| durable.number == asker.number);
            if let Some(durable) = durable.filter(|durable| durable.newest.get(*own) <= end[*own]) {
                durable.newest.set(*own, newest.max(durable.remote.unnamed[*own]));
                cursors.touch(asker.cursor);
            }
        }
    }
}
