//! What a broker tells of an event: the steps that it has recorded, and for one of its own streams
//! the brokers that want it, with the paths to them. The same of a topic, before anything is
//! published on it.

use core::fmt::Write;
use core::time::Duration;

use whimbrel_event::{Domains, HostId};
use whimbrel_net::Net;
use whimbrel_net::forward::{PlannedEvent, planned_paths};
use whimbrel_net::interest::others::InterestValue;
use whimbrel_net::route::{PathsTo, TopicPaths};
use whimbrel_net::traces::TraceStep;

/// Steps of an event that a broker tells; the first ones, if there are more.
pub const STEPS_MAX: usize = 256;

/// Bytes of the topic, filters, selectors and brokers' names in one plan; a plan that would have
/// more leaves brokers out, and counts them.
pub const PLAN_BYTES_MAX: usize = 24 << 10;

/// Begins the line of the broker that has accepted an event and still has it; its destinations
/// follow.
pub const ACCEPTED: &str = "accepted here";

/// What a broker knows of an event; it knows nothing if both are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventTrace {
    /// What happened to it, oldest first; at most [`STEPS_MAX`].
    pub steps: Vec<TracedStep>,
    /// Of an event of an own stream that is still cached: who wants it, and how it goes there.
    pub plan: Option<PathsPlan>,
}

/// A step of an event at a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedStep {
    /// The time since the first step that the broker has recorded of the event.
    pub after: Duration,
    /// The step.
    pub what: TraceStep,
    /// The name of the neighbour that it names, if it names one.
    pub peer: Option<Box<str>>,
}

/// How the events of a topic, or one of them, go from this broker to all others that want them: as
/// it is planned at present.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathsPlan {
    /// The topic.
    pub topic: Box<str>,
    /// The deadline of its events.
    pub deadline: Option<Duration>,
    /// The paths that its profile asks for.
    pub paths: TopicPaths,
    /// Brokers that want it, in the order of their hosts.
    pub brokers: Vec<BrokerPlan>,
    /// The number of brokers that want it and are left out, see [`PLAN_BYTES_MAX`].
    pub more: usize,
}

/// How events go to one broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerPlan {
    /// The broker's name.
    pub name: Box<str>,
    /// The broker's host.
    pub host: HostId,
    /// The entry of its interest for which events are sent.
    pub wants: InterestValue,
    /// The paths, the quickest first; empty if it is not reached.
    pub paths: Vec<NamedPath>,
    /// Other brokers that all of several paths visit.
    pub shared_brokers: Vec<Box<str>>,
    /// Links that all of several paths take.
    pub shared_links: Vec<[Box<str>; 2]>,
    /// The link to it, if there is one.
    pub direct: Option<DirectLink>,
}

/// A path with the names of its brokers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedPath {
    /// The brokers, both ends included.
    pub brokers: Vec<Box<str>>,
    /// How long it takes, microseconds: see [`whimbrel_net::route::EventPath::time_us`].
    pub time_us: u64,
    /// Whether that is within the deadline; `None`: there is none.
    pub is_in_time: Option<bool>,
}

/// A link of this broker, as it is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectLink {
    /// Its delay, microseconds.
    pub delay_us: u32,
    /// Its loss, thousandths.
    pub loss: u16,
}

/// An event or a topic, and those that want it.
pub(crate) struct WantedTopic {
    pub(crate) topic: Box<str>,
    pub(crate) deadline_ms: Option<u32>,
    pub(crate) paths: TopicPaths,
    /// The domains that may carry it; empty: any broker may.
    pub(crate) domains: Domains,
    /// In the order of hosts.
    pub(crate) wanting: Vec<(HostId, InterestValue)>,
}

/// A time as milliseconds, for people.
fn millis(micros: u64) -> String {
    let tenths = micros.saturating_add(50) / 100;
    format!("{}.{} ms", tenths / 10, tenths % 10)
}

impl TracedStep {
    /// The step in one word, for programs.
    pub fn name(&self) -> &'static str {
        match self.what {
            TraceStep::Sent(_) => "sent",
            TraceStep::Repeated(_) => "repeated",
            TraceStep::Came(..) => "came",
            TraceStep::CameAgain(..) => "came-again",
            TraceStep::Joined(_) => "joined",
            TraceStep::HeldBack(_) => "held-back",
            TraceStep::Rerouted(..) => "rerouted",
            TraceStep::GivenUp => "given-up",
            TraceStep::Passed => "taken",
            TraceStep::Answered => "sent-again",
        }
    }

    /// The age of the event at this step, microseconds, if it has come over a link.
    pub fn age_us(&self) -> Option<u64> {
        match self.what {
            TraceStep::Came(_, age_us) | TraceStep::CameAgain(_, age_us) => Some(age_us),
            _ => None,
        }
    }

    /// The step in words.
    pub fn text(&self) -> String {
        let peer = self.peer.as_deref().unwrap_or_default();
        match self.what {
            TraceStep::Sent(_) => format!("sent to {peer}"),
            TraceStep::Repeated(_) => format!("sent to {peer} once more, behind the next event"),
            TraceStep::Came(_, age_us) => format!("came from {peer}, {} old", millis(age_us)),
            TraceStep::CameAgain(_, age_us) => format!("came again from {peer}, {} old", millis(age_us)),
            TraceStep::Joined(_) => format!("this copy ends here: {peer} has been sent one before"),
            TraceStep::HeldBack(_) => format!("not sent to {peer}: too much is unsent there"),
            TraceStep::Rerouted(_, cause) => {
                format!("another way is taken, as the link to {peer} is {}", cause.name())
            }
            TraceStep::GivenUp => "no way around a link on its way".into(),
            TraceStep::Passed => "taken for subscriptions here".into(),
            TraceStep::Answered => "sent again, as somebody lacked it".into(),
        }
    }
}

/// The neighbour that a step names.
pub(super) fn peer_of(what: TraceStep) -> Option<HostId> {
    match what {
        TraceStep::Sent(peer)
        | TraceStep::Repeated(peer)
        | TraceStep::Came(peer, _)
        | TraceStep::CameAgain(peer, _)
        | TraceStep::Joined(peer)
        | TraceStep::HeldBack(peer)
        | TraceStep::Rerouted(peer, _) => Some(peer),
        TraceStep::GivenUp | TraceStep::Passed | TraceStep::Answered => None,
    }
}

impl PathsPlan {
    /// The plan of what other brokers want.
    pub(super) fn new(net: &mut Net, wanted: WantedTopic) -> PathsPlan {
        let WantedTopic { topic, deadline_ms, paths, domains, wanting } = wanted;
        let hosts: Vec<HostId> = wanting.iter().map(|(host, _)| *host).collect();
        let deadline_us = deadline_ms.map(|deadline_ms| u64::from(deadline_ms) * 1_000);
        let planned = planned_paths(net, &hosts, PlannedEvent { deadline_us, paths, label: domains.label() });
        let mut left = PLAN_BYTES_MAX.saturating_sub(topic.len());
        let (mut brokers, count) = (Vec::new(), wanting.len());
        for ((_, wants), paths) in wanting.into_iter().zip(planned) {
            let plan = BrokerPlan::new(net, wants, paths, deadline_us);
            let Some(rest) = left.checked_sub(plan.bytes()) else { continue };
            left = rest;
            brokers.push(plan);
        }
        let more = count - brokers.len();
        let deadline = deadline_ms.map(|millis| Duration::from_millis(millis.into()));
        PathsPlan { topic, deadline, paths, brokers, more }
    }

    /// The plan of an event in words, line by line: where it was accepted, and for whom it is.
    pub fn lines(&self) -> Vec<String> {
        let first = format!("{ACCEPTED}, on {}", self.topic.escape_debug());
        [first].into_iter().chain(self.brokers.iter().map(BrokerPlan::line)).collect()
    }
}

impl BrokerPlan {
    fn new(net: &Net, wants: InterestValue, to: PathsTo, deadline_us: Option<u64>) -> BrokerPlan {
        let name = |host: &HostId| net.name_of(*host);
        let paths = to.paths.iter().map(|path| NamedPath {
            brokers: path.hosts.iter().map(name).collect(),
            time_us: path.time_us,
            is_in_time: deadline_us.map(|deadline_us| path.time_us <= deadline_us),
        });
        let ends = net.topology().get(net.host()).into_iter().flat_map(|state| &state.neighbours);
        let direct = ends.filter(|end| end.host == to.host).min_by_key(|end| end.delay_us);
        BrokerPlan {
            name: name(&to.host),
            host: to.host,
            wants,
            paths: paths.collect(),
            shared_brokers: to.shared_brokers.iter().map(name).collect(),
            shared_links: to.shared_links.iter().map(|link| link.each_ref().map(name)).collect(),
            direct: direct.map(|end| DirectLink { delay_us: end.delay_us, loss: end.loss }),
        }
    }

    fn bytes(&self) -> usize {
        let names = self.paths.iter().flat_map(|path| &path.brokers).chain(&self.shared_brokers).chain([&self.name]);
        let linked = self.shared_links.iter().flatten();
        let wants = self.wants.filter.len() + self.wants.selector.as_ref().map_or(0, |selector| selector.len());
        names.chain(linked).map(|name| name.len()).sum::<usize>() + wants
    }

    fn line(&self) -> String {
        let mut line = format!("for {}, which wants ", self.name);
        line.extend(self.wants.filter.escape_debug());
        if let Some(selector) = &self.wants.selector {
            write!(line, " with {}", selector.escape_debug()).expect("a string takes everything");
        }
        line + "; " + &self.ways()
    }

    /// The only path, with the link to the broker if that is another one; or how many there are.
    fn ways(&self) -> String {
        let [path] = &*self.paths else {
            return match self.paths.len() {
                0 => "no way".into(),
                count => format!("{count} ways"),
            };
        };
        let way = format!("way {}, {}", path.brokers.join(" > "), millis(path.time_us));
        let Some(direct) = self.direct.filter(|_| path.brokers.len() > 2) else { return way };
        let lost = if direct.loss > 0 { format!(", loses {} %", direct.loss / 10) } else { String::new() };
        format!("{way} (direct {}{lost})", millis(direct.delay_us.into()))
    }
}
