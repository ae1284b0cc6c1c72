//! Answers of all brokers to one question, and this broker's answers to others.
//!
//! A question is a path of the API with its query, an answer is the JSON to it. Each broker answers
//! for itself alone, so no question causes another one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tower::ServiceExt;
use whimbrel_core::overlay::{QUESTION_BYTES_MAX, REPLY_BYTES_MAX};
use whimbrel_event::HostId;

use super::answers::{Refused, Said, System};
use super::{Shared, json, percent, refuse, routes};
use crate::drive::{Asking, Hub, Text};

/// Longest wait for the answers of other brokers.
const PATIENCE: Duration = Duration::from_secs(2);

/// A broker that has not answered after this is asked again: messages may be lost.
const AGAIN: Duration = Duration::from_millis(600);

/// Questions to all brokers at once. Others wait, at most [`PATIENCE`].
pub(super) const ASKING_MAX: usize = 4;

/// Bytes of the answers of other brokers to one question; further answers are not shown.
const ANSWERS_BYTES_MAX: usize = 32 << 20;

/// Questions of other brokers that are answered at once.
const ANSWERING_MAX: usize = 16;

/// Questions of one broker that are answered at once.
const ANSWERING_EACH_MAX: usize = 4;

/// Samples of each broker, unless fewer are asked for: they fit into a message.
const SAMPLES: &str = "limit=300";

pub(super) async fn status(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    of_all(&shared, "/status", query).await
}

pub(super) async fn streams(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    of_all(&shared, "/streams", query).await
}

pub(super) async fn sessions(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    of_all(&shared, "/sessions", query).await
}

pub(super) async fn session(
    State(shared): State<Arc<Shared>>,
    Path(client_id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    of_all(&shared, &format!("/sessions/{}", percent::encode(&client_id)), query).await
}

pub(super) async fn topology(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    of_all(&shared, "/topology", query).await
}

pub(super) async fn paths(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    of_all(&shared, "/paths", query).await
}

pub(super) async fn history(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let is_limited = percent::field(query.as_deref(), "limit").is_some();
    let query = match query {
        Some(query) if is_limited => query,
        Some(query) => format!("{query}&{SAMPLES}"),
        None => SAMPLES.into(),
    };
    of_all(&shared, "/history", Some(query)).await
}

/// Passes the fields of the query on to all brokers, or to the one that it names.
async fn of_all(shared: &Arc<Shared>, path: &str, query: Option<String>) -> Response {
    let only = percent::field(query.as_deref(), "broker");
    let fields = query.iter().flat_map(|query| query.split('&')).filter(|field| !field.starts_with("broker="));
    let fields = fields.collect::<Vec<_>>().join("&");
    let question = if fields.is_empty() { path.to_owned() } else { format!("{path}?{fields}") };
    match ask(shared, &question, only.as_deref()).await {
        Ok(answers) => json(StatusCode::OK, &answers),
        Err(refusal) => refusal,
    }
}

/// Answers of all brokers to a question, this one's first and the others by name; or only that of
/// the broker `only`.
pub(super) async fn ask(
    shared: &Arc<Shared>,
    question: &str,
    only: Option<&str>,
) -> Result<System<Box<RawValue>>, Response> {
    let is_long = question.len() > QUESTION_BYTES_MAX;
    if is_long && only.is_some_and(|only| *only != *shared.about.name) {
        let error =
            format!("brokers do not ask each other for more than {QUESTION_BYTES_MAX} bytes: ask that broker itself");
        return Err(refuse(StatusCode::URI_TOO_LONG, error));
    }
    let turn = tokio::time::timeout(PATIENCE, shared.asking.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        let error = format!("{ASKING_MAX} questions to all brokers are under way already: ask again in a moment");
        return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, error));
    };
    let own = &shared.about.name;
    let others = shared.hub.look(|broker, _, _| broker.core().others());
    let named = |name: &str| only.is_none_or(|only| only == name);
    let others: HashMap<HostId, Box<str>> = others.into_iter().filter(|(_, name)| named(name)).collect();
    if others.is_empty() && !named(own) {
        let error =
            format!("there is no broker with the name {:?}; /api/v1/topology names all", only.unwrap_or_default());
        return Err(refuse(StatusCode::NOT_FOUND, error));
    }
    let mut all = if is_long {
        // The question is too long for other brokers, but this broker can still answer it.
        let mut missed: Vec<String> = others.into_values().map(String::from).collect();
        missed.sort_unstable();
        System { brokers: Vec::new(), silent: Vec::new(), missed }
    } else {
        gather(&shared.hub, question, others).await
    };
    if named(own) {
        let text = answer(routes::among_brokers(shared.clone()), question).await;
        all.brokers.insert(0, Said { name: own.clone(), answer: as_json(text) });
    }
    Ok(all)
}

/// Asks other brokers, and waits for their answers.
async fn gather(hub: &Hub, question: &str, others: HashMap<HostId, Box<str>>) -> System<Box<RawValue>> {
    let mut asking = hub.begin_asking(others.len());
    let mut open = others;
    let (mut came, mut bytes) = (BTreeMap::new(), 0);
    let unasked = hub.ask_brokers(open.keys().copied(), asking.number, question);
    let mut missed: Vec<String> = unasked.iter().filter_map(|host| open.remove(host)).map(String::from).collect();
    let until = tokio::time::Instant::now() + PATIENCE;
    while !open.is_empty() {
        let soon = until.min(tokio::time::Instant::now() + AGAIN);
        match tokio::time::timeout_at(soon, next(&mut asking)).await {
            Ok(text) => {
                let Some(name) = open.remove(&text.from) else { continue };
                bytes += text.text.len();
                let answer = if bytes > ANSWERS_BYTES_MAX { too_much() } else { text.text };
                came.insert((String::from(name), text.from), as_json(answer));
            }
            Err(_) if soon < until => drop(hub.ask_brokers(open.keys().copied(), asking.number, question)),
            Err(_) => break,
        }
    }
    let mut silent: Vec<String> = open.into_values().map(String::from).collect();
    silent.sort_unstable();
    missed.sort_unstable();
    let brokers = came.into_iter().map(|((name, _), answer)| Said { name, answer }).collect();
    System { brokers, silent, missed }
}

/// The next answer. The post keeps the sender while `asking` exists.
async fn next(asking: &mut Asking) -> Text {
    match asking.answers.recv().await {
        Some(text) => text,
        None => std::future::pending().await,
    }
}

/// The JSON of an error, in place of an answer.
fn error(error: String) -> String {
    serde_json::to_string(&Refused { error }).expect("it is JSON")
}

fn too_much() -> String {
    error(format!(
        "the answers of the brokers together have more than {ANSWERS_BYTES_MAX} bytes: ask for one broker (?broker=NAME)"
    ))
}

fn as_json(text: String) -> Box<RawValue> {
    let not_understood =
        |_| RawValue::from_string(error("its answer is not understood: is it of another version?".into()));
    RawValue::from_string(text).or_else(not_understood).expect("words are JSON")
}

/// This broker's answer for itself alone: JSON that fits a message.
async fn answer(routes: Router, question: &str) -> String {
    let Ok(request) = Request::get(question).body(Body::empty()) else {
        return error("the question is no path with a query".into());
    };
    let Ok(answered) = tokio::time::timeout(PATIENCE, routes.oneshot(request)).await else {
        return error(format!("it has taken more than {} s to answer", PATIENCE.as_secs()));
    };
    let body = answered.unwrap_or_else(|never| match never {}).into_body();
    let bytes = body.size_hint().lower();
    match to_bytes(body, REPLY_BYTES_MAX).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(_) => error(format!(
            "its answer of {bytes} bytes is longer than the {REPLY_BYTES_MAX} that fit a letter: ask for less at once (?limit=), or ask that broker itself"
        )),
    }
}

/// Questions being answered, by broker.
#[derive(Debug, Default)]
struct Turns {
    all: usize,
    each: HashMap<HostId, usize>,
}

impl Turns {
    /// Whether one more question of that broker may be answered now; it counts until
    /// [`Turns::end`].
    fn begin(&mut self, of: HostId) -> bool {
        if self.all >= ANSWERING_MAX || self.each.get(&of).is_some_and(|count| *count >= ANSWERING_EACH_MAX) {
            return false;
        }
        self.all += 1;
        *self.each.entry(of).or_default() += 1;
        true
    }

    fn end(&mut self, of: HostId) {
        if let Some(count) = self.each.get_mut(&of) {
            (self.all, *count) = (self.all - 1, *count - 1);
            self.each.retain(|_, count| *count > 0);
        }
    }
}

/// Answers the questions of other brokers until the task is dropped.
pub(super) async fn answer_others(shared: Arc<Shared>, mut questions: mpsc::Receiver<Text>) {
    let (routes, hub) = (routes::among_brokers(shared.clone()), &shared.hub);
    let (mut answering, mut turns) = (JoinSet::<(HostId, u64, String)>::new(), Turns::default());
    loop {
        tokio::select! {
            question = questions.recv() => {
                let Some(Text { from, number, text }) = question else { return };
                if turns.begin(from) {
                    let routes = routes.clone();
                    answering.spawn(async move { (from, number, answer(routes, &text).await) });
                } else {
                    let busy = "it is asked for too much at once: ask again in a moment";
                    hub.answer_broker(from, number, &error(busy.into()));
                }
            }
            Some(done) = answering.join_next() => {
                // A handler that panicked would keep its turn; no handler panics.
                let Ok((from, number, text)) = done else { continue };
                turns.end(from);
                hub.answer_broker(from, number, &text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_broker_takes_all_turns_and_all_together_have_a_bound() {
        let mut turns = Turns::default();
        let hosts = || (1..).map(|number| HostId::new(number << 4));
        let taken = |turns: &mut Turns, host| (0..ANSWERING_MAX).filter(|_| turns.begin(host)).count();
        for host in hosts().take(ANSWERING_MAX / ANSWERING_EACH_MAX) {
            assert_eq!(taken(&mut turns, host), ANSWERING_EACH_MAX);
        }
        let late = HostId::new(0xff0);
        assert!(!turns.begin(late));
        let first = hosts().next().expect("there are many");
        turns.end(first);
        turns.end(late);
        assert!(turns.begin(late) && !turns.begin(first), "one turn was free");
        (0..ANSWERING_MAX).for_each(|_| hosts().take(8).for_each(|host| turns.end(host)));
        turns.end(late);
        assert_eq!((turns.all, turns.each.len()), (0, 0));
    }

    #[test]
    fn what_is_no_json_is_an_error_in_its_place() {
        assert_eq!(as_json("{\"a\": 1}".into()).get(), "{\"a\": 1}");
        for wrong in ["", "{", "{} {}", "\u{1}"] {
            assert!(as_json(wrong.into()).get().contains("not understood"), "{wrong:?}");
        }
        assert!(serde_json::from_str::<Refused>(&too_much()).is_ok());
    }
}
