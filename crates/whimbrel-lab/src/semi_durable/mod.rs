//! The experiment of semi-durable subscriptions: mobile subscribers that recover what they missed
//! from memory.
//!
//! After Farooq, Majumdar and Parsons, "High performance publish/subscribe middleware for mobile
//! wireless networks".

mod outage;
mod policy;

mod real;
mod simulated;

use crate::experiment::Plan;

/// What the virtual driver measures.
pub const VIRTUAL: &[Plan] = simulated::PLANS;

/// What the real driver measures.
pub const REAL: &[Plan] = real::PLANS;
