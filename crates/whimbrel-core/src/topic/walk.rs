//! Finding the topics of a filter: a skip scan over the ordered map.
//!
//! At each topic the filter tells where the next match may be, and the scan continues there: past
//! all topics below a level that does not match, and straight to the literal level below one that
//! does. The topics looked at are those that match, and at most two others for each branch that a
//! `+` makes it enter. (The technique is known as loose index scan, or skip scan, of ordered
//! indexes.)
//!
//! The state of a walk is one topic, so that it continues correctly after any additions and
//! removals between two of its turns: it passes each topic that stays throughout once.

use whimbrel_selector::TopicFilter;

use super::{TopicEntry, TopicIndex};

/// Bytes of a topic that cost as much as the look itself.
const CHECK_BYTES: usize = 256;

/// Where a walk continues.
#[derive(Debug, Default)]
pub(crate) struct WalkCursor {
    /// The least topic that it has not passed; `None`: it has not begun.
    from: Option<String>,
}

/// The result of a visit to a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VisitOutcome {
    /// The walk continues behind it; the visit cost this much of the turn's budget.
    Passed(usize),
    /// The walk stops, and continues with the same topic.
    Stop,
}

/// Why a walk returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WalkEnd {
    /// All topics have been visited.
    Over,
    /// The visitor stopped it.
    Stopped,
    /// The budget is spent.
    Spent,
}

/// Where the next match of a filter may be, relative to a topic.
#[derive(PartialEq, Eq, Debug)]
enum WalkStep {
    /// At this topic.
    Match,
    /// Behind this topic.
    Next,
    /// At or behind this text.
    Seek(String),
    /// Nowhere.
    Over,
}

/// A step to the least text that is greater than the prefix and all that is below it: `0` follows
/// `/`.
fn past(prefix: &str) -> WalkStep {
    match prefix.strip_suffix('/') {
        Some(parent) => WalkStep::Seek(format!("{parent}0")),
        None => WalkStep::Over,
    }
}

/// Compares a filter with a topic, level by level.
fn step(filter: TopicFilter<'_>, topic: &str) -> WalkStep {
    let filter = filter.as_str();
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        // Wildcards in the first level do not match topics that begin with `$`, which `%` follows.
        return WalkStep::Seek("%".to_owned());
    }
    let mut wanted = filter.split('/');
    // Where the current level of the topic begins; behind its end if there is none.
    let mut at = 0;
    loop {
        let level = topic.get(at..).map(|rest| rest.split('/').next().unwrap_or(rest));
        match (wanted.next(), level) {
            (Some("#"), _) | (None, None) => return WalkStep::Match,
            (Some("+"), Some(level)) => at += level.len() + 1,
            (Some(text), Some(level)) if text == level => at += level.len() + 1,
            // Too short: topics below it may match, and come later, as may others between.
            (Some(_), None) => return WalkStep::Next,
            // Too long, as are all topics below the levels that match.
            (None, Some(_)) => return past(&topic[..at]),
            (Some(text), Some(_)) => {
                let (above, rest) = topic.split_at(at);
                if rest < text {
                    return WalkStep::Seek(format!("{above}{text}"));
                }
                if wanted.next().is_some() && rest.strip_prefix(text).is_some_and(|more| more < "/") {
                    return WalkStep::Seek(format!("{above}{text}/"));
                }
                return past(above);
            }
        }
    }
}

impl<V> TopicIndex<V> {
    /// Visits the topics that a filter matches, in order, from the cursor on, as far as the budget
    /// goes: each topic that is looked at costs 1, and 1 more for each [`CHECK_BYTES`] of it.
    pub(crate) fn walk(
        &self,
        filter: TopicFilter<'_>,
        cursor: &mut WalkCursor,
        budget: &mut usize,
        mut visit: impl FnMut(&str, &TopicEntry<V>) -> VisitOutcome,
    ) -> WalkEnd {
        let prefix = filter.literal_prefix();
        // `a/#` also matches `a`.
        let first = if filter.has_wildcard() { prefix.strip_suffix('/').unwrap_or(prefix) } else { prefix };
        if cursor.from.is_none() && !self.has_levels(filter) {
            return WalkEnd::Over;
        }
        let mut from = cursor.from.take().unwrap_or_else(|| first.to_owned());
        let mut topics = self.from(&from);
        loop {
            let Some((topic, entry)) = topics.next().filter(|(topic, _)| topic.starts_with(first)) else {
                return WalkEnd::Over;
            };
            if *budget == 0 {
                cursor.from = Some(topic.to_owned());
                return WalkEnd::Spent;
            }
            *budget = budget.saturating_sub(1 + topic.len() / CHECK_BYTES);
            match step(filter, topic) {
                WalkStep::Match => match visit(topic, entry) {
                    VisitOutcome::Passed(cost) => *budget = budget.saturating_sub(cost),
                    VisitOutcome::Stop => {
                        cursor.from = Some(topic.to_owned());
                        return WalkEnd::Stopped;
                    }
                },
                WalkStep::Next => {}
                WalkStep::Seek(target) => {
                    debug_assert!(*target > *topic, "{filter:?} goes back from {topic} to {target}");
                    from = target;
                    topics = self.from(&from);
                }
                WalkStep::Over => return WalkEnd::Over,
            }
        }
    }
}
