//! Ended hosts that are not followed.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_event::{HostId, Tick};
use whimbrel_wire::PreviousIdentity;

/// Ended hosts that are remembered; beyond that the one that ended first is forgotten.
pub const ENDED_HOSTS_MAX: usize = 4_096;

/// Ended hosts that are not followed, in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct EndedHosts {
    order: VecDeque<HostId>,
    /// With the name of each, if it is known.
    all: BTreeMap<HostId, (PreviousIdentity, Box<str>)>,
    /// By name, in the order of their ends.
    by_name: BTreeMap<Box<str>, Vec<HostId>>,
}

impl EndedHosts {
    /// Adds a host that has ended; a known one stays as it is.
    pub(super) fn record(&mut self, ended: PreviousIdentity, name: &str) {
        if self.all.contains_key(&ended.host) {
            return;
        }
        if self.order.len() == ENDED_HOSTS_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some((_, name)) = self.all.remove(&oldest)
        {
            drop_named(&mut self.by_name, &name, oldest);
        }
        self.order.push_back(ended.host);
        self.by_name.entry(name.into()).or_default().push(ended.host);
        self.all.insert(ended.host, (ended, name.into()));
    }

    /// The tick up to which a host's streams lasted.
    pub(super) fn upto(&self, host: HostId) -> Option<Tick> {
        self.all.get(&host).map(|(known, _)| known.upto)
    }

    /// The greatest tick up to which streams of any ended host lasted.
    pub(super) fn last_end(&self) -> Option<Tick> {
        self.all.values().map(|(known, _)| known.upto).max()
    }

    /// The ended hosts of a name.
    pub(super) fn of_name(&self, name: &str) -> impl Iterator<Item = PreviousIdentity> {
        let hosts = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        hosts.iter().map(|host| self.all[host].0)
    }
}

/// Removes a host from those of a name.
pub(super) fn drop_named(by_name: &mut BTreeMap<Box<str>, Vec<HostId>>, name: &str, host: HostId) {
    let Some(hosts) = by_name.get_mut(name) else { return };
    hosts.retain(|known| *known != host);
    if hosts.is_empty() {
        by_name.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn previous_identity(number: u64) -> PreviousIdentity {
        PreviousIdentity { host: HostId::new(number << 8), reliable: 4, further: 4, birth: Tick(1), upto: Tick(number) }
    }

    #[test]
    fn the_oldest_goes_first_and_names_are_found() {
        let mut ended_hosts = EndedHosts::default();
        for number in 0..2 * ENDED_HOSTS_MAX as u64 {
            ended_hosts.record(previous_identity(number), if number % 2 == 0 { "even" } else { "odd" });
            ended_hosts.record(PreviousIdentity { upto: Tick(0), ..previous_identity(number) }, "other");
        }
        assert_eq!((ended_hosts.all.len(), ended_hosts.order.len()), (ENDED_HOSTS_MAX, ENDED_HOSTS_MAX));
        assert_eq!(ended_hosts.upto(previous_identity(1).host), None);
        let last = 2 * ENDED_HOSTS_MAX as u64 - 1;
        assert_eq!(ended_hosts.upto(previous_identity(last).host), Some(Tick(last)));
        let odd: Vec<u64> = ended_hosts.of_name("odd").map(|known| known.upto.0).collect();
        assert!(odd.is_sorted() && odd.len() == ENDED_HOSTS_MAX / 2 && odd.last() == Some(&last));
        assert_eq!(ended_hosts.of_name("other").count(), 0);
    }
}
