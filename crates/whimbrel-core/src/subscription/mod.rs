//! Subscriptions: their options, the encoding of those, and the machine that a SUBSCRIBE runs
//! through.
//!
//! | step | file | leads to |
//! |---|---|---|
//! | a client asks | `write.rs` | [`Asked`], behind earlier requests; or [`Written`] |
//! | that is durable | `make.rs` | `InForce`: the subscriptions exist |
//! | other brokers and the replica know | `answer.rs` | the client is told |
//!
//! `machine.rs` has the states, `awaiting.rs` those requests that wait for other brokers. A session
//! that is not remembered writes nothing: its SUBSCRIBE is in force in the call in which it is
//! asked for.

mod answer;
mod awaiting;
mod codec;
mod machine;
mod make;
mod request;
mod spec;
mod write;

use whimbrel_selector::Selector;

pub use answer::ALL_OTHERS;
pub(crate) use answer::CONFIRM_MAX;
pub(crate) use awaiting::{Awaiting, has_confirmed};
pub(crate) use codec::{CarriedOld, CarriedSubscription, FormerSelector, SubscriptionRecord, qos};
pub(crate) use machine::{Asked, LoggedFrom, Written, WrittenEnd};
use request::Request;
pub use spec::{Durability, SubscriptionSpec};

/// Parses a remembered selector. Its fences may be gone since: `within` is unknown for those.
pub(crate) fn remembered(text: &str) -> Selector {
    Selector::parse_canonical(text).expect("it was accepted when the subscription was made")
}
