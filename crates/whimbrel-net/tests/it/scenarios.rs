//! Worlds of nodes in which something goes wrong, and comes right again. Each of them tells what is
//! wrong in the end; `change` is made at each node, such as a fault.

use core::time::Duration;

use whimbrel_net::Net;

use crate::fabric::Fabric;
use crate::fabric::node::Setup;

pub const MILLI: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
const HALF: Duration = Duration::from_micros(500);

/// A world of nodes, all of them changed.
fn changed(count: usize, change: fn(&mut Net)) -> Fabric {
    Fabric::new((0..count).map(|number| Setup { change, ..Setup::named(format!("b{number}")) }))
}

/// Nodes 0 – 1, and behind 1 the nodes 2, which wants `x`, and 3, which wants `x` and `y`. Event 1
/// has arrived. The wires: 0–1, 1–2, 1–3.
fn fork(change: fn(&mut Net)) -> Fabric {
    let mut fabric = changed(4, change);
    for pair in [[0, 1], [1, 2], [1, 3]] {
        fabric.link(pair, MILLI);
    }
    fabric.run(SECOND);
    for (number, filter) in [(2, "x"), (3, "x"), (3, "y")] {
        fabric.subscribe(number, filter);
    }
    fabric.run(SECOND);
    fabric.publish_topic(0, "x");
    fabric.run(MILLI * 10);
    fabric
}

/// A node subscribes when all links are up; its neighbour's neighbour publishes.
pub fn interest_from_afar(change: fn(&mut Net)) -> Result<(), String> {
    let mut fabric = changed(3, change);
    for pair in [[0, 1], [1, 2]] {
        fabric.link(pair, MILLI);
    }
    fabric.run(SECOND);
    fabric.subscribe(2, "a");
    fabric.run(SECOND);
    fabric.publish_topic(0, "a");
    fabric.run(SECOND);
    fabric.check()
}

/// The link to one of two destinations fails while two events are on it, of which the other
/// destination wants the later one only. They are sent again from transit.
pub fn failure_behind_a_relay(change: fn(&mut Net)) -> Result<(), String> {
    let mut fabric = fork(change);
    fabric.publish_topic(0, "y");
    fabric.publish_topic(0, "x");
    fabric.run(MILLI + HALF);
    fabric.close(2);
    fabric.heal(2);
    fabric.run(MILLI * 10);
    fabric.publish_topic(0, "x");
    fabric.run(SECOND);
    fabric.check()
}

/// Two events are published while no path leads to the two destinations, of which one wants both.
/// Both ask for the later event at the same time.
pub fn failure_before_a_relay(change: fn(&mut Net)) -> Result<(), String> {
    let mut fabric = fork(change);
    fabric.close(0);
    fabric.publish_topic(0, "y");
    fabric.publish_topic(0, "x");
    fabric.heal(0);
    fabric.run(SECOND);
    let merged = fabric.node(1).net.stats().nacks_merged;
    assert!(merged > 0, "the nacks are merged");
    fabric.check()
}

/// Both links to a destination fail just after they were announced, while an event is on its way.
pub fn isolation(change: fn(&mut Net)) -> Result<(), String> {
    let mut fabric = changed(4, change);
    let wires = [[0, 1], [1, 2], [1, 3], [2, 3]].map(|pair| fabric.link(pair, MILLI));
    fabric.run(SECOND);
    fabric.subscribe(3, "a");
    fabric.run(SECOND);
    for wire in [wires[2], wires[3]] {
        fabric.heal(wire);
    }
    // The links are announced again; the next announcement is a tenth of a second later.
    fabric.run(MILLI * 105);
    fabric.publish_topic(0, "a");
    fabric.run(HALF);
    for wire in [wires[2], wires[3]] {
        fabric.close(wire);
    }
    fabric.run(MILLI * 200);
    fabric.check_order()?;
    for wire in [wires[2], wires[3]] {
        fabric.heal(wire);
    }
    fabric.run(SECOND);
    fabric.check()
}

/// An entry of the map changes while a node is away.
pub fn change_while_away(change: fn(&mut Net)) -> Result<(), String> {
    let mut fabric = changed(2, change);
    let wire = fabric.link([0, 1], MILLI);
    fabric.run(SECOND);
    fabric.put(0, "k", Some("before"));
    fabric.run(SECOND);
    fabric.close(wire);
    fabric.put(0, "k", Some("after"));
    fabric.heal(wire);
    fabric.run(SECOND * 11);
    if fabric.has_one_map() { Ok(()) } else { Err("the maps differ".into()) }
}
