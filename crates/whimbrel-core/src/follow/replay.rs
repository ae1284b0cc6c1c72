//! Catching up out of the log: what a durable subscription lacks and the cache has no more.

use whimbrel_event::{Event, Tick, Time};

use super::catchup::{Reader, Turn};
use super::{Gap, GapReason};
use crate::api::Output;
use crate::broker::Core;
use crate::store::{Fetched, OWN};

/// How a step of reading the log ends.
enum Step {
    /// The stream has been read as far as the cache lacks it.
    Done,
    /// More of it is there to be read.
    More,
    /// As of the subscription's turn.
    Turn(Turn),
}

impl Core {
    /// Gives a durable subscription that lags what the cache lacks. `None`: the cache has the rest.
    pub(super) fn replay(&mut self, now: Time, id: u32, budget: &mut usize, out: &mut impl Output) -> Option<Turn> {
        self.tracks.get(id).durable.as_ref()?;
        let mut has_read = false;
        for own in 0..OWN {
            loop {
                match self.replay_step(now, id, own, budget, out) {
                    Step::Done => break,
                    Step::More => has_read = true,
                    Step::Turn(turn) => return Some(turn),
                }
            }
        }
        if has_read {
            // The cache is read from where the log ends.
            let lag = self.tracks.get(id).lag.as_ref().expect("it lags");
            let next = self.first_after(&lag.positions);
            self.tracks.get_mut(id).lag.as_mut().expect("it lags").next = next;
        }
        None
    }

    fn replay_step(&mut self, now: Time, id: u32, own: usize, budget: &mut usize, out: &mut impl Output) -> Step {
        let pubend = self.streams.logged().host().pubend(own as u8);
        let passed = self.streams.logged().positions()[own];
        let track = self.tracks.get(id);
        let (lag, durable) = (track.lag.as_ref().expect("it lags"), track.durable.as_ref().expect("it is durable"));
        let at = lag.positions.get(pubend);
        let lacks = self.cache.incomplete(&track.partitions, pubend).max(durable.holes[own]).min(passed);
        if at >= lacks {
            return Step::Done;
        }
        let (start, early) = (durable.start[own], self.store.release.early[own]);
        let (session, is_volatile) = (track.session, durable.may_be_volatile);
        let forgiven = lag.forgiven.get(pubend);
        let gaps = &mut self.tracks.get_mut(id).lag.as_mut().expect("it lags").gaps;
        // What came before its interest was confirmed was logged only by chance, and so was what its topics let go.
        let unlogged = if is_volatile { lacks } else { start.min(lacks) };
        if unlogged > forgiven {
            gaps.add(Gap { pubend, from: at, to: unlogged, reason: GapReason::Overwritten });
        }
        gaps.add(Gap { pubend, from: at, to: early.min(lacks), reason: GapReason::Released });
        let from = if is_volatile { at } else { at.max(start) };
        if from >= lacks {
            self.tracks.get_mut(id).lag.as_mut().expect("it lags").positions.set(pubend, lacks);
            return Step::Done;
        }
        if *budget == 0 {
            return Step::Turn(Turn::Over);
        }
        let Some(slice) = self.store.reads.slice(own, from) else {
            self.store.reads.ask(session, own, from, lacks);
            return Step::Turn(Turn::Blocked);
        };
        let first = slice.events.partition_point(|event| event.id().tick <= from);
        let last = slice.events.partition_point(|event| event.id().tick <= lacks).min(first + *budget);
        let upto = if last == slice.events.len() { slice.upto.min(lacks) } else { slice.events[last].id().tick };
        let upto = if last < slice.events.len() { Tick(upto.0 - 1).min(lacks) } else { upto };
        // Cheap: they are handles.
        let events: Vec<Event> = slice.events[first..last].to_vec();
        if let Some((from, to)) = slice.lost {
            let gaps = &mut self.tracks.get_mut(id).lag.as_mut().expect("it lags").gaps;
            gaps.add(Gap { pubend, from: from.max(at), to: to.min(lacks), reason: GapReason::Lost });
        }
        *budget -= events.len().clamp(1, *budget);
        let Core { tracks, router, copies, sessions, .. } = self;
        let track = tracks.get_mut(id);
        let mut lag = track.lag.take().expect("it lags");
        let (host, lag_mut) = (pubend.host(), &mut *lag);
        let (blocked, weight, has_holes) = (false, 0, false);
        let mut reader =
            Reader { now, host, track, lag: lag_mut, router, copies, sessions, blocked, weight, has_holes, out };
        let is_whole = !events.iter().any(|event| reader.look_at_logged(event).is_break());
        let is_blocked = reader.blocked;
        if is_whole {
            lag.positions.set(pubend, upto);
        }
        track.lag = Some(lag);
        match (is_blocked, is_whole) {
            (true, _) => Step::Turn(Turn::Blocked),
            (false, false) => Step::Turn(Turn::Over),
            (false, true) => Step::More,
        }
    }

    /// A part of the log was read: those who waited for it have their turn.
    pub(crate) fn fetched(&mut self, fetched: &Fetched<'_>) {
        let Some(own) = self.store.reads.own_of(fetched.number) else { return };
        let pubend = self.streams.logged().host().pubend(own as u8);
        for session in self.store.reads.keep(fetched, pubend) {
            self.wake(session);
        }
    }

    /// A session has a turn to catch up, if it still is there and waits for none.
    fn wake(&mut self, index: u32) {
        if self.sessions.is_attached(index) {
            let session = self.sessions.get_mut(index);
            let waits = session.inflight.has_loading() || !session.follow.lagging.is_empty();
            let follow = &mut session.follow;
            if waits && !core::mem::replace(&mut follow.catching_up, true) {
                self.catching_up.push_back(index);
            }
        }
    }
}
