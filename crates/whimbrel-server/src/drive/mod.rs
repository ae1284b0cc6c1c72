//! Drives the broker: sockets, the clock and its one owner at a time.
//!
//! The broker is one deterministic state machine behind one lock. A thread that has input and finds
//! the lock free runs the machine and, after letting go of the lock, writes the output. A thread
//! that finds the lock taken leaves its input in the inbox, and the present owner handles it. So
//! with one CPU a message costs one wake-up, and with more, reading, writing, TLS and WebSocket
//! framing run beside the machine.
//!
//! No connection keeps the others waiting for more than a piece of input (`inbox`), no owner keeps
//! its thread for more than a few turns (`hub`), and no task of a connection reads on before the
//! runtime has looked for others' input (`task`).
//!
//! A broker with a journal (`crate::store`) gives it, at the end of each turn, what is to be
//! written. The machine's owner learns between two turns what has become durable or was read; a
//! task is woken for it if the machine has no owner. While too much waits for the disk, clients are
//! held up (`brake`).

mod account;
mod brake;
mod clock;
mod hub;
mod inbox;
mod machine;
mod port;
mod post;
mod task;

pub use account::Account;
pub(crate) use account::brokers;
pub use clock::Clock;
pub use hub::Hub;
pub(crate) use hub::sessions::{Client, Seen, Seens};
pub use port::Caller;
pub(crate) use post::{Asking, Text};
