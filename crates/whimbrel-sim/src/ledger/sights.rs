//! No client sees an event before it is durable. An event has one name, and a name one event.

use std::collections::BTreeMap;

use whimbrel_mqtt::ConnId;

use super::order::is_own;
use super::places::{self, Name};
use super::{Ledger, mark_of};
use crate::check::{Rule, notice};
use crate::speech::Message;

/// The names of events, as clients were told them.
#[derive(Default, Debug)]
pub(super) struct Names {
    /// By name: the mark, and the step at which the name was first told.
    pub(super) all: BTreeMap<Name, (String, u64)>,
    /// The greatest tick of each pubend.
    told: BTreeMap<u64, u64>,
    /// The greatest tick of each pubend at the last crash.
    used: BTreeMap<u64, u64>,
    /// The step of the last crash.
    pub(super) crash: u64,
    /// The host of logged streams; `None`: no logged event was named yet.
    pub(super) host: Option<u64>,
}

impl Names {
    /// The machine has crashed at a step.
    pub(super) fn crashed(&mut self, step: u64) {
        (self.used, self.crash) = (self.told.clone(), step);
    }
}

impl Ledger {
    /// The broker delivers a message.
    pub(super) fn delivered(&mut self, conn: ConnId, mut message: Message) {
        self.counts.delivered += 1;
        let line = self.lines.get_mut(&conn).expect("a known connection");
        if let Some(alias) = message.topic_alias() {
            if message.topic.is_empty() {
                message.topic = line.aliases_out.get(&alias).cloned().unwrap_or_default();
            } else {
                line.aliases_out.insert(alias, message.topic.clone());
            }
        }
        let who = line.client_id.clone().unwrap_or_default();
        let mark = mark_of(&message.payload);
        let repeats = mark.as_ref().is_some_and(|mark| self.repeats(&who, mark, &message));
        let is_known = mark.as_ref().is_some_and(|mark| self.has_got(&who, mark));
        self.reuse(&who, &message);
        if message.topic == notice::TOPIC {
            return self.noticed(conn, &who, &message);
        }
        if message.topic.starts_with('$') {
            return;
        }
        let Some(mark) = mark else { return };
        let Some(fact) = self.facts.get(&mark) else {
            return self.broken(Rule::Invented, format!("{who} gets {mark}, which nobody published"));
        };
        if fact.persistent && !self.log.durable.contains(&mark) {
            self.broken(Rule::Durable, format!("{who} gets {mark}, which is not durable"));
        }
        let name = message.user_property("w-id").map(|text| (text.to_owned(), places::name(text)));
        match &name {
            Some((text, None)) => {
                return self.broken(Rule::EventId, format!("{mark} comes to {who} as {text}, which is no name"));
            }
            Some((_, Some(name))) => self.named(&who, &mark, *name),
            None => {}
        }
        self.got(conn, &mark, &message);
        if self.has_order {
            self.in_order(conn, &mark, &message, name.and_then(|(_, name)| name));
        }
        self.follow(conn, &mark, &message, (repeats, is_known));
    }

    /// A client is told the name of an event.
    fn named(&mut self, who: &str, mark: &str, name: Name) {
        let step = self.facts[mark].step;
        let Some((known, _)) = self.names.all.get(&name) else {
            self.names.all.insert(name, (mark.to_owned(), self.steps));
            let (pubend, tick) = name;
            let logged = self.log.ever.get(&((pubend % 16) as u8, tick)).filter(|_| is_own(pubend));
            if logged.is_some_and(|(logged, _)| logged == mark) {
                self.names.host.get_or_insert(pubend - pubend % 16);
            }
            let Names { used, crash, .. } = &self.names;
            if step > *crash && used.get(&pubend).is_some_and(|used| tick <= *used) {
                let what = format!("{mark} is named {name:x?}, a tick before one that was used already");
                self.broken(Rule::EventId, what);
            }
            let told = self.names.told.entry(pubend).or_default();
            *told = tick.max(*told);
            return;
        };
        if known != mark {
            let what = format!("{name:x?} is {mark} for {who}, and was {known}");
            self.broken(Rule::EventId, what);
        }
    }
}
