//! The routes of the API: one table for the router, the required rights, the questions between
//! brokers, and the description.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Router};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::access::{Action, Authorizer, Gate, check};
use super::answers::{
    Draining, Dropped, Forgotten, History, Interests, Kicked, PlannedTopic, Reloaded, Sessions, Shown, Status, Streams,
    System, Told, TopicChanged, TopicProfiles, Topology, Trace, Traced, WhoAmI,
};
use super::{
    Shared, backup, history, openapi, orders, overlay, refuse, sessions, status, streams, system, topics, trace,
};

/// Path of the API.
pub const PREFIX: &str = "/api/v1";

/// HTTP method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Delete => "delete",
        }
    }
}

/// Brokers that answer a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The broker asked, for itself.
    Itself,
    /// The broker asked, for itself; brokers ask each other for it.
    Each,
    /// All brokers.
    All,
}

/// Form of an answer.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    /// JSON of this form.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Bytes of this media type.
    Bytes(&'static str),
}

/// A field of a query: its name, whether it is a number, and what it is for.
pub(super) type Field = (&'static str, bool, &'static str);

/// A route of the API.
pub(super) struct Route {
    pub(super) verb: Verb,
    /// Below [`PREFIX`].
    pub(super) path: &'static str,
    /// The right that a request needs; `None`: only to be signed in.
    pub(super) action: Option<Action>,
    pub(super) by: By,
    pub(super) summary: &'static str,
    pub(super) fields: &'static [Field],
    pub(super) gives: Gives,
    handler: fn() -> MethodRouter<Arc<Shared>>,
}

const fn json<T: JsonSchema>() -> Gives {
    Gives::Json(|schemas| schemas.subschema_for::<T>())
}

/// Query fields of the questions to all brokers, which are passed on to them.
const BEHIND: Field = ("after", false, "where the last page ended, its `next`");
const AFTER: Field = ("after", true, "where the last page ended, its `next`");
const LIMIT: Field = ("limit", true, "at most so many");
const PREFIX_OF_ID: Field =
    ("prefix", false, "only those whose client ids begin so; that of exactly this client id comes first");
const BROKER: Field = ("broker", false, "ask only this one");
const TOPIC: Field = ("topic", false, "the topic, without wildcards");
const SINCE: Field = ("after_ms", true, "only what was later");
const SAMPLES: Field = ("limit", true, "at most so many: if there are more, each second, third … one is given");

/// All routes.
pub(super) const ROUTES: &[Route] = &[
    Route {
        verb: Verb::Get,
        path: "/status",
        action: Some(Action::Observe),
        by: By::Each,
        summary: "The broker at this moment.",
        fields: &[],
        gives: json::<Status>(),
        handler: || get(status::show),
    },
    Route {
        verb: Verb::Get,
        path: "/history",
        action: Some(Action::Observe),
        by: By::Each,
        summary: "What the broker was like in the last half hour, every 2 s.",
        fields: &[SINCE, SAMPLES],
        gives: json::<History>(),
        handler: || get(history::show),
    },
    Route {
        verb: Verb::Get,
        path: "/sessions",
        action: Some(Action::Observe),
        by: By::Each,
        summary: "Some of the sessions, in no particular order; `next` tells where the others follow.",
        fields: &[PREFIX_OF_ID, AFTER, LIMIT],
        gives: json::<Sessions>(),
        handler: || get(sessions::list),
    },
    Route {
        verb: Verb::Get,
        path: "/sessions/{client_id}",
        action: Some(Action::Observe),
        by: By::Each,
        summary: "A session with its subscriptions, in the order of their filters.",
        fields: &[BEHIND],
        gives: json::<Shown>(),
        handler: || get(sessions::show),
    },
    Route {
        verb: Verb::Delete,
        path: "/sessions/{client_id}",
        action: Some(Action::Administer),
        by: By::Itself,
        summary: "Ends a session as its expiry would.",
        fields: &[],
        gives: json::<Dropped>(),
        handler: || delete(sessions::end),
    },
    Route {
        verb: Verb::Post,
        path: "/sessions/{client_id}/kick",
        action: Some(Action::Administer),
        by: By::Itself,
        summary: "Disconnects a client; its session stays.",
        fields: &[],
        gives: json::<Kicked>(),
        handler: || post(sessions::kick),
    },
    Route {
        verb: Verb::Get,
        path: "/streams",
        action: Some(Action::Observe),
        by: By::Each,
        summary: "The broker's streams: how far they are, what is kept of them, and for whom.",
        fields: &[],
        gives: json::<Streams>(),
        handler: || get(streams::list),
    },
    Route {
        verb: Verb::Get,
        path: "/topics",
        action: Some(Action::Observe),
        by: By::Itself,
        summary: "The profiles of topics in the order in which they count, and brokers whose configurations have others.",
        fields: &[AFTER, LIMIT],
        gives: json::<TopicProfiles>(),
        handler: || get(topics::list),
    },
    Route {
        verb: Verb::Post,
        path: "/topics/{filter}",
        action: Some(Action::Administer),
        by: By::Itself,
        summary: "Makes a profile of topics at all brokers, in place of one with the same filter; what is not named has its default.",
        fields: &[
            ("rank", true, "of those that match a topic the least counts; 0 unless given"),
            ("persistence", false, "`auto`, `persistent` or `volatile`"),
            ("reliability", false, "`reliable` or `best-effort`"),
            ("deadline", false, "such as `50 ms`"),
            ("period", false, "such as `5 s`: the longest time without an event that subscribers accept"),
            ("rate", false, "`NUMBER/s` or `SIZE/s`, for each topic"),
            ("importance", true, "1 to 10"),
            ("expiry", false, "such as `10 s`"),
            ("transport", false, "`stream` or `datagram`, for best-effort events on links to other brokers"),
            (
                "paths",
                true,
                "1 or 2: over how many paths each event goes to another broker; more than one with a deadline",
            ),
            ("domains", false, "such as `eu,us`: only brokers that are in one of them carry the events"),
        ],
        gives: json::<TopicChanged>(),
        handler: || post(topics::make),
    },
    Route {
        verb: Verb::Delete,
        path: "/topics/{filter}",
        action: Some(Action::Administer),
        by: By::Itself,
        summary: "Removes a profile of topics that was made, at all brokers.",
        fields: &[],
        gives: json::<TopicChanged>(),
        handler: || delete(topics::remove),
    },
    Route {
        verb: Verb::Get,
        path: "/topology",
        action: Some(Action::Observe),
        by: By::Each,
        summary: "The brokers that are known, the ways to them, and the own links.",
        fields: &[],
        gives: json::<Topology>(),
        handler: || get(overlay::topology),
    },
    Route {
        verb: Verb::Get,
        path: "/paths",
        action: Some(Action::Observe),
        by: By::Each,
        summary: "How events of a topic that are published here go to the other brokers that may want them: each path with its time, and what the paths to a broker have in common.",
        fields: &[TOPIC],
        gives: json::<PlannedTopic>(),
        handler: || get(overlay::paths),
    },
    Route {
        verb: Verb::Get,
        path: "/interest",
        action: Some(Action::Observe),
        by: By::Itself,
        summary: "What brokers want of each other: the own interest, and those by which events are sent from here.",
        fields: &[AFTER],
        gives: json::<Interests>(),
        handler: || get(overlay::interest),
    },
    Route {
        verb: Verb::Get,
        path: "/trace/{event}",
        action: Some(Action::Observe),
        by: By::All,
        summary: "What all brokers know of an event, in the order of its way.",
        fields: &[],
        gives: json::<Trace>(),
        handler: || get(trace::show),
    },
    Route {
        verb: Verb::Get,
        path: "/trace/{event}/own",
        action: Some(Action::Observe),
        by: By::Each,
        summary: "What this broker alone knows of an event.",
        fields: &[],
        gives: json::<Traced>(),
        handler: || get(trace::own),
    },
    Route {
        verb: Verb::Delete,
        path: "/brokers/{name}",
        action: Some(Action::Administer),
        by: By::Itself,
        summary: "Forgets another broker for ever.",
        fields: &[("force", true, "1: also one that can be reached, as soon as it cannot")],
        gives: json::<Forgotten>(),
        handler: || delete(overlay::forget),
    },
    Route {
        verb: Verb::Post,
        path: "/backup",
        action: Some(Action::Administer),
        by: By::Itself,
        summary: "The journal as it is at one moment, as `whimbrel backup` reads it.",
        fields: &[],
        gives: Gives::Bytes(backup::MEDIA_TYPE),
        handler: || post(backup::send),
    },
    Route {
        verb: Verb::Get,
        path: "/whoami",
        action: None,
        by: By::Itself,
        summary: "Who asks, and what that one may do; whoever is signed in is told, also that it is nothing.",
        fields: &[],
        gives: json::<WhoAmI>(),
        handler: || get(status::who),
    },
    Route {
        verb: Verb::Post,
        path: "/drain",
        action: Some(Action::Administer),
        by: By::Itself,
        summary: "Takes leave of all clients and ends the process, as SIGTERM does.",
        fields: &[],
        gives: json::<Draining>(),
        handler: || post(orders::drain),
    },
    Route {
        verb: Verb::Post,
        path: "/reload",
        action: Some(Action::Administer),
        by: By::Itself,
        summary: "Reads again what can be read again of the configuration, as SIGHUP does.",
        fields: &[],
        gives: json::<Reloaded>(),
        handler: || post(orders::reload),
    },
    Route {
        verb: Verb::Get,
        path: "/openapi.json",
        action: Some(Action::Observe),
        by: By::Itself,
        summary: "This description.",
        fields: &[],
        gives: Gives::Json(|_| schemars::json_schema!({ "type": "object" })),
        handler: || get(openapi::show),
    },
    Route {
        verb: Verb::Get,
        path: "/system/status",
        action: Some(Action::Observe),
        by: By::All,
        summary: "What each broker answers to /status.",
        fields: &[BROKER],
        gives: json::<System<Told<Status>>>(),
        handler: || get(system::status),
    },
    Route {
        verb: Verb::Get,
        path: "/system/streams",
        action: Some(Action::Observe),
        by: By::All,
        summary: "What each broker answers to /streams.",
        fields: &[BROKER],
        gives: json::<System<Told<Streams>>>(),
        handler: || get(system::streams),
    },
    Route {
        verb: Verb::Get,
        path: "/system/sessions",
        action: Some(Action::Observe),
        by: By::All,
        summary: "What each broker answers to /sessions; to go on with one of them, name it and its `next`.",
        fields: &[PREFIX_OF_ID, AFTER, LIMIT, BROKER],
        gives: json::<System<Told<Sessions>>>(),
        handler: || get(system::sessions),
    },
    Route {
        verb: Verb::Get,
        path: "/system/sessions/{client_id}",
        action: Some(Action::Observe),
        by: By::All,
        summary: "What each broker answers to /sessions/{client_id}; one that has given the session away tells so in `given_to`.",
        fields: &[BEHIND, BROKER],
        gives: json::<System<Told<Shown>>>(),
        handler: || get(system::session),
    },
    Route {
        verb: Verb::Get,
        path: "/system/topology",
        action: Some(Action::Observe),
        by: By::All,
        summary: "What each broker answers to /topology.",
        fields: &[BROKER],
        gives: json::<System<Told<Topology>>>(),
        handler: || get(system::topology),
    },
    Route {
        verb: Verb::Get,
        path: "/system/paths",
        action: Some(Action::Observe),
        by: By::All,
        summary: "What each broker answers to /paths.",
        fields: &[TOPIC, BROKER],
        gives: json::<System<Told<PlannedTopic>>>(),
        handler: || get(system::paths),
    },
    Route {
        verb: Verb::Get,
        path: "/system/history",
        action: Some(Action::Observe),
        by: By::All,
        summary: "What each broker answers to /history; 300 samples of each unless fewer are asked for.",
        fields: &[SINCE, SAMPLES, BROKER],
        gives: json::<System<Told<History>>>(),
        handler: || get(system::history),
    },
];

/// The API below [`PREFIX`], for the requests that `authorizer` lets in.
pub(super) fn router(shared: Arc<Shared>, authorizer: &Arc<dyn Authorizer>) -> Router {
    let mut routes = Router::new();
    for route in ROUTES {
        let gate = Gate { authorizer: authorizer.clone(), action: route.action };
        routes = routes.route(route.path, (route.handler)().route_layer(from_fn_with_state(gate, check)));
    }
    let routes = routes
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "there is no such route; /api/v1/openapi.json names all") })
        .method_not_allowed_fallback(|| async {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "this route is not asked like that; /api/v1/openapi.json tells how")
        });
    Router::new().nest(PREFIX, routes.with_state(shared)).layer(Extension(authorizer.clone()))
}

/// Routes for questions of other brokers, each answered for this broker alone. Other brokers are
/// trusted as peers, so these routes only read.
pub(super) fn among_brokers(shared: Arc<Shared>) -> Router {
    let asked = ROUTES.iter().filter(|route| route.by == By::Each);
    let routes = asked.fold(Router::new(), |routes, route| {
        assert!((route.verb, route.action) == (Verb::Get, Some(Action::Observe)), "{} only reads", route.path);
        routes.route(route.path, (route.handler)())
    });
    let unknown = || async { refuse(StatusCode::NOT_FOUND, "brokers are not asked for this by others") };
    routes.fallback(unknown).with_state(shared)
}
