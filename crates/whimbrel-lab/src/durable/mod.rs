//! The experiment of durable subscriptions: a broker that logs each event once, and subscribers
//! that go and come back, also after its crash.
//!
//! After Bhola, Zhao and Auerbach, "Scalably supporting durable subscriptions in a
//! publish/subscribe system". A publishers' broker (PHB) logs, and brokers for subscribers (SHBs)
//! are linked with it; each is a process with a data directory on disk, and is spoken to over
//! sockets. What needs more cores than there are is modelled: `modelled`.

mod acknowledge;
pub mod calibrate;
mod chain;
mod crash;
mod crowd;
mod publisher;
mod rates;
mod records;
mod simulated;
mod star;
mod subscriber;
mod topology;

use crate::experiment::Plan;

/// What is measured with processes and sockets.
pub const REAL: &[Plan] = &[
    rates::PLAN,
    rates::ONE_BROKER,
    star::PLAN,
    crash::PLAN,
    chain::PLAN,
    acknowledge::PLAN,
    records::PLAN,
    simulated::MODELLED,
];

/// What is measured in virtual time.
pub const VIRTUAL: &[Plan] = &[simulated::ABSENCES, simulated::CRASH, simulated::CHAIN, simulated::MODELLED];

/// A counter of all brokers: events that were given to the journal.
const LOGGED: &str = "whimbrel_events_logged_total";

/// Events per second, all publishers together.
const RATE: u64 = 800;

/// Publishers, each on a stream of its own.
const PUBLISHERS: usize = 4;

/// Kinds of events; a subscriber wants one of them.
const CLASSES: usize = 4;

/// Bytes of an event's body; with topic and attributes it is about as long as the paper's (418
/// bytes).
const BODY: usize = 250;

/// Where events are published.
const TOPIC: &str = "plant/line/events";

/// The core of what is measured, and that of the generator and of brokers that have little to do.
const CORES: (usize, usize) = (0, 1);

/// How long the broker keeps sessions, seconds.
const SESSION_SECONDS: u32 = 3_600;
