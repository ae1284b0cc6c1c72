//! The broker's numbers over the last half hour: a ring of samples in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use parking_lot::Mutex;

use super::answers::{History, Sample};
use super::{Shared, json, millis, percent, refuse, status};
use crate::drive::Hub;
use crate::logging::Throttle;

/// Time between two samples.
const EVERY: Duration = Duration::from_secs(2);

/// Period in which it is logged at most once that messages were not retained for want of room.
const UNRETAINED_EVERY: Duration = Duration::from_secs(60);

/// Samples that are kept: half an hour.
const KEPT: usize = 900;

/// The samples of the last half hour.
#[derive(Debug, Default)]
pub(super) struct Ring(Mutex<VecDeque<Sample>>);

impl Ring {
    fn add(&self, sample: Sample) {
        let mut samples = self.0.lock();
        if samples.len() >= KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The samples after a time, thinned to at most `limit`, and the step: each stands for this
    /// many of the ring. The last sample is always included.
    fn after(&self, after_ms: u64, limit: usize) -> (Vec<Sample>, u64) {
        let samples = self.0.lock();
        let wanted = samples.len() - samples.partition_point(|sample| sample.at_ms <= after_ms);
        let step = wanted.div_ceil(limit.max(1)).max(1);
        let mut chosen: Vec<_> = samples.iter().rev().take(wanted).step_by(step).copied().collect();
        chosen.reverse();
        (chosen, step as u64)
    }
}

/// Takes samples until the task is dropped.
pub(super) async fn watch(hub: Arc<Hub>, ring: Arc<Ring>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let (throttle, mut known) = (Throttle::new(UNRETAINED_EVERY), 0);
    loop {
        ticks.tick().await;
        ring.add(status::sample(&hub));
        let refused = hub.look(|broker, _, _| broker.stats().core.retained_refused);
        if refused > known && throttle.pass(Instant::now()).is_some() {
            tracing::warn!(
                messages = refused - known,
                "messages were passed on and not retained: limits.max_retained or limits.retained_size is reached, or they are \
                 larger than what the log takes; clear retained messages (publish empty ones), or raise the limit"
            );
            known = refused;
        }
    }
}

pub(super) async fn show(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let Ok([after, limit]) = percent::numbers::<u64, 2>(query.as_deref(), ["after_ms", "limit"]) else {
        return refuse(StatusCode::BAD_REQUEST, "`after_ms` and `limit` are numbers");
    };
    let limit = limit.map_or(KEPT, |limit| limit.clamp(1, KEPT as u64) as usize);
    let (samples, step) = shared.ring.after(after.unwrap_or(0), limit);
    let now = shared.hub.look(|_, _, now| now);
    json(StatusCode::OK, &History { now_ms: millis(now), every_ms: step * EVERY.as_millis() as u64, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(samples: &[Sample]) -> Vec<u64> {
        samples.iter().map(|sample| sample.at_ms).collect()
    }

    #[test]
    fn the_ring_keeps_half_an_hour_and_thins_it_out_on_demand() {
        let ring = Ring::default();
        assert_eq!(ring.after(0, 10), (Vec::new(), 1));
        for at_ms in 1..=KEPT as u64 + 5 {
            ring.add(Sample { at_ms, ..Sample::default() });
        }
        let (all, step) = ring.after(0, KEPT);
        assert_eq!((all.len(), all[0].at_ms, step), (KEPT, 6, 1));
        let (last, step) = ring.after(900, KEPT);
        assert_eq!((times(&last), step), (vec![901, 902, 903, 904, 905], 1));
        let (thin, step) = ring.after(900, 2);
        assert_eq!((times(&thin), step), (vec![902, 905], 3));
        assert_eq!(times(&ring.after(0, 1).0), [905]);
        assert_eq!(ring.after(905, 7).0, []);
    }
}
