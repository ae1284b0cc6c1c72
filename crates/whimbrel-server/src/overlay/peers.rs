//! The peers, configured or found, and which of them are reached.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Instant;

use parking_lot::Mutex;

/// State of one address.
#[derive(Debug)]
struct Peer {
    /// It was found in the local network.
    is_found: bool,
    /// It is to be dialled: always if it is configured, as long as it is announced if it was found.
    is_wanted: bool,
    /// There is a link to its broker, by this address or another one.
    is_reached: bool,
    /// When `is_reached` last changed.
    since: Instant,
    /// Why the peer is not reached; empty before the first try.
    why: String,
    /// It has been logged that the peer is not reached.
    is_told: bool,
}

impl Peer {
    fn new(is_found: bool) -> Peer {
        let since = Instant::now();
        Peer { is_found, is_wanted: true, is_reached: false, since, why: String::new(), is_told: false }
    }

    fn set(&mut self, is_reached: bool, why: &str) {
        (self.is_reached, self.since, self.is_told) = (is_reached, Instant::now(), false);
        why.clone_into(&mut self.why);
    }
}

/// A peer at one moment.
#[derive(Clone, Debug)]
pub(crate) struct PeerAccount {
    /// `HOST:PORT`, as it was configured or found.
    pub(crate) address: String,
    /// It was found in the local network, and is not configured.
    pub(crate) is_found: bool,
    /// There is a link to its broker.
    pub(crate) is_reached: bool,
    /// When `is_reached` last changed.
    pub(crate) since: Instant,
    /// Why the peer is not reached; empty if it is, or before the first try.
    pub(crate) why: String,
}

/// All peers, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<BTreeMap<String, Peer>>);

impl Peers {
    /// Adds a configured address, which is dialled from now on.
    pub(super) fn add(&self, address: &str) {
        self.0.lock().insert(address.to_owned(), Peer::new(false));
    }

    /// Adds an address that was found. Returns whether it is new: else it is dialled already.
    pub(super) fn find(&self, address: &str) -> bool {
        match self.0.lock().entry(address.to_owned()) {
            Entry::Vacant(place) => {
                place.insert(Peer::new(true));
                true
            }
            Entry::Occupied(mut known) => {
                known.get_mut().is_wanted = true;
                false
            }
        }
    }

    /// Records that an address that was found is announced no more.
    pub(super) fn leave(&self, address: &str) {
        if let Some(peer) = self.0.lock().get_mut(address).filter(|peer| peer.is_found) {
            peer.is_wanted = false;
        }
    }

    /// Whether an address is to be dialled.
    pub(super) fn is_wanted(&self, address: &str) -> bool {
        self.0.lock().get(address).is_some_and(|peer| peer.is_wanted)
    }

    /// Removes an address that is not to be dialled any more. Returns whether it was one.
    pub(super) fn remove_unwanted(&self, address: &str) -> bool {
        let mut peers = self.0.lock();
        let is_unwanted = peers.get(address).is_some_and(|peer| !peer.is_wanted);
        if is_unwanted {
            peers.remove(address);
        }
        is_unwanted
    }

    /// Records that there is a link to the address's broker.
    pub(super) fn reached(&self, address: &str) {
        if let Some(peer) = self.0.lock().get_mut(address).filter(|peer| !peer.is_reached) {
            peer.set(true, "");
        }
    }

    /// Records that the address was not reached. Returns whether to log that: once after each link.
    pub(super) fn missed(&self, address: &str, why: &str) -> bool {
        let mut peers = self.0.lock();
        let Some(peer) = peers.get_mut(address) else { return false };
        if peer.is_reached {
            (peer.is_reached, peer.since) = (false, Instant::now());
        }
        why.clone_into(&mut peer.why);
        !std::mem::replace(&mut peer.is_told, true)
    }

    /// Records that a link has ended for a reason that need not be logged: its address is dialled
    /// again.
    pub(super) fn lost(&self, address: &str, why: &str) {
        if let Some(peer) = self.0.lock().get_mut(address) {
            peer.set(false, why);
        }
    }

    /// The addresses that are to be dialled.
    pub(super) fn account(&self) -> Vec<PeerAccount> {
        let account = |(address, peer): (&String, &Peer)| PeerAccount {
            address: address.clone(),
            is_found: peer.is_found,
            is_reached: peer.is_reached,
            since: peer.since,
            why: peer.why.clone(),
        };
        self.0.lock().iter().filter(|(_, peer)| peer.is_wanted).map(account).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_not_reached_is_told_once_until_it_was() {
        let peers = Peers::default();
        peers.add("a:1");
        assert!(!peers.account()[0].is_reached && peers.account()[0].why.is_empty());
        assert_eq!([peers.missed("a:1", "no name"), peers.missed("a:1", "silent")], [true, false]);
        assert_eq!(peers.account()[0].why, "silent");
        peers.reached("a:1");
        assert!(peers.account()[0].is_reached && peers.account()[0].why.is_empty());
        peers.lost("a:1", "the link has ended");
        assert!(!peers.account()[0].is_reached);
        assert_eq!([peers.missed("a:1", "silent"), peers.missed("b:1", "not configured")], [true, false]);
        assert_eq!(peers.account().len(), 1);
    }
    #[test]
    fn what_was_found_is_a_peer_while_it_is_announced() {
        let peers = Peers::default();
        peers.add("a:1");
        assert_eq!([peers.find("a:1"), peers.find("b:1"), peers.find("b:1")], [false, true, false]);
        let found = |peers: &Peers| peers.account().iter().map(|peer| peer.is_found).collect::<Vec<_>>();
        assert_eq!(found(&peers), [false, true], "what is configured stays so");
        peers.leave("a:1");
        peers.leave("b:1");
        assert_eq!([peers.is_wanted("a:1"), peers.is_wanted("b:1")], [true, false]);
        assert_eq!(found(&peers), [false]);
        assert!(!peers.find("b:1") && !peers.remove_unwanted("b:1"), "it is announced again");
        peers.leave("b:1");
        assert!(peers.remove_unwanted("b:1") && !peers.remove_unwanted("a:1"));
        assert!(!peers.is_wanted("b:1") && peers.find("b:1"));
    }
}
