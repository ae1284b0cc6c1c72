//! Orders over the API that signals can give, too.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use tokio::sync::Notify;

use super::answers::{Draining, Reloaded};
use super::{Shared, json, refuse};
use crate::fences::{Outcome, Reload};

/// Time for an answer to be written after it was handed over: a broker without clients ends at
/// once, and its connections with it.
const ANSWER_TIME: Duration = Duration::from_millis(100);

/// Mistakes of the configuration that one answer names, at most.
const PROBLEMS_MAX: usize = 100;

/// Begins a drain when it is dropped.
struct Begin(Arc<Notify>);

impl Drop for Begin {
    fn drop(&mut self) {
        let drain = self.0.clone();
        // The server is notified as if a signal had arrived.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    tokio::time::sleep(ANSWER_TIME).await;
                    drain.notify_one();
                });
            }
            Err(_) => drain.notify_one(),
        }
    }
}

/// Begins a drain as soon as the answer is being sent; the process ends after the drain.
pub(super) async fn drain(State(shared): State<Arc<Shared>>) -> Response {
    let answer = json(StatusCode::OK, &Draining { connections: shared.hub.connections() as u64 });
    let (mut head, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(CONTENT_LENGTH, length.into());
    }
    let begin = Begin(shared.drain.clone());
    let pieces = body.into_data_stream().chain(stream::once(async move {
        drop(begin);
        Ok(Bytes::new())
    }));
    Response::from_parts(head, Body::from_stream(pieces))
}

/// Mistakes of a configuration, at most [`PROBLEMS_MAX`], a line for each.
fn refusal(problems: &[String]) -> String {
    let mut text =
        "the configuration has mistakes, so what was in force before stays. Correct them and reload again:".to_owned();
    for problem in problems.iter().take(PROBLEMS_MAX) {
        text += "\n";
        text += problem;
    }
    match problems.len().checked_sub(PROBLEMS_MAX) {
        Some(more @ 1..) => text + &format!("\nand {more} more"),
        _ => text,
    }
}

/// Reads the configuration again, and answers whether anything has changed.
pub(super) async fn reload(State(shared): State<Arc<Shared>>) -> Response {
    match shared.fences.reload().await {
        Some(Reload { outcome: Outcome::Refused, problems }) => refuse(StatusCode::CONFLICT, refusal(&problems)),
        Some(Reload { outcome, .. }) => json(StatusCode::OK, &Reloaded { changed: outcome == Outcome::Changed }),
        None => refuse(
            StatusCode::CONFLICT,
            "there is no configuration file to read again; start the broker with --config FILE",
        ),
    }
}
