//! Makes spans of the broker's steps, within them. It looks once at an event that is not traced,
//! and never waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tokio::sync::mpsc;
use whimbrel_core::{Delivery, EventStep, Hop};
use whimbrel_event::{AcceptedEvent, EventId, EventRef, HostId, Time};
use whimbrel_mqtt::ConnId;

use super::context::{Context, Name, SpanId};
use super::{Counts, Item};

/// Traced events whose arrival time is known, at most. Spans of older ones become children of the
/// acceptance, and their deliveries get no duration.
const RECENT_MAX: usize = 4096;

/// Unacknowledged traced deliveries, at most; acknowledgements of further ones get no span.
const UNSETTLED_MAX: usize = 4096;

/// Flag of a sampled span (W3C), which all of them have.
const SAMPLED: u32 = 1;

/// Makes spans.
#[derive(Debug)]
pub(crate) struct Tracer {
    sample: f64,
    host: HostId,
    queue: mpsc::Sender<Item>,
    counts: Arc<Counts>,
    /// Times at which traced events were accepted here or arrived, oldest first in `order`.
    recent: HashMap<EventId, Time>,
    order: VecDeque<EventId>,
    unsettled: HashMap<(ConnId, u16), Unsettled>,
}

/// A delivery that its client has not acknowledged.
#[derive(Debug)]
struct Unsettled {
    context: Context,
    id: EventId,
    topic: Box<str>,
    /// When the event was delivered.
    at: Time,
}

/// Event and trace of a span.
struct About<'a> {
    context: Context,
    id: EventId,
    topic: &'a str,
}

impl Tracer {
    pub(super) fn new(sample: f64, host: HostId, queue: mpsc::Sender<Item>, counts: Arc<Counts>) -> Tracer {
        let (recent, order, unsettled) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Tracer { sample, host, queue, counts, recent, order, unsettled }
    }

    /// Events about the broker itself, and notices, are not traced.
    fn about<'a>(&self, id: EventId, event: &EventRef<'a>) -> Option<About<'a>> {
        if event.topic.starts_with('$') {
            return None;
        }
        let context = Context::of(id, event, self.sample)?;
        Some(About { context, id, topic: event.topic })
    }

    /// Makes the span of a step of an event.
    pub(crate) fn step(&mut self, now: Time, event: &AcceptedEvent<'_>, step: EventStep) {
        let Some(about) = self.about(event.id, &event.event) else { return };
        let id = event.id;
        match step {
            EventStep::Passed { is_logged } => {
                self.note_recent(id, event.accepted);
                let extra = vec![whole("messaging.message.body.size", event.event.payload.len() as i64)];
                let span = (event.accepted, now);
                self.put(&about, Name::Accept, about.context.parent, span, extra);
                if is_logged {
                    self.put(&about, Name::Commit(self.host), Some(Name::Accept.span(id)), span, Vec::new());
                }
            }
            EventStep::Hop(Hop::Came { from, is_answer }) => {
                self.note_recent(id, now);
                let parent = Name::Hop(from, self.host, is_answer).span(id);
                self.put(&about, Name::Receive(self.host), Some(parent), (now, now), vec![peer(from)]);
            }
            EventStep::Hop(Hop::Sent { to, is_answer }) => {
                let (name, parent) = (Name::Hop(self.host, to, is_answer), self.here(id));
                self.put(&about, name, Some(parent), (now, now), vec![peer(to)]);
            }
        }
    }

    /// Records that an event was delivered to a client.
    pub(crate) fn delivered(&mut self, now: Time, conn: ConnId, delivery: &Delivery<'_>) {
        let Delivery { accepted: &AcceptedEvent { id, ref event, .. }, tag, .. } = *delivery;
        let Some(about) = self.about(id, event) else {
            // The tag may be that of an earlier traced delivery that was not acknowledged.
            if !self.unsettled.is_empty() {
                self.unsettled.remove(&(conn, tag));
            }
            return;
        };
        let began = self.recent.get(&id).copied().unwrap_or(now);
        let name = Name::Deliver(self.host, conn.0, tag);
        let extra = vec![whole("whimbrel.qos", delivery.qos as i64), whole("whimbrel.connection", i64::from(conn.0))];
        self.put(&about, name, Some(self.here(id)), (began, now), extra);
        if tag != 0 && (self.unsettled.len() < UNSETTLED_MAX || self.unsettled.contains_key(&(conn, tag))) {
            let entry = Unsettled { context: about.context, id, topic: about.topic.into(), at: now };
            self.unsettled.insert((conn, tag), entry);
        }
    }

    /// Makes the span of a delivery that its client acknowledges or refuses.
    pub(crate) fn settled(&mut self, now: Time, conn: ConnId, tag: u16, is_refused: bool) {
        let Some(Unsettled { context, id, topic, at }) = self.unsettled.remove(&(conn, tag)) else { return };
        let about = About { context, id, topic: &topic };
        let parent = Name::Deliver(self.host, conn.0, tag).span(id);
        let outcome = text("whimbrel.outcome", if is_refused { "refused" } else { "acknowledged" });
        self.put(&about, Name::Settle(self.host, conn.0, tag), Some(parent), (at, now), vec![outcome]);
    }

    /// Forgets the deliveries of a connection that has ended.
    pub(crate) fn gone(&mut self, conn: ConnId) {
        if !self.unsettled.is_empty() {
            self.unsettled.retain(|(of, _), _| *of != conn);
        }
    }

    fn note_recent(&mut self, id: EventId, at: Time) {
        if self.recent.contains_key(&id) {
            return;
        }
        if self.order.len() >= RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.recent.remove(&oldest);
        }
        self.recent.insert(id, at);
        self.order.push_back(id);
    }

    /// The span that brought an event to this broker: the parent of what follows here.
    fn here(&self, id: EventId) -> SpanId {
        let is_own = id.pubend.host() == self.host;
        // An event that was read from another broker's log, or arrived before the start, has no
        // traced arrival.
        let name = if is_own || !self.recent.contains_key(&id) { Name::Accept } else { Name::Receive(self.host) };
        name.span(id)
    }

    /// Puts a span into the queue, if there is room.
    fn put(
        &self,
        about: &About<'_>,
        name: Name,
        parent: Option<SpanId>,
        (start, end): (Time, Time),
        mut attributes: Vec<KeyValue>,
    ) {
        // Checked first: a full queue must cost little.
        let Ok(permit) = self.queue.try_reserve() else {
            self.counts.queue_full.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (title, kind, operation) = what(name);
        attributes.extend([
            text("messaging.system", "mqtt"),
            text("messaging.operation.name", title),
            text("messaging.destination.name", about.topic),
            text("messaging.message.id", about.id.text().as_str()),
        ]);
        attributes.extend(operation.map(|operation| text("messaging.operation.type", operation)));
        permit.send(Item::Span(Box::new(Span {
            trace_id: about.context.trace.to_be_bytes().to_vec(),
            span_id: name.span(about.id).0.to_be_bytes().to_vec(),
            parent_span_id: parent.map(|parent| parent.0.to_be_bytes().to_vec()).unwrap_or_default(),
            // There may be any number of topics, so they are only in the attributes.
            name: title.to_owned(),
            kind: kind.into(),
            start_time_unix_nano: start.min(end).as_nanos(),
            end_time_unix_nano: end.as_nanos(),
            flags: SAMPLED,
            attributes,
            ..Span::default()
        })));
    }
}

/// Name, kind and type of operation of a span.
fn what(name: Name) -> (&'static str, SpanKind, Option<&'static str>) {
    match name {
        Name::Accept => ("accept", SpanKind::Consumer, Some("receive")),
        Name::Commit(_) => ("commit", SpanKind::Internal, None),
        Name::Hop(..) => ("forward", SpanKind::Producer, Some("send")),
        Name::Receive(_) => ("receive", SpanKind::Consumer, Some("receive")),
        Name::Deliver(..) => ("deliver", SpanKind::Producer, Some("send")),
        Name::Settle(..) => ("settle", SpanKind::Internal, Some("settle")),
    }
}

fn peer(host: HostId) -> KeyValue {
    text("whimbrel.peer", &host.to_string())
}

pub(super) fn text(key: &str, value: &str) -> KeyValue {
    pair(key, Value::StringValue(value.to_owned()))
}

fn whole(key: &str, value: i64) -> KeyValue {
    pair(key, Value::IntValue(value))
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{Attributes, Headers, IMPORTANCE_DEFAULT, PubendId, Publisher, Qos, Reliability, Tick};

    use super::*;

    fn event(topic: &str) -> AcceptedEvent<'_> {
        AcceptedEvent {
            id: EventId { pubend: PubendId(16), tick: Tick(7) },
            accepted: Time::from_nanos(10),
            clock_offset: 0,
            event: EventRef {
                topic,
                attributes: Attributes::default(),
                payload: b"x",
                headers: Headers::EMPTY,
                qos: Qos::AtLeastOnce,
                reliability: Reliability::Reliable,
                importance: IMPORTANCE_DEFAULT,
                expires: None,
                deadline_ms: None,
                publisher: Publisher::UNKNOWN,
            },
        }
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped_and_counted() {
        let (sender, mut receiver) = mpsc::channel(1);
        let counts = Arc::new(Counts::default());
        let mut tracer = Tracer::new(1.0, HostId::new(16), sender, counts.clone());
        let (now, step) = (Time::from_nanos(30), EventStep::Passed { is_logged: true });
        tracer.step(now, &event("$SYS/uptime"), step);
        assert!(receiver.try_recv().is_err(), "what the broker says of itself is not traced");
        tracer.step(now, &event("t"), step);
        assert_eq!(counts.dropped()[0], ("queue_full", 1), "of two spans");
        let Ok(Item::Span(span)) = receiver.try_recv() else { panic!("the first span is there") };
        assert_eq!((&span.name[..], span.start_time_unix_nano, span.end_time_unix_nano), ("accept", 10, 30));
    }

    #[test]
    fn what_is_remembered_has_its_bound() {
        let (sender, _receiver) = mpsc::channel(1);
        let mut tracer = Tracer::new(1.0, HostId::new(16), sender, Arc::default());
        for tick in 0..2 * RECENT_MAX as u64 {
            tracer.note_recent(EventId { pubend: PubendId(16), tick: Tick(tick) }, Time::ZERO);
        }
        assert_eq!((tracer.recent.len(), tracer.order.len()), (RECENT_MAX, RECENT_MAX));
    }
}
