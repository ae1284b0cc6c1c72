//! Sessions: listing, searching, showing and ending them, and disconnecting their clients.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use whimbrel_core::{Presence, SubscriptionInfo};
use whimbrel_event::Time;
use whimbrel_mqtt::{Origin, Traffic};

use super::answers::{Connection, Dropped, Kicked, Position, RefusedPublishes, Session, Sessions, Shown, Subscription};
use super::{Shared, age, json, millis, percent, refuse};
use crate::drive::{Client, Seen, Seens};

/// Sessions in one answer, unless fewer are asked for.
const PAGE: usize = 1000;

/// Approximate bytes of JSON after which an answer ends, so that it fits a message to another
/// broker.
const PAGE_BYTES: usize = 128 << 10;

/// Approximate bytes of JSON of a session, with its client's connection, without its client id.
const SESSION_BYTES: usize = 640;

/// Places of sessions looked at during one hold of the broker: about a tenth of a millisecond.
const SLICE: usize = 128;

/// Slices in one answer: if few of many sessions are left, an answer may have no session.
const SLICES: usize = 64;

/// Places of sessions searched during one hold of the broker: most are only compared.
const SEARCH_SLICE: usize = 1024;

/// Slices in one answer to a search.
const SEARCH_SLICES: usize = 256;

/// Subscriptions in one answer.
const SUBSCRIPTIONS: usize = 500;

pub(super) async fn list(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let Ok([after, limit]) = percent::numbers::<u32, 2>(query.as_deref(), ["after", "limit"]) else {
        return refuse(StatusCode::BAD_REQUEST, "`after` and `limit` are numbers");
    };
    let limit = limit.map_or(PAGE, |limit| (limit as usize).clamp(1, PAGE));
    let prefix = percent::field(query.as_deref(), "prefix").unwrap_or_default();
    if prefix.is_empty() && query.as_deref().is_some_and(|query| percent::has_value(query, "prefix")) {
        return refuse(StatusCode::BAD_REQUEST, "`prefix` is no percent-encoded UTF-8");
    }
    let mut page = Page { sessions: Vec::new(), now: Time::ZERO, bytes: 0 };
    // A session with exactly this client id need not be searched.
    let exact = shared.hub.session(&prefix).filter(|_| !prefix.is_empty());
    let after = after.unwrap_or(0);
    if let Some((seen, now)) = exact.as_ref().filter(|_| after == 0) {
        (page.now, page.bytes) = (*now, SESSION_BYTES + prefix.len());
        page.sessions.push(session(seen, *now));
    }
    let mut next = Some(after);
    let (slice, slices) = if prefix.is_empty() { (SLICE, SLICES) } else { (SEARCH_SLICE, SEARCH_SLICES) };
    for _ in 0..slices {
        let Some(from) = next.filter(|_| page.sessions.len() < limit && page.bytes < PAGE_BYTES) else { break };
        let most = SLICE.min(limit - page.sessions.len());
        let places = if prefix.is_empty() { most } else { slice };
        let mut seens = shared.hub.sessions(&prefix, from, places, most);
        next = seens.next;
        seens.sessions.retain(|seen| *seen.info.client_id != *prefix);
        page.add(&seens);
        // Lets other tasks have the broker.
        tokio::task::yield_now().await;
    }
    json(StatusCode::OK, &Sessions { now_ms: millis(page.now), sessions: page.sessions, next })
}

/// The sessions of one answer.
struct Page {
    sessions: Vec<Session>,
    now: Time,
    bytes: usize,
}

impl Page {
    fn add(&mut self, seens: &Seens) {
        self.now = seens.now;
        self.bytes += seens.sessions.iter().map(|seen| SESSION_BYTES + seen.info.client_id.len()).sum::<usize>();
        self.sessions.extend(seens.sessions.iter().map(|seen| session(seen, seens.now)));
    }
}

pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    Path(client_id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let after = percent::field(query.as_deref(), "after");
    let Some((seen, now)) = shared.hub.session(&client_id) else { return unknown(&client_id) };
    let (mut subscriptions, refused) = shared.hub.look(|broker, _, _| {
        let subscriptions = broker.core().subscriptions(&client_id, after.as_deref(), SUBSCRIPTIONS + 1);
        (subscriptions, broker.refused_publishes(&client_id).cloned())
    });
    let has_more = subscriptions.len() > SUBSCRIPTIONS;
    subscriptions.truncate(SUBSCRIPTIONS);
    let next = subscriptions.last().filter(|_| has_more).map(|last| last.filter.to_string());
    let subscriptions = subscriptions.iter().map(|info| subscription(info, now)).collect();
    let refused_publishes = refused.map(|refused| RefusedPublishes {
        count: refused.count,
        code: refused.code,
        why: refused.why,
        topic: Some(refused.topic).filter(|topic| !topic.is_empty()),
    });
    let (now_ms, session) = (millis(now), session(&seen, now));
    json(StatusCode::OK, &Shown { now_ms, session, subscriptions, next, refused_publishes })
}

pub(super) async fn end(State(shared): State<Arc<Shared>>, Path(client_id): Path<String>) -> Response {
    let hub = &shared.hub;
    let is_poisoned = hub.look(|_, store, _| store.is_some_and(|store| store.account().is_poisoned));
    if is_poisoned {
        let error = "the journal has failed: a session that is ended now would be there again after a restart. Restart the broker first";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, error);
    }
    let Some((seen, batch, now)) = hub.drop_session(&client_id) else {
        let is_shared = hub.look(|broker, _, _| broker.core().session(&client_id).is_some());
        return if is_shared { shared_subscription(&client_id) } else { unknown(&client_id) };
    };
    tracing::info!(client_id, subscriptions = seen.info.subscriptions, "an operator has ended a session");
    let durable = super::is_durable_soon(hub, batch).await;
    json(StatusCode::OK, &Dropped { session: session(&seen, now), durable })
}

/// Disconnects a client; its session lasts as its expiry says.
pub(super) async fn kick(State(shared): State<Arc<Shared>>, Path(client_id): Path<String>) -> Response {
    let Some((seen, now)) = shared.hub.kick(&client_id) else { return unknown(&client_id) };
    if seen.client.is_none() {
        let error = format!("the client {client_id:?} is not connected here, so there is nothing to disconnect");
        return refuse(StatusCode::CONFLICT, error);
    }
    tracing::info!(client_id, "an operator has disconnected a client");
    json(StatusCode::OK, &Kicked { session: session(&seen, now) })
}

fn unknown(client_id: &str) -> Response {
    refuse(StatusCode::NOT_FOUND, format!("there is no session with the client id {client_id:?}"))
}

fn shared_subscription(text: &str) -> Response {
    let error = format!(
        "{text:?} is a shared subscription: it ends with the last of its members. Drop their sessions; `whimbrel sessions show` tells what a \
         session subscribes to"
    );
    refuse(StatusCode::CONFLICT, error)
}

fn session(Seen { info, client }: &Seen, now: Time) -> Session {
    let (since, until) = match info.presence {
        Presence::Here => (None, None),
        Presence::Away { since, until } => (Some(millis(since)), Some(millis(until))),
    };
    Session {
        client_id: info.client_id.to_string(),
        owner: info.principal.as_deref().map(str::to_owned),
        connected: info.presence == Presence::Here,
        connection: client.as_ref().map(connection),
        away_since_ms: since,
        expires_ms: until,
        expiry_ms: u64::try_from(info.expiry.as_millis()).unwrap_or(u64::MAX),
        kept: info.is_kept,
        subscriptions: info.subscriptions as u64,
        durable: info.durable as u64,
        lag_ms: info.behind.map(|tick| age(now, tick)),
        in_flight: info.in_flight as u64,
        waiting: info.waiting as u64,
        epoch: info.place.as_ref().map(|place| place.epoch),
        deputy: info.place.as_ref().and_then(|place| place.replica.as_deref()).map(str::to_owned),
        given_to: info.place.as_ref().and_then(|place| place.given_to.as_deref()).map(str::to_owned),
    }
}

fn connection(Client { info, address }: &Client) -> Connection {
    let listener = match info.origin {
        Origin::Tcp => "mqtt",
        Origin::Tls => "tls",
        Origin::Ws => "ws",
        Origin::Wss => "wss",
    };
    let Traffic { publishes_in, publishes_out, bytes_in, bytes_out } = info.traffic;
    Connection {
        address: address.map(|address| address.to_string()),
        listener: listener.to_owned(),
        protocol: info.version.to_string(),
        bridge: info.is_bridge,
        user: info.principal.as_deref().map(str::to_owned),
        since_ms: millis(info.since),
        publishes_in,
        publishes_out,
        bytes_in,
        bytes_out,
    }
}

fn subscription(info: &SubscriptionInfo, now: Time) -> Subscription {
    let position = |(pubend, tick): &(whimbrel_event::PubendId, whimbrel_event::Tick)| Position {
        stream: pubend.to_string(),
        tick: tick.0.to_string(),
    };
    Subscription {
        filter: info.filter.to_string(),
        selector: info.selector.as_ref().map(ToString::to_string),
        selective: info.is_selective,
        qos: info.spec.qos as u8,
        durability: info.spec.durability.name().to_owned(),
        position_kept_by: if info.spec.by_token { "client" } else { "broker" }.to_owned(),
        replier: info.spec.is_replier,
        lag_ms: info.behind.map(|tick| age(now, tick)),
        positions: info.positions.iter().map(position).collect(),
    }
}
