//! What can be looked at: links, brokers, interests, and what became of an event.

use core::time::Duration;

use whimbrel_event::{EventId, HostId, Time};
use whimbrel_wire::{Frame, TRACE_BYTES_MAX, TraceAsk, TraceTell};

use super::mend::NACK_HOPS_MAX;
use super::peers::LinkCounters;
use super::traces::What;
use super::{Overlay, OverlayStats};
use crate::api::{Channel, Output};
use crate::broker::Core;
use crate::cache::PartitionSet;

/// Answers to questions about events that are kept.
const ANSWERS_MAX: usize = 4_096;

/// A link of this broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The neighbour's name.
    pub name: Box<str>,
    /// The neighbour's host.
    pub host: HostId,
    /// This broker has asked for the link.
    pub dialed: bool,
    /// Its delay in one direction, microseconds, once it is known.
    pub delay_us: Option<u32>,
    /// Its loss, in thousandths.
    pub loss: u16,
    /// How far the neighbour's clock is ahead, nanoseconds, the way of its hello included.
    pub ahead: i64,
    /// Unsent bytes, of all ways.
    pub unsent: usize,
    /// What went over it.
    pub counters: LinkCounters,
}

/// A broker, as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourInfo {
    /// Its name.
    pub name: Box<str>,
    /// The delay of the link there, in one direction, microseconds.
    pub delay_us: u32,
    /// Its loss, in thousandths.
    pub loss: u16,
}

/// A broker of the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyInfo {
    /// Its name.
    pub name: Box<str>,
    /// Its host.
    pub host: HostId,
    /// Which life of it this is.
    pub incarnation: u64,
    /// How long ago it has told its links.
    pub age: Duration,
    /// The brokers on the best way there, from this one to it; empty if there is no way.
    pub path: Vec<Box<str>>,
    /// What that way costs, microseconds.
    pub cost_us: Option<u64>,
    /// Its links.
    pub links: Vec<NeighbourInfo>,
}

/// What a broker wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestInfo {
    /// Its name.
    pub name: Box<str>,
    /// The version of its interest that is known here.
    pub version: u64,
    /// Topic filters with selectors.
    pub entries: Vec<(Box<str>, Option<Box<str>>)>,
    /// For others: whether it is in force in the own streams. For this one: how many brokers have told that the present version is.
    pub in_force: usize,
}

impl Core {
    /// What the overlay has counted, if there is one.
    pub fn overlay_stats(&self) -> Option<&OverlayStats> {
        self.overlay.as_deref().map(|overlay| &overlay.stats)
    }

    /// The links that are up.
    pub fn links(&self) -> Vec<LinkInfo> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let info = |peer: &super::Peer| {
            let who = peer.who.as_ref().expect("it is up");
            LinkInfo {
                name: who.name.clone(),
                host: who.host,
                dialed: peer.dialed,
                delay_us: peer.estimate.delay_us(),
                loss: peer.estimate.loss_permille(),
                ahead: who.ahead,
                unsent: peer.unsent.iter().sum(),
                counters: peer.counters,
            }
        };
        overlay.peers.up().map(info).collect()
    }

    /// The brokers of the overlay, this one included, in order of their hosts.
    pub fn topology(&self, now: Time) -> Vec<TopologyInfo> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let info = |state: &super::topology::LinkState| TopologyInfo {
            name: state.name.clone(),
            host: state.host,
            incarnation: state.incarnation,
            age: overlay.topology.age(now, state.host).unwrap_or_default(),
            path: overlay.routes.path(state.host).into_iter().map(|host| overlay.name_of(host)).collect(),
            cost_us: overlay.routes.cost_us(state.host),
            links: state
                .neighbours
                .iter()
                .map(|end| NeighbourInfo { name: overlay.name_of(end.host), delay_us: end.delay_us, loss: end.loss })
                .collect(),
        };
        overlay.topology.states().map(info).collect()
    }

    /// What each broker wants, this one first.
    pub fn interests(&self) -> Vec<InterestInfo> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let own = overlay.wants.version();
        let confirmed = |host: &HostId| {
            let mut streams = self.streams.of_host(*host).peekable();
            streams.peek().is_some() && streams.all(|remote| remote.told >= own)
        };
        let mut all = Vec::new();
        let first = InterestInfo {
            name: overlay.config.name.clone(),
            version: own,
            entries: overlay.wants.entries().map(|entry| (entry.filter.clone(), entry.selector.clone())).collect(),
            in_force: overlay.topology.hosts().filter(confirmed).count(),
        };
        all.push(first);
        for destination in overlay.serves.iter() {
            all.push(InterestInfo {
                name: overlay.name_of(destination.host),
                version: destination.version,
                entries: destination.entries().map(|entry| (entry.filter.clone(), entry.selector.clone())).collect(),
                in_force: usize::from(destination.is_reachable),
            });
        }
        all
    }

    /// What this broker knows of an event: for people.
    pub fn trace(&mut self, event: EventId) -> String {
        let mut text = String::new();
        let why = self.why(event);
        let Some(overlay) = self.overlay.as_deref() else { return text };
        let mut first = None;
        for note in overlay.traffic.traces.of(event) {
            let after = note.at.since(*first.get_or_insert(note.at));
            let link = |link| overlay.peers.get(link).and_then(|peer| peer.who.as_ref()).map_or("?", |who| &who.name);
            let what = match note.what {
                What::Sent(to) => format!("sent to {}", link(to)),
                What::Came(from) => format!("came from {}", link(from)),
                What::HeldBack(to) => format!("not sent to {}: too much is unsent there", link(to)),
                What::Repaired => "a link on its way is down: another way is taken".into(),
                What::GivenUp => "no way around a link that is down".into(),
                What::Passed => "taken for subscriptions here".into(),
                What::Answered => "sent again, as somebody lacked it".into(),
            };
            let line = format!("{} +{after:?}: {what}\n", note.at.as_nanos());
            if text.len() + line.len() > TRACE_BYTES_MAX / 2 {
                break;
            }
            text.push_str(&line);
        }
        for line in why {
            if text.len() + line.len() < TRACE_BYTES_MAX - 64 {
                text.push_str(&line);
            }
        }
        text
    }

    /// For which entries of whose interest an event of an own stream was sent, as far as it is cached and they are still wanted.
    fn why(&mut self, id: EventId) -> Vec<String> {
        let Core { overlay, cache, router, .. } = self;
        let Some(overlay) = overlay.as_deref().filter(|overlay| overlay.is_own(id)) else { return Vec::new() };
        let partitions = PartitionSet::first(cache.plan().count());
        let from = cache.serial_for(id.pubend, whimbrel_event::Tick(id.tick.0.saturating_sub(1)));
        let mut lines = Vec::new();
        cache.read(from, &partitions, usize::MAX, |item| {
            let crate::cache::Item::Event { event, .. } = item else { return core::ops::ControlFlow::Continue(()) };
            if event.id() != id {
                let is_beyond = event.id().pubend == id.pubend && event.id().tick > id.tick;
                return if is_beyond {
                    core::ops::ControlFlow::Break(())
                } else {
                    core::ops::ControlFlow::Continue(())
                };
            }
            for destination in overlay.serves.iter() {
                if let Some(entry) = destination.why(event, router) {
                    let name = overlay.name_of(destination.host);
                    let selector = entry.selector.as_deref().map_or(String::new(), |text| format!(" with {text}"));
                    let path = overlay.routes.path(destination.host);
                    let way: Vec<_> = path.into_iter().map(|host| overlay.name_of(host).into_string()).collect();
                    lines.push(format!(
                        "for {name}, which wants {}{selector}; way {}\n",
                        entry.filter,
                        way.join(" > ")
                    ));
                }
            }
            core::ops::ControlFlow::Break(())
        });
        lines
    }

    /// Asks all other brokers what they know of an event; the question's number, for [`Core::trace_answers`].
    pub fn ask_trace(&mut self, now: Time, event: EventId, out: &mut impl Output) -> u64 {
        let Some(overlay) = self.overlay.as_deref_mut() else { return 0 };
        overlay.traffic.asked += 1;
        let id = overlay.traffic.asked;
        overlay.traffic.told.clear();
        let (from, hops) = (overlay.host, 0);
        let hosts: Vec<HostId> = overlay.topology.hosts().filter(|host| *host != from).collect();
        for to in hosts {
            let mut frame = Vec::with_capacity(64);
            Frame::TraceAsk(TraceAsk { to, hops, id, from, event }).encode(&mut frame);
            overlay.send_towards(now, to, &frame, out);
        }
        id
    }

    /// What other brokers have answered so far: their names, and what they know.
    pub fn trace_answers(&self, id: u64) -> Vec<(Box<str>, Box<str>)> {
        let Some(overlay) = self.overlay.as_deref().filter(|overlay| overlay.traffic.asked == id) else {
            return Vec::new();
        };
        overlay.traffic.told.clone()
    }

    /// Somebody asks what is known here of an event.
    pub(super) fn trace_asked(&mut self, now: Time, ask: &TraceAsk, out: &mut impl Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if ask.hops >= NACK_HOPS_MAX {
            return;
        }
        let mut frame = Vec::with_capacity(256);
        if ask.to != overlay.host {
            Frame::TraceAsk(TraceAsk { hops: ask.hops + 1, ..*ask }).encode(&mut frame);
            return overlay.send_towards(now, ask.to, &frame, out);
        }
        let text = self.trace(ask.event);
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let name = overlay.config.name.clone();
        let tell = TraceTell { to: ask.from, hops: 0, id: ask.id, host: overlay.host, name: &name, text: &text };
        Frame::TraceTell(tell).encode(&mut frame);
        overlay.send_towards(now, ask.from, &frame, out);
    }

    /// Somebody answers.
    pub(super) fn trace_told(&mut self, now: Time, tell: &TraceTell<'_>, out: &mut impl Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if tell.to == overlay.host {
            if tell.id == overlay.traffic.asked && overlay.traffic.told.len() < ANSWERS_MAX {
                overlay.traffic.told.push((tell.name.into(), tell.text.into()));
            }
            return;
        }
        if tell.hops < NACK_HOPS_MAX {
            let mut frame = Vec::with_capacity(256);
            Frame::TraceTell(TraceTell { hops: tell.hops + 1, ..*tell }).encode(&mut frame);
            overlay.send_towards(now, tell.to, &frame, out);
        }
    }
}

impl Overlay {
    /// The name of a broker, or its number if it is not known.
    fn name_of(&self, host: HostId) -> Box<str> {
        self.topology.get(host).map_or_else(|| host.to_string().into(), |state| state.name.clone())
    }

    /// Sends a frame to the next broker on the way to another.
    fn send_towards(&mut self, now: Time, to: HostId, frame: &[u8], out: &mut impl Output) {
        self.routes.update(&self.topology);
        let link = self.routes.next_hop(to).and_then(|(neighbour, _)| self.peers.to(neighbour));
        if let Some(link) = link
            && self.peers.get(link).is_some_and(|peer| peer.has_room(Channel::Control))
        {
            self.send(now, link, Channel::Control, frame, out);
        }
    }
}
