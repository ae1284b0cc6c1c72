//! Ids, ticks, events and typed attributes.
//!
//! The vocabulary that every other part of Whimbrel shares. It depends on nothing else of Whimbrel's, and does
//! no IO: time is a number that the caller hands in.

mod attributes;
mod event;
mod hash;
mod id;
mod time;

pub use attributes::{ATTRIBUTE_TEXT_MAX, Attributes, AttributesBuf, InvalidAttributes, Value};
pub use event::{Event, EventRef, Headers, IMPORTANCE_DEFAULT, IMPORTANCE_MAX, Publisher, Qos, Reliability};
pub use hash::Seeded;
pub use id::{EventId, InvalidEventId, PubendId, Tick};
pub use time::Time;
