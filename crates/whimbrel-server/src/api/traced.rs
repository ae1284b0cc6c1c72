//! What became of an event on each of its paths, from what all brokers tell of it.
//!
//! A copy is followed along its planned path: it has come from one broker to the next if the next
//! one says so. It may end at a broker that has passed another copy on before, or there is no sign
//! of it from some broker on. Copies that have come to a destination by other paths, as a broker
//! on the way has changed theirs or the plan was another one, are told as well; and those that
//! have left the first broker for a neighbour to which the plan leads no more.

use std::collections::BTreeMap;

use super::answers::{BrokerPath, Noted, PlannedDestination, PlannedTopic, Traced, TracedDestination, TracedPath};

/// Most brokers on a path that was not planned.
const PATH_MAX: usize = 64;

/// What brokers tell, by their names; those that have not answered are missing.
pub(super) type TracedByName = BTreeMap<String, Traced>;

/// How an event has gone to each destination of its plan.
pub(super) fn destinations(plan: &PlannedTopic, answers: &TracedByName) -> Vec<TracedDestination> {
    plan.destinations.iter().map(|to| Followed { plan, to, answers }.told()).collect()
}

/// Whether a note tells this step of this neighbour.
fn tells(note: &Noted, step: &str, peer: &str) -> bool {
    note.step.as_deref() == Some(step) && note.peer.as_deref() == Some(peer)
}

fn is_step(note: &Noted, step: &str) -> bool {
    note.step.as_deref() == Some(step)
}

/// The broker before the destination.
fn last_hop(path: &TracedPath) -> Option<&String> {
    path.brokers.iter().rev().nth(1)
}

/// An event on its paths to one broker.
struct Followed<'a> {
    plan: &'a PlannedTopic,
    to: &'a PlannedDestination,
    answers: &'a TracedByName,
}

impl<'a> Followed<'a> {
    fn told(&self) -> TracedDestination {
        let PlannedDestination { broker, shared_brokers, shared_links, .. } = self.to;
        let mut paths: Vec<TracedPath> = self.to.paths.iter().map(|path| self.follow(path)).collect();
        paths.extend(self.not_planned(&paths));
        paths.extend(self.strays(&paths));
        self.compare(&mut paths);
        let taken = self.notes(broker).map(|notes| notes.iter().any(|note| is_step(note, "taken")));
        let (shared_brokers, shared_links) = (shared_brokers.clone(), shared_links.clone());
        TracedDestination { broker: broker.clone(), taken, paths, shared_brokers, shared_links }
    }

    /// What a broker tells; `None` if it has not answered.
    fn notes(&self, broker: &str) -> Option<&'a [Noted]> {
        self.answers.get(broker).map(|traced| &*traced.notes)
    }

    /// The note of the first copy that came to a broker from another one.
    fn came(&self, broker: &str, from: &str) -> Option<&'a Noted> {
        self.notes(broker)?.iter().find(|note| tells(note, "came", from))
    }

    /// The notes of a broker about the copy that came from this neighbour; all notes of the first
    /// broker.
    fn of_copy(&self, broker: &str, from: Option<&str>) -> &'a [Noted] {
        let notes = self.notes(broker).unwrap_or_default();
        let Some(from) = from else { return notes };
        let Some(begin) = notes.iter().position(|note| tells(note, "came", from)) else { return &[] };
        let behind = &notes[begin + 1..];
        let end = behind.iter().position(|note| is_step(note, "came") || is_step(note, "came-again"));
        &behind[..end.unwrap_or(behind.len())]
    }

    /// What became of the copy on a planned path.
    fn follow(&self, path: &BrokerPath) -> TracedPath {
        let brokers = &path.brokers;
        let mut ages_us = vec![Some(0)];
        // The broker that has seen it last.
        let mut last = 0;
        let mut end = None;
        for at in 1..brokers.len() {
            let (here, next) = (&brokers[at - 1], &brokers[at]);
            let before = at.checked_sub(2).map(|before| &*brokers[before]);
            if self.of_copy(here, before).iter().any(|note| tells(note, "joined", next)) {
                end = Some("joined");
                break;
            }
            let came = self.came(next, here);
            ages_us.push(came.and_then(|note| note.age_us));
            if came.is_some() {
                last = at;
                continue;
            }
            end = self.missed(here, next);
            if end.is_some() {
                break;
            }
        }
        ages_us.resize(brokers.len(), None);
        let has_come = last + 1 == brokers.len();
        TracedPath {
            brokers: brokers.clone(),
            planned_us: Some(path.time_us),
            in_time: path.in_time,
            ages_us,
            state: end.unwrap_or(if has_come { "later" } else { "unknown" }).to_owned(),
            at: brokers[last].clone(),
            behind_us: None,
        }
    }

    /// Why a copy has not come from one broker to the next; `None` if one of them has not
    /// answered.
    fn missed(&self, here: &str, next: &str) -> Option<&'static str> {
        let notes = self.notes(here)?;
        let has = |step: &str| notes.iter().any(|note| tells(note, step, next));
        if let Some(step) = ["held-back", "rerouted"].into_iter().find(|step| has(step)) {
            return Some(step);
        }
        self.notes(next)?;
        Some(if has("sent") { "lost" } else { "not-sent" })
    }

    /// The copies that came to the destination by other paths than these; if there is no copy, the
    /// event as it was asked for.
    fn not_planned(&self, planned: &[TracedPath]) -> Vec<TracedPath> {
        let broker = &*self.to.broker;
        let notes = self.notes(broker).unwrap_or_default();
        let mut others: Vec<TracedPath> = Vec::new();
        for note in notes.iter().filter(|note| is_step(note, "came")) {
            let is_it = |path: &TracedPath| path.state == "later" && last_hop(path) == note.peer.as_ref();
            if !planned.iter().chain(&others).any(is_it) {
                others.push(self.back(note, "later"));
            }
        }
        if others.is_empty() && planned.iter().all(|path| path.state != "later") {
            let asked = notes.iter().find(|note| is_step(note, "came-again"));
            others.extend(asked.map(|note| self.back(note, "asked-for")));
        }
        others
    }

    /// The copies that have left the first broker for a neighbour to which neither the plan nor
    /// these paths lead, and have ended somewhere. For which destinations they were is not known.
    fn strays(&self, known: &[TracedPath]) -> Vec<TracedPath> {
        let from = &self.plan.from;
        let notes = self.notes(from).unwrap_or_default();
        let first = notes.iter().take_while(|note| !is_step(note, "sent-again"));
        let planned = self.plan.destinations.iter().flat_map(|to| &to.paths).map(|path| &path.brokers);
        let ways: Vec<&Vec<String>> = planned.chain(known.iter().map(|path| &path.brokers)).collect();
        let is_known = |peer: &String| ways.iter().any(|way| way.get(1) == Some(peer));
        let sent = first.filter(|note| is_step(note, "sent")).filter_map(|note| note.peer.as_ref());
        sent.filter(|peer| !is_known(peer)).filter_map(|peer| self.stray([from, peer])).collect()
    }

    /// A copy that goes from one broker to another, and where it has ended; `None` if it was for
    /// the broker that it has come to last.
    fn stray(&self, [from, to]: [&String; 2]) -> Option<TracedPath> {
        let (mut brokers, mut ages_us) = (vec![from.clone(), to.clone()], vec![Some(0)]);
        loop {
            let (here, next) = (brokers.iter().rev().nth(1)?, brokers.last()?);
            let (state, at) = match self.came(next, here) {
                None => (self.missed(here, next).unwrap_or("unknown"), here),
                Some(came) => {
                    ages_us.push(came.age_us);
                    let copy = self.of_copy(next, Some(here));
                    let sent = copy.iter().filter(|note| is_step(note, "sent")).find_map(|note| note.peer.clone());
                    if let Some(sent) = sent.filter(|sent| !brokers.contains(sent) && brokers.len() < PATH_MAX) {
                        brokers.push(sent);
                        continue;
                    }
                    let ended = copy.iter().find(|note| is_step(note, "joined") || is_step(note, "held-back"));
                    (ended?.step.as_deref()?, next)
                }
            };
            let (state, at) = (state.to_owned(), at.clone());
            ages_us.resize(brokers.len(), None);
            let (planned_us, in_time, behind_us) = (None, None, None);
            return Some(TracedPath { brokers, planned_us, in_time, ages_us, state, at, behind_us });
        }
    }

    /// The path by which an event has come to the destination, as far back as brokers tell.
    fn back(&self, last: &Noted, state: &str) -> TracedPath {
        let (mut brokers, mut ages_us) = (vec![self.to.broker.clone()], vec![last.age_us]);
        let mut from = last.peer.clone();
        while let Some(broker) = from.take().filter(|broker| brokers.len() < PATH_MAX && !brokers.contains(broker)) {
            let came = self.notes(&broker).unwrap_or_default().iter().find(|note| is_step(note, "came"));
            ages_us.push(came.and_then(|note| note.age_us));
            from = came.and_then(|note| note.peer.clone());
            brokers.push(broker);
        }
        brokers.reverse();
        ages_us.reverse();
        let at = self.to.broker.clone();
        let (planned_us, in_time, behind_us) = (None, None, None);
        TracedPath { brokers, planned_us, in_time, ages_us, state: state.to_owned(), at, behind_us }
    }

    /// Tells the copies that have come which was first, and the others by how much they were later.
    fn compare(&self, paths: &mut [TracedPath]) {
        let notes = self.notes(&self.to.broker).unwrap_or_default();
        let came = |path: &TracedPath| {
            let peer = last_hop(path).filter(|_| path.state == "later")?;
            let place = notes.iter().position(|note| tells(note, "came", peer))?;
            Some((place, notes[place].after_us?))
        };
        let all: Vec<_> = paths.iter().map(came).collect();
        let Some((first, first_us)) = all.iter().flatten().min().copied() else { return };
        let mut is_told = false;
        for (path, came) in paths.iter_mut().zip(all) {
            let Some((place, after_us)) = came else { continue };
            if place == first && !is_told {
                path.state = "first".into();
                is_told = true;
            } else {
                path.behind_us = Some(after_us.saturating_sub(first_us));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> Noted {
        let mut words = text.split(' ');
        let after_us = words.next().and_then(|word| word.parse().ok());
        let (step, peer) = (words.next().map(String::from), words.next().map(String::from));
        Noted { after_us, what: String::new(), step, peer, age_us: words.next().and_then(|word| word.parse().ok()) }
    }

    /// The paths from a to d, and what brokers tell: `AFTER STEP [PEER [AGE]]`, divided by commas.
    fn told(paths: &[&str], answers: &[(&str, &str)]) -> TracedDestination {
        let path = |text: &&str| BrokerPath {
            brokers: text.split(' ').map(String::from).collect(),
            time_us: 10,
            in_time: Some(true),
        };
        let to = PlannedDestination {
            broker: "d".into(),
            host: "1".into(),
            filter: "#".into(),
            selector: None,
            paths: paths.iter().map(path).collect(),
            shared_brokers: Vec::new(),
            shared_links: Vec::new(),
            direct_us: None,
        };
        let traced = |(broker, notes): &(&str, &str)| {
            let notes = notes.split(',').filter(|text| !text.is_empty()).map(note).collect();
            (broker.to_string(), Traced { broker: broker.to_string(), notes, plan: None })
        };
        let answers: TracedByName = answers.iter().map(traced).collect();
        let (topic, from, setting) = ("t".into(), "a".into(), "2".into());
        let plan = PlannedTopic { topic, from, deadline_ms: None, setting, destinations: vec![to], more: 0 };
        destinations(&plan, &answers).remove(0)
    }

    /// State, place and lag of each path.
    fn states(told: &TracedDestination) -> Vec<(&str, &str, Option<u64>)> {
        told.paths.iter().map(|path| (&*path.state, &*path.at, path.behind_us)).collect()
    }

    const PAIR: [&str; 2] = ["a b d", "a c d"];
    const BOTH_SENT: (&str, &str) = ("a", "0 sent b,1 sent c");
    const B: (&str, &str) = ("b", "0 came a 2000,5 sent d");
    const C: (&str, &str) = ("c", "0 came a 20000,5 sent d");

    #[test]
    fn of_two_copies_one_is_first_and_the_other_is_later_by_the_destinations_clock() {
        let d = ("d", "0 came b 4000,9 taken,35000 came c 40000");
        let told = told(&PAIR, &[BOTH_SENT, B, C, d]);
        assert_eq!(states(&told), [("first", "d", None), ("later", "d", Some(35_000))]);
        assert_eq!(told.paths[1].ages_us, [Some(0), Some(20_000), Some(40_000)]);
        assert_eq!((told.taken, told.paths[0].planned_us), (Some(true), Some(10)));
    }

    #[test]
    fn a_copy_of_which_there_is_no_sign_is_lost_behind_the_last_broker_that_had_it() {
        let d = ("d", "0 came c 40000,9 taken");
        assert_eq!(states(&told(&PAIR, &[BOTH_SENT, B, C, d])), [("lost", "b", None), ("first", "d", None)]);
        let b = ("b", "");
        let lost = told(&PAIR, &[BOTH_SENT, b, C, d]);
        assert_eq!(states(&lost), [("lost", "a", None), ("first", "d", None)]);
        assert_eq!(lost.paths[0].ages_us, [Some(0), None, None]);
    }

    #[test]
    fn brokers_that_have_not_answered_make_no_copy_lost() {
        let d = ("d", "0 came b 4000,9 taken");
        let here = told(&PAIR, &[BOTH_SENT, d]);
        assert_eq!(states(&here), [("first", "d", None), ("unknown", "a", None)]);
        assert_eq!(here.paths[0].ages_us, [Some(0), None, Some(4_000)]);
        let gone = told(&PAIR, &[BOTH_SENT, B, C]);
        assert_eq!(states(&gone), [("unknown", "b", None), ("unknown", "c", None)]);
        assert_eq!(gone.taken, None);
    }

    #[test]
    fn a_copy_ends_where_another_one_has_been_passed_on() {
        let paths = ["a b e d", "a c e d"];
        let b = ("b", "0 came a 2000,5 sent e");
        let c = ("c", "0 came a 20000,5 sent e");
        let e = ("e", "0 came b 4000,3 sent d,30000 came c 40000,30001 joined d");
        let d = ("d", "0 came e 6000,1 taken");
        let told = told(&paths, &[BOTH_SENT, b, c, e, d]);
        assert_eq!(states(&told), [("first", "d", None), ("joined", "e", None)]);
        assert_eq!(told.paths[1].ages_us, [Some(0), Some(20_000), Some(40_000), None]);
    }

    #[test]
    fn a_way_that_was_changed_is_told_with_the_one_that_was_taken() {
        let b = ("b", "0 came a 2000,1 rerouted d,2 sent e");
        let e = ("e", "0 came b 5000,1 sent d");
        let d = ("d", "0 came e 8000,1 taken,32000 came c 40000");
        let told = told(&PAIR, &[BOTH_SENT, b, C, e, d]);
        assert_eq!(states(&told), [("rerouted", "b", None), ("later", "d", Some(32_000)), ("first", "d", None)]);
        assert_eq!(told.paths[2].brokers, ["a", "b", "e", "d"]);
        assert_eq!((told.paths[2].planned_us, told.paths[2].ages_us[3]), (None, Some(8_000)));
    }

    #[test]
    fn an_event_that_came_when_it_was_asked_for_says_so() {
        let d = ("d", "0 came-again c 90000,1 taken");
        let told = told(&PAIR, &[("a", "0 sent b,1 sent c,80000 sent-again,80000 sent c"), ("b", ""), ("c", ""), d]);
        assert_eq!(states(&told), [("lost", "a", None), ("lost", "a", None), ("asked-for", "d", None)]);
    }

    #[test]
    fn a_copy_to_where_the_plan_leads_no_more_is_told_as_far_as_it_came() {
        let a = ("a", "0 sent b,1 sent c,78000 rerouted c,78000 sent b");
        let d = ("d", "0 came b 4000,9 taken");
        let gone = told(&PAIR[..1], &[a, B, d]);
        assert_eq!(states(&gone), [("first", "d", None), ("rerouted", "a", None)]);
        assert_eq!((&*gone.paths[1].brokers, gone.paths[1].planned_us), (&["a".to_owned(), "c".to_owned()][..], None));
        let behind = told(&PAIR[..1], &[BOTH_SENT, B, C, d]);
        assert_eq!(states(&behind), [("first", "d", None), ("lost", "c", None)]);
        assert_eq!(behind.paths[1].ages_us, [Some(0), Some(20_000), None]);
        let other = told(&PAIR[..1], &[BOTH_SENT, B, ("c", "0 came a 20000,1 taken"), d]);
        assert_eq!(states(&other), [("first", "d", None)], "it was for c");
    }

    #[test]
    fn what_was_held_back_or_had_another_plan_is_not_lost() {
        let a = ("a", "0 held-back b");
        let told = told(&PAIR, &[a, ("b", ""), ("c", ""), ("d", "")]);
        assert_eq!(states(&told), [("held-back", "a", None), ("not-sent", "a", None)]);
        assert_eq!(told.taken, Some(false));
    }
}
