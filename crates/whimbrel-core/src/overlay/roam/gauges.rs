//! What can be looked at of sessions that move.

use super::Roam;
use super::past::Past;
use crate::inspect::PlaceInfo;
use crate::overlay::Overlay;
use crate::session::Session;

/// What a broker has of others' sessions, and of its own that move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoamGauges {
    /// Copies of other brokers' sessions.
    pub copies: u64,
    /// Their bytes.
    pub copy_bytes: u64,
    /// What it knows, as their clerk, of who has sessions.
    pub claims: u64,
    /// Own sessions that others keep by now, and which are not safe there.
    pub given: u64,
    /// Connections that wait for their sessions.
    pub seeking: u64,
    /// What was not noted as there was no room.
    pub claims_refused: u64,
}

/// What one broker takes in a set of brokers, bytes.
const MEMBER_BYTES: usize = 24;

/// What a claim or a copy takes beside what it holds, bytes, about.
const CLAIM_BYTES: usize = 128;

impl Roam {
    /// How many brokers, claims and copies are remembered for sessions that move, and how many
    /// bytes that takes, about.
    pub(in crate::overlay) fn size(&self) -> (usize, usize) {
        let (brokers, sessions) = (self.map.len() + self.past.brokers(), self.directory.len() + self.copies.len());
        (brokers + sessions, brokers * MEMBER_BYTES + sessions * CLAIM_BYTES + self.copies.bytes())
    }
}

impl Past {
    /// Brokers in all sets that are remembered, each as often as it occurs.
    fn brokers(&self) -> usize {
        self.maps().map(super::map::Map::len).sum()
    }
}

impl Overlay {
    /// Where a session belongs.
    pub(crate) fn place_info(&self, session: &Session) -> Option<PlaceInfo> {
        let place = session.memory.roam.as_deref().filter(|_| self.is_open())?;
        Some(PlaceInfo {
            epoch: place.given.as_deref().map_or(place.epoch, |given| given.epoch),
            replica: place.replica().map(|host| self.net.name_of(host)),
            given_to: place.given.as_deref().map(|given| self.net.name_of(given.to)),
        })
    }

    /// The numbers of sessions that move, and of what is known of them.
    pub(in crate::overlay) fn roam_gauges(&self) -> RoamGauges {
        let Roam { copies, directory, given, searches, .. } = &self.roam;
        RoamGauges {
            copies: copies.len() as u64,
            copy_bytes: copies.bytes() as u64,
            claims: directory.len() as u64,
            given: given.len() as u64,
            seeking: searches.len() as u64,
            claims_refused: directory.refused,
        }
    }
}
