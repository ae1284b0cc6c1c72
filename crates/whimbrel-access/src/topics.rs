//! Topic filters of rules: with marks for the principal and the client id, and in a form that is
//! compared with topics.

use std::sync::Arc;

use whimbrel_selector::{LEVELS_MAX, TEXT_MAX, TopicFilter};

use crate::pattern::{PRINCIPAL_MARK, is_level};
use crate::rule::RuleFault;

/// The mark that stands for the client id.
const CLIENT_MARK: &str = "%c";

/// A filter as a rule has it.
#[derive(Clone, Debug)]
pub(crate) enum Template {
    /// Without marks.
    Fixed(Arc<Matcher>),
    /// With levels that stand for the principal or the client id.
    Marked(Box<str>),
}

impl Template {
    pub(crate) fn new(text: &str) -> Result<Template, RuleFault> {
        TopicFilter::new(text).map_err(|error| RuleFault::Topic(text.to_owned(), error))?;
        if text == "$share" || text.starts_with("$share/") {
            return Err(RuleFault::Share(text.to_owned()));
        }
        let is_mark = |level: &str| level == PRINCIPAL_MARK || level == CLIENT_MARK;
        let has_mark = |level: &str| level.contains(PRINCIPAL_MARK) || level.contains(CLIENT_MARK);
        if text.split('/').any(|level| has_mark(level) && !is_mark(level)) {
            return Err(RuleFault::PartOfLevel(text.to_owned()));
        }
        Ok(if text.split('/').any(is_mark) {
            Template::Marked(text.into())
        } else {
            Template::Fixed(Arc::new(Matcher::new(text)))
        })
    }

    /// The filter for a principal with a client id; `None`: no valid one.
    pub(crate) fn fill(&self, principal: &str, client_id: &str) -> Option<Arc<Matcher>> {
        let text = match self {
            Template::Fixed(matcher) => return Some(matcher.clone()),
            Template::Marked(text) => text,
        };
        let mut filled = String::with_capacity(text.len() + principal.len() + client_id.len());
        for (place, level) in text.split('/').enumerate() {
            if place > 0 {
                filled.push('/');
            }
            let name = match level {
                PRINCIPAL_MARK => principal,
                CLIENT_MARK => client_id,
                level => {
                    filled.push_str(level);
                    continue;
                }
            };
            // A name must not become several levels or a wildcard, nor lead to topics of the broker
            // itself.
            if !is_level(name) || name.contains('\0') || place == 0 && name.starts_with('$') {
                return None;
            }
            filled.push_str(name);
        }
        (filled.len() <= TEXT_MAX).then(|| Arc::new(Matcher::new(&filled)))
    }
}

/// How a filter is compared with topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The filter has no wildcard.
    Exact,
    /// The only wildcard of the filter is `#`; this number of bytes is before it.
    Prefix(usize),
    /// The filter has other wildcards.
    Levels,
}

/// A well-formed filter without marks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Matcher {
    text: Box<str>,
    kind: Kind,
}

impl Matcher {
    fn new(text: &str) -> Matcher {
        let kind = match text.find(['+', '#']) {
            None => Kind::Exact,
            Some(at) if text.as_bytes()[at] == b'#' => Kind::Prefix(at),
            Some(_) => Kind::Levels,
        };
        Matcher { text: text.into(), kind }
    }

    /// Whether it matches a topic; for a malformed topic the result is arbitrary.
    #[inline]
    pub(crate) fn matches(&self, topic: &str) -> bool {
        match self.kind {
            Kind::Exact => *self.text == *topic,
            Kind::Prefix(0) => !topic.starts_with('$'),
            // `a/#` matches `a` too.
            Kind::Prefix(end) => {
                topic.as_bytes().starts_with(&self.text.as_bytes()[..end])
                    || topic.as_bytes() == &self.text.as_bytes()[..end - 1]
            }
            Kind::Levels => self.matches_levels(topic),
        }
    }

    fn matches_levels(&self, topic: &str) -> bool {
        if topic.starts_with('$') && self.text.starts_with('+') {
            return false;
        }
        let (mut filter, mut levels) = (self.text.split('/'), topic.split('/'));
        for _ in 0..=LEVELS_MAX {
            match (filter.next(), levels.next()) {
                (Some("#"), _) | (None, None) => return true,
                (Some("+"), Some(_)) => {}
                (Some(wanted), Some(level)) if wanted == level => {}
                _ => return false,
            }
        }
        false
    }

    /// Whether it covers another filter: each topic that the other matches matches this one.
    pub(crate) fn covers(&self, asked: TopicFilter<'_>) -> bool {
        // Filling in may have made it deeper than filters may be, never malformed.
        TopicFilter::new(&self.text).is_ok_and(|own| own.covers(asked))
    }
}
