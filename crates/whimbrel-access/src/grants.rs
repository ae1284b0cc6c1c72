//! The rights of one connection under the rules.

use std::sync::Arc;

use whimbrel_selector::SharedFilter;

use crate::rules::{Denied, RuleNo};
use crate::topics::Matcher;

/// A filter on which something is allowed, and the rule that allows it.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) filter: Arc<Matcher>,
    pub(crate) rule: RuleNo,
    pub(crate) max_importance: u8,
    pub(crate) min_deadline_ms: u32,
}

/// The rights of a principal with one client id, ready to be compared with topics.
#[derive(Clone, Default, Debug)]
pub struct Grants {
    pub(crate) publish: Box<[Grant]>,
    pub(crate) subscribe: Box<[Grant]>,
    /// Everything is allowed.
    pub(crate) everything: bool,
}

impl Grants {
    /// Grants under which nothing is forbidden.
    pub fn everything() -> Grants {
        Grants { everything: true, ..Grants::default() }
    }

    /// Whether nothing is forbidden.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// The rule that allows to publish to a topic, with that importance, and with that deadline
    /// (ms), if there is one.
    ///
    /// # Errors
    /// When no rule does; if some do except for importance or deadline, the bound that comes
    /// nearest.
    #[inline]
    pub fn publish(&self, topic: &str, importance: u8, deadline_ms: Option<u32>) -> Result<RuleNo, Denied> {
        if self.everything {
            return Ok(RuleNo::EVERYTHING);
        }
        let mut denied = Denied::NoRule;
        for grant in &*self.publish {
            if !grant.filter.matches(topic) {
                continue;
            }
            if importance > grant.max_importance {
                denied = denied.or(Denied::Importance { max: grant.max_importance });
            } else if deadline_ms.is_some_and(|deadline| deadline < grant.min_deadline_ms) {
                denied = denied.or(Denied::Deadline { min_ms: grant.min_deadline_ms });
            } else {
                return Ok(grant.rule);
            }
        }
        Err(denied)
    }

    /// The rule that allows to subscribe to a filter, plain or `$share/<group>/<filter>`: the
    /// rule's filter covers what the filter can match.
    ///
    /// # Errors
    /// When no rule does, or the filter is malformed.
    pub fn subscribe(&self, filter: &str) -> Result<RuleNo, Denied> {
        if self.everything {
            return Ok(RuleNo::EVERYTHING);
        }
        let asked = SharedFilter::parse(filter).map_err(|_| Denied::NoRule)?.filter;
        let granted = self.subscribe.iter().find(|grant| grant.filter.covers(asked));
        granted.map(|grant| grant.rule).ok_or(Denied::NoRule)
    }

    /// Whether some subscription may receive an event of that topic.
    pub fn receives(&self, topic: &str) -> bool {
        self.everything || self.subscribe.iter().any(|grant| grant.filter.matches(topic))
    }
}
