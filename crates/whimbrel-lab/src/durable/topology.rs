//! The brokers of a run: a single one, a star around the publishers' broker (PHB) with subscribers'
//! brokers (SHBs), or a chain.

use anyhow::Result;

use super::CORES;
use crate::bench::target::Target;
use crate::brokers::{Broker, Setup};

/// Counters of events that a broker has sent to another one that lacked them: in answer to nacks,
/// and read from its log.
const ASKED_FOR: [&str; 2] = ["whimbrel_overlay_events_answered_total", "whimbrel_overlay_events_lent_total"];

/// See the module's documentation.
pub struct Topology {
    /// The first is the publishers' broker.
    pub brokers: Vec<Broker>,
    /// The indices of the subscribers' brokers.
    hosting: Vec<usize>,
}

fn setup(name: String, core: usize) -> Setup {
    Setup { name, core, own_core: CORES.1, has_data: true, ..Setup::default() }
}

impl Topology {
    /// One broker, on its own core.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn alone() -> Result<Topology> {
        Ok(Topology { brokers: vec![Broker::start(setup("alone".to_owned(), CORES.0))?], hosting: vec![0] })
    }

    /// A PHB that shares the generator's core, and a number of SHBs that share the other one, each
    /// linked with the PHB.
    ///
    /// # Errors
    /// When one cannot be started, or the links do not come up.
    pub fn star(shbs: usize) -> Result<Topology> {
        Topology::star_on(&vec![CORES.0; shbs])
    }

    /// A PHB that shares the generator's core, and SHBs on these cores, each linked with the PHB.
    ///
    /// # Errors
    /// As [`Topology::star`].
    pub fn star_on(cores: &[usize]) -> Result<Topology> {
        let mut brokers = vec![Broker::start(setup("phb".to_owned(), CORES.1))?];
        for (number, core) in (1..).zip(cores) {
            let peers = vec![brokers[0].overlay];
            brokers.push(Broker::start(Setup { peers, ..setup(format!("shb{number}"), *core) })?);
        }
        let star = Topology { brokers, hosting: (1..=cores.len()).collect() };
        star.brokers[0].await_links(cores.len())?;
        Ok(star)
    }

    /// A PHB, a broker linked with it, one linked with that, and so on, with `links` links;
    /// subscribers are at the last one.
    ///
    /// # Errors
    /// As [`Topology::star`].
    pub fn chain(links: usize) -> Result<Topology> {
        let mut brokers = vec![Broker::start(setup("b0".to_owned(), CORES.0))?];
        for number in 1..=links {
            let peers = vec![brokers[number - 1].overlay];
            brokers.push(Broker::start(Setup { peers, ..setup(format!("b{number}"), CORES.0) })?);
        }
        for (number, broker) in brokers.iter().enumerate() {
            broker.await_links(if number == 0 || number == links { 1 } else { 2 })?;
        }
        Ok(Topology { brokers, hosting: vec![links] })
    }

    /// The publishers' broker.
    pub fn phb(&self) -> &Broker {
        &self.brokers[0]
    }

    /// A subscribers' broker, by its place.
    pub fn shb(&mut self, place: usize) -> &mut Broker {
        &mut self.brokers[self.hosting[place]]
    }

    /// The target of publishers.
    pub fn publishers(&self) -> Target {
        self.brokers[0].target
    }

    /// The targets of subscribers, by place.
    pub fn subscribers(&self) -> Vec<Target> {
        self.hosting.iter().map(|broker| self.brokers[*broker].target).collect()
    }

    /// The sum of a counter over all brokers.
    ///
    /// # Errors
    /// When one does not answer, or has no such counter.
    pub fn sum(&self, name: &str) -> Result<f64> {
        self.brokers.iter().map(|broker| broker.metric(name)).sum()
    }

    /// Events that the PHB has sent to brokers that lacked them.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn asked_of_phb(&self) -> Result<f64> {
        ASKED_FOR.iter().map(|name| self.phb().metric(name)).sum()
    }
}
