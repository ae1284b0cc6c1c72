//! The experiment of durable subscriptions: a broker that logs each event once, and subscribers
//! that leave and return, also after its crash.
//!
//! After Bhola, Zhao and Auerbach, "Scalably supporting durable subscriptions in a
//! publish/subscribe system". A publishers' broker (PHB) logs, and subscribers' brokers (SHBs) are
//! linked with it. Each is a process with a data directory on disk, and clients use sockets.
//! Whatever needs more cores than there are is modelled: `modelled`.

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

/// The parts that are measured with processes and sockets.
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

/// The parts that are measured in virtual time.
pub const VIRTUAL: &[Plan] = &[simulated::ABSENCES, simulated::CRASH, simulated::CHAIN, simulated::MODELLED];

/// A counter of all brokers: events that were given to the journal.
const LOGGED: &str = "whimbrel_events_logged_total";

/// Events per second, over all publishers.
const RATE: u64 = 800;

/// The number of publishers, each on its own stream.
const PUBLISHERS: usize = 4;

/// The number of kinds of events; a subscriber wants one of them.
const CLASSES: usize = 4;

/// Bytes of an event's body. With topic and attributes the event is about as long as the paper's
/// (418 bytes).
const BODY: usize = 250;

/// The topic of all events.
const TOPIC: &str = "plant/line/events";

/// The core of the measured broker, and the core of the generator and of brokers with little to do.
const CORES: (usize, usize) = (0, 1);

/// How long the broker keeps sessions, seconds.
const SESSION_SECONDS: u32 = 3_600;
