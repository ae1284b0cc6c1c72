//! `/trace`: the path of an event, asked of all brokers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use whimbrel_core::overlay::{ACCEPTED, EventTrace, PathsPlan, TracedStep};
use whimbrel_event::EventId;

use super::answers::{Noted, Said, System, Trace, Traced};
use super::{Shared, json, overlay, refuse, system, traced};

/// Beginnings of the notes that tell an event's path, as brokers of 0.1 tell them: in words only.
const SENT: &str = "sent to ";
const CAME: &str = "came from ";

pub(super) async fn show(State(shared): State<Arc<Shared>>, Path(text): Path<String>) -> Response {
    let event = match event(&text) {
        Ok(event) => event,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, error),
    };
    if !overlay::is_open(&shared) {
        return overlay::alone();
    }
    match system::ask(&shared, &format!("/trace/{event}/own"), None).await {
        Ok(System { brokers, mut silent, missed }) => {
            let mut answers = BTreeMap::new();
            for Said { name, answer } in brokers {
                // A text of another form is no answer to this question.
                match serde_json::from_str::<Traced>(answer.get()) {
                    Ok(traced) => drop(answers.insert(name.clone(), Traced { broker: name, ..traced })),
                    Err(_) => silent.push(name),
                }
            }
            let plan = answers.values_mut().find_map(|traced| traced.plan.take());
            let destinations = plan.as_ref().map_or_else(Vec::new, |plan| traced::destinations(plan, &answers));
            let (brokers, ignorant) = in_order(answers);
            let deadline_ms = plan.as_ref().and_then(|plan| plan.deadline_ms);
            let (event, setting) = (event.to_string(), plan.map(|plan| plan.setting));
            let trace = Trace { event, brokers, destinations, deadline_ms, setting, ignorant, silent, missed };
            json(StatusCode::OK, &trace)
        }
        Err(refusal) => refusal,
    }
}

/// The notes of this broker alone.
pub(super) async fn own(State(shared): State<Arc<Shared>>, Path(text): Path<String>) -> Response {
    match event(&text) {
        Ok(event) => {
            let EventTrace { steps, plan } = shared.hub.trace(event);
            let broker = shared.about.name.clone();
            let words = plan.iter().flat_map(PathsPlan::lines).map(|what| Noted { what, ..Noted::default() });
            let notes = steps.iter().map(noted).chain(words).collect();
            let plan = plan.map(|plan| overlay::planned(&broker, plan));
            json(StatusCode::OK, &Traced { broker, notes, plan })
        }
        Err(error) => refuse(StatusCode::BAD_REQUEST, error),
    }
}

fn event(text: &str) -> Result<EventId, String> {
    let wrong = |_| {
        format!(
            "{text:?} is no event id: it is <pubend>:<tick>, as `whimbrel sub --json` and the property w-id show it"
        )
    };
    text.parse().map_err(wrong)
}

/// The neighbour of a note that tells this step.
fn peer<'n>(note: &'n Noted, step: &str, begin: &str) -> Option<&'n str> {
    match &note.step {
        Some(known) => note.peer.as_deref().filter(|_| known == step),
        None => note.what.strip_prefix(begin)?.split(',').next(),
    }
}

/// Brokers with notes, in the order of the event's path; and brokers without.
fn in_order(answers: BTreeMap<String, Traced>) -> (Vec<Traced>, Vec<String>) {
    let (mut left, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) =
        answers.into_iter().partition(|(_, traced)| !traced.notes.is_empty());
    // The path begins at the broker that accepted the event, or else at one that did not receive
    // it.
    let rank = |Traced { notes, .. }: &Traced| {
        let accepted = notes.iter().any(|note| note.what.starts_with(ACCEPTED));
        (!accepted, notes.iter().any(|note| peer(note, "came", CAME).is_some()))
    };
    let mut starts: Vec<((bool, bool), String)> =
        left.iter().map(|(name, traced)| (rank(traced), name.clone())).collect();
    starts.sort();
    let mut brokers = Vec::new();
    for (_, start) in starts {
        let mut next = VecDeque::from([start]);
        while let Some(name) = next.pop_front() {
            let Some(traced) = left.remove(&name) else { continue };
            next.extend(traced.notes.iter().filter_map(|note| peer(note, "sent", SENT)).map(String::from));
            brokers.push(traced);
        }
    }
    (brokers, unknown.into_keys().collect())
}

/// A step of this broker as a note.
fn noted(step: &TracedStep) -> Noted {
    Noted {
        after_us: Some(u64::try_from(step.after.as_micros()).unwrap_or(u64::MAX)),
        what: step.text(),
        step: Some(step.name().to_owned()),
        peer: step.peer.as_deref().map(String::from),
        age_us: step.age_us(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of brokers that tell this in words alone.
    fn order(answers: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let noted = |line: &str| Noted { what: line.into(), ..Noted::default() };
        let traced = |broker: &str, text: &str| {
            let notes = text.lines().map(noted).collect();
            (broker.to_owned(), Traced { broker: broker.into(), notes, plan: None })
        };
        let (brokers, ignorant) = in_order(answers.iter().map(|(broker, text)| traced(broker, text)).collect());
        (brokers.into_iter().map(|traced| traced.broker).collect(), ignorant)
    }

    #[test]
    fn brokers_stand_in_the_order_of_the_way() {
        let answers = [
            ("a", "came from z\ntaken for subscriptions here\n"),
            ("b", ""),
            ("m", "came from y\nsent to a\n"),
            ("y", "sent to m\nsent to z\naccepted here, on t\n"),
            ("z", "came from y, 1.0 ms old\nsent to a\n"),
        ];
        assert_eq!(order(&answers), (["y", "m", "z", "a"].map(String::from).to_vec(), vec!["b".to_owned()]));
    }

    #[test]
    fn without_the_first_broker_the_rest_is_in_order_and_rings_end() {
        let answers = [("a", "came from b\n"), ("b", "sent to a\n")];
        assert_eq!(order(&answers).0, ["b", "a"]);
        let ring = [("a", "came from b\nsent to b\n"), ("b", "came from a\nsent to a\n")];
        assert_eq!(order(&ring).0, ["a", "b"]);
    }

    #[test]
    fn a_step_names_its_neighbour_and_words_do() {
        let told = |step: Option<&str>, what: &str| Noted {
            what: what.into(),
            step: step.map(String::from),
            peer: step.map(|_| "m".into()),
            ..Noted::default()
        };
        assert_eq!(peer(&told(Some("sent"), ""), "sent", SENT), Some("m"));
        assert_eq!(peer(&told(Some("came"), "sent to n"), "sent", SENT), None);
        assert_eq!(peer(&told(None, "came from m, 1.0 ms old"), "came", CAME), Some("m"));
    }
}
