//! All tests from outside that need no binary of their own: one is linked sooner than many.

#[path = "../frame_checks/mod.rs"]
mod frame_checks;

mod cutting;
mod events;
mod letters;
mod limits;
mod messages;
mod properties;
mod recorded;
mod repeats;
mod sizes;
mod trees;
