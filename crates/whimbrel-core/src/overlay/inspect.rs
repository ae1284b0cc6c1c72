//! Inspection of the overlay: links, brokers, interests, memory by kind of content, and the path of
//! single events. Operators' questions to other brokers, and the answers.
//!
//! The overlay does not interpret a question: the driver of the other broker answers. Both may be
//! lost, doubled or late. The asker numbers its questions, and repeats them if need be.
//!
//! A trace is lines of text. Each is a number, a space, and a step: the number is microseconds
//! since the first step that is recorded of the event at that broker. Lines that say for which
//! broker and why an event was sent have no number.

use core::fmt::Write;
use core::ops::ControlFlow;
use core::time::Duration;

use whimbrel_event::{EventId, HostId, LatencyHistogram, Tick, Time};
use whimbrel_net::Net;
use whimbrel_net::interest::others::InterestValue;
use whimbrel_net::link::peers::{LinkCounters, Peer};
use whimbrel_net::link::queue::{FrameClass, Occupancy};
use whimbrel_net::link::watch::{ConditionCause, LinkCondition};
use whimbrel_net::topology::{LinkState, Neighbour};
use whimbrel_net::traces::TraceStep;

use super::RoamGauges;
use super::{Due, Overlay, OverlayStats};
use crate::api::{Output, PeerLink};
use crate::broker::Broker;
use crate::cache::{CacheItem, PartitionSet};
use crate::stream::destinations::Destination;
use whimbrel_wire::{BrokerMessage, Question, Reply};

/// Most brokers that are named as not having the present interest in force.
const NAMES_MAX: usize = 64;

/// A link of this broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The neighbour's name.
    pub name: Box<str>,
    /// The neighbour's host.
    pub host: HostId,
    /// The version of the neighbour's program; empty if it has not told it.
    pub version: Box<str>,
    /// This broker has dialed the link.
    pub dialed: bool,
    /// The link's delay in one direction, microseconds, once it is known.
    pub delay_us: Option<u32>,
    /// The link's loss, thousandths.
    pub loss: u16,
    /// The condition of the direction to the neighbour, as events with a deadline show it.
    pub condition: LinkCondition,
    /// How the condition was found.
    pub condition_cause: ConditionCause,
    /// Since when others are told of it; zero: it never changed.
    pub condition_since: Time,
    /// How far the neighbour's clock is ahead, nanoseconds; the transit time of its hello is
    /// included.
    pub ahead: i64,
    /// Unsent bytes, of all channels with more than [`super::UNSENT_LITTLE`].
    pub unsent: usize,
    /// What waits in front of the driver, by class.
    pub queued: [Occupancy; FrameClass::ALL.len()],
    /// Frames, bytes and events that went over the link.
    pub counters: LinkCounters,
    /// Age of events when they arrived over the link, since their broker accepted them. Events that
    /// were asked for again are not counted.
    pub latency: LatencyHistogram,
    /// The driver's number of the link.
    pub link: PeerLink,
}

/// A broker at the other end of a link, as the broker that announces the link sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourInfo {
    /// The broker's name.
    pub name: Box<str>,
    /// The link's delay in one direction, microseconds.
    pub delay_us: u32,
    /// The link's loss, thousandths.
    pub loss: u16,
}

/// A broker of the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyInfo {
    /// The broker's name.
    pub name: Box<str>,
    /// The broker's host.
    pub host: HostId,
    /// The host's incarnation.
    pub incarnation: u64,
    /// The addresses that it announces for links, best first.
    pub addresses: Vec<Box<str>>,
    /// The age of its link state.
    pub age: Duration,
    /// The brokers on the best path, from this one to it; empty if there is no path.
    pub path: Vec<Box<str>>,
    /// The cost of that path, microseconds.
    pub cost_us: Option<u64>,
    /// The broker's links.
    pub links: Vec<NeighbourInfo>,
}

/// The interest of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestInfo {
    /// The broker's name.
    pub name: Box<str>,
    /// The broker's host.
    pub host: HostId,
    /// The version of its interest; of another broker, the version by which this broker's events
    /// are sent to it.
    pub version: u64,
    /// What its subscribers want, as it tells other brokers.
    pub entries: Vec<InterestValue>,
    /// There is a path to the broker.
    pub is_reachable: bool,
    /// Only for this broker's own interest: the brokers that can be reached and have not confirmed
    /// that the version is in force in their streams; at most 64. Empty while there is no interest.
    pub unconfirmed: Vec<Box<str>>,
}

/// Bytes of an answer above which it is sent as a bulk message.
pub const REPLY_LITTLE: usize = 16 << 10;

impl Broker {
    /// All other brokers that are known, with their names.
    pub fn others(&self) -> Vec<(HostId, Box<str>)> {
        let overlay = &self.overlay;
        let others = overlay.net.topology().hosts().filter(|host| *host != overlay.net.host());
        others.map(|host| (host, overlay.net.name_of(host))).collect()
    }

    /// Sends a question to another broker; [`Output::answered`] reports the answer. Returns `false`
    /// if there is no path or no room at present.
    ///
    /// # Panics
    /// When the question has more than [`super::QUESTION_BYTES_MAX`] bytes.
    pub fn ask_broker(&mut self, now: Time, to: HostId, question: (u64, &str), out: &mut dyn Output) -> bool {
        let (number, text) = question;
        self.send_to(now, to, (&BrokerMessage::Question(Question { number, text }), false), out)
    }

    /// Answers a question of another broker. Returns `false` as [`Broker::ask_broker`] does.
    ///
    /// # Panics
    /// When the answer has more than [`super::REPLY_BYTES_MAX`] bytes.
    pub fn answer_broker(&mut self, now: Time, to: HostId, answer: (u64, &str), out: &mut dyn Output) -> bool {
        let (number, text) = answer;
        self.send_to(now, to, (&BrokerMessage::Reply(Reply { number, text }), text.len() > REPLY_LITTLE), out)
    }

    /// The counters of the overlay, if there is one.
    pub fn overlay_stats(&self) -> Option<OverlayStats> {
        let overlay = &self.overlay;
        let stats = || OverlayStats { net: overlay.net.stats().clone(), ..overlay.stats.clone() };
        overlay.is_open().then(stats)
    }

    /// The numbers of sessions that move, if there is an overlay.
    pub fn roam_gauges(&self) -> Option<RoamGauges> {
        self.overlay.is_open().then(|| self.overlay.roam_gauges())
    }

    /// Whether this broker knows the host, now or in the past; true of its own host.
    pub fn has_heard_of(&self, host: HostId) -> bool {
        self.streams.knows(host.pubend(0)) || self.streams.has_ended(host)
    }

    /// The links that are up.
    pub fn links(&self) -> Vec<LinkInfo> {
        let info = |peer: &Peer| {
            let who = peer.who.as_ref().expect("it is up");
            let (condition_cause, condition_since) = peer.condition_cause();
            LinkInfo {
                name: who.name.clone(),
                host: who.host,
                version: who.version.clone(),
                dialed: peer.dialed,
                delay_us: peer.estimate.delay_us(),
                loss: peer.estimate.loss_permille(),
                condition: peer.condition(),
                condition_cause,
                condition_since,
                ahead: who.ahead,
                unsent: peer.unsent(),
                queued: peer.queued(),
                counters: peer.counters,
                latency: peer.latency,
                link: peer.link,
            }
        };
        self.overlay.net.neighbours().map(info).collect()
    }

    /// The brokers of the overlay, this one included, in the order of their hosts.
    pub fn topology(&self, now: Time) -> Vec<TopologyInfo> {
        let overlay = &self.overlay;
        let info = |state: &whimbrel_net::topology::LinkState| TopologyInfo {
            name: state.name.clone(),
            host: state.host,
            incarnation: state.incarnation,
            addresses: state.addresses.clone(),
            age: overlay.net.topology().age(now, state.host).unwrap_or_default(),
            path: overlay.net.routes().path(state.host).into_iter().map(|host| overlay.net.name_of(host)).collect(),
            cost_us: overlay.net.routes().cost_us(state.host),
            links: overlay
                .net
                .topology()
                .neighbours(state.host)
                .map(|end| NeighbourInfo {
                    name: overlay.net.name_of(end.host),
                    delay_us: end.delay_us,
                    loss: end.loss,
                })
                .collect(),
        };
        overlay.net.topology().states().map(info).collect()
    }

    /// The interests of brokers: first this one's, then those by which its events are sent, in the
    /// order of their hosts. Skips the first `from`, and returns at most `max`.
    pub fn interests(&self, from: usize, max: usize) -> Vec<InterestInfo> {
        if !self.overlay.is_open() {
            return Vec::new();
        }
        let overlay = &self.overlay;
        let own = || InterestInfo {
            name: overlay.net.name().into(),
            host: overlay.net.host(),
            version: overlay.net.own_interest().version(),
            entries: overlay.net.own_interest().entries().cloned().collect(),
            is_reachable: true,
            unconfirmed: self.unconfirmed(overlay),
        };
        let others = overlay.destinations.iter().skip(from.saturating_sub(1)).map(|destination| InterestInfo {
            name: overlay.net.name_of(destination.host),
            host: destination.host,
            version: destination.version,
            entries: destination.entries().cloned().collect(),
            is_reachable: overlay.net.routes().is_reachable(destination.host),
            unconfirmed: Vec::new(),
        });
        (from == 0).then(own).into_iter().chain(others).take(max).collect()
    }

    /// Brokers that can be reached and in whose streams the own interest is not yet in force; at
    /// most [`NAMES_MAX`].
    fn unconfirmed(&self, overlay: &Overlay) -> Vec<Box<str>> {
        if overlay.net.own_interest().entries().next().is_none() {
            return Vec::new();
        }
        let version = overlay.net.own_interest().version();
        let is_late = |host: &HostId| {
            let mut streams = self.streams.of_host(*host).peekable();
            let is_told = streams.peek().is_some() && streams.all(|remote| remote.told >= version);
            *host != overlay.net.host() && overlay.net.routes().is_reachable(*host) && !is_told
        };
        overlay.net.topology().hosts().filter(is_late).take(NAMES_MAX).map(|host| overlay.net.name_of(host)).collect()
    }
}

/// Estimate of the bytes that a map or a set needs for each entry beside the entry itself.
const OF_MAP: usize = 16;

/// The size of one kind of content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverlaySize {
    /// The kind.
    pub what: &'static str,
    /// The number of entries.
    pub entries: usize,
    /// Bytes of the entries: what their types and lengths tell, without the overhead of the
    /// allocator.
    pub bytes: usize,
}

fn of_entry(entry: &InterestValue) -> usize {
    size_of::<InterestValue>() + entry.filter.len() + entry.selector.as_ref().map_or(0, |selector| selector.len())
}

fn of_state(state: &LinkState) -> usize {
    let addresses: usize = state.addresses.iter().map(|address| size_of::<Box<str>>() + address.len()).sum();
    let previous = state.previous.len() * size_of::<whimbrel_wire::PreviousIdentity>();
    size_of::<LinkState>()
        + state.name.len()
        + addresses
        + state.neighbours.len() * size_of::<Neighbour>()
        + previous
        + state.later.len()
}

impl Broker {
    /// The sizes of the overlay's contents by kind; empty if there is no overlay. The index of
    /// other brokers' interests is not included: it is part of the index of subscriptions.
    pub fn overlay_sizes(&self) -> Vec<OverlaySize> {
        if !self.overlay.is_open() {
            return Vec::new();
        }
        let mut sizes = self.overlay.sizes();
        let (entries, bytes) = self.streams.size();
        sizes.push(OverlaySize { what: "streams", entries, bytes });
        let (entries, bytes) = self.cursors.size(self.store.bases.all());
        sizes.push(OverlaySize { what: "positions of subscriptions", entries, bytes });
        sizes
    }

    /// The number of brokers that can be reached, this one included.
    pub fn brokers_reached(&self) -> usize {
        if !self.overlay.is_open() {
            return 0;
        }
        let overlay = &self.overlay;
        overlay
            .net
            .topology()
            .hosts()
            .filter(|host| *host == overlay.net.host() || overlay.net.routes().is_reachable(*host))
            .count()
    }

    /// The cost of the best path to a broker, microseconds, if there is one.
    pub fn way_us(&self, host: HostId) -> Option<u64> {
        self.overlay.net.routes().cost_us(host)
    }

    /// Whether the topology has a link between two brokers.
    pub fn are_linked(&self, one: HostId, other: HostId) -> bool {
        self.overlay.net.topology().link(one, other).is_some()
    }
}

impl Overlay {
    fn sizes(&self) -> Vec<OverlaySize> {
        let size = |what, entries, bytes| OverlaySize { what, entries, bytes };
        let states = self.net.topology().states().map(|state| of_state(state) + 4 * OF_MAP).sum();
        let known = self.net.interests();
        let entries: usize = known.clone().map(|known| known.entries.len()).sum();
        let told = known.flat_map(|known| known.entries.values()).map(|entry| of_entry(entry) + OF_MAP).sum::<usize>();
        let served: usize = self.destinations.iter().map(|one| one.entries().count()).sum();
        let of_one = |one: &Destination| one.entries().map(|entry| of_entry(entry) + 2 * OF_MAP).sum::<usize>();
        let destinations = self.destinations.iter().map(|one| size_of::<Destination>() + of_one(one)).sum();
        let pending = self.net.neighbours().map(|peer| peer.pending.len());
        let pending: usize = pending.sum();
        let (ways, of_ways) = self.net.routes().size();
        let (sessions, of_sessions) = self.roam.size();
        let timers = self.timers.len() + self.net.deadlines();
        vec![
            size("link states", self.net.topology().len(), states),
            size("ways", ways, of_ways),
            size("interests", entries, told),
            size("destinations", served, destinations),
            size("told to neighbours", pending, pending * (size_of::<(HostId, u64, u64)>() + OF_MAP)),
            size("sessions elsewhere", sessions, of_sessions),
            size("deadlines", timers, timers * 2 * (size_of::<(u64, Due)>() + OF_MAP)),
        ]
    }
}

/// Slots of the cache that are searched for an event: it is the first of its stream from where the
/// search begins.
const SLOTS_MAX: usize = 1 << 16;

/// Bytes of the trace of an event.
const TRACE_BYTES_MAX: usize = 16 << 10;

/// A time as milliseconds, for people.
fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
}

/// How long the path to a broker takes, as estimated, if there is one; and the link to it, if there
/// is one that is not the path.
fn costs(net: &Net, to: HostId) -> String {
    let links = net.routes().path(to).len().saturating_sub(1);
    if links == 0 {
        return String::new();
    }
    let path = format!(", {}", millis(u64::try_from(net.way(to).as_micros()).unwrap_or(u64::MAX)));
    if links == 1 {
        return path;
    }
    let ends = net.topology().get(net.host()).into_iter().flat_map(|state| &state.neighbours);
    let direct = ends.filter(|end| end.host == to).min_by_key(|end| end.delay_us);
    let lost = |loss: u16| if loss > 0 { format!(", loses {} %", loss / 10) } else { String::new() };
    let told = |end: &Neighbour| format!("{path} (direct {}{})", millis(end.delay_us.into()), lost(end.loss));
    direct.map_or(path.clone(), told)
}

/// Begins the line of the broker that has accepted an event and still has it; its destinations
/// follow.
pub const ACCEPTED: &str = "accepted here";

impl Broker {
    /// What this broker knows of an event, as lines of text for people, at most 16 KiB; empty if it
    /// knows nothing.
    pub fn trace(&mut self, event: EventId) -> String {
        let mut text = String::new();
        if !self.overlay.is_open() {
            return text;
        }
        let why = self.why(event);
        let overlay = &self.overlay;
        let mut first = None;
        for note in overlay.net.trace_of(event) {
            let after = note.at.since(*first.get_or_insert(note.at)).as_micros();
            let name = |host| overlay.net.name_of(host);
            let what = match note.what {
                TraceStep::Sent(to) => format!("sent to {}", name(to)),
                TraceStep::Repeated(to) => format!("sent to {} once more, behind the next event", name(to)),
                TraceStep::Came(from, age_us) => format!("came from {}, {} old", name(from), millis(age_us)),
                TraceStep::HeldBack(to) => format!("not sent to {}: too much is unsent there", name(to)),
                TraceStep::Rerouted(to, cause) => {
                    format!("another way is taken, as the link to {} is {}", name(to), cause.name())
                }
                TraceStep::GivenUp => "no way around a link on its way".into(),
                TraceStep::Passed => "taken for subscriptions here".into(),
                TraceStep::Answered => "sent again, as somebody lacked it".into(),
            };
            let line = format!("{after} {what}\n");
            if text.len() + line.len() > TRACE_BYTES_MAX / 2 {
                break;
            }
            text.push_str(&line);
        }
        for line in why {
            if text.len() + line.len() < TRACE_BYTES_MAX {
                text.push_str(&line);
            }
        }
        text
    }

    /// The entries of other brokers' interests for which an event of an own stream is sent, if it
    /// is still cached and they are still wanted.
    fn why(&mut self, id: EventId) -> Vec<String> {
        let Broker { overlay, cache, router, .. } = self;
        if !overlay.net.is_own(id) {
            return Vec::new();
        }
        let partitions = PartitionSet::first(cache.plan().count());
        let from = cache.serial_for(id.pubend, Tick(id.tick.0.saturating_sub(1)));
        let mut lines = Vec::new();
        cache.read(from, &partitions, SLOTS_MAX, |item| {
            let CacheItem::Event { event, .. } = item else { return ControlFlow::Continue(()) };
            if event.id() != id {
                let is_beyond = event.id().pubend == id.pubend && event.id().tick > id.tick;
                return if is_beyond { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            lines.push(format!("{ACCEPTED}, on {}\n", event.unpack().event.topic.escape_debug()));
            for destination in overlay.destinations.iter() {
                if let Some(entry) = destination.why(event, router) {
                    let mut line = format!("for {}, which wants ", overlay.net.name_of(destination.host));
                    line.extend(entry.filter.escape_debug());
                    if let Some(selector) = &entry.selector {
                        write!(line, " with {}", selector.escape_debug()).expect("a string takes everything");
                    }
                    let path = overlay.net.routes().path(destination.host);
                    let way: Vec<_> = path.into_iter().map(|host| overlay.net.name_of(host).into_string()).collect();
                    line += &format!("; way {}{}\n", way.join(" > "), costs(&overlay.net, destination.host));
                    lines.push(line);
                }
            }
            ControlFlow::Break(())
        });
        lines
    }
}
