//! `/trace`: the path of an event, asked of all brokers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use whimbrel_core::overlay::ACCEPTED;
use whimbrel_event::EventId;

use super::answers::{Noted, Said, System, Trace, Traced};
use super::{Shared, json, overlay, refuse, system};

/// Beginnings of the notes that tell an event's path.
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
                    Ok(traced) => drop(answers.insert(name, traced.notes)),
                    Err(_) => silent.push(name),
                }
            }
            let (brokers, ignorant) = in_order(answers);
            json(StatusCode::OK, &Trace { event: event.to_string(), brokers, ignorant, silent, missed })
        }
        Err(refusal) => refusal,
    }
}

/// The notes of this broker alone.
pub(super) async fn own(State(shared): State<Arc<Shared>>, Path(text): Path<String>) -> Response {
    match event(&text) {
        Ok(event) => {
            let notes = shared.hub.trace(event).lines().map(noted).collect();
            json(StatusCode::OK, &Traced { broker: shared.about.name.clone(), notes })
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

/// Brokers with notes, in the order of the event's path; and brokers without.
fn in_order(answers: BTreeMap<String, Vec<Noted>>) -> (Vec<Traced>, Vec<String>) {
    let (mut left, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) =
        answers.into_iter().partition(|(_, notes)| !notes.is_empty());
    // The path begins at the broker that accepted the event, or else at one that did not receive
    // it.
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

/// Parses one line of a broker's notes; see `traces` in the core.
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
        let notes = |text: &str| text.lines().map(noted).collect();
        let answers = answers.iter().map(|(name, text)| (name.to_string(), notes(text))).collect();
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
