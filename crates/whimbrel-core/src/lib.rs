//! The broker as a deterministic state machine without IO.
//!
//! [`Broker`] owns sessions, subscriptions, retained messages and the broker's streams. It is
//! driven by [`Broker::handle`] with the present moment and one [`Input`], tells what is to be done
//! to a sink ([`Output`]), and says with [`Broker::next_deadline`] when it wants to be called
//! although nothing happened. Time and randomness (a seed) are arguments; given the same inputs it
//! does the same.
//!
//! It knows nothing of packets, sockets, tasks or files. An *edge* translates between a protocol
//! and this vocabulary: a connection is a [`Link`], an unsettled delivery a *tag* (1 to 65,535,
//! unique within its session and direction).

// Unit tests use the rig of the integration tests, which names this crate.
#[cfg(test)]
extern crate self as whimbrel_core;

#[macro_use]
mod fault;

mod api;
mod broker;
pub mod cache;
mod caching;
mod content;
mod copies;
mod cursor;
mod inspect;
mod lazy;
pub mod overlay;
mod retained;
mod route;
mod session;
mod shared;
mod sharing;
mod stats;
pub mod store;
pub mod stream;
mod subscription;
mod timers;
mod topic;

pub use api::{
    Accepted, Attach, Channel, Delivery, Durability, EventStep, Filter, Granted, HangUp, Hop, Input, Kick, Limits,
    Link, LinkOutput, Naming, Output, PeerInput, PeerLink, Publish, Reason, Refusal, RetainHandling, Segment, Sent,
    SessionPrincipal, Settlement, Start, SubscriptionSpec, Tell, Unread, Will,
};
pub use broker::Broker;
pub use caching::CacheInterest;
pub use cursor::{GapReason, NOTICE_TOPIC};
#[cfg(feature = "mutants")]
pub use fault::Mutant;
pub use inspect::{
    HoldGivenInfo, Holder, Holders, PlaceInfo, Presence, ProfilesInfo, ProfilesPage, SessionInfo, StreamInfo,
    SubscriptionInfo,
};
pub use overlay::{ALL_OTHERS, DARK_COST_US, OverlayConfig, Pace, Routing};
pub use session::{BURST_FACTOR, READ_OUT_MAX};
pub use stats::{GapClass, GapCounts, Stats};
pub use topic::{
    Availability, DEADLINE_MAX, LateCause, ListedProfile, PROFILES_MAX, Persistence, Profile, Punctuality, RATE_BURST,
    RankedProfile, SLACK_BOUNDS_PERCENT, TopicDeliveries, TopicPaths, TopicRate, TopicTransport,
};
pub use whimbrel_event::{LATENCY_BOUNDS_US, LatencyHistogram};
#[cfg(feature = "mutants")]
pub use whimbrel_net::NetMutant;
pub use whimbrel_wire::{PRINCIPAL_BYTES_MAX, SURCHARGES_MAX};
