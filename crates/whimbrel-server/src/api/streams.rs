//! Streams: their positions, what is kept of them, and for which subscriptions and brokers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use whimbrel_core::{HoldGivenInfo, Holders, StreamInfo};
use whimbrel_event::Time;

use super::answers::{Holder, JournalUse, Owed, Stream, Streams};
use super::{Shared, age, json, millis, moment};

/// Places of subscriptions looked at during one hold of the broker.
const SLICE: usize = 2048;

pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Response {
    let hub = &shared.hub;
    let (mut holders, mut next) = (Holders::default(), Some(0));
    while let Some(from) = next {
        next = hub.look(|broker, _, _| broker.core().holders(from, SLICE, &mut holders));
        // Lets other tasks have the broker.
        tokio::task::yield_now().await;
    }
    let (streams, held, account, now) = hub.look(|broker, store, now| {
        let core = broker.core();
        (core.streams(), core.holds_given(), store.map(|store| (store.account(), store.usage())), now)
    });
    let usage = account.as_ref().map(|(_, usage)| usage);
    let mut rows = Vec::new();
    for (own, info) in streams.iter().enumerate() {
        let used = usage.map(|usage| usage.events[own]).unwrap_or_default();
        let is_any = info.logged > info.chopped;
        let holder = holders.longest[own].as_ref().map(|holder| Holder {
            client_id: holder.client_id.to_string(),
            filter: holder.filter.to_string(),
            connected: holder.is_here,
            lag_ms: age(now, holder.upto),
            holders: holders.count[own] as u64,
        });
        rows.push(Stream {
            stream: info.pubend.to_string(),
            last_ms: millis(moment(info.passed)),
            logged_ms: Some(millis(moment(info.logged))).filter(|at| *at > 0),
            bytes: if is_any { used.bytes } else { 0 },
            // The first tick of a stream is not known until a part of it was given up.
            oldest_ms: used.oldest.filter(|tick| is_any && *tick > 0).map(|tick| tick / 1_000_000),
            holder,
            owed: held.iter().filter_map(|hold| owed(hold, (own, info), now)).collect(),
        });
    }
    let journal = account.map(|(account, usage)| JournalUse {
        kept_bytes: account.retained_bytes,
        file_bytes: account.bytes,
        max_bytes: usage.max_bytes,
        segments: account.files,
        segment_bytes: usage.segment_bytes,
        state: match (account.is_poisoned, account.is_full) {
            (true, _) => "failed",
            (false, true) => "full",
            (false, false) => "open",
        }
        .to_owned(),
        entries: account.map.keys as u64,
        entry_bytes: account.map.live,
        backup: shared.backups.available_permits() == 0,
    });
    json(StatusCode::OK, &Streams { now_ms: millis(now), streams: rows, journal })
}

/// The retention hold of another broker on one of the streams, if it holds any of it.
fn owed(hold: &HoldGivenInfo, (own, info): (usize, &StreamInfo), now: Time) -> Option<Owed> {
    let upto = hold.upto[own]?;
    Some(Owed {
        broker: hold.name.to_string(),
        host: hold.host.to_string(),
        acknowledged_ms: millis(moment(upto)),
        behind_ms: (upto < info.logged).then(|| age(now, upto)),
        heard_ms: millis(hold.heard),
        gone: hold.is_gone,
    })
}
