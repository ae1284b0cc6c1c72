//! The account of alarms: clients write to it, and the view reads it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::judge::AlarmJudge;
use super::snapshot::AlarmSnapshot;
use crate::fleet::regions::{Disturbances, Sites};

/// The run's view of alarms.
pub struct AlarmBoard {
    state: Mutex<Option<AlarmState>>,
    disturbances: Arc<Disturbances>,
}

/// The state of a run with alarms.
pub(super) struct AlarmState {
    pub(super) judge: AlarmJudge,
    regions: usize,
    /// Publishers with a connection.
    pub(super) publishers: usize,
}

impl AlarmBoard {
    /// A board of a run without alarms, until [`AlarmBoard::open`].
    pub fn new(disturbances: Arc<Disturbances>) -> AlarmBoard {
        AlarmBoard { state: Mutex::default(), disturbances }
    }

    fn state(&self) -> MutexGuard<'_, Option<AlarmState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, if there are alarms.
    pub(super) fn with(&self, change: impl FnOnce(&mut AlarmState)) {
        if let Some(state) = &mut *self.state() {
            change(state);
        }
    }

    /// The run has alarms with this deadline, in this many regions.
    pub fn open(&self, deadline: Duration, regions: usize) {
        let judge = AlarmJudge::new(deadline, regions).during(self.disturbances.clone());
        *self.state() = Some(AlarmState { judge, regions, publishers: 0 });
    }

    /// Whether the run has alarms.
    pub fn is_open(&self) -> bool {
        self.state().is_some()
    }

    /// Whether all clients are connected, and each desk has every alarm published before a moment,
    /// except those that later ones have overtaken.
    pub fn is_served(&self, before: Duration) -> bool {
        let state = self.state();
        let Some(state) = &*state else { return true };
        state.publishers == state.regions && state.judge.all_attend() && !state.judge.owes(before)
    }

    /// A console or watcher in a region has received a position at this moment, `delay` after it
    /// was due, that was handed to the brokers of these `sites`.
    pub fn ordinary(&self, sites: Sites, region: usize, delay: Duration, now: Duration) {
        self.with(|state| state.judge.ordinary(sites, region, delay, now));
    }

    /// The run is over: alarms that have not arrived will not.
    pub fn close(&self, now: Duration) {
        self.with(|state| state.judge.close(now));
    }

    /// The present state for the view; `None` without alarms.
    pub fn snapshot(&self) -> Option<AlarmSnapshot> {
        self.state().as_ref().map(|state| AlarmSnapshot::new(&state.judge))
    }

    /// Alarms that are on their way to desks.
    pub(super) fn waiting(&self) -> u64 {
        self.state().as_ref().map_or(0, |state| state.judge.waiting())
    }
}
