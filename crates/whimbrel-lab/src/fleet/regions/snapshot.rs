//! The state of the regions for the view.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{CLASSES, Layout, LinkTrouble};
use crate::fleet::view::grouped;

/// The columns before the text about a region.
const INDENT: usize = 14;

/// The state of a region's broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// The broker serves its clients.
    Serves,
    /// The broker was killed, or asked to end.
    Down,
    /// The broker runs again, but some clients lack events that were sent before.
    Returning,
}

/// A region.
#[derive(Clone, Debug, Serialize)]
pub struct RegionRow {
    /// Its name.
    pub name: String,
    /// The address of its broker for clients.
    pub address: String,
    /// Positions that vehicles published there.
    pub published: u64,
    /// Positions and orders that subscribers received there.
    pub delivered: u64,
    /// Clients that came from another region.
    pub moves: u64,
    /// The number of kills of its broker.
    pub kills: u64,
    /// The number of restarts of its broker in good order.
    pub restarts: u64,
    /// The number of times that all clients were served again afterwards.
    pub recoveries: u64,
    /// The longest time from a kill or restart until then, ms.
    #[serde(rename = "worst_served_ms", serialize_with = "as_millis")]
    pub worst_served: Option<Duration>,
    /// The state of its broker.
    #[serde(skip)]
    pub health: Health,
    /// Clients there, by class.
    #[serde(skip)]
    pub here: [u32; CLASSES.len()],
}

/// A link between two regions.
#[derive(Clone, Debug, Serialize)]
pub struct LinkRow {
    /// The numbers of its regions.
    #[serde(skip)]
    pub ends: (usize, usize),
    /// The names of its regions.
    pub between: [String; 2],
    /// The delay in one direction, ms.
    pub one_way_ms: f64,
    /// The number of cuts.
    pub cuts: u64,
    /// How often it was slow.
    pub slow: u64,
    /// How often it was lossy.
    pub lossy: u64,
    /// What is wrong with it now.
    #[serde(skip)]
    pub trouble: Option<LinkTrouble>,
}

/// The pauses of a class of clients without a connection that they wanted.
#[derive(Clone, Copy, Debug)]
pub struct PauseRow {
    /// The class.
    pub class: &'static str,
    /// The number of pauses.
    pub count: u64,
    /// The longest pause.
    pub longest: Duration,
}

/// The regions at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Each region.
    pub regions: Vec<RegionRow>,
    /// The links between them.
    pub links: Vec<LinkRow>,
    /// Whether the links' delays were measured; otherwise they follow from distances.
    pub is_measured: bool,
    /// The number of moves of clients from one region to another.
    pub moves: u64,
    /// The number of cuts of links.
    pub cuts: u64,
    /// How often a link was slow.
    pub slow: u64,
    /// How often a link was lossy.
    pub lossy: u64,
    /// The longest time from a cut until all clients were served again, ms.
    #[serde(rename = "worst_cut_served_ms", serialize_with = "as_millis")]
    pub worst_cut_served: Option<Duration>,
    /// The pauses by class of clients, ms.
    #[serde(rename = "longest_pause_ms", serialize_with = "by_class")]
    pub pauses: Vec<PauseRow>,
}

impl RegionRow {
    pub(super) fn new(name: String, address: String) -> RegionRow {
        RegionRow {
            name,
            address,
            published: 0,
            delivered: 0,
            moves: 0,
            kills: 0,
            restarts: 0,
            recoveries: 0,
            worst_served: None,
            health: Health::Serves,
            here: [0; CLASSES.len()],
        }
    }

    /// The number of clients there.
    pub fn total(&self) -> u32 {
        self.here.iter().sum()
    }
}

impl LinkRow {
    pub(super) fn new(ends: (usize, usize), layout: &Layout) -> LinkRow {
        let between = [ends.0, ends.1].map(|end| layout.names[end].clone());
        let one_way_ms = layout.one_way(ends.0, ends.1).as_secs_f64() * 1_000.0;
        LinkRow { ends, between, one_way_ms, cuts: 0, slow: 0, lossy: 0, trouble: None }
    }

    /// How often it had a trouble.
    pub fn count(&self, trouble: LinkTrouble) -> u64 {
        match trouble {
            LinkTrouble::Cut => self.cuts,
            LinkTrouble::Slow => self.slow,
            LinkTrouble::Lossy => self.lossy,
        }
    }

    pub(super) fn count_mut(&mut self, trouble: LinkTrouble) -> &mut u64 {
        match trouble {
            LinkTrouble::Cut => &mut self.cuts,
            LinkTrouble::Slow => &mut self.slow,
            LinkTrouble::Lossy => &mut self.lossy,
        }
    }
}

impl RegionRow {
    /// The kind and the number of its broker's ends, if there were any.
    pub(in crate::fleet) fn ends(&self) -> Option<(&'static str, u64)> {
        [("restarted", self.restarts), ("killed", self.kills)].into_iter().find(|(_, count)| *count > 0)
    }
}

impl Snapshot {
    /// The rows of the summary.
    pub(in crate::fleet) fn rows(&self) -> Vec<String> {
        let seconds = |span: Duration| format!("{:.2} s", span.as_secs_f64());
        let times = |count: u64| format!("{count} time{}", if count == 1 { "" } else { "s" });
        let mut first = format!("moves       {:>12}  between {} regions", grouped(self.moves), self.regions.len());
        let served = self.worst_cut_served.map(|span| format!("; all served again within {}", seconds(span)));
        let troubles = [("cut", self.cuts, served.unwrap_or_default()), ("slow", self.slow, String::new())];
        let troubles = troubles.into_iter().chain([("lossy", self.lossy, String::new())]);
        let troubles = troubles.filter(|(_, count, _)| *count > 0);
        let troubles: Vec<String> =
            troubles.map(|(what, count, more)| format!("{what} {}{more}", times(count))).collect();
        if !troubles.is_empty() {
            first += &format!(", a link was {}", troubles.join(", "));
        }
        let mut rows = vec![first];
        rows.extend(self.regions.iter().map(|region| {
            let RegionRow { name, published, delivered, moves, worst_served, .. } = region;
            let (published, delivered) = (grouped(*published), grouped(*delivered));
            let mut row = format!(
                "{:INDENT$}{name:<10} published {published}, delivered {delivered}, {} came from elsewhere",
                "",
                grouped(*moves)
            );
            if let Some((what, count)) = region.ends() {
                row += &format!(", {what} {}", times(count));
                row += &worst_served.map(|span| format!(" (served after {})", seconds(span))).unwrap_or_default();
            }
            row
        }));
        let links = self.links.iter().map(|link| {
            let LinkRow { between: [from, to], one_way_ms, .. } = link;
            format!("{from}–{to} {one_way_ms:.1} ms")
        });
        let links = links.collect::<Vec<String>>().join(", ");
        let source = if self.is_measured { "measured" } else { "by distance" };
        rows.push(format!("{:INDENT$}one way, {source}: {links}", ""));
        let pauses = self.pauses.iter().filter(|pause| pause.count > 0);
        let pauses: Vec<String> = pauses.map(|pause| format!("{} {}", pause.class, seconds(pause.longest))).collect();
        if !pauses.is_empty() {
            rows.push(format!("{:INDENT$}longest pause: {}", "", pauses.join(", ")));
        }
        rows
    }
}

fn as_millis<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_millis() as u64).serialize(serializer)
}

fn by_class<S: Serializer>(pauses: &[PauseRow], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pauses.iter().map(|pause| (pause.class, pause.longest.as_millis() as u64)))
}
