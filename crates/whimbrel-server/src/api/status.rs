//! The broker's present state, and the principal of a request.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use whimbrel_core::{GapClass, GapCounts, Stats};

use super::access::{Authorizer, Remote, refused};
use super::answers::{Counters, Listeners, Lost, Peer, Sample, Status, WhoAmI};
use super::{Shared, json, millis};
use crate::drive::{self, Hub};
use crate::overlay::PeerAccount;
use crate::process;
use crate::server::Phase;

pub(super) async fn show(State(shared): State<Arc<Shared>>) -> Response {
    let hub = &shared.hub;
    let sample = sample(hub);
    let (host, brokers, subscriptions, now) = hub.look(|broker, _, now| {
        let core = broker.core();
        (core.host(), core.topology(now), broker.stats().core.subscriptions, now)
    });
    let own = brokers.iter().find(|broker| broker.host == host);
    let (known, reachable) = drive::brokers(&brokers, host);
    let about = &shared.about;
    let status = Status {
        now_ms: millis(now),
        started_ms: about.started_ms,
        name: about.name.clone(),
        version: about.version.clone(),
        host: host.to_string(),
        incarnation: own.map(|own| own.incarnation),
        deployment: about.deployment.clone(),
        phase: phase(*shared.phase.borrow()).to_owned(),
        dev: about.dev,
        listeners: about.listeners.clone(),
        lat: about.place.map(|place| place.lat),
        lon: about.place.map(|place| place.lon),
        connections: sample.connections,
        sessions: sample.sessions,
        subscriptions,
        brokers_reachable: reachable,
        brokers_known: known,
        peers: shared.hub.peers().into_iter().map(peer).collect(),
        counters: sample.counters,
    };
    json(StatusCode::OK, &status)
}

fn peer(account: PeerAccount) -> Peer {
    Peer {
        address: account.address,
        found: account.is_found,
        reached: account.is_reached,
        for_ms: u64::try_from(account.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        error: Some(account.why).filter(|why| !why.is_empty()),
    }
}

/// The principal of a request, and facts that it may know without any right: where the map's events
/// are to be had.
pub(super) async fn who(
    State(shared): State<Arc<Shared>>,
    Extension(authorizer): Extension<Arc<dyn Authorizer>>,
    remote: Option<Extension<Remote>>,
    headers: HeaderMap,
) -> Response {
    let remote = remote.map(|Extension(remote)| remote).unwrap_or_default();
    let (principal, may) = match authorizer.who(&headers, &remote).await {
        Ok(known) => known,
        Err(refusal) => return refused(&headers, refusal),
    };
    let about = &shared.about;
    let who = WhoAmI {
        principal,
        may: may.into_iter().map(|action| action.name().to_owned()).collect(),
        dev: about.dev,
        broker: about.name.clone(),
        deployment: about.deployment.clone(),
        listeners: Listeners { mqtt: None, tls: None, overlay: None, ..about.listeners.clone() },
    };
    json(StatusCode::OK, &who)
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Draining => "draining",
    }
}

/// The broker's numbers at this moment.
pub(super) fn sample(hub: &Hub) -> Sample {
    let (stats, gaps, journal_bytes, now) = hub.look(|broker, store, now| {
        let journal_bytes = store.map_or(0, |store| store.account().bytes);
        (broker.stats(), broker.core().gap_counts(), journal_bytes, now)
    });
    let (overlay_bytes_in, overlay_bytes_out) = hub.overlay_bytes();
    let core = &stats.core;
    let counters = Counters {
        events_accepted: core.events_accepted,
        events_logged: core.events_logged,
        deliveries: core.deliveries,
        bytes_in: stats.bytes_in,
        bytes_out: stats.bytes_out,
        packets_in: stats.packets_in,
        packets_out: stats.packets_out,
        refused: stats.refused.total() + stats.publishes_refused.total() + core.subscriptions_refused,
        lost: lost(core, &gaps),
        gaps: gaps.promised(),
        gaps_best_effort: gaps.best_effort(),
        overlay_bytes_in,
        overlay_bytes_out,
        cpu_ms: (process::cpu_seconds() * 1e3) as u64,
        memory_bytes: process::resident_bytes().unwrap_or(0),
        journal_bytes,
    };
    Sample { at_ms: millis(now), connections: stats.connections, sessions: core.sessions, counters }
}

/// Events lost to subscriptions, by their promise: dropped deliveries of those without one, gaps of
/// all.
pub(crate) fn lost(core: &Stats, gaps: &GapCounts) -> Lost {
    Lost {
        nondurable: core.dropped_slow + core.dropped_queue_full + gaps.lost(GapClass::Nondurable),
        semi_durable: gaps.lost(GapClass::SemiDurable),
        durable: gaps.lost(GapClass::Durable),
    }
}
