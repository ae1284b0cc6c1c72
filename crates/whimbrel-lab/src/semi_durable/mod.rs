//! The experiment of semi-durable subscriptions: mobile subscribers that recover missed events from
//! memory.
//!
//! After Farooq, Majumdar and Parsons, "High performance publish/subscribe middleware for mobile
//! wireless networks".

mod outage;
mod policy;

mod real;
mod simulated;

use crate::experiment::Plan;

/// The parts that the virtual driver measures.
pub const VIRTUAL: &[Plan] = simulated::PLANS;

/// The parts that the real driver measures.
pub const REAL: &[Plan] = real::PLANS;
