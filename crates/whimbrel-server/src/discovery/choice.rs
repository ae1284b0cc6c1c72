//! Which of the announced brokers are dialled.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use whimbrel_discovery::{FOUND_MAX, FoundBroker, Sighting, Unfit};

/// This broker, as it is announced.
#[derive(Clone, Debug)]
pub(super) struct ThisBroker {
    pub(super) name: String,
    pub(super) deployment: String,
    /// Where other brokers dial it.
    pub(super) address: SocketAddr,
}

/// Why an announced broker is not dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dismissal {
    /// Its records make no sense.
    Record,
    /// It is announced at no address that this broker can dial.
    Address,
    /// It belongs to another deployment.
    OtherDeployment,
    /// It is this broker.
    Itself,
    /// As many are found as may be.
    Full,
}

impl Dismissal {
    /// All reasons.
    pub const ALL: [Dismissal; 5] =
        [Dismissal::Record, Dismissal::Address, Dismissal::OtherDeployment, Dismissal::Itself, Dismissal::Full];

    /// The reason's label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Dismissal::Record => "record",
            Dismissal::Address => "address",
            Dismissal::OtherDeployment => "other_deployment",
            Dismissal::Itself => "itself",
            Dismissal::Full => "full",
        }
    }
}

/// What follows from an event of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DialStep {
    /// A broker is found.
    Dial {
        broker: FoundBroker,
        /// The other one dials first.
        waits: bool,
    },
    /// A broker is announced no more at this address.
    Leave { broker: String, address: SocketAddr },
    /// A broker is not dialled.
    Dismiss { instance: String, why: Dismissal },
}

/// The brokers that are found and announced at present, at most [`FOUND_MAX`].
#[derive(Debug)]
pub(super) struct FoundBrokers {
    own: ThisBroker,
    /// By the names of their records.
    brokers: BTreeMap<String, FoundBroker>,
}

impl FoundBrokers {
    pub(super) fn new(own: ThisBroker) -> FoundBrokers {
        FoundBrokers { own, brokers: BTreeMap::new() }
    }

    /// Number of brokers.
    pub(super) fn len(&self) -> usize {
        self.brokers.len()
    }

    /// Takes an event of the search; at most two steps follow.
    pub(super) fn see(&mut self, seen: Sighting) -> Vec<DialStep> {
        let (instance, judged) = match seen {
            Sighting::Gone { instance } => return self.remove(&instance).into_iter().collect(),
            Sighting::Unfit { instance, why } => (instance, Err(dismissal_of(why))),
            Sighting::Broker { instance, broker } => {
                let judged = self.judge(&instance, &broker).map_or(Ok(broker), Err);
                (instance, judged)
            }
        };
        let before = self.brokers.get(&instance).cloned();
        match judged {
            Ok(broker) if before.as_ref().is_some_and(|before| before.address == broker.address) => {
                self.brokers.insert(instance, broker);
                Vec::new()
            }
            Ok(broker) => {
                let mut steps = Vec::from_iter(self.remove(&instance));
                self.brokers.insert(instance, broker.clone());
                let waits = (&self.own.name, self.own.address) > (&broker.name, broker.address);
                steps.push(DialStep::Dial { broker, waits });
                steps
            }
            Err(why) => {
                let mut steps = Vec::from_iter(self.remove(&instance));
                steps.push(DialStep::Dismiss { instance, why });
                steps
            }
        }
    }

    /// Removes all brokers.
    pub(super) fn leave_all(&mut self) -> Vec<DialStep> {
        let instances: Vec<String> = self.brokers.keys().cloned().collect();
        instances.iter().filter_map(|instance| self.remove(instance)).collect()
    }

    /// Removes a broker; its address is left unless another one has it too.
    fn remove(&mut self, instance: &str) -> Option<DialStep> {
        let gone = self.brokers.remove(instance)?;
        let is_shared = self.brokers.values().any(|other| other.address == gone.address);
        (!is_shared).then_some(DialStep::Leave { broker: gone.name, address: gone.address })
    }

    /// Why a broker is not dialled, if it is not.
    fn judge(&self, instance: &str, broker: &FoundBroker) -> Option<Dismissal> {
        let (own, other) = (self.own.address, broker.address);
        if own == other {
            return Some(Dismissal::Itself);
        }
        if broker.deployment != self.own.deployment {
            return Some(Dismissal::OtherDeployment);
        }
        // A socket on loopback reaches this machine only, and one elsewhere is not for loopback.
        if own.ip().is_loopback() != other.ip().is_loopback() || own.is_ipv4() != other.is_ipv4() {
            return Some(Dismissal::Address);
        }
        let is_full = self.brokers.len() >= FOUND_MAX && !self.brokers.contains_key(instance);
        is_full.then_some(Dismissal::Full)
    }
}

fn dismissal_of(why: Unfit) -> Dismissal {
    match why {
        Unfit::Text => Dismissal::Record,
        Unfit::Address => Dismissal::Address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(own: &str) -> FoundBrokers {
        FoundBrokers::new(ThisBroker {
            name: "m".into(),
            deployment: "city".into(),
            address: own.parse().expect("an address"),
        })
    }

    fn broker(name: &str, address: &str) -> FoundBroker {
        FoundBroker {
            deployment: "city".into(),
            name: name.into(),
            address: address.parse().expect("an address"),
            version: "0.2.0".into(),
        }
    }

    fn seen(broker: &FoundBroker) -> Sighting {
        Sighting::Broker { instance: format!("{}-{}", broker.name, broker.address), broker: broker.clone() }
    }

    fn dismissed(found: &mut FoundBrokers, broker: &FoundBroker) -> Option<Dismissal> {
        match found.see(seen(broker)).pop() {
            Some(DialStep::Dismiss { why, .. }) => Some(why),
            _ => None,
        }
    }

    #[test]
    fn the_end_with_the_lesser_name_dials_first() {
        let mut found = found("10.0.0.5:7117");
        let (lesser, greater) = (broker("a", "10.0.0.6:7117"), broker("z", "10.0.0.7:7117"));
        assert_eq!(found.see(seen(&lesser)), [DialStep::Dial { broker: lesser.clone(), waits: true }]);
        assert_eq!(found.see(seen(&greater)), [DialStep::Dial { broker: greater, waits: false }]);
        assert_eq!(found.see(seen(&lesser)), [], "it is known");
        let same = broker("m", "10.0.0.4:7117");
        assert_eq!(found.see(seen(&same)), [DialStep::Dial { broker: same, waits: true }], "addresses decide");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn what_is_not_to_be_dialled_is_dismissed() {
        let mut found = found("10.0.0.5:7117");
        assert_eq!(dismissed(&mut found, &broker("m", "10.0.0.5:7117")), Some(Dismissal::Itself));
        let other = FoundBroker { deployment: "village".into(), ..broker("a", "10.0.0.6:7117") };
        assert_eq!(dismissed(&mut found, &other), Some(Dismissal::OtherDeployment));
        assert_eq!(dismissed(&mut found, &broker("a", "127.0.0.1:7117")), Some(Dismissal::Address));
        assert_eq!(dismissed(&mut found, &broker("a", "[fd00::1]:7117")), Some(Dismissal::Address));
        let unfit = |why| Sighting::Unfit { instance: "x".into(), why };
        let expected = |why| [DialStep::Dismiss { instance: "x".into(), why }];
        assert_eq!(found.see(unfit(Unfit::Text)), expected(Dismissal::Record));
        assert_eq!(found.see(unfit(Unfit::Address)), expected(Dismissal::Address));
        assert_eq!(found.len(), 0);
    }

    #[test]
    fn what_is_withdrawn_or_becomes_unfit_is_left() {
        let mut found = found("10.0.0.5:7117");
        let first = broker("a", "10.0.0.6:7117");
        let instance = || "a-10.0.0.6:7117".to_owned();
        let leave =
            |address: &str| DialStep::Leave { broker: "a".into(), address: address.parse().expect("an address") };
        found.see(seen(&first));
        let moved = FoundBroker { address: "10.0.0.7:7117".parse().expect("an address"), ..first.clone() };
        let steps = found.see(Sighting::Broker { instance: instance(), broker: moved.clone() });
        assert_eq!(steps, [leave("10.0.0.6:7117"), DialStep::Dial { broker: moved, waits: true }]);
        let steps = found.see(Sighting::Unfit { instance: instance(), why: Unfit::Text });
        let dismissed = DialStep::Dismiss { instance: instance(), why: Dismissal::Record };
        assert_eq!(steps, [leave("10.0.0.7:7117"), dismissed]);
        found.see(seen(&first));
        assert_eq!(found.see(Sighting::Gone { instance: instance() }), [leave("10.0.0.6:7117")]);
        assert_eq!(found.see(Sighting::Gone { instance: instance() }), [], "it is not known any more");
    }

    #[test]
    fn an_address_is_left_with_the_last_record_that_has_it() {
        let mut found = found("10.0.0.5:7117");
        let (old, new) = (broker("old", "10.0.0.6:7117"), broker("new", "10.0.0.6:7117"));
        found.see(seen(&old));
        found.see(seen(&new));
        assert_eq!(found.see(Sighting::Gone { instance: "old-10.0.0.6:7117".into() }), []);
        assert_eq!(found.see(Sighting::Gone { instance: "new-10.0.0.6:7117".into() }).len(), 1);
        found.see(seen(&old));
        found.see(seen(&new));
        found.see(seen(&broker("b", "10.0.0.7:7117")));
        assert_eq!((found.leave_all().len(), found.len()), (2, 0));
    }

    #[test]
    fn the_number_of_brokers_is_bounded() {
        let mut found = found("10.0.0.5:7117");
        for port in 1..=FOUND_MAX {
            assert_eq!(dismissed(&mut found, &broker("a", &format!("10.0.0.6:{port}"))), None);
        }
        assert_eq!(dismissed(&mut found, &broker("a", "10.0.0.7:1")), Some(Dismissal::Full));
        found.see(Sighting::Gone { instance: "a-10.0.0.6:1".into() });
        assert_eq!(dismissed(&mut found, &broker("a", "10.0.0.7:1")), None);
        assert_eq!(found.len(), FOUND_MAX);
    }
}
