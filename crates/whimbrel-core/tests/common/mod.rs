//! A rig: a core, a clock, and edges that record their calls.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod side;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{
    Accepted, Attach, Broker, Delivery, Durability, Filter, Granted, Input, Kick, Limits, Link, LinkOutput, Naming,
    Output, Publish, Refusal, RetainHandling, Segment, Sent, Settlement, Start, SubscriptionSpec, Tell, Will,
};
use whimbrel_event::{
    Attributes, AttributesBuf, Event, EventId, EventRef, Headers, PubendId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_selector::Selector;

/// One call of an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Attached { present: bool },
    Refused(Refusal),
    Kicked(Kick),
    Subscribed(Vec<Result<Granted, Refusal>>),
    Unsubscribed(Vec<bool>),
    Accepted { tag: u16, result: Accepted },
    Completed { tag: u16, known: bool },
    Release { tag: u16, known: bool },
    Event(Got),
}

/// A delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    pub topic: String,
    pub payload: String,
    pub id: EventId,
    pub accepted: Time,
    pub tag: u16,
    pub qos: Qos,
    pub repeated: bool,
    pub retain: bool,
    pub identifier: u32,
    pub named: bool,
    /// It may have been delivered under another id before.
    pub maybe_repeat: bool,
    /// The last event that its publisher published before it, at another broker.
    pub after: Option<EventId>,
}

/// The calls of each link, and the links that take nothing more.
#[derive(Debug, Default)]
pub struct Edges {
    pub told: BTreeMap<u32, Vec<Told>>,
    /// Deliveries that a link takes before it is full.
    pub room: BTreeMap<u32, usize>,
    /// Links whose client takes payloads of at most this many bytes.
    pub largest: BTreeMap<u32, usize>,
    /// Links whose client may not get these payloads.
    pub denied: BTreeMap<u32, Vec<String>>,
    /// Calls about own streams: an event, the tick before it, its payload.
    pub knowledge: Vec<(EventId, Tick, String)>,
    /// Links that were held up, and for how long.
    pub held: Vec<(u32, Duration)>,
    /// Links that are not read.
    pub paused: BTreeSet<u32>,
}

impl Edges {
    /// Why a delivery cannot be sent to a link's client, if it cannot.
    fn why_not(&self, link: Link, delivery: &Delivery<'_>) -> Option<Sent> {
        let payload = delivery.accepted.event.payload;
        if self.largest.get(&link.0).is_some_and(|largest| payload.len() > *largest) {
            return Some(Sent::TooLarge);
        }
        let denied = self.denied.get(&link.0)?;
        denied.iter().any(|denied| denied.as_bytes() == payload).then_some(Sent::Denied)
    }

    fn tell(&mut self, link: Link, told: Told) {
        self.told.entry(link.0).or_default().push(told);
    }
}

impl LinkOutput for Edges {}

impl Output for Edges {
    fn attached(&mut self, link: Link, present: bool) {
        self.tell(link, Told::Attached { present });
    }
    fn refused(&mut self, link: Link, why: Refusal) {
        self.tell(link, Told::Refused(why));
    }
    fn kicked(&mut self, link: Link, why: Kick) {
        self.tell(link, Told::Kicked(why));
    }
    fn subscribed(&mut self, link: Link, _: u16, results: &[Result<Granted, Refusal>], _: &[Box<str>]) {
        self.tell(link, Told::Subscribed(results.to_vec()));
    }
    fn unsubscribed(&mut self, link: Link, _: u16, existed: &[bool]) {
        self.tell(link, Told::Unsubscribed(existed.to_vec()));
    }
    fn accepted(&mut self, link: Link, tag: u16, _: Qos, result: Accepted) {
        self.tell(link, Told::Accepted { tag, result });
    }
    fn completed(&mut self, link: Link, tag: u16, known: bool) {
        self.tell(link, Told::Completed { tag, known });
    }
    fn release(&mut self, link: Link, tag: u16, known: bool) {
        self.tell(link, Told::Release { tag, known });
    }
    fn hold(&mut self, link: Link, span: Duration) {
        self.held.push((link.0, span));
    }
    fn pause(&mut self, link: Link) {
        assert!(self.paused.insert(link.0), "a link is paused once");
    }
    fn resume(&mut self, link: Link) {
        assert!(self.paused.remove(&link.0), "only what is paused goes on");
    }
    fn knowledge(&mut self, segment: &Segment<'_>) {
        if let Tell::Data(event) = segment.what {
            let payload = String::from_utf8(event.payload.to_vec()).expect("tests publish text");
            let id = EventId { pubend: segment.pubend, tick: segment.upto };
            self.knowledge.push((id, segment.after, payload));
        }
    }
    fn takes(&mut self, link: Link, delivery: &Delivery<'_>) -> bool {
        self.why_not(link, delivery).is_none()
    }
    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        if let Some(why_not) = self.why_not(link, delivery) {
            return why_not;
        }
        let got = Got {
            topic: delivery.accepted.event.topic.into(),
            payload: String::from_utf8(delivery.accepted.event.payload.to_vec()).expect("tests publish text"),
            id: delivery.accepted.id,
            accepted: delivery.accepted.accepted_here(),
            tag: delivery.tag,
            qos: delivery.qos,
            repeated: delivery.repeated,
            retain: delivery.retain,
            identifier: delivery.identifier,
            named: delivery.naming == Naming::Event,
            maybe_repeat: delivery.accepted.event.headers.maybe_repeat,
            after: delivery.accepted.event.headers.after.iter().next(),
        };
        self.tell(link, Told::Event(got));
        match self.room.get_mut(&link.0) {
            Some(room) => {
                *room -= 1;
                if *room == 0 { Sent::Full } else { Sent::Open }
            }
            None => Sent::Open,
        }
    }
}

/// The options of a client's attachment.
#[derive(Debug, Clone)]
pub struct Client {
    pub clean: bool,
    pub expiry: Duration,
    pub window: u16,
    pub will: Option<Will>,
}

pub const START: Time = Time::from_nanos(1_000_000_000);

pub const CLEAN: Client = Client { clean: true, expiry: Duration::ZERO, window: 10, will: None };
pub const KEPT: Client = Client { clean: false, expiry: Duration::from_secs(1000), window: 10, will: None };

/// A core, its clock and its edges.
pub struct Rig {
    pub core: Broker,
    pub now: Time,
    pub edges: Edges,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Rig {
        Rig::with_seed(limits, 7)
    }

    pub fn with_seed(limits: Limits, seed: u64) -> Rig {
        Rig { core: Broker::new(limits, seed, START), now: START, edges: Edges::default() }
    }

    /// A rig whose streams begin after tick `floor`.
    pub fn with_floor(floor: Tick) -> Rig {
        Rig { core: Broker::after(Limits::default(), 7, START, floor), now: START, edges: Edges::default() }
    }

    pub fn input(&mut self, input: Input<'_>) {
        self.core.handle(self.now, input, &mut self.edges);
    }

    pub fn attach(&mut self, link: u32, client_id: &str, client: Client) -> Told {
        let Client { clean: clean_start, expiry, window, will } = client;
        let will = will.map(Box::new);
        self.input(Input::Attach(Attach {
            link: Link(link),
            client_id,
            clean_start,
            expiry,
            window,
            will,
            without_copy: false,
            principal: None,
        }));
        let told = self.take(link);
        assert!(!told.is_empty(), "an attachment is answered");
        self.edges.told.entry(link).or_default().extend_from_slice(&told[1..]);
        told[0].clone()
    }

    pub fn detach(&mut self, link: u32, publish_will: bool) {
        self.input(Input::Detach { link: Link(link), publish_will, expiry: None });
    }

    pub fn subscribe(&mut self, link: u32, filter: &str, qos: Qos) -> Result<Qos, Refusal> {
        self.subscribe_as(link, plain(filter, qos))
    }

    pub fn subscribe_as(&mut self, link: u32, filter: Filter<'_>) -> Result<Qos, Refusal> {
        self.subscribe_granted(link, filter).map(|granted| granted.qos)
    }

    pub fn subscribe_granted(&mut self, link: u32, filter: Filter<'_>) -> Result<Granted, Refusal> {
        let before = self.edges.told.get(&link).map_or(0, Vec::len);
        self.input(Input::Subscribe { link: Link(link), tag: 1, filters: &[filter] });
        match self.edges.told.entry(link).or_default().remove(before) {
            Told::Subscribed(results) => results[0].clone(),
            other => panic!("a subscribe is answered first: {other:?}"),
        }
    }

    /// Subscribes with a selector and QoS 1.
    pub fn subscribe_where(&mut self, link: u32, filter: &str, selector: &str) -> Result<Qos, Refusal> {
        let selector = Selector::parse(selector).expect("a selector");
        self.subscribe_as(link, Filter { selector: Some(&selector), ..plain(filter, Qos::AtLeastOnce) })
    }

    /// Publishes with QoS 0 and attributes.
    pub fn publish_with(&mut self, link: u32, topic: &str, payload: &str, attributes: &[(&str, &str)], retain: bool) {
        let mut list = AttributesBuf::new();
        attributes.iter().for_each(|(name, value)| list.push(name, value));
        let event = EventRef { attributes: list.as_attributes(), ..event(topic, payload, Qos::AtMostOnce) };
        self.publish_event(link, &event, retain);
    }

    /// Publishes an event, with tag 77 if it has an answer.
    pub fn publish_event(&mut self, link: u32, event: &EventRef<'_>, retain: bool) {
        let tag = if event.qos == Qos::AtMostOnce { 0 } else { 77 };
        self.input(Input::Publish(Publish { link: Link(link), tag, retain, number: None, event }));
    }

    pub fn publish(&mut self, link: u32, topic: &str, payload: &str, qos: Qos) {
        self.publish_as(link, topic, payload, qos, false);
    }

    pub fn publish_as(&mut self, link: u32, topic: &str, payload: &str, qos: Qos, retain: bool) {
        self.publish_event(link, &event(topic, payload, qos), retain);
    }

    pub fn settle(&mut self, link: u32, tag: u16, by: Settlement) {
        self.input(Input::Settle { link: Link(link), tag, by });
    }

    /// Lets time pass, stopping at every deadline.
    pub fn advance(&mut self, span: Duration) {
        let end = self.now.after(span);
        while let Some((at, _)) = self.core.next_deadline().filter(|(at, _)| *at <= end) {
            self.now = at;
            self.input(Input::Deadline);
        }
        self.now = end;
    }

    /// The calls of a link since the last look.
    pub fn take(&mut self, link: u32) -> Vec<Told> {
        self.edges.told.remove(&link).unwrap_or_default()
    }

    /// Whether a link has been told to forget a tag since the last look.
    fn is_to_release(&self, link: u32, tag: u16) -> bool {
        let told = self.edges.told.get(&link).map_or(&[][..], |told| told);
        told.iter().any(|told| matches!(told, Told::Release { tag: known, .. } if *known == tag))
    }

    /// The deliveries to a link whose client settles them all, with those that follow in the same
    /// moment.
    pub fn settled_events(&mut self, link: u32) -> Vec<Got> {
        let mut all = Vec::new();
        loop {
            self.advance(Duration::ZERO);
            let got = self.events(link);
            if got.is_empty() {
                return all;
            }
            for got in &got {
                match got.qos {
                    Qos::AtMostOnce => {}
                    Qos::AtLeastOnce => self.settle(link, got.tag, Settlement::Acknowledged),
                    Qos::ExactlyOnce => {
                        self.settle(link, got.tag, Settlement::Received);
                        // With a log, the client is told to forget the tag only once that is
                        // durable.
                        if self.is_to_release(link, got.tag) {
                            self.settle(link, got.tag, Settlement::Completed);
                        }
                    }
                }
            }
            all.extend(got);
        }
    }

    /// The deliveries among the calls since the last look.
    pub fn events(&mut self, link: u32) -> Vec<Got> {
        let events = self.take(link).into_iter().filter_map(|told| match told {
            Told::Event(got) => Some(got),
            _ => None,
        });
        events.collect()
    }

    pub fn payloads(&mut self, link: u32) -> Vec<String> {
        self.events(link).into_iter().map(|got| got.payload).collect()
    }
}

pub fn plain(filter: &str, qos: Qos) -> Filter<'_> {
    Filter {
        filter,
        selector: None,
        spec: SubscriptionSpec::new(qos),
        start: Start::Own,
        retain_handling: RetainHandling::Send,
        wants_token: false,
    }
}

/// For each option of a subscription, options of which that one is not the default.
pub fn each_option() -> Vec<SubscriptionSpec> {
    let plain = SubscriptionSpec { durability: Durability::Durable, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
    // A new option does not compile here before it is in the list.
    let SubscriptionSpec {
        qos: _,
        durability: _,
        no_local: _,
        retain_as_published: _,
        by_token: _,
        notices: _,
        named: _,
        is_replier: _,
        identifier: _,
    } = plain;
    vec![
        plain,
        SubscriptionSpec { qos: Qos::ExactlyOnce, ..plain },
        SubscriptionSpec { durability: Durability::SemiDurable, ..plain },
        SubscriptionSpec { durability: Durability::Nondurable, ..plain },
        SubscriptionSpec { no_local: true, ..plain },
        SubscriptionSpec { retain_as_published: true, ..plain },
        SubscriptionSpec { by_token: true, ..plain },
        SubscriptionSpec { notices: true, ..plain },
        SubscriptionSpec { named: true, ..plain },
        SubscriptionSpec { is_replier: true, ..plain },
        SubscriptionSpec { identifier: 7, ..plain },
    ]
}

pub fn event<'a>(topic: &'a str, payload: &'a str, qos: Qos) -> EventRef<'a> {
    EventRef {
        topic,
        attributes: Attributes::EMPTY,
        payload: payload.as_bytes(),
        headers: Headers::EMPTY,
        qos,
        reliability: if qos == Qos::AtMostOnce { Reliability::BestEffort } else { Reliability::Reliable },
        importance: 5,
        expires: None,
        deadline_ms: None,
        publisher: Publisher::UNKNOWN,
    }
}

pub fn will(topic: &str, payload: &str, delay: Duration) -> Will {
    let id = EventId { pubend: PubendId(0), tick: Tick(0) };
    let event = Event::keep(id, Time::ZERO, &event(topic, payload, Qos::AtLeastOnce));
    Will { event, retain: false, delay, lifetime: None }
}
