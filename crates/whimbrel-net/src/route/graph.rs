//! The graph of the links that both ends name, in a form in which paths are found quickly.

use std::collections::BTreeMap;

use whimbrel_event::HostId;
use whimbrel_wire::Protocol;

use super::cost::cost_us;
use crate::topology::{KnownBroker, Neighbour, Topology};

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct GraphEdge {
    pub(super) cost: u64,
    /// The part of it that is a surcharge, microseconds.
    surcharge: u32,
    /// The delay of one way, microseconds.
    pub(super) delay_us: u32,
    /// Share of what is sent over it that is lost, thousandths.
    pub(super) loss: u16,
    /// The index of the broker at the other end.
    pub(super) to: u32,
    pub(super) port: u16,
}

impl GraphEdge {
    /// The time that an event takes over the link, microseconds: its cost without the surcharge.
    pub(super) fn time_us(&self) -> u64 {
        self.cost - u64::from(self.surcharge)
    }
}

/// Brokers have indices in the order of their host ids, so comparing indices is comparing hosts.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) hosts: Vec<HostId>,
    /// What each broker speaks.
    pub(super) protocols: Vec<Protocol>,
    /// Where the edges of each broker begin; one more for the end.
    begins: Vec<u32>,
    edges: Vec<GraphEdge>,
}

impl Graph {
    /// Takes one step for each link that some broker names, and in addition log n to find a broker
    /// that is far from the one before.
    pub(super) fn new(topology: &Topology) -> Graph {
        let hosts: Vec<HostId> = topology.hosts().collect();
        let named = topology.states().map(|state| state.neighbours.len()).sum();
        let protocols = topology.states().map(|state| state.protocol).collect();
        let (begins, edges) = (Vec::with_capacity(hosts.len() + 1), Vec::with_capacity(named));
        let mut graph = Graph { hosts, protocols, begins, edges };
        for broker in topology.brokers() {
            graph.begins.push(graph.edges.len() as u32);
            graph.add(broker);
        }
        graph.begins.push(graph.edges.len() as u32);
        graph.confirm();
        graph
    }

    /// The links that a broker names, to brokers that are known.
    fn add(&mut self, broker: &KnownBroker) {
        let mut at = 0;
        for end in broker.neighbours() {
            let rest = &self.hosts[at..];
            // It is often the next one, in a mesh always.
            at += if rest.first() == Some(&end.host) { 0 } else { rest.partition_point(|host| *host < end.host) };
            if self.hosts.get(at) == Some(&end.host) {
                let Neighbour { delay_us, loss, surcharge_us: surcharge, port, .. } = end;
                let cost = cost_us(delay_us, loss);
                self.edges.push(GraphEdge { cost, surcharge, delay_us, loss, to: at as u32, port });
                at += 1;
            }
        }
    }

    /// Removes the edges that only one end names. A link costs, delays and loses what the worse of
    /// its ends says: each judges the direction in which it sends. The greater of the surcharges
    /// comes on top.
    fn confirm(&mut self) {
        let (begins, named_by) = self.turned();
        let mut kept = 0;
        for node in 0..self.hosts.len() {
            let own = self.begins[node] as usize..self.begins[node + 1] as usize;
            self.begins[node] = kept as u32;
            let mut others = named_by[begins[node] as usize..begins[node + 1] as usize].iter().peekable();
            for at in own {
                let edge = self.edges[at];
                while others.next_if(|(other, _)| *other < edge.to).is_some() {}
                if let Some((_, back)) = others.next_if(|(other, _)| *other == edge.to) {
                    let surcharge = edge.surcharge.max(back.surcharge);
                    let cost = edge.cost.max(back.cost) + u64::from(surcharge);
                    let (delay_us, loss) = (edge.delay_us.max(back.delay_us), edge.loss.max(back.loss));
                    self.edges[kept] = GraphEdge { cost, surcharge, delay_us, loss, ..edge };
                    kept += 1;
                }
            }
        }
        self.edges.truncate(kept);
        self.begins[self.hosts.len()] = kept as u32;
    }

    /// The brokers that name each broker, in order, with their ends of the links: where each list
    /// begins, and the lists.
    fn turned(&self) -> (Vec<u32>, Vec<(u32, GraphEdge)>) {
        let mut begins = vec![0; self.hosts.len() + 1];
        for edge in &self.edges {
            begins[edge.to as usize + 1] += 1;
        }
        for node in 0..self.hosts.len() {
            begins[node + 1] += begins[node];
        }
        let mut ends = begins.clone();
        let none = GraphEdge::default();
        let mut named_by = vec![(0, none); self.edges.len()];
        for node in 0..self.hosts.len() as u32 {
            for edge in self.edges(node) {
                let end = &mut ends[edge.to as usize];
                named_by[*end as usize] = (node, *edge);
                *end += 1;
            }
        }
        (begins, named_by)
    }

    /// The links of a broker, in order of the brokers at their other ends.
    pub(super) fn edges(&self, node: u32) -> &[GraphEdge] {
        &self.edges[self.begins[node as usize] as usize..self.begins[node as usize + 1] as usize]
    }

    /// The link from one broker to another.
    pub(super) fn edge(&self, from: u32, to: u32) -> Option<&GraphEdge> {
        let edges = self.edges(from);
        edges.binary_search_by_key(&to, |edge| edge.to).ok().map(|at| &edges[at])
    }

    /// This graph with a link between one broker and each of `costs`, at that cost, in place of one
    /// that there may be. `weight` of the brokers at its ends comes on top of the cost of each
    /// link.
    pub(super) fn with_links_of(&self, broker: u32, costs: &BTreeMap<u32, u64>, weight: impl Fn(u32) -> u64) -> Graph {
        let (hosts, protocols) = (self.hosts.clone(), self.protocols.clone());
        let (mut begins, mut edges) = (Vec::with_capacity(self.begins.len()), Vec::with_capacity(self.edges.len()));
        for node in 0..self.hosts.len() as u32 {
            begins.push(edges.len() as u32);
            let known = self.edges(node).iter().map(|edge| (edge.to, *edge));
            let mut own: BTreeMap<u32, GraphEdge> = known.collect();
            let mut link = |to: u32, cost: u64| {
                own.insert(to, GraphEdge { cost, to, ..GraphEdge::default() });
            };
            if node == broker {
                costs.iter().for_each(|(to, cost)| link(*to, *cost));
            } else if let Some(cost) = costs.get(&node) {
                link(broker, *cost);
            }
            edges.extend(
                own.into_values().map(|edge| GraphEdge { cost: edge.cost + weight(node) + weight(edge.to), ..edge }),
            );
        }
        begins.push(edges.len() as u32);
        Graph { hosts, protocols, begins, edges }
    }

    /// The surcharge of the link from one broker to another, microseconds; zero if there is none.
    pub(super) fn surcharge_us(&self, from: u32, to: u32) -> u64 {
        self.edge(from, to).map_or(0, |edge| edge.surcharge.into())
    }

    /// The number of brokers and of links.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.hosts.len(), self.edges.len())
    }

    pub(super) fn index(&self, host: HostId) -> Option<u32> {
        self.hosts.binary_search(&host).ok().map(|at| at as u32)
    }
}

#[cfg(test)]
impl Graph {
    /// This graph with links that lose what `of` says of their lower and their higher end,
    /// thousandths, and cost as much as such links do.
    pub(super) fn with_losses(mut self, of: impl Fn(u32, u32) -> u16) -> Graph {
        for from in 0..self.hosts.len() as u32 {
            for at in self.begins[from as usize]..self.begins[from as usize + 1] {
                let edge = &mut self.edges[at as usize];
                edge.loss = of(from.min(edge.to), from.max(edge.to));
                edge.cost = cost_us(edge.delay_us, edge.loss);
            }
        }
        self
    }

    /// Brokers from 0 on, with links of these costs; of several between two brokers the first
    /// counts.
    pub(super) fn of_links(brokers: u32, links: &[(u32, u32, u64)]) -> Graph {
        let mut all: Vec<BTreeMap<u32, u64>> = vec![Default::default(); brokers as usize];
        for (one, other, cost) in links.iter().filter(|(one, other, _)| one != other) {
            let cost = *all[*one as usize].entry(*other).or_insert(*cost);
            all[*other as usize].insert(*one, cost);
        }
        let hosts = (0..brokers).map(|broker| HostId::new((u64::from(broker) + 1) << 8)).collect();
        let protocols = vec![Protocol::OWN; brokers as usize];
        let (mut begins, mut edges) = (Vec::new(), Vec::new());
        for of in all {
            begins.push(edges.len() as u32);
            let edge = |(port, (to, cost))| GraphEdge { cost, delay_us: cost as u32, to, port, ..GraphEdge::default() };
            edges.extend((0..).zip(of).map(edge));
        }
        begins.push(edges.len() as u32);
        Graph { hosts, protocols, begins, edges }
    }
}
