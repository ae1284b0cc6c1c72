//! The peers of the configuration, and which of them are reached.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;

/// What is known of one address.
#[derive(Debug)]
struct Peer {
    /// There is a link to its broker, by this address or another one.
    is_reached: bool,
    /// Since when it is so.
    since: Instant,
    /// Why it is not reached; empty until it was tried.
    why: String,
    /// That it is not reached has been told.
    is_told: bool,
}

/// A configured peer at one moment.
#[derive(Clone, Debug)]
pub(crate) struct PeerAccount {
    /// `HOST:PORT`, as it was configured.
    pub(crate) address: String,
    /// There is a link to its broker.
    pub(crate) is_reached: bool,
    /// Since when it is reached, or is not.
    pub(crate) since: Instant,
    /// Why it is not reached; empty if it is, or was not tried yet.
    pub(crate) why: String,
}

/// All configured peers, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<BTreeMap<String, Peer>>);

impl Peers {
    /// An address is to be dialled from now on.
    pub(super) fn add(&self, address: &str) {
        let peer = Peer { is_reached: false, since: Instant::now(), why: String::new(), is_told: false };
        self.0.lock().insert(address.to_owned(), peer);
    }

    /// There is a link to its broker.
    pub(super) fn reached(&self, address: &str) {
        if let Some(peer) = self.0.lock().get_mut(address).filter(|peer| !peer.is_reached) {
            *peer = Peer { is_reached: true, since: Instant::now(), why: String::new(), is_told: false };
        }
    }

    /// There is none; whether that is to be told, as it was not since there was one.
    pub(super) fn missed(&self, address: &str, why: &str) -> bool {
        let mut peers = self.0.lock();
        let Some(peer) = peers.get_mut(address) else { return false };
        if peer.is_reached {
            (peer.is_reached, peer.since) = (false, Instant::now());
        }
        why.clone_into(&mut peer.why);
        !std::mem::replace(&mut peer.is_told, true)
    }

    /// A link has ended, for a reason that need not be told: its address is dialled again.
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
