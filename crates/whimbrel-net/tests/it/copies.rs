//! Events with a deadline take two paths.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{EventId, HostId, Reliability};
use whimbrel_net::route::TopicPaths;
use whimbrel_net::{Hop, Net};

use crate::fabric::node::Setup;
use crate::fabric::{Content, Fabric, Trouble};
use crate::scenarios::{MILLI, SECOND};
use crate::watching::SILENT;

const DEADLINE_MS: u32 = 100;

/// The events' interval.
const EVERY: Duration = Duration::from_millis(10);

/// A fabric in which node 0 publishes events with a deadline over two paths.
pub struct Copied {
    pub fabric: Fabric,
    wanting: Vec<usize>,
    next: u32,
}

impl Copied {
    /// Nodes with wires of 10 ms, and those that want all events.
    pub fn new(nodes: usize, wires: &[[usize; 2]], wanting: &[usize], change: fn(&mut Net)) -> Copied {
        let setup = |number: usize| Setup { change, paths: TopicPaths::Two, ..Setup::named(format!("b{number}")) };
        let mut fabric = Fabric::new((0..nodes).map(setup));
        for ends in wires {
            fabric.link(*ends, MILLI * 10);
        }
        fabric.run(SECOND * 2);
        for node in wanting {
            fabric.subscribe(*node, "a");
        }
        fabric.run(SECOND);
        Copied { fabric, wanting: wanting.to_vec(), next: 0 }
    }

    /// Node 0 publishes events for some time.
    pub fn flow(&mut self, span: Duration) {
        for _ in 0..span.as_millis() / EVERY.as_millis() {
            self.next += 1;
            let payload = self.next.to_be_bytes();
            let (reliability, deadline_ms) = (Reliability::Reliable, Some(DEADLINE_MS));
            self.fabric.publish(0, Content { topic: "a", payload: &payload, reliability, deadline_ms });
            self.fabric.run(EVERY);
        }
    }

    /// The number of events that were not everywhere by their deadline.
    pub fn late(&self) -> usize {
        let published = self.fabric.ledger.published.iter();
        let is_late = |(id, of): &(&EventId, &crate::fabric::ledger::Published)| {
            self.wanting.iter().any(|node| {
                let mut delivered = self.fabric.node(*node).told.delivered.iter();
                let arrived = delivered.find(|delivered| delivered.id == **id).map(|delivered| delivered.arrived);
                arrived.is_none_or(|at| self.fabric.global(*node, at).since(of.at) > MILLI * DEADLINE_MS)
            })
        };
        published.filter(is_late).count()
    }

    /// How often the event that was sent most often over one link, in one direction, was sent there.
    fn most_over_a_link(&self) -> usize {
        let mut sent: BTreeMap<(EventId, usize, HostId), usize> = BTreeMap::new();
        for note in &self.fabric.ledger.hops {
            if let Hop::Sent { to, .. } = note.hop {
                *sent.entry((note.id, note.node, to)).or_default() += 1;
            }
        }
        sent.into_values().max().unwrap_or(0)
    }
}

/// Node 3 behind nodes 1 and 2, and node 4 behind node 3 alone.
const DIAMOND: [[usize; 2]; 5] = [[0, 1], [0, 2], [1, 3], [2, 3], [3, 4]];

#[test]
fn each_destination_has_its_event_over_two_paths_and_no_link_twice() {
    let mut world = Copied::new(5, &DIAMOND, &[3, 4], |_| {});
    world.flow(SECOND);
    world.fabric.run(SECOND);
    assert_eq!((world.late(), world.most_over_a_link()), (0, 1));
    let relayed = |node: usize| world.fabric.node(node).net.stats().events_relayed;
    assert_eq!((relayed(1), relayed(2)), (100, 100));
    let stats = world.fabric.node(3).net.stats();
    assert_eq!(stats.copies_joined, 100, "the second copy for node 4 ends at node 3");
    world.fabric.check().expect("each event has arrived once, in order");
}

#[test]
fn a_link_or_a_broker_that_falls_silent_delays_no_event() {
    for silent in [[0, 1], [0, 2], [2, 3]] {
        let mut world = Copied::new(5, &DIAMOND, &[3, 4], |_| {});
        world.flow(SECOND);
        let wire = DIAMOND.iter().position(|ends| *ends == silent).expect("it is a wire");
        for node in silent {
            world.fabric.trouble(wire, node, SILENT);
        }
        world.flow(SECOND);
        world.fabric.trouble(wire, silent[0], Trouble::default());
        world.fabric.trouble(wire, silent[1], Trouble::default());
        world.flow(SECOND);
        world.fabric.run(SECOND);
        assert_eq!(world.late(), 0, "{silent:?}");
        world.fabric.check().expect("each event has arrived once, in order");
    }
    let mut world = Copied::new(5, &DIAMOND, &[3, 4], |_| {});
    world.flow(SECOND);
    world.fabric.kill(1);
    world.flow(SECOND);
    world.fabric.run(SECOND);
    assert_eq!(world.late(), 0);
}
