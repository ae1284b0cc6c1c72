//! The overlay: brokers, links, interests, and the paths of events.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use whimbrel_core::overlay::{
    BrokerPlan, InterestInfo, InterestValue, LinkInfo, NamedPath, NeighbourInfo, NotForgotten, PathsPlan, TopologyInfo,
};
use whimbrel_selector::TopicName;

use super::answers::{
    Broker, BrokerInterest, BrokerPath, Fit, Forgotten, Interests, Link, Neighbour, PlannedDestination, PlannedTopic,
    Topology, Wanted,
};
use super::{Shared, json, millis, percent, refuse};

/// Brokers whose interests are copied during one hold of the broker: each has some hundred entries.
const SLICE: usize = 16;

/// The version of neighbours that tell none: only 0.1 speaks a minor version of the protocol
/// without a field for it.
const UNTOLD: &str = "0.1";

/// Brokers in one answer about interests.
const PAGE: usize = 64;

pub(super) async fn topology(State(shared): State<Arc<Shared>>) -> Response {
    let (host, brokers, links, now) = shared.hub.look(|broker, _, now| {
        let core = broker.core();
        (core.host(), core.topology(now), core.links(), now)
    });
    if !is_open(&shared) {
        return alone();
    }
    let brokers = brokers.into_iter().map(|info| Broker { own: info.host == host, ..broker(info) }).collect();
    let links = links.iter().map(link).collect();
    json(StatusCode::OK, &Topology { now_ms: millis(now), brokers, links })
}

pub(super) async fn interest(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let Ok([from]) = percent::numbers::<usize, 1>(query.as_deref(), ["after"]) else {
        return refuse(StatusCode::BAD_REQUEST, "`after` is a number");
    };
    let mut next = Some(from.unwrap_or(0));
    if !is_open(&shared) {
        return alone();
    }
    let mut brokers = Vec::new();
    while let Some(from) = next.filter(|_| brokers.len() < PAGE) {
        let (host, infos) =
            shared.hub.look(|broker, _, _| (broker.core().host(), broker.core().interests(from, SLICE)));
        next = (infos.len() == SLICE).then_some(from + SLICE);
        brokers.extend(infos.into_iter().map(|info| BrokerInterest { own: info.host == host, ..interest_of(info) }));
        // Lets other tasks have the broker.
        tokio::task::yield_now().await;
    }
    let (stats, now) = shared.hub.look(|broker, _, now| (broker.core().overlay_stats(), now));
    let fit = stats.map_or(Fit::default(), |stats| Fit {
        versions: stats.net.interest_versions,
        received: stats.events_received,
        unwanted: stats.events_unwanted,
        repeated: stats.events_repeated,
    });
    json(StatusCode::OK, &Interests { now_ms: millis(now), fit, brokers, next: next.map(|from| from as u64) })
}

/// The paths of a topic's events to all brokers that may want them.
pub(super) async fn paths(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let Some(text) = percent::field(query.as_deref(), "topic") else {
        return refuse(StatusCode::BAD_REQUEST, "say which topic: /paths?topic=alarm%2F1");
    };
    let topic = match TopicName::new(&text) {
        Ok(topic) => topic,
        Err(error) => {
            let error = format!("{text:?} is no topic: {}; write one without wildcards", error.why());
            return refuse(StatusCode::BAD_REQUEST, error);
        }
    };
    match shared.hub.planned_paths(topic) {
        Some(plan) => json(StatusCode::OK, &planned(&shared.about.name, plan)),
        None => alone(),
    }
}

/// Whether the broker has an overlay.
pub(super) fn is_open(shared: &Shared) -> bool {
    shared.hub.look(|broker, _, _| broker.core().overlay_stats().is_some())
}

/// Forgets a broker for ever; with `?force=1` even one that can be reached.
pub(super) async fn forget(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let force = percent::field(query.as_deref(), "force").is_some_and(|force| force == "1");
    let hub = &shared.hub;
    match hub.retire_broker(&name, force) {
        Ok((hosts, batch)) => {
            tracing::warn!(name, hosts, "an operator has had a broker forgotten");
            let durable = super::is_durable_soon(hub, batch).await;
            json(StatusCode::OK, &Forgotten { name, hosts: hosts as u64, durable })
        }
        Err(why @ NotForgotten::Unknown) => refuse(StatusCode::NOT_FOUND, format!("{name}: {why}")),
        Err(why) => refuse(StatusCode::CONFLICT, format!("{name}: {why}")),
    }
}

pub(super) fn alone() -> Response {
    let error = "this broker has no overlay: it is not one of many. Start it with --listen-overlay ADDR:PORT, and others with --peer";
    refuse(StatusCode::CONFLICT, error)
}

fn broker(info: TopologyInfo) -> Broker {
    let neighbour = |end: NeighbourInfo| Neighbour {
        name: end.name.into(),
        delay_us: end.delay_us.into(),
        loss_permille: end.loss.into(),
    };
    Broker {
        name: info.name.into(),
        host: info.host.to_string(),
        incarnation: info.incarnation,
        addresses: info.addresses.into_iter().map(String::from).collect(),
        domains: info.domains.names().map(String::from).collect(),
        own: false,
        reachable: !info.path.is_empty(),
        path: info.path.into_iter().map(String::from).collect(),
        cost_us: info.cost_us,
        age_ms: u64::try_from(info.age.as_millis()).unwrap_or(u64::MAX),
        links: info.links.into_iter().map(neighbour).collect(),
    }
}

fn link(info: &LinkInfo) -> Link {
    Link {
        peer: info.name.to_string(),
        host: info.host.to_string(),
        version: if info.version.is_empty() { UNTOLD.to_owned() } else { info.version.to_string() },
        dialed: info.dialed,
        delay_us: info.delay_us.map(u64::from),
        loss_permille: info.loss.into(),
        condition: info.condition.name().to_owned(),
        condition_cause: info.condition_cause.text().to_owned(),
        condition_since_ms: info.condition_since.as_nanos() / 1_000_000,
        clock_ahead_ms: info.ahead / 1_000_000,
        unsent_bytes: info.unsent as u64,
        frames_out: info.counters.frames_out,
        bytes_out: info.counters.bytes_out,
        frames_in: info.counters.frames_in,
        bytes_in: info.counters.bytes_in,
        events_out: info.counters.events_out,
        events_in: info.counters.events_in,
        events_held_back: info.counters.events_held_back,
    }
}

fn interest_of(info: InterestInfo) -> BrokerInterest {
    let wanted =
        |entry: InterestValue| Wanted { filter: entry.filter.into(), selector: entry.selector.map(String::from) };
    BrokerInterest {
        name: info.name.into(),
        host: info.host.to_string(),
        own: false,
        version: info.version,
        reachable: info.is_reachable,
        unconfirmed: info.unconfirmed.into_iter().map(String::from).collect(),
        entries: info.entries.into_iter().map(wanted).collect(),
    }
}

/// A plan of this broker.
pub(super) fn planned(from: &str, plan: PathsPlan) -> PlannedTopic {
    PlannedTopic {
        topic: plan.topic.into(),
        from: from.to_owned(),
        deadline_ms: plan.deadline.map(|deadline| u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX)),
        setting: plan.paths.to_string(),
        destinations: plan.brokers.into_iter().map(destination).collect(),
        more: plan.more as u64,
    }
}

fn destination(plan: BrokerPlan) -> PlannedDestination {
    let path = |path: NamedPath| BrokerPath {
        brokers: path.brokers.into_iter().map(String::from).collect(),
        time_us: path.time_us,
        in_time: path.is_in_time,
    };
    PlannedDestination {
        broker: plan.name.into(),
        host: plan.host.to_string(),
        filter: plan.wants.filter.into(),
        selector: plan.wants.selector.map(String::from),
        paths: plan.paths.into_iter().map(path).collect(),
        shared_brokers: plan.shared_brokers.into_iter().map(String::from).collect(),
        shared_links: plan.shared_links.into_iter().map(|link| link.map(String::from).into()).collect(),
        direct_us: plan.direct.map(|direct| direct.delay_us.into()),
    }
}
