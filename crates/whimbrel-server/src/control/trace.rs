//! What became of an event: asked of all brokers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use whimbrel_core::overlay::ACCEPTED;
use whimbrel_event::EventId;

use super::answers::{Noted, Trace, Traced};
use super::{Shared, json, overlay, refuse};

/// How long it is waited for the answers of other brokers.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is looked whether they are there: a person asks seldom, and the core tells nobody when a last answer has come.
const LOOK: Duration = Duration::from_millis(5);

/// The beginnings of what is noted of the way.
const SENT: &str = "sent to ";
const CAME: &str = "came from ";

pub(super) async fn show(State(shared): State<Arc<Shared>>, Path(text): Path<String>) -> Response {
    let Ok(event) = text.parse::<EventId>() else {
        let error = format!(
            "{text:?} is no event id: it is <pubend in hexadecimal>:<tick in decimal>, as `whimbrel sub --json` and the property w-id show it"
        );
        return refuse(StatusCode::BAD_REQUEST, error);
    };
    if !overlay::is_open(&shared) {
        return overlay::alone();
    }
    // The broker remembers the answers to one question.
    let _turn = shared.traces.lock().await;
    let hub = &shared.hub;
    let own = hub.look(|broker, _, _| broker.core().own_name().map_or(String::new(), String::from));
    let (known, question) = hub.trace(event);
    let wanted = question.asked.len();
    let is_answered = || hub.look(|broker, _, _| broker.core().trace_answered(question.id)) >= wanted;
    let _ = tokio::time::timeout(PATIENCE, async {
        while !is_answered() {
            tokio::time::sleep(LOOK).await;
        }
    })
    .await;
    let mut answers: BTreeMap<String, String> = hub
        .look(|broker, _, _| broker.core().trace_answers(question.id))
        .into_iter()
        .map(|(name, text)| (name.into(), text.into()))
        .collect();
    let asked = question.asked.into_iter().map(String::from);
    let silent = asked.filter(|name| !answers.contains_key(name)).collect();
    answers.insert(own, known);
    let (brokers, ignorant) = in_order(answers);
    let missed = question.missed.into_iter().map(String::from).collect();
    json(StatusCode::OK, &Trace { event: event.to_string(), brokers, ignorant, silent, missed })
}

/// What brokers know, in the order of the event's way; and those that know nothing.
fn in_order(answers: BTreeMap<String, String>) -> (Vec<Traced>, Vec<String>) {
    let (known, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) =
        answers.into_iter().partition(|(_, text)| !text.trim().is_empty());
    let mut left: BTreeMap<String, Vec<Noted>> =
        known.into_iter().map(|(name, text)| (name, text.lines().map(noted).collect())).collect();
    // It begins where it was accepted, or else where it came from nobody.
    let says = |notes: &[Noted], begin: &str| notes.iter().any(|note| note.what.starts_with(begin));
    let rank = |notes: &[Noted]| (!says(notes, ACCEPTED), says(notes, CAME));
    let mut starts: Vec<((bool, bool), String)> =
        left.iter().map(|(name, notes)| (rank(notes), name.clone())).collect();
    starts.sort();
    let mut brokers = Vec::new();
    for (_, start) in starts {
        let mut next = VecDeque::from([start]);
        while let Some(name) = next.pop_front() {
            let Some(notes) = left.remove(&name) else { continue };
            next.extend(notes.iter().filter_map(|note| note.what.strip_prefix(SENT)).map(String::from));
            brokers.push(Traced { broker: name, notes });
        }
    }
    (brokers, unknown.into_keys().collect())
}

/// A line of what a broker tells; see `traces` in the core.
fn noted(line: &str) -> Noted {
    let timed = line.split_once(' ').and_then(|(number, what)| Some((number.parse().ok()?, what)));
    match timed {
        Some((after_us, what)) => Noted { after_us: Some(after_us), what: what.into() },
        None => Noted { after_us: None, what: line.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(answers: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let answers = answers.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        let (brokers, ignorant) = in_order(answers);
        (brokers.into_iter().map(|traced| traced.broker).collect(), ignorant)
    }

    #[test]
    fn brokers_stand_in_the_order_of_the_way() {
        let answers = [
            ("a", "0 came from z\n0 taken for subscriptions here\n"),
            ("b", ""),
            ("m", "0 came from y\n5 sent to a\n"),
            ("y", "0 sent to m\n2 sent to z\naccepted here, on t\n"),
            ("z", "0 came from y\n1 sent to a\n"),
        ];
        assert_eq!(order(&answers), (["y", "m", "z", "a"].map(String::from).to_vec(), vec!["b".to_owned()]));
    }

    #[test]
    fn without_the_first_broker_the_rest_is_in_order_and_rings_end() {
        let answers = [("a", "0 came from b\n"), ("b", "0 sent to a\n")];
        assert_eq!(order(&answers).0, ["b", "a"]);
        let ring = [("a", "0 came from b\n1 sent to b\n"), ("b", "0 came from a\n1 sent to a\n")];
        assert_eq!(order(&ring).0, ["a", "b"]);
    }

    #[test]
    fn lines_have_a_number_or_not() {
        let (after_us, what) = (Some(1250), "sent to m".to_owned());
        assert_eq!(noted("1250 sent to m"), Noted { after_us, what });
        let what = "for m, which wants a/#; way y > m".to_owned();
        assert_eq!(noted(&what), Noted { after_us: None, what });
    }
}
