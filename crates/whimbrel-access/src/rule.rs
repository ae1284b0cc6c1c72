//! Rules as they are configured.

use core::fmt;

/// Most rules.
pub const RULES_MAX: usize = 10_000;

/// Most filters, names or client ids of one rule, of each kind.
pub const FILTERS_MAX: usize = 1000;

/// An action that rules allow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Action {
    /// To publish, also by a will.
    Publish,
    /// To subscribe.
    Subscribe,
    /// To link as a broker.
    Peer,
    /// To change things by the API.
    Administer,
    /// To read the API.
    Observe,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 5] =
        [Action::Publish, Action::Subscribe, Action::Peer, Action::Administer, Action::Observe];

    /// The name of the action in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Publish => "publish",
            Action::Subscribe => "subscribe",
            Action::Peer => "peer",
            Action::Administer => "administer",
            Action::Observe => "observe",
        }
    }

    /// The action of that name.
    pub fn named(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Whether clients do it, to topics.
    pub const fn is_of_clients(self) -> bool {
        matches!(self, Action::Publish | Action::Subscribe)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Actions(u8);

impl Actions {
    /// The set of these actions.
    pub fn of(actions: impl IntoIterator<Item = Action>) -> Actions {
        Actions(actions.into_iter().fold(0, |all, action| all | 1 << action as u8))
    }

    /// Whether the set has an action.
    pub const fn contain(self, action: Action) -> bool {
        self.0 & 1 << action as u8 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has an action that clients do to topics.
    pub const fn are_of_clients(self) -> bool {
        self.contain(Action::Publish) || self.contain(Action::Subscribe)
    }
}

/// Allows some principals something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The principals: names, `*` standing for any characters. `anonymous` means principals that
    /// give no name, which no `*` matches.
    pub principals: Vec<String>,
    /// The allowed actions.
    pub actions: Actions,
    /// The topics: filters, in which the levels `%u` and `%c` stand for the principal and the
    /// client id.
    pub topics: Vec<String>,
    /// The client ids: patterns with `*`, `%u` standing for the principal; `None`: any that no
    /// other principal has.
    pub client_ids: Option<Vec<String>>,
    /// The greatest importance of published events, 1 to 10.
    pub max_importance: u8,
    /// The shortest deadline of published events, ms; an event without one is later than any.
    pub min_deadline_ms: u32,
}

impl Default for Rule {
    fn default() -> Self {
        Rule {
            principals: Vec::new(),
            actions: Actions::default(),
            topics: Vec::new(),
            client_ids: None,
            max_importance: whimbrel_event::IMPORTANCE_MAX,
            min_deadline_ms: 0,
        }
    }
}

/// A fault of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleFault {
    /// There are more than [`RULES_MAX`] rules.
    TooMany,
    /// The rule has more than [`FILTERS_MAX`] entries of one kind.
    TooLarge,
    /// The rule names no principal.
    Nobody,
    /// The rule allows nothing.
    Nothing,
    /// The rule allows publishing or subscribing, and has no topics.
    NoTopics,
    /// The rule has topics or client ids, and allows no action of clients.
    NotOfClients,
    /// This text is not a pattern of names.
    Principal(String, crate::PatternError),
    /// This text is not a pattern of client ids.
    ClientId(String, crate::PatternError),
    /// This text is not a topic filter.
    Topic(String, whimbrel_selector::TopicError),
    /// This filter is of a shared subscription.
    Share(String),
    /// `%u` or `%c` is only a part of a level of this filter.
    PartOfLevel(String),
    /// The greatest importance is not from 1 to 10.
    Importance(u8),
}

/// A wrong rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError {
    /// The place of the rule in the list, from 0.
    pub rule: usize,
    /// The fault of the rule.
    pub fault: RuleFault,
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleFault::TooMany => write!(f, "there are more than {RULES_MAX} rules"),
            RuleFault::TooLarge => write!(f, "a rule has more than {FILTERS_MAX} names, topics or client ids"),
            RuleFault::Nobody => f.write_str("a rule names no `principals`"),
            RuleFault::Nothing => f.write_str("a rule has no `actions`"),
            RuleFault::NoTopics => f.write_str("a rule for publishing or subscribing has no `topics`"),
            RuleFault::NotOfClients => {
                f.write_str("a rule has `topics` or `client_ids`, and is neither for publishing nor for subscribing")
            }
            RuleFault::Principal(text, error) => write!(f, "{text:?} is no pattern of names: {error}"),
            RuleFault::ClientId(text, error) => write!(f, "{text:?} is no pattern of client ids: {error}"),
            RuleFault::Topic(text, error) => write!(f, "{text:?} is no topic filter: {}", error.why()),
            RuleFault::Share(text) => write!(f, "{text:?} is the filter of a shared subscription"),
            RuleFault::PartOfLevel(text) => write!(f, "{text:?} has %u or %c as a part of a level"),
            RuleFault::Importance(importance) => write!(f, "`max_importance` is {importance}, not from 1 to 10"),
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}", self.rule + 1, self.fault)
    }
}

impl core::error::Error for RuleError {}
