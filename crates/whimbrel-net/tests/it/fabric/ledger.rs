//! The fabric's own books: which events were published, which nodes are to get them, and over which
//! links they went.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{EventId, Reliability, Time};
use whimbrel_net::Hop;
use whimbrel_wire::REPAIRERS_MAX;

use super::node::number_of;
use super::reception::Delivered;

/// Most hops that are noted.
const HOPS_NOTED_MAX: usize = 1 << 20;

/// A published event.
pub struct Published {
    /// When it was published.
    pub at: Time,
    /// The node that published it.
    pub by: usize,
    /// Its topic.
    pub topic: Box<str>,
    /// Its payload.
    pub payload: Box<[u8]>,
    /// The nodes that wanted it then.
    pub wanted_by: BTreeSet<usize>,
    /// It may be lost: its node has been restarted since, for example.
    pub is_excused: bool,
}

/// A hop of an event, at one of its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopNote {
    pub at: Time,
    pub node: usize,
    pub id: EventId,
    pub hop: Hop,
}

/// The books.
#[derive(Default)]
pub struct Ledger {
    pub published: BTreeMap<EventId, Published>,
    pub hops: Vec<HopNote>,
}

impl Ledger {
    /// Notes a hop.
    pub fn record(&mut self, note: HopNote) {
        assert!(self.hops.len() < HOPS_NOTED_MAX, "a test has at most {HOPS_NOTED_MAX} hops");
        self.hops.push(note);
    }

    /// A node is begun anew: it need not get earlier events, and its own may be lost.
    pub fn restart(&mut self, node: usize) {
        for published in self.published.values_mut() {
            published.wanted_by.remove(&node);
            published.is_excused |= published.by == node;
        }
    }

    /// All events so far may be lost: nodes were begun anew, and not all others knew of that.
    pub fn excuse_all(&mut self) {
        self.published.values_mut().for_each(|published| published.is_excused = true);
    }

    /// The way of an event to a node, and when it arrived at each node on it; empty if it did not.
    pub fn way(&self, id: EventId, node: usize) -> Vec<(usize, Time)> {
        let mut way = Vec::new();
        let (mut node, mut until) = (node, Time::MAX);
        let Some(published) = self.published.get(&id) else { return way };
        // Each step is to an earlier note.
        for _ in 0..self.hops.len() {
            let is_it = |note: &&HopNote| note.id == id && note.node == node && note.at <= until;
            let came = self.hops.iter().filter(is_it).find_map(|note| match note.hop {
                Hop::Came { from, .. } => Some((note.at, number_of(from))),
                Hop::Sent { .. } => None,
            });
            let Some((at, from)) = came else { break };
            way.push((node, at));
            (node, until) = (from, at);
            if node == published.by {
                way.push((node, published.at));
                break;
            }
        }
        way.reverse();
        way
    }

    /// Checks what a node has been delivered: no event that it does not want, none twice, and the
    /// events of each stream in their order.
    pub fn check_order(&self, node: usize, delivered: &[Delivered]) -> Result<(), String> {
        let mut last: BTreeMap<_, EventId> = BTreeMap::new();
        for event in delivered {
            let Some(published) = self.published.get(&event.id) else {
                return Err(format!("{} at {node} was never published", event.id));
            };
            if !published.wanted_by.contains(&node) {
                return Err(format!("{} at {node}, which does not want `{}`", event.id, published.topic));
            }
            if published.topic != event.topic || published.payload != event.payload {
                return Err(format!("{} at {node} has another content", event.id));
            }
            if let Some(last) = last.insert(event.id.pubend, event.id).filter(|last| last.tick >= event.id.tick) {
                return Err(format!("{} at {node} behind {last}", event.id));
            }
        }
        Ok(())
    }

    /// Checks that a node has been delivered all reliable events that it wants.
    pub fn check_all(&self, node: usize, delivered: &[Delivered]) -> Result<(), String> {
        let got: BTreeSet<EventId> = delivered.iter().map(|event| event.id).collect();
        for (id, published) in &self.published {
            let is_sure = id.pubend.reliability() == Reliability::Reliable && !published.is_excused;
            if is_sure && published.wanted_by.contains(&node) && !got.contains(id) {
                return Err(format!("{id} of {} (`{}`) is lacking at {node}", published.by, published.topic));
            }
        }
        Ok(())
    }

    /// Checks that no event goes in circles: it comes to a node at most once per destination and
    /// change of its path, answers not counted.
    pub fn check_circles(&self) -> Result<(), String> {
        let mut times: BTreeMap<(EventId, usize), usize> = BTreeMap::new();
        for note in &self.hops {
            if let Hop::Came { is_answer: false, .. } = note.hop {
                let times = times.entry((note.id, note.node)).or_default();
                *times += 1;
                let destinations = self.published.get(&note.id).map_or(1, |published| published.wanted_by.len().max(1));
                if *times > destinations * (1 + REPAIRERS_MAX) {
                    return Err(format!("{} came {times} times to {}", note.id, note.node));
                }
            }
        }
        Ok(())
    }
}
