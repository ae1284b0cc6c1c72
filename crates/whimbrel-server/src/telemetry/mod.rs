//! Traces of events for OpenTelemetry: the steps of an event at this broker, as spans that a
//! collector gets by OTLP over HTTP.
//!
//! Brokers exchange nothing for it. A trace is the publisher's own if the event has a W3C
//! `traceparent`, else it has the event's id. A span's id is made of the event, the step and the
//! brokers at it, so each broker knows the parents of its spans without having seen them.
//!
//! - `context`: the trace of an event, and the ids of its spans.
//! - `tracer`: makes spans of the broker's steps, within the step, and puts them into a bounded
//!   queue.
//! - `export`: takes them out and sends them in batches.

mod context;
mod export;
mod tracer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use whimbrel_event::HostId;

use crate::config::Config;
use crate::drive::Hub;
use export::Exporter;
pub(crate) use tracer::Tracer;

/// Spans that wait to be sent; further ones are dropped.
pub const QUEUE_MAX: usize = 4096;

/// Time that a broker that ends waits for the collector to take the last spans.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Destination and share of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// `http://HOST:PORT` of the collector, with a path or without; `/v1/traces` is added.
    pub endpoint: String,
    /// The share of events that are traced although their publishers do not ask for it, from 0 to
    /// 1.
    pub sample: f64,
}

/// The broker as source of spans.
struct Service {
    name: String,
    version: String,
    deployment: String,
    /// The host of the broker's streams.
    host: HostId,
}

/// Counters of spans. All of them are 0 if no collector is configured.
#[derive(Debug, Default)]
pub struct Counts {
    exported: AtomicU64,
    queue_full: AtomicU64,
    unreachable: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    /// Spans that the collector has taken.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that were dropped, by reason.
    pub fn dropped(&self) -> [(&'static str, u64); 3] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("queue_full", count(&self.queue_full)),
            ("unreachable", count(&self.unreachable)),
            ("refused", count(&self.refused)),
        ]
    }
}

/// An entry of the exporter's queue.
enum Item {
    Span(Box<Span>),
    /// Reply when all spans before it have been sent or have failed.
    Flush(oneshot::Sender<()>),
}

/// Asks the exporter to send the spans that wait.
#[derive(Clone, Debug)]
pub(crate) struct Flusher(mpsc::Sender<Item>);

impl Flusher {
    /// Waits until all spans up to now are sent or have failed, at most [`FLUSH_LIMIT`].
    pub(crate) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        let flushed = async {
            if self.0.send(Item::Flush(done)).await.is_ok() {
                // An exporter that has ended has nothing left to send.
                let _ = is_done.await;
            }
        };
        if tokio::time::timeout(FLUSH_LIMIT, flushed).await.is_err() {
            tracing::warn!(limit = ?FLUSH_LIMIT, "the last traces were not sent in time");
        }
    }
}

/// Begins to make traces if a collector is configured. Otherwise all counters stay 0.
pub(crate) fn begin(
    config: &Config,
    version: &str,
    hub: &Hub,
    tasks: &mut JoinSet<()>,
) -> (Option<Flusher>, Arc<Counts>) {
    let counts: Arc<Counts> = Arc::default();
    let Some(plan) = &config.telling.telemetry else { return (None, counts) };
    let service = Service {
        name: config.name.clone(),
        version: version.to_owned(),
        deployment: config.deployment.clone(),
        host: hub.look(|broker, _, _| broker.core().host()),
    };
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    hub.set_tracer(Tracer::new(plan.sample, service.host, sender.clone(), counts.clone()));
    tasks.spawn(Exporter::new(plan, &service, counts.clone()).run(receiver));
    (Some(Flusher(sender)), counts)
}
