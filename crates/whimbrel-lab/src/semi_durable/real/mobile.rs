//! A mobile subscriber over a socket.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use mio::{Interest, Registry, Token};
use whimbrel_client::{EventId, Position};
use whimbrel_sim::mobility::{Node, State, Stay};

use super::load::{BROKERS, CLASSES, Kind, TOPIC, VALUES_PER_CLASS};
use crate::bench::link::{Endpoint, hello};
use crate::bench::lowat;
use crate::bench::target::Target;
use crate::bench::wire::{self, Frame, QoS, mqtt};

/// The number of events after which a durable subscriber acknowledges its position.
const ACKNOWLEDGES_AFTER: u64 = 500;

/// Seconds for which the broker keeps the session of a durable subscriber that is away.
const SESSION_SECONDS: u32 = 3_600;

/// The topic on which positions are acknowledged.
const ACKNOWLEDGE: &str = "$whimbrel/ack";

/// The events that it has received, and that it knows to be missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Events received.
    pub received: u64,
    /// Events skipped.
    pub lost: u64,
    /// Events that were delivered again.
    pub repeated: u64,
    /// The number of its returns.
    pub returns: u64,
}

/// A connected subscriber's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Away.
    Away,
    /// Connected, with no confirmation yet.
    Asking,
    /// Subscribed, and in catch-up.
    Behind,
    /// Subscribed, and caught up.
    Live,
}

/// See the module's documentation.
pub struct Mobile {
    index: usize,
    class: usize,
    node: Node,
    endpoint: Option<Endpoint>,
    phase: Phase,
    kind: Kind,
    /// The number of events received at the last acknowledgement.
    acknowledged: u64,
    /// The token of its first subscription.
    token: Option<String>,
    /// The properties of the last event.
    last: Vec<u8>,
    /// The sequence number that it expects next; `None`: any.
    next: Option<u64>,
    /// The number of events published when its subscription was confirmed.
    begun: u64,
    /// The counts of its events.
    pub counts: Counts,
}

impl Mobile {
    /// A subscriber that was never connected.
    pub fn new(index: usize, node: Node) -> Mobile {
        Mobile {
            index,
            class: index % CLASSES,
            node,
            endpoint: None,
            phase: Phase::Away,
            kind: Kind::Nondurable,
            acknowledged: 0,
            token: None,
            last: Vec::new(),
            next: None,
            begun: 0,
            counts: Counts::default(),
        }
    }

    /// Starts its next stay, and returns its length.
    ///
    /// # Errors
    /// When the system has no more sockets.
    pub fn move_on(&mut self, targets: &[Target; BROKERS], kind: Kind, registry: &Registry) -> Result<Duration> {
        let Stay { duration, state, broker } = self.node.next().expect("its stays never end");
        if let Some(mut endpoint) = self.endpoint.take() {
            registry.deregister(&mut endpoint.stream).context("letting go of a socket")?;
        }
        self.phase = Phase::Away;
        if state == State::Connected {
            self.connect(targets[broker], kind, registry)?;
        }
        Ok(duration)
    }

    fn connect(&mut self, target: Target, kind: Kind, registry: &Registry) -> Result<()> {
        self.kind = kind;
        let name = format!("mobile-{}", self.index);
        let mut out = match kind {
            Kind::Nondurable | Kind::SemiDurable => hello(target.protocol, &name),
            Kind::Durable => {
                let mut out = Vec::new();
                mqtt::connect_5(&mut out, &name, Some(SESSION_SECONDS), None);
                out
            }
        };
        let low = self.class as u64 * VALUES_PER_CLASS;
        let selector = format!("v BETWEEN {low} AND {}", low + VALUES_PER_CLASS - 1);
        let from = self.position();
        let mut properties = vec![("w-selector", selector.as_str()), ("w-durability", kind.durability())];
        if kind == Kind::Durable {
            properties.push(("w-ack", "token"));
        }
        if let Some(from) = from.as_deref().filter(|_| kind.keeps()) {
            properties.push(("w-from", from));
        }
        mqtt::subscribe(&mut out, true, 1, (TOPIC, QoS::AtMostOnce), &properties);
        let mut endpoint = Endpoint::connecting(target, out)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut endpoint.stream, Token(self.index), both).context("watching a socket")?;
        self.counts.returns += u64::from(self.token.is_some() || self.next.is_some());
        (self.endpoint, self.phase) = (Some(endpoint), Phase::Asking);
        Ok(())
    }

    /// Its position, from which a subscription begins.
    fn position(&self) -> Option<String> {
        let token = self.token.as_ref()?;
        Some(match mqtt::last_property(&self.last, "w-id") {
            Some(id) => format!("{token},{id}"),
            None => token.clone(),
        })
    }

    /// Reads arrived packets. `batch`: the number of bytes for which it is to be woken from now on;
    /// `sent`: the number of events published so far.
    ///
    /// # Errors
    /// When the broker refuses, ends the connection or sends something unrequested.
    pub fn receive(&mut self, scratch: &mut [u8], batch: usize, sent: u64) -> Result<()> {
        let Mobile { endpoint: Some(endpoint), phase, token, last, next, counts, kind, begun, .. } = self else {
            return Ok(());
        };
        endpoint.flush()?;
        let mut subscribed = false;
        endpoint.receive(scratch, |frame, _| {
            match frame {
                Frame::Ready => {}
                Frame::Subscribed { token: begins, .. } => {
                    subscribed = true;
                    if token.is_none() && !begins.is_empty() {
                        *token = Some(begins.to_owned());
                    }
                }
                Frame::Message { properties, body, .. } => {
                    last.clear();
                    last.extend_from_slice(properties);
                    count(wire::stamp(body)?, next, counts);
                }
                frame => bail!("a subscriber received {frame:?}, which it did not ask for"),
            }
            Ok(())
        })?;
        if subscribed {
            // A subscriber that does not ask for missed events, or has missed none, is not behind:
            // the publisher waits for it wherever its stream is.
            *phase = if kind.keeps() && next.is_some() { Phase::Behind } else { Phase::Live };
            *begun = sent;
            lowat::wake_after(&endpoint.stream, batch)?;
        }
        self.acknowledge()
    }

    /// Acknowledges its position, if it is durable and has received enough since the last time.
    fn acknowledge(&mut self) -> Result<()> {
        let Mobile { endpoint: Some(endpoint), kind, acknowledged, token: Some(token), last, counts, .. } = self else {
            return Ok(());
        };
        if *kind != Kind::Durable || counts.received < *acknowledged + ACKNOWLEDGES_AFTER {
            return Ok(());
        }
        let Some(id) = mqtt::last_property(last, "w-id") else { return Ok(()) };
        let mut position = Position::at(token.parse().context("the broker gives no token")?);
        position.advance(id.parse::<EventId>().with_context(|| format!("{id} is no event id"))?);
        mqtt::publish_with(&mut endpoint.out, ACKNOWLEDGE, None, &[], position.token().to_string().as_bytes());
        *acknowledged = counts.received;
        endpoint.flush()
    }

    /// Whether it has connected and its subscription is not confirmed yet.
    pub fn is_asking(&self) -> bool {
        self.phase == Phase::Asking
    }

    /// The number of events it has received, if it is caught up: then it must not fall behind. It
    /// is caught up once it is within `near` of `sent`.
    pub fn progress(&mut self, sent: u64, near: u64) -> Option<u64> {
        let next = match self.phase {
            Phase::Live => self.next.map_or(self.begun, |next| next.max(self.begun)),
            _ => self.next?,
        };
        if self.phase == Phase::Behind && next + near >= sent {
            self.phase = Phase::Live;
        }
        (self.phase == Phase::Live).then_some(next)
    }
}

/// Counts an event of a class; one event in ten is.
fn count(sequence: u64, next: &mut Option<u64>, counts: &mut Counts) {
    let expected = next.unwrap_or(sequence);
    if sequence < expected {
        counts.repeated += 1;
        return;
    }
    counts.lost += (sequence - expected) / CLASSES as u64;
    counts.received += 1;
    *next = Some(sequence + CLASSES as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_over_is_lost_and_what_comes_again_does_not_count() {
        let (mut next, mut counts) = (None, Counts::default());
        for sequence in [13, 23, 53, 43, 63] {
            count(sequence, &mut next, &mut counts);
        }
        assert_eq!((counts.received, counts.lost, counts.repeated), (4, 2, 1));
    }
}
