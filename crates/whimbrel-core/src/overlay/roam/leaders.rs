//! Who leads for whom, as far as it is known: so that when brokers come and go, it is found out
//! anew only where that can make a difference.

use std::collections::BTreeMap;

use super::map::{Map, MapChange, Places};

/// What the present brokers are to clients, as far as all of them were looked at since these have
/// been the brokers.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    /// For which brokers, as of [`Map::hash`].
    map: u64,
    /// By the hash of the client id. As many clients as this broker has something of, at most.
    of: BTreeMap<u64, Places>,
}

/// There are other brokers than before; clients are looked at one by one.
#[derive(Debug)]
pub(super) struct Turnover {
    /// The brokers before.
    pub(super) old: Map,
    change: MapChange,
    before: BTreeMap<u64, Places>,
    now: Leaders,
}

impl Turnover {
    /// From what was known of the brokers before, if it is of them.
    pub(super) fn new(old: Map, map: &Map, known: Leaders) -> Turnover {
        let before = if known.map == old.hash() { known.of } else { BTreeMap::new() };
        let now = Leaders { map: map.hash(), of: BTreeMap::new() };
        Turnover { change: map.since(&old), old, before, now }
    }

    /// Who led for a client, whose hash that is, and who leads now; `map` has the present brokers.
    pub(super) fn look(&mut self, client: u64, map: &Map) -> (Places, Places) {
        assert_eq!(map.hash(), self.now.map, "whenever these change, all is looked at anew");
        let before = self.before.get(&client).copied().unwrap_or_else(|| self.old.places(client));
        let places = map.places_since(client, before, &self.change);
        self.now.of.insert(client, places);
        (before, places)
    }

    /// All clients have been looked at.
    pub(super) fn end(self) -> Leaders {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::HostId;

    use super::*;
    use crate::overlay::roam::map::hash_of;

    fn map(numbers: impl Iterator<Item = u64>) -> Map {
        let named: Vec<_> = numbers.map(|number| (HostId::new((number + 1) << 8), format!("b{number}"))).collect();
        Map::new(named.iter().map(|(host, name)| (*host, 1, &**name)))
    }

    #[test]
    fn what_was_found_is_taken_only_for_the_brokers_that_it_is_of() {
        let maps = [map(0..4), map(0..5), map(1..5), map(2..9)];
        let clients: Vec<u64> = (0..50).map(|number| hash_of(&format!("client-{number}"))).collect();
        let mut known = Leaders::default();
        for (old, new) in [(0, 1), (1, 2), (2, 3), (0, 3), (3, 3), (3, 2)] {
            let (old, new) = (&maps[old], &maps[new]);
            let mut turnover = Turnover::new(old.clone(), new, known);
            for client in &clients {
                assert_eq!(turnover.look(*client, new), (old.places(*client), new.places(*client)));
            }
            known = turnover.end();
            assert_eq!(known.of.len(), clients.len());
        }
    }
}
