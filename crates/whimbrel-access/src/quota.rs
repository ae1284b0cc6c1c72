//! Quotas as they are configured.

use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};

/// Bounds for each of some principals.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Quota {
    /// The principals: names, `*` standing for any characters. Here `*` also matches an anonymous
    /// principal. The first quota that names a principal counts.
    pub principals: Vec<String>,
    /// Connections at once; `None`: any number.
    pub connections: Option<NonZeroU32>,
    /// Events published each second, over all connections.
    pub publishes_per_second: Option<NonZeroU64>,
    /// Bytes of MQTT received each second, over all connections.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Subscriptions of all sessions that are connected.
    pub subscriptions: Option<NonZeroU32>,
}

/// A fault of a quota.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuotaError {
    /// There are more than [`crate::RULES_MAX`] quotas.
    TooMany,
    /// The quota at this place, from 0, names no principal.
    Nobody(usize),
    /// The quota at this place, from 0, bounds nothing.
    Nothing(usize),
    /// This text of the quota at this place, from 0, is not a pattern of names.
    Principal(usize, String, crate::PatternError),
}

impl QuotaError {
    /// The place of the quota in the list, from 0.
    pub fn quota(&self) -> usize {
        match self {
            QuotaError::TooMany => crate::RULES_MAX,
            QuotaError::Nobody(at) | QuotaError::Nothing(at) | QuotaError::Principal(at, ..) => *at,
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuotaError::TooMany => write!(f, "there are more than {} quotas", crate::RULES_MAX),
            QuotaError::Nobody(_) => f.write_str("a quota names no `principals`"),
            QuotaError::Nothing(_) => f.write_str("a quota bounds nothing"),
            QuotaError::Principal(_, text, error) => write!(f, "{text:?} is no pattern of names: {error}"),
        }
    }
}

impl core::error::Error for QuotaError {}

/// A count has reached the bound of a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exceeded {
    /// Connections.
    Connections(NonZeroU32),
    /// Subscriptions.
    Subscriptions(NonZeroU32),
}

impl Exceeded {
    /// The text for the client that asks for more.
    pub const fn text(self) -> &'static str {
        match self {
            Exceeded::Connections(_) => "you have as many connections as your quota allows: end one",
            Exceeded::Subscriptions(_) => "you have as many subscriptions as your quota allows: end some",
        }
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Exceeded::Connections(most) | Exceeded::Subscriptions(most)) = self;
        write!(f, "{} ({most} at most)", self.text())
    }
}
