//! Access control: connections are admitted, and checked again when the rules change.

use std::collections::BTreeSet;

use whimbrel_access::{Denied, Exceeded, Grants, Meter, Principal, Slot};
use whimbrel_core::SessionPrincipal;
use whimbrel_event::Time;

use super::api::{Decision, Identity};
use crate::codec::ReasonCode;
use crate::config::Access;

/// The proof of a client's identity.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    /// None, or the connection's certificate, which is checked elsewhere.
    Connection,
    /// A password.
    Password,
    /// A token, signed by the key with this mark.
    Token(u64),
}

impl By {
    pub(super) fn of(identity: &Identity) -> By {
        identity.by_token.map_or(By::Password, By::Token)
    }
}

/// The will of a connection: topic, importance and deadline.
type WillTerms = (Box<str>, u8, Option<u32>);

/// Identity and permissions of a connection.
#[derive(Debug)]
pub(crate) struct ConnIdentity {
    pub(super) principal: Principal,
    pub(super) by: By,
    /// A rule that names its client id lets it have sessions of other principals.
    may_adopt: bool,
    pub(super) client_id: Box<str>,
    pub(super) grants: Grants,
    pub(super) slot: Slot,
    /// Number of its session's subscriptions that count towards its quota.
    pub(super) subscriptions: u32,
    /// Deliveries are checked against the rules: there is, or was, a subscription that they do not
    /// allow.
    pub(super) is_strict: bool,
    pub(super) will: Option<Box<WillTerms>>,
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial {
    pub(super) reason: ReasonCode,
    pub(super) cause: &'static str,
}

impl Denial {
    pub(super) fn decision<'a>(self, action: &'static str, principal: &'a str, client_id: &'a str) -> Decision<'a> {
        Decision { action, principal, client_id, about: "", code: self.reason.0, why: self.cause }
    }
}

impl From<Denied> for Denial {
    fn from(denied: Denied) -> Denial {
        Denial { reason: ReasonCode::NOT_AUTHORIZED, cause: denied.text() }
    }
}

impl From<Exceeded> for Denial {
    fn from(exceeded: Exceeded) -> Denial {
        Denial { reason: ReasonCode::QUOTA_EXCEEDED, cause: exceeded.text() }
    }
}

impl ConnIdentity {
    /// The principal of the connection's session.
    pub(super) fn principal_of_session(&self) -> SessionPrincipal {
        SessionPrincipal { name: self.principal.shared(), may_adopt: self.may_adopt }
    }

    /// Whether the connection may publish such an event.
    #[inline]
    pub(super) fn may_publish(&self, topic: &str, importance: u8, deadline_ms: Option<u32>) -> Result<(), Denial> {
        self.grants.publish(topic, importance, deadline_ms).map(drop).map_err(Denial::from)
    }

    /// Whether its will, if it has one, may be published.
    pub(super) fn may_have_will(&self) -> bool {
        self.will.as_ref().is_none_or(|will| self.may_publish(&will.0, will.1, will.2).is_ok())
    }
}

/// The rules in force, and the state of connections that are subject to them.
#[derive(Debug)]
pub(super) struct Guard {
    access: Access,
    pub(super) meter: Meter,
    tickets: u64,
    /// Connections that are not read until the time beside them.
    pub(super) throttled: BTreeSet<(Time, u32)>,
    /// Connections whose sessions the current step has found with subscriptions to check against
    /// the rules.
    pub(super) returned: Vec<u32>,
    /// Connections whose subscriptions the current step has changed.
    pub(super) counted: Vec<u32>,
    /// The next connection to check against new rules, and the time since which they are in force.
    pub(super) review: Option<(u32, Time)>,
}

impl Guard {
    pub(super) fn new(access: Access) -> Guard {
        let mut meter = Meter::new();
        // The caller has checked the quotas; invalid ones would not limit anything.
        let is_set = meter.set(&access.quotas);
        debug_assert!(is_set.is_ok(), "{is_set:?}");
        Guard {
            access,
            meter,
            tickets: 0,
            throttled: BTreeSet::new(),
            returned: Vec::new(),
            counted: Vec::new(),
            review: None,
        }
    }

    /// Puts new rules and quotas in force.
    pub(super) fn set(&mut self, now: Time, access: &Access) {
        let is_set = self.meter.set(&access.quotas);
        debug_assert!(is_set.is_ok(), "{is_set:?}");
        self.access = access.clone();
        self.review = Some((0, now));
    }

    /// Whether the current step has left sessions or subscriptions to check.
    #[inline]
    pub(super) fn has_found(&self) -> bool {
        !(self.returned.is_empty() && self.counted.is_empty())
    }

    /// Whether a connection ends when it publishes what no rule allows.
    pub(super) fn disconnects_denied(&self) -> bool {
        self.access.disconnects_denied
    }

    pub(super) fn allows_everything(&self) -> bool {
        self.access.rules.are_everything()
    }

    /// Whether clients' credentials can be checked.
    pub(super) fn judges(&self) -> bool {
        self.access.judges
    }

    /// A ticket that no other question has had.
    pub(super) fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Whether an identity that was just established is still valid.
    pub(super) fn still_knows(&self, identity: &Identity) -> bool {
        self.unknown(&identity.principal, By::of(identity)).is_none()
    }

    /// The reason why a principal with that proof is not valid any more.
    fn unknown(&self, principal: &Principal, by: By) -> Option<&'static str> {
        match by {
            By::Password if !self.access.users.contains(principal) => Some("the user does not exist any more"),
            By::Token(key) if !self.access.keys.contains(&key) => Some("the key of the token is not in force any more"),
            By::Connection | By::Password | By::Token(_) => None,
        }
    }

    /// Admits a principal with a client id, if it may connect.
    pub(super) fn admit(
        &mut self,
        now: Time,
        (principal, by): (Principal, By),
        client_id: &str,
    ) -> Result<ConnIdentity, (Principal, Denial)> {
        let admission = match self.access.rules.connect(&principal, client_id) {
            Ok(admission) => admission,
            Err(denied) => return Err((principal, denied.into())),
        };
        let slot = match self.meter.enter(now, &principal) {
            Ok(slot) => slot,
            Err(exceeded) => return Err((principal, exceeded.into())),
        };
        let grants = self.access.rules.grants(&principal, client_id);
        let (client_id, takes_over) = (client_id.into(), admission.takes_over.is_some());
        Ok(ConnIdentity {
            principal,
            by,
            may_adopt: takes_over,
            client_id,
            grants,
            slot,
            subscriptions: 0,
            is_strict: false,
            will: None,
        })
    }

    /// The permissions of an admitted connection by the rules in force.
    ///
    /// # Errors
    /// The connection is not allowed any more.
    pub(super) fn judge(&self, who: &ConnIdentity) -> Result<Grants, Denial> {
        if let Some(cause) = self.unknown(&who.principal, who.by) {
            return Err(Denial { reason: ReasonCode::NOT_AUTHORIZED, cause });
        }
        self.access.rules.connect(&who.principal, &who.client_id)?;
        Ok(self.access.rules.grants(&who.principal, &who.client_id))
    }
}
