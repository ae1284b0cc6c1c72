//! Sends spans to a collector, in batches. Spans that cannot be sent are dropped and counted: a
//! missing collector does no harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::tracer::text;
use super::{Counts, Item, Plan, Service};

/// Spans in one request, at most.
const BATCH_MAX: usize = 512;

/// Time that a span waits for others to be sent with it.
const LINGER: Duration = Duration::from_secs(1);

/// Time for one request, from connecting to the header of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Path that the protocol adds to the endpoint's.
const TRACES: &str = "/v1/traces";

/// The port of collectors for OTLP over HTTP.
const PORT: u16 = 4318;

/// Sends spans.
pub(super) struct Exporter {
    endpoint: Uri,
    resource: Resource,
    scope: InstrumentationScope,
    counts: Arc<Counts>,
    /// The last batch has failed: further failures are not logged.
    is_failing: bool,
}

/// Why a batch was not taken.
enum Failure {
    Unreachable(String),
    Refused(StatusCode),
}

impl Exporter {
    pub(super) fn new(plan: &Plan, service: &Service, counts: Arc<Counts>) -> Exporter {
        let attributes = vec![
            text("service.name", "whimbrel"),
            text("service.namespace", &service.deployment),
            text("service.instance.id", &service.name),
            text("service.version", &service.version),
            text("whimbrel.host", &service.host.to_string()),
        ];
        let scope = InstrumentationScope {
            name: "whimbrel".to_owned(),
            version: service.version.clone(),
            ..InstrumentationScope::default()
        };
        let endpoint = plan.endpoint.parse().expect("the configuration has been checked");
        let resource = Resource { attributes, ..Resource::default() };
        Exporter { endpoint, resource, scope, counts, is_failing: false }
    }

    /// Sends spans until all senders of the queue are gone.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Item>) {
        let mut batch = Vec::new();
        while let Some(first) = queue.recv().await {
            let mut flush = take(first, &mut batch);
            let by = Instant::now() + LINGER;
            while batch.len() < BATCH_MAX && flush.is_none() {
                let Ok(Some(next)) = timeout_at(by, queue.recv()).await else { break };
                flush = take(next, &mut batch);
            }
            if !batch.is_empty() {
                self.export(std::mem::take(&mut batch)).await;
            }
            if let Some(done) = flush {
                // The waiting task may have given up.
                let _ = done.send(());
            }
        }
    }

    async fn export(&mut self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        let sent = match timeout(REQUEST_TIMEOUT, self.send(spans)).await {
            Ok(sent) => sent,
            Err(_) => Err(Failure::Unreachable(format!("no answer within {REQUEST_TIMEOUT:?}"))),
        };
        let add = |counter: &AtomicU64| counter.fetch_add(count, Ordering::Relaxed);
        let why = match sent {
            Ok(()) => {
                add(&self.counts.exported);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector takes traces again");
                }
                return;
            }
            Err(Failure::Unreachable(why)) => {
                add(&self.counts.unreachable);
                why
            }
            Err(Failure::Refused(status)) => {
                add(&self.counts.refused);
                format!("it answers {status}")
            }
        };
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(endpoint = %self.endpoint, why, "the collector does not take traces: spans are dropped until it does");
        }
    }

    /// Sends one batch over its own connection.
    async fn send(&self, spans: Vec<Span>) -> Result<(), Failure> {
        let unreachable = |error: &dyn std::error::Error| Failure::Unreachable(error.to_string());
        let host = self.endpoint.host().unwrap_or_default();
        let port = self.endpoint.port_u16().unwrap_or(PORT);
        let address = (host.trim_matches(['[', ']']), port);
        let stream = TcpStream::connect(address).await.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        let path = format!("{}{TRACES}", self.endpoint.path().trim_end_matches('/'));
        let request = Request::post(path)
            .header(HOST, format!("{host}:{port}"))
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Body::from(self.request(spans).encode_to_vec()))
            .map_err(|error| unreachable(&error))?;
        // The body of the answer is not needed: the connection ends after the header.
        tokio::select! {
            answer = sender.send_request(request) => match answer {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(Failure::Refused(answer.status())),
                Err(error) => Err(unreachable(&error)),
            },
            ended = connection => Err(Failure::Unreachable(match ended {
                Ok(()) => "it has closed the connection".to_owned(),
                Err(error) => error.to_string(),
            })),
        }
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let scope = ScopeSpans { scope: Some(self.scope.clone()), spans, ..ScopeSpans::default() };
        let resource = Some(self.resource.clone());
        let spans = ResourceSpans { resource, scope_spans: vec![scope], ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![spans] }
    }
}

/// Puts a span into the batch, or returns the sender that waits for the batch.
fn take(item: Item, batch: &mut Vec<Span>) -> Option<oneshot::Sender<()>> {
    match item {
        Item::Span(span) => {
            batch.push(*span);
            None
        }
        Item::Flush(done) => Some(done),
    }
}
