//! Topics: an ordered map in which a filter finds its topics; profiles, which say what holds for
//! the events of topics, and whether their deadlines are met; and how many events a topic has had
//! lately.
//!
//! A component of its own: it knows nothing of sessions, streams or other brokers.

mod index;
mod profile;
mod profiles;
mod punctuality;
mod rates;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use index::{TopicEntry, TopicIndex, TopicVersion};
pub(crate) use profile::TopicSettings;
pub use profile::{DEADLINE_MAX, Persistence, Profile, TopicRate, TopicTransport};
pub use profiles::{ListedProfile, PROFILES_MAX, RankedProfile};
pub(crate) use profiles::{Profiles, TopicPeriod};
pub use punctuality::{LateCause, Punctuality, SLACK_BOUNDS_PERCENT, TopicDeliveries};
pub use rates::RATE_BURST;
pub(crate) use rates::Rates;
pub(crate) use walk::{VisitOutcome, WalkCursor, WalkEnd};
pub use whimbrel_net::route::{Availability, TopicPaths};
