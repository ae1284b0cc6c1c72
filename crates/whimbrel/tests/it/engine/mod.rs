//! `whimbrel serve --engine` on three real servers, as its operators meet it: `NATS_SERVER`
//! names the program of a server; without it nothing is tested here. `make test-engine` builds it
//! and sets the variable.

mod access;
mod local;
mod outages;
mod owners;
mod rig;
mod start;
