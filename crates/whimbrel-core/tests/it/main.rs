//! All integration tests that need no binary of their own: one is linked sooner than many.

#[path = "../common/mod.rs"]
mod common;

mod delivery;
mod durable_edges;
mod follow;
mod knowledge;
mod plain_way;
mod retained;
mod selectors;
mod sessions;
mod shared;
