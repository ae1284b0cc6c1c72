//! The configured peers, and which of them are reached.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;

/// State of one configured address.
#[derive(Debug)]
struct Peer {
    /// There is a link to its broker, by this address or another one.
    is_reached: bool,
    /// When `is_reached` last changed.
    since: Instant,
    /// Why the peer is not reached; empty before the first try.
    why: String,
    /// It has been logged that the peer is not reached.
    is_told: bool,
}

/// A configured peer at one moment.
#[derive(Clone, Debug)]
pub(crate) struct PeerAccount {
    /// `HOST:PORT`, as it was configured.
    pub(crate) address: String,
    /// There is a link to its broker.
    pub(crate) is_reached: bool,
    /// When `is_reached` last changed.
    pub(crate) since: Instant,
    /// Why the peer is not reached; empty if it is, or before the first try.
    pub(crate) why: String,
}

/// All configured peers, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<BTreeMap<String, Peer>>);

impl Peers {
    /// Adds an address that is dialled from now on.
    pub(super) fn add(&self, address: &str) {
        let peer = Peer { is_reached: false, since: Instant::now(), why: String::new(), is_told: false };
        self.0.lock().insert(address.to_owned(), peer);
    }

    /// Records that there is a link to the address's broker.
    pub(super) fn reached(&self, address: &str) {
        if let Some(peer) = self.0.lock().get_mut(address).filter(|peer| !peer.is_reached) {
            *peer = Peer { is_reached: true, since: Instant::now(), why: String::new(), is_told: false };
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
            *peer = Peer { is_reached: false, since: Instant::now(), why: why.to_owned(), is_told: false };
        }
    }

    pub(super) fn account(&self) -> Vec<PeerAccount> {
        let account = |(address, peer): (&String, &Peer)| PeerAccount {
            address: address.clone(),
            is_reached: peer.is_reached,
            since: peer.since,
            why: peer.why.clone(),
        };
        self.0.lock().iter().map(account).collect()
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
}
