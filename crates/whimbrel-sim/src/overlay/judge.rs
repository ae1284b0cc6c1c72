//! The checks of the book at the end of a world: what had to be delivered, and was not.

use std::collections::BTreeMap;

use whimbrel_event::Time;

use super::book::{ARRIVE_MAX, Book, Process, Rule, wants};
use super::client::Class;

impl Book {
    /// Checks at the end of a world, when all deliveries have been made. `probes`: the time at
    /// which everything had worked for a while.
    pub(super) fn close(&mut self, now: Time, names: &[String], probes: Time) {
        let lacking: Vec<(usize, u16)> = self
            .unanswered
            .iter()
            .filter(|(_, fact)| !self.is_ended(self.facts[**fact].at))
            .map(|(key, _)| *key)
            .collect();
        for (client, id) in lacking {
            self.breaks(Rule::Answer, format!("client {client} gets no answer to its publish {id}"));
        }
        for number in 0..self.followings.len() {
            self.check_order(number);
            let following = &self.followings[number];
            if following.is_over || self.is_ended(following.at) {
                continue;
            }
            if !following.is_answered {
                let text = format!("{} gets no SUBACK", following.client);
                if now.since(following.asked.0) > following.answer_max() {
                    self.breaks(Rule::Answer, text);
                }
                continue;
            }
            for fact in 0..self.facts.len() {
                self.check_arrival(number, fact, names, probes);
            }
        }
        self.check_retained();
    }

    fn is_ended(&self, process: Process) -> bool {
        self.ended.contains(&process)
    }

    /// Checks the order of deliveries. The names of events are known from the witnesses, so this
    /// includes subscriptions that do not tell names.
    fn check_order(&mut self, number: usize) {
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut broken = Vec::new();
        let following = &self.followings[number];
        let mut present = 0;
        for (fact, life) in &following.order {
            if core::mem::replace(&mut present, *life) != *life {
                last.clear();
            }
            let Some((stream, tick)) = self.facts[*fact].name else { continue };
            let before = last.insert(stream, tick).unwrap_or(0);
            if tick <= before {
                broken.push(format!(
                    "{} ({:?}) gets {} out of order",
                    following.client, following.class, self.facts[*fact].key
                ));
            }
        }
        for what in broken {
            self.breaks(Rule::Order, what);
        }
    }

    fn check_arrival(&mut self, number: usize, fact: usize, names: &[String], probes: Time) {
        let (following, of) = (&self.followings[number], &self.facts[fact]);
        let Some(began) = following.began else { return };
        let is_probe = of.sent >= probes;
        let (is_ended, is_durable) = (self.is_ended(of.at), following.class == Class::Durable);
        let is_near = is_durable && of.at.0 == following.at.0;
        // An event that was accepted by a broker with a disk survives, or a gap is told; the gap
        // can be checked if the event's name is known.
        let is_kept = self.disks.contains(&of.at.0) && (is_near || of.name.is_some());
        // The loss of an ended process's events is told to subscriptions that were there all the
        // time and had received an event of it. No broker can tell of a process of which none has
        // heard.
        let heard_of = |(fact, (at, _)): (&usize, &(Time, _))| self.facts[*fact].at == of.at && *at < of.sent;
        let is_told = !matches!(following.class, Class::Plain | Class::Durable)
            && of.name.is_some()
            && of.sent.since(following.asked.0) > following.answer_max()
            && is_ended
            && following.got.iter().any(heard_of);
        let is_promised = of.is_answered && of.sent > began && (!is_ended || is_kept || is_told);
        let is_named = |name: &String| *name == names[of.at.0] || *name == whimbrel_core::ALL_OTHERS;
        let is_pending = !is_probe && following.pending.iter().any(is_named);
        if !is_promised || is_pending || !wants(&following.wish, &of.message) {
            return;
        }
        let who = format!("{} ({:?}, at {:?}, since {:?})", following.client, following.class, following.at, began);
        let what = format!("{} of {:?}, sent at {:?}", of.key, of.at, of.sent);
        match following.got.get(&fact) {
            Some((at, _)) => {
                self.counts.due += 1;
                self.counts.survived += u64::from(is_ended);
                let took = at.since(of.sent);
                if is_probe && took > ARRIVE_MAX {
                    self.breaks(Rule::Late, format!("{who} gets {what} after {took:?}"));
                }
            }
            None => {
                // An event that no client received has no name here; its tick is about the time of
                // its acceptance.
                let (stream, tick) = of.name.map_or((None, of.shown.as_nanos()), |(stream, tick)| (Some(stream), tick));
                let hides = |(pubend, from, to): &(u64, u64, u64)| {
                    stream.is_none_or(|stream| *pubend == stream) && (*from + 1..=*to).contains(&tick)
                };
                let is_excused = following.gaps.iter().any(hides);
                // An event that the subscription's own broker accepted for it is in the log.
                let is_excused = is_excused && !is_near;
                self.counts.excused += u64::from(is_excused);
                let rule = if is_probe { Rule::Late } else { Rule::Lost };
                // A subscription that is not told of gaps may have some.
                let is_silent = (self.is_tiny || is_ended) && following.class == Class::Plain;
                if !is_excused && !is_silent || is_probe {
                    let name = of.name.map(|(stream, tick)| format!("{stream:x}:{tick}"));
                    self.breaks(rule, format!("{who} does not get {what}, {name:?}"));
                }
            }
        }
    }

    fn check_retained(&mut self) {
        let mut all = core::mem::take(&mut self.retained).into_iter();
        let Some((first, retained)) = all.next() else { return };
        let mut broken = Vec::new();
        for (other, others) in all {
            if retained != others {
                broken.push(format!("broker {first} retains {retained:?}, broker {other} {others:?}"));
            }
        }
        // By topic: the greatest version of what was promised, and of what cleared the topic,
        // promised or not. A clearing event of unknown version may have been the last.
        let mut promised: BTreeMap<&str, ((u64, u64), &str)> = BTreeMap::new();
        let mut cleared: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for fact in self.facts.iter().filter(|fact| fact.message.retain) {
            let version = fact.name.map(|(stream, tick)| (tick, stream));
            let topic = &*fact.message.topic;
            if fact.message.payload.is_empty() {
                let known = cleared.entry(topic).or_default();
                *known = version.unwrap_or((u64::MAX, 0)).max(*known);
            }
            if let Some(version) = version.filter(|_| fact.is_answered && !self.ended.contains(&fact.at)) {
                let known = promised.entry(topic).or_insert((version, &fact.key));
                *known = (version, &*fact.key).max(*known);
            }
        }
        for (topic, (least, newer)) in promised {
            let present = retained.get(topic);
            let is_older = match present {
                Some(key) => {
                    let name = self.by_key.get(key).and_then(|fact| self.facts[*fact].name);
                    name.is_some_and(|(stream, tick)| (tick, stream) < least)
                }
                None => cleared.get(topic).is_none_or(|cleared| *cleared < least),
            };
            if is_older {
                broken.push(format!("{present:?} is retained of {topic}, and {newer} is newer"));
            }
        }
        for what in broken {
            self.breaks(Rule::Retained, what);
        }
    }
}
