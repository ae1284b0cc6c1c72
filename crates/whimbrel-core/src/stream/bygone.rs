//! Hosts that have ended and are known by that alone.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_event::{HostId, Tick};
use whimbrel_wire::FormerHost;

/// Hosts that have ended and are known by that alone.
pub const BYGONE_MAX: usize = 4_096;

/// See the module's documentation. Those that ended first go first.
#[derive(Debug, Default)]
pub(super) struct Bygone {
    order: VecDeque<HostId>,
    /// With what each was called, if that is known.
    all: BTreeMap<HostId, (FormerHost, Box<str>)>,
    /// By name, those last that ended last.
    by_name: BTreeMap<Box<str>, Vec<HostId>>,
}

impl Bygone {
    /// One more has ended; one that is known stays as it is.
    pub(super) fn note(&mut self, ended: FormerHost, name: &str) {
        if self.all.contains_key(&ended.host) {
            return;
        }
        if self.order.len() == BYGONE_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some((_, name)) = self.all.remove(&oldest)
        {
            drop_named(&mut self.by_name, &name, oldest);
        }
        self.order.push_back(ended.host);
        self.by_name.entry(name.into()).or_default().push(ended.host);
        self.all.insert(ended.host, (ended, name.into()));
    }

    /// Up to which tick its streams have ended.
    pub(super) fn upto(&self, host: HostId) -> Option<Tick> {
        self.all.get(&host).map(|(known, _)| known.upto)
    }

    /// Up to which tick the streams of the last one have ended.
    pub(super) fn last_end(&self) -> Option<Tick> {
        self.all.values().map(|(known, _)| known.upto).max()
    }

    /// Those of a name.
    pub(super) fn of_name(&self, name: &str) -> impl Iterator<Item = FormerHost> {
        let hosts = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        hosts.iter().map(|host| self.all[host].0)
    }
}

/// A host has a name no more.
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

    fn former(number: u64) -> FormerHost {
        FormerHost { host: HostId::new(number << 8), reliable: 4, best_effort: 4, birth: Tick(1), upto: Tick(number) }
    }

    #[test]
    fn the_oldest_goes_first_and_names_are_found() {
        let mut bygone = Bygone::default();
        for number in 0..2 * BYGONE_MAX as u64 {
            bygone.note(former(number), if number % 2 == 0 { "even" } else { "odd" });
            bygone.note(FormerHost { upto: Tick(0), ..former(number) }, "other");
        }
        assert_eq!((bygone.all.len(), bygone.order.len()), (BYGONE_MAX, BYGONE_MAX));
        assert_eq!(bygone.upto(former(1).host), None);
        let last = 2 * BYGONE_MAX as u64 - 1;
        assert_eq!(bygone.upto(former(last).host), Some(Tick(last)));
        let odd: Vec<u64> = bygone.of_name("odd").map(|known| known.upto.0).collect();
        assert!(odd.is_sorted() && odd.len() == BYGONE_MAX / 2 && odd.last() == Some(&last));
        assert_eq!(bygone.of_name("other").count(), 0);
    }
}
