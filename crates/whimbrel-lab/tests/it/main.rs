//! All tests from outside that need no binary of their own: one is linked sooner than many.

#[path = "../fleet_broker/mod.rs"]
mod fleet_broker;

mod fleet_checker;
mod fleet_run;
mod fleet_traces;
mod fleet_view;
