//! Compiled rules.

use core::fmt;

use crate::Principal;
use crate::grants::{Grant, Grants};
use crate::pattern::Pattern;
use crate::rule::{Action, Actions, FILTERS_MAX, RULES_MAX, Rule, RuleError, RuleFault};
use crate::topics::Template;

/// A rule's place in the list, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleNo(pub u32);

impl RuleNo {
    /// No rule was needed: everything is allowed.
    pub const EVERYTHING: RuleNo = RuleNo(0);
}

impl fmt::Display for RuleNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == RuleNo::EVERYTHING { f.write_str("everything is allowed") } else { write!(f, "rule {}", self.0) }
    }
}

/// Why something is denied: no rule allows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// No rule comes near.
    NoRule,
    /// A rule would allow the principal to connect, but not with that client id.
    ClientId,
    /// A rule would allow it up to this importance.
    Importance {
        /// 1 to 10.
        max: u8,
    },
    /// A rule would allow it with a deadline of at least this.
    Deadline {
        /// Milliseconds.
        min_ms: u32,
    },
}

impl Denied {
    /// The one of two denials that comes nearer to being allowed.
    pub(crate) fn or(self, other: Denied) -> Denied {
        match (self, other) {
            (Denied::NoRule, other) => other,
            (Denied::Importance { max: a }, Denied::Importance { max: b }) => Denied::Importance { max: a.max(b) },
            (Denied::Deadline { min_ms: a }, Denied::Deadline { min_ms: b }) => Denied::Deadline { min_ms: a.min(b) },
            (own, _) => own,
        }
    }

    /// The text for the client that is denied something; it tells nothing of others' rights.
    pub const fn text(self) -> &'static str {
        match self {
            Denied::NoRule => "no rule allows it",
            Denied::ClientId => "no rule allows it with this client id",
            Denied::Importance { .. } => "no rule allows it with so great an importance",
            Denied::Deadline { .. } => "no rule allows it with so short a deadline",
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::Importance { max } => write!(f, "{}: at most {max}", self.text()),
            Denied::Deadline { min_ms } => write!(f, "{}: at least {min_ms} ms", self.text()),
            _ => f.write_str(self.text()),
        }
    }
}

/// The permission of a principal to connect with a client id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// The first rule that allows it.
    pub rule: RuleNo,
    /// The first rule that names the client id: with it, a session of another principal may be
    /// taken over, too.
    pub takes_over: Option<RuleNo>,
}

#[derive(Clone, Debug)]
struct Compiled {
    no: RuleNo,
    principals: Box<[Pattern]>,
    actions: Actions,
    topics: Box<[Template]>,
    client_ids: Option<Box<[Pattern]>>,
    max_importance: u8,
    min_deadline_ms: u32,
}

impl Compiled {
    fn names(&self, principal: &Principal) -> bool {
        self.principals.iter().any(|pattern| pattern.names(principal))
    }

    fn allows_client_id(&self, principal: &Principal, client_id: &str) -> bool {
        self.client_ids
            .as_ref()
            .is_none_or(|patterns| patterns.iter().any(|pattern| pattern.allows(principal, client_id)))
    }
}

/// The rights of principals. Without rules: none.
#[derive(Clone, Default, Debug)]
pub struct Rules {
    rules: Box<[Compiled]>,
    everything: bool,
    /// Whether a rule is about [`Action::Peer`].
    speaks_of_peers: bool,
}

impl Rules {
    /// Compiles rules.
    ///
    /// # Errors
    /// The first rule that is wrong, and how.
    pub fn new(rules: &[Rule]) -> Result<Rules, RuleError> {
        if rules.len() > RULES_MAX {
            return Err(RuleError { rule: RULES_MAX, fault: RuleFault::TooMany });
        }
        let compiled = rules.iter().enumerate().map(|(at, rule)| {
            let no = RuleNo(u32::try_from(at + 1).unwrap_or(u32::MAX));
            compile(no, rule).map_err(|mut faults| RuleError { rule: at, fault: faults.swap_remove(0) })
        });
        let rules = compiled.collect::<Result<Box<[_]>, _>>()?;
        let speaks_of_peers = rules.iter().any(|rule| rule.actions.contain(Action::Peer));
        Ok(Rules { rules, everything: false, speaks_of_peers })
    }

    /// Everything that is wrong with a rule by itself.
    pub fn faults_of(rule: &Rule) -> Vec<RuleFault> {
        compile(RuleNo(1), rule).err().unwrap_or_default()
    }

    /// Rules under which everything is allowed to every principal.
    pub fn everything() -> Rules {
        Rules { everything: true, ..Rules::default() }
    }

    /// Whether everything is allowed to every principal.
    pub fn are_everything(&self) -> bool {
        self.everything
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule that allows an action; for publishing and subscribing, on some topic and with some
    /// client id.
    ///
    /// # Errors
    /// When no rule does.
    pub fn may(&self, principal: &Principal, action: Action) -> Result<RuleNo, Denied> {
        if self.everything {
            return Ok(RuleNo::EVERYTHING);
        }
        let allowing = self.rules.iter().find(|rule| rule.actions.contain(action) && rule.names(principal));
        allowing.map(|rule| rule.no).ok_or(Denied::NoRule)
    }

    /// The rule that allows a peer to link as the broker of that name, which it has proved to be.
    /// As long as no rule is about peers, all brokers of the deployment may.
    ///
    /// # Errors
    /// When no rule does.
    pub fn peer(&self, broker: &Principal) -> Result<RuleNo, Denied> {
        if self.speaks_of_peers { self.may(broker, Action::Peer) } else { Ok(RuleNo::EVERYTHING) }
    }

    /// Whether a principal may connect with a client id: whether there is any topic that it may
    /// publish or subscribe to.
    ///
    /// # Errors
    /// When there is none.
    pub fn connect(&self, principal: &Principal, client_id: &str) -> Result<Admission, Denied> {
        if self.everything {
            return Ok(Admission { rule: RuleNo::EVERYTHING, takes_over: Some(RuleNo::EVERYTHING) });
        }
        let (mut denied, mut admitting, mut naming) = (Denied::NoRule, None, None);
        for rule in self.rules.iter().filter(|rule| rule.actions.are_of_clients() && rule.names(principal)) {
            if !rule.allows_client_id(principal, client_id) {
                denied = Denied::ClientId;
                continue;
            }
            admitting = admitting.or(Some(rule.no));
            if rule.client_ids.is_some() {
                naming = Some(rule.no);
                break;
            }
        }
        admitting.map(|rule| Admission { rule, takes_over: naming }).ok_or(denied)
    }

    /// The rights of a principal with a client id.
    pub fn grants(&self, principal: &Principal, client_id: &str) -> Grants {
        if self.everything {
            return Grants::everything();
        }
        let (mut publish, mut subscribe) = (Vec::new(), Vec::new());
        for rule in &*self.rules {
            if !rule.actions.are_of_clients() || !rule.names(principal) || !rule.allows_client_id(principal, client_id)
            {
                continue;
            }
            for topics in &*rule.topics {
                let Some(filter) = topics.fill(principal.name(), client_id) else { continue };
                let Compiled { no: rule, actions, max_importance, min_deadline_ms, .. } = *rule;
                let grant = Grant { filter, rule, max_importance, min_deadline_ms };
                if actions.contain(Action::Publish) {
                    publish.push(grant.clone());
                }
                if actions.contain(Action::Subscribe) {
                    subscribe.push(grant);
                }
            }
        }
        Grants { publish: publish.into(), subscribe: subscribe.into(), everything: false }
    }
}

fn compile(no: RuleNo, rule: &Rule) -> Result<Compiled, Vec<RuleFault>> {
    let client_ids = rule.client_ids.as_deref();
    let mut faults = Vec::new();
    if rule.principals.len().max(rule.topics.len()).max(client_ids.map_or(0, <[String]>::len)) > FILTERS_MAX {
        // Its contents are not examined.
        return Err(vec![RuleFault::TooLarge]);
    }
    if rule.principals.is_empty() {
        faults.push(RuleFault::Nobody);
    }
    if rule.actions.is_empty() {
        faults.push(RuleFault::Nothing);
    } else if rule.actions.are_of_clients() && rule.topics.is_empty() {
        faults.push(RuleFault::NoTopics);
    } else if !rule.actions.are_of_clients() && (!rule.topics.is_empty() || client_ids.is_some()) {
        faults.push(RuleFault::NotOfClients);
    }
    if !(1..=whimbrel_event::IMPORTANCE_MAX).contains(&rule.max_importance) {
        faults.push(RuleFault::Importance(rule.max_importance));
    }
    let principal =
        |text: &String| Pattern::of_principals(text).map_err(|error| RuleFault::Principal(text.clone(), error));
    let client_id =
        |text: &String| Pattern::of_client_ids(text).map_err(|error| RuleFault::ClientId(text.clone(), error));
    let compiled = Compiled {
        no,
        principals: good(rule.principals.iter().map(principal), &mut faults),
        actions: rule.actions,
        topics: good(rule.topics.iter().map(|text| Template::new(text)), &mut faults),
        client_ids: client_ids.map(|ids| good(ids.iter().map(client_id), &mut faults)),
        max_importance: rule.max_importance,
        min_deadline_ms: rule.min_deadline_ms,
    };
    if faults.is_empty() { Ok(compiled) } else { Err(faults) }
}

/// The valid ones; the faults of the others go to `faults`.
fn good<T>(read: impl Iterator<Item = Result<T, RuleFault>>, faults: &mut Vec<RuleFault>) -> Box<[T]> {
    read.filter_map(|one| one.map_err(|fault| faults.push(fault)).ok()).collect()
}
