//! The experiment of durable subscriptions: a broker that logs each event once, and subscribers that go and come back, also after its crash.
//!
//! After Bhola, Zhao and Auerbach, "Scalably supporting durable subscriptions in a publish/subscribe system". One broker plays both the publishers' and the
//! subscribers' part; it is a process on a core of its own with a data directory on disk, and is spoken to over sockets.

mod acknowledge;
mod broker;
mod crash;
mod crowd;
mod publisher;
mod rates;
mod records;
mod subscriber;

use crate::experiment::Plan;

/// What is measured.
pub const PLANS: &[Plan] = &[rates::PLAN, crash::PLAN, acknowledge::PLAN, records::PLAN];

/// Events per second, all publishers together.
const RATE: u64 = 800;

/// Publishers, each on a stream of its own.
const PUBLISHERS: usize = 4;

/// Kinds of events; a subscriber wants one of them.
const CLASSES: usize = 4;

/// Bytes of an event's body; with topic and attributes it is about as long as the paper's (418 bytes).
const BODY: usize = 250;

/// Where events are published.
const TOPIC: &str = "plant/line/events";

/// The cores of the broker and of the generator.
const CORES: (usize, usize) = (0, 1);

/// How long the broker keeps sessions, seconds.
const SESSION_SECONDS: u32 = 3_600;
