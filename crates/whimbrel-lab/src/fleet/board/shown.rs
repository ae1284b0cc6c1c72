//! The view's picture of the board's state.

use super::{Condition, LineRow, Promise, RATE_SECONDS, Roamer, Role, Selection, State, SubscriberId, Watch, Watched};
use crate::fleet::roaming::{Class, Signal};

impl State {
    pub(super) fn rates(&self) -> (f64, f64) {
        let last = self.seconds.iter().rev().take(RATE_SECONDS);
        let count = last.len().max(1) as f64;
        let (published, delivered) =
            last.fold((0, 0), |sum, second| (sum.0 + second.published, sum.1 + second.delivered));
        (published as f64 / count, delivered as f64 / count)
    }

    /// The consoles of a role that lose their signal.
    pub(super) fn class(&self, role: Role) -> Class {
        let promise = role.promise();
        let signal = |roamer: &Roamer| match (roamer.has_signal, self.checker.owed(roamer.subscriber)) {
            (false, _) => Signal::None,
            (true, 0) => Signal::Live,
            (true, _) => Signal::CatchingUp,
        };
        Class {
            signals: self.roamers.iter().filter(|roamer| roamer.role == role).map(signal).collect(),
            outages: self.seats.get(&role).map_or(0, |seats| seats.outages),
            tally: self.checker.tally(promise),
            in_flight: self.checker.in_flight(promise),
            missing: self.checker.missing(promise),
            waived: self.checker.waived(promise),
        }
    }

    pub(super) fn watches(&self, selection: &Selection, lines: &[String]) -> Vec<Watch> {
        let row = |(&condition, subscriber): (&Condition, &Option<SubscriberId>)| {
            let tally = subscriber.map(|subscriber| self.checker.tally_of(subscriber)).unwrap_or_default();
            Watch::new(condition.kind(), selection.selector(condition, lines), &tally)
        };
        selection.conditions.iter().zip(&self.selected).map(row).collect()
    }

    pub(super) fn lines(&self, names: &[String]) -> Vec<LineRow> {
        let mut vehicles = vec![0; names.len()];
        for sighting in self.sightings.iter().flatten() {
            vehicles[sighting.line as usize] += 1;
        }
        let row = |watched: &Watched| {
            let span = watched.seconds.len().saturating_sub(1).max(1) as f64;
            let ends = watched.seconds.front().zip(watched.seconds.back());
            let tally = watched.subscriber.map(|subscriber| self.checker.tally_of(subscriber)).unwrap_or_default();
            LineRow {
                name: names[watched.line as usize].clone(),
                vehicles: vehicles[watched.line as usize],
                rate: ends.map_or(0.0, |(first, last)| (last - first) as f64 / span),
                delivered: watched.delivered,
                recent: watched.delays.recent(),
                delay_ms: watched.delays.overall(),
                faults: tally.faults(Promise::Reliable),
            }
        };
        self.watched.iter().map(row).collect()
    }
}
