//! Subscriptions: their options, and the encoding of those.

mod codec;
mod spec;

pub(crate) use codec::{CarriedOld, CarriedSubscription, FormerSelector, SubscriptionRecord, qos};
pub use spec::{Durability, SubscriptionSpec};
