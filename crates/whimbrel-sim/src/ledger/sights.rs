//! Nobody sees an event before it is durable; an event has one name, and no other has that.

use whimbrel_mqtt::ConnId;

use super::{Ledger, mark_of};
use crate::check::Rule;
use crate::speech::Message;

impl Ledger {
    /// The broker delivers something.
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
        if message.topic.starts_with('$') {
            return;
        }
        let Some(mark) = mark_of(&message.payload) else { return };
        let Some(fact) = self.facts.get(&mark) else {
            return self.broken(Rule::Invented, format!("{who} gets {mark}, which nobody published"));
        };
        if fact.persistent && !self.durable.contains(&mark) {
            self.broken(Rule::Durable, format!("{who} gets {mark}, which is not durable"));
        }
        if let Some(name) = message.user_property("w-id") {
            self.named(&who, &mark, name);
        }
        self.got(conn, &mark, &message);
    }

    /// A client is told the name of an event.
    fn named(&mut self, who: &str, mark: &str, name: &str) {
        let step = self.facts[mark].step;
        let Some(known) = self.names.get(name) else {
            self.names.insert(name.to_owned(), mark.to_owned());
            let Some((pubend, tick)) = name.split_once(':') else { return };
            let tick: u64 = tick.parse().expect("a tick is a number");
            let (used, crash) = &self.used;
            if step > *crash && used.get(pubend).is_some_and(|used| tick <= *used) {
                self.broken(Rule::EventId, format!("{mark} is named {name}, a tick before one that was used already"));
            }
            let told = self.told.entry(pubend.to_owned()).or_default();
            *told = tick.max(*told);
            return;
        };
        if known != mark {
            let what = format!("{name} is {mark} for {who}, and was {known}");
            self.broken(Rule::EventId, what);
        }
    }
}
