//! The events owed to durable shared subscriptions: each event reaches a member.
//!
//! A shared subscription is durable from the SUBACK of its first member with a kept session until
//! the last of these may have left. Only events published at least once are checked: a delivery at
//! exactly once that has begun may end with its member.

use std::collections::BTreeSet;

use mqtt_protocol_core::mqtt::packet::Qos;

use super::Ledger;
use crate::check::Rule;
use crate::check::topic::matches;
use crate::choice::Choice;

/// The prefix of shared filters in these worlds.
const SHARE: &str = "$share/g/";

/// One shared subscription.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Members with kept sessions whose SUBACK was seen.
    members: BTreeSet<String>,
    /// The step since which there are such members.
    since: u64,
    choice: Option<Choice>,
    /// Whether a member takes events as best effort, or only small ones: an event given to it may
    /// be lost.
    is_lossy: bool,
    owed: BTreeSet<String>,
}

impl Ledger {
    /// A client asks to become a member, or to change its membership.
    pub(super) fn asks_to_share(&mut self, who: &str, text: &str, is_lossy: bool) {
        if text.starts_with(SHARE) {
            self.parted(who, text);
            self.shared.entry(text.to_owned()).or_default().is_lossy |= is_lossy;
        }
    }

    /// A client was told that it is a member, in a session that is kept.
    pub(super) fn joined(&mut self, who: &str, text: &str, choice: Option<Choice>) {
        let shared = self.shared.entry(text.to_owned()).or_default();
        if shared.members.is_empty() {
            (shared.since, shared.choice) = (self.steps, choice);
        }
        shared.members.insert(who.to_owned());
    }

    /// A client may have left.
    pub(super) fn parted(&mut self, who: &str, text: &str) {
        if let Some(shared) = self.shared.get_mut(text)
            && shared.members.remove(who)
            && shared.members.is_empty()
        {
            shared.owed.clear();
        }
    }

    /// The session of a client may have ended.
    pub(super) fn parted_from_all(&mut self, who: &str) {
        let all: Vec<String> = self.shared.keys().cloned().collect();
        all.iter().for_each(|text| self.parted(who, text));
    }

    /// A publisher was told that an event is accepted.
    pub(super) fn owe_shared(&mut self, mark: &str) {
        let fact = &self.facts[mark];
        if fact.message.qos != Qos::AtLeastOnce {
            return;
        }
        for (text, shared) in &mut self.shared {
            let wanted = shared.choice.is_none_or(|choice| choice.wants(&fact.message));
            let is_theirs = matches(text.trim_start_matches(SHARE), &fact.message.topic);
            if !shared.members.is_empty()
                && shared.since < fact.step
                && wanted
                && is_theirs
                && !fact.shared.contains(text)
            {
                shared.owed.insert(mark.to_owned());
            }
        }
    }

    /// A client receives an event, perhaps as a member.
    pub(super) fn got_shared(&mut self, who: &str, mark: &str) {
        let fact = self.facts.get_mut(mark).expect("a mark that is known");
        let Some(session) = self.sessions.get(who) else { return };
        for text in session.wishes.matching(&fact.message.topic).filter(|text| text.starts_with(SHARE)) {
            if let Some(shared) = self.shared.get_mut(text) {
                shared.owed.remove(mark);
            }
            fact.shared.insert(text.to_owned());
        }
    }

    /// Checks the events that shared subscriptions were owed and no member received.
    pub(super) fn settle_up_shared(&mut self) {
        // Events that were given up early are a gap, of which nothing is told here.
        let honest = self.shared.iter().filter(|(_, shared)| !shared.is_lossy && !self.machine.has_released);
        let missing = honest.flat_map(|(text, shared)| {
            shared.owed.iter().map(move |mark| format!("no member of {text} has got {mark}: {:?}", shared.members))
        });
        let missing: Vec<String> = missing.collect();
        self.counts.shared += self.shared.values().filter(|shared| !shared.is_lossy && shared.since > 0).count() as u64;
        for what in missing {
            self.broken(Rule::Delivery, what);
        }
    }
}
