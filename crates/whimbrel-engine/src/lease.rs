//! The lease of a broker's name: tells a start that another process is the broker.
//!
//! A lease is a courtesy, not a guard: epochs alone ensure that only one owner writes. So a start
//! measures the lease of another owner with its own clock, and no clocks are compared.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{EngineError, RecordNumber};

/// How often an owner renews its lease, and looks whether its epoch is the newest one.
pub const LEASE_RENEWED_EVERY: Duration = Duration::from_secs(2);

/// How long a start looks at a lease of another owner before it takes it for dead: three renewals.
pub const LEASE_OBSERVED_FOR: Duration = Duration::from_secs(6);

/// The place of a broker's lease. All calls block.
pub trait Leases {
    /// The lease of the broker.
    ///
    /// # Errors
    /// If the engine cannot tell.
    fn lease(&self) -> Result<Option<LeaseEntry>, EngineError>;

    /// Writes the lease if its newest revision is `after`, 0 if there is none; returns the new
    /// revision.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if it has another revision.
    fn put_lease(&self, after: RecordNumber, lease: &[u8]) -> Result<RecordNumber, EngineError>;
}

/// A lease as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseEntry {
    /// Grows with each write.
    pub revision: RecordNumber,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What a lease says. Stored as JSON, so that tools of the engine can show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The owner's random number.
    pub owner: u64,
    /// Its epoch; 0 while it starts.
    pub epoch: u64,
    /// The owner has ended, or its start has failed.
    pub released: bool,
    /// Where it runs, for people.
    pub place: String,
    /// Tells its process from all others, on all machines; empty if that is not known.
    pub process: String,
}

impl Lease {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts are JSON")
    }

    /// Reads a lease; `None`: bytes that no broker of this version wrote.
    pub fn decode(bytes: &[u8]) -> Option<Lease> {
        serde_json::from_slice(bytes).ok()
    }
}

/// How a start comes to the lease of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimTerms {
    /// The stream has had an owner: one without a lease may live, too.
    pub had_owner: bool,
    /// Takes the lease from a living owner, too.
    pub takes: bool,
}

/// A start that looks at the lease of its name.
#[derive(Debug)]
pub struct Claim {
    terms: ClaimTerms,
    /// The revision of another owner, 0 if it has none, and since when it has been seen without a
    /// pause.
    first: Option<Sighting>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    revision: RecordNumber,
    at: Duration,
}

/// What a start does next about a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    /// It writes the lease, behind this revision.
    Take {
        /// The newest revision.
        after: RecordNumber,
    },
    /// It looks again: the lease has not been observed for long enough.
    LookAgain,
    /// It gives up: another owner has renewed the lease. `None`: of an unknown form.
    Lives(Option<Lease>),
}

impl Claim {
    /// A start that has not looked yet.
    pub fn new(terms: ClaimTerms) -> Claim {
        Claim { terms, first: None }
    }

    /// The lease could not be read: its owner could not have renewed it either.
    pub fn missed(&mut self) {
        self.first = None;
    }

    /// Judges a lease that was read at a time, measured from any fixed moment. `is_gone` tells
    /// whether its owner is known not to be another one that lives: its process has ended, or it is
    /// this start itself, whose write was not answered.
    pub fn look(
        &mut self,
        at: Duration,
        found: Option<&LeaseEntry>,
        is_gone: impl FnOnce(&Lease) -> bool,
    ) -> ClaimStep {
        let revision = found.map_or(0, |found| found.revision);
        let lease = found.and_then(|found| Lease::decode(&found.bytes));
        let is_free = match &lease {
            Some(lease) => lease.released || is_gone(lease),
            None => found.is_none() && !self.terms.had_owner,
        };
        if is_free || self.terms.takes {
            return ClaimStep::Take { after: revision };
        }
        let first = *self.first.get_or_insert(Sighting { revision, at });
        if first.revision != revision {
            return ClaimStep::Lives(lease);
        }
        let is_observed = at >= first.at + LEASE_OBSERVED_FOR;
        if is_observed { ClaimStep::Take { after: revision } } else { ClaimStep::LookAgain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(revision: RecordNumber, owner: u64, released: bool) -> LeaseEntry {
        let lease = Lease { owner, epoch: 3, released, place: "here".into(), process: String::new() };
        LeaseEntry { revision, bytes: lease.encode() }
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn claim(had_owner: bool, takes: bool) -> Claim {
        Claim::new(ClaimTerms { had_owner, takes })
    }

    fn unknown(_: &Lease) -> bool {
        false
    }

    #[test]
    fn a_free_lease_is_taken_at_once() {
        assert_eq!(claim(false, false).look(at(0), None, unknown), ClaimStep::Take { after: 0 });
        let released = entry(7, 1, true);
        assert_eq!(claim(true, false).look(at(0), Some(&released), unknown), ClaimStep::Take { after: 7 });
        let kept = entry(8, 1, false);
        let is_gone = |lease: &Lease| lease.owner == 1;
        assert_eq!(claim(true, false).look(at(0), Some(&kept), is_gone), ClaimStep::Take { after: 8 });
        assert_eq!(claim(true, true).look(at(0), Some(&kept), unknown), ClaimStep::Take { after: 8 });
    }

    #[test]
    fn a_lease_that_is_not_renewed_is_taken_when_it_has_been_looked_at_for_long_enough() {
        let (mut claim, found) = (claim(true, false), entry(7, 1, false));
        let by = at(1_000) + LEASE_OBSERVED_FOR;
        assert_eq!(claim.look(at(1_000), Some(&found), unknown), ClaimStep::LookAgain);
        assert_eq!(claim.look(by - at(1), Some(&found), unknown), ClaimStep::LookAgain);
        assert_eq!(claim.look(by, Some(&found), unknown), ClaimStep::Take { after: 7 });
    }

    #[test]
    fn an_owner_without_a_lease_may_live() {
        let mut claim = claim(true, false);
        assert!(matches!(claim.look(at(0), None, unknown), ClaimStep::LookAgain));
        assert!(matches!(claim.look(at(1), Some(&entry(1, 1, false)), unknown), ClaimStep::Lives(Some(_))));
    }

    #[test]
    fn a_lease_that_cannot_be_read_is_looked_at_anew() {
        let (mut claim, found) = (claim(true, false), entry(7, 1, false));
        claim.look(at(0), Some(&found), unknown);
        claim.missed();
        assert_eq!(claim.look(at(9_000), Some(&found), unknown), ClaimStep::LookAgain);
        assert_eq!(claim.look(at(9_000) + LEASE_OBSERVED_FOR, Some(&found), unknown), ClaimStep::Take { after: 7 });
    }

    #[test]
    fn a_lease_that_is_renewed_lives() {
        let mut claim = claim(true, false);
        claim.look(at(0), Some(&entry(7, 1, false)), unknown);
        let ClaimStep::Lives(Some(lease)) = claim.look(at(2_000), Some(&entry(8, 1, false)), unknown) else {
            panic!("it was renewed")
        };
        assert_eq!((lease.owner, lease.epoch), (1, 3));
        let mut other = Claim::new(ClaimTerms { had_owner: false, takes: false });
        let foreign = |revision| LeaseEntry { revision, bytes: b"?".to_vec() };
        assert!(matches!(other.look(at(0), Some(&foreign(1)), unknown), ClaimStep::LookAgain));
        assert_eq!(other.look(at(1), Some(&foreign(2)), unknown), ClaimStep::Lives(None));
        assert_eq!(Lease::decode(b"{}"), None);
    }

    #[test]
    fn the_own_lease_whose_write_was_not_answered_is_written_again() {
        let mut claim = claim(true, false);
        let is_own = |lease: &Lease| lease.owner == 2;
        assert_eq!(claim.look(at(0), Some(&entry(7, 1, false)), is_own), ClaimStep::LookAgain);
        assert_eq!(claim.look(LEASE_OBSERVED_FOR, Some(&entry(7, 1, false)), is_own), ClaimStep::Take { after: 7 });
        assert_eq!(claim.look(at(6_250), Some(&entry(8, 2, false)), is_own), ClaimStep::Take { after: 8 });
    }

    #[test]
    fn a_lease_that_is_released_meanwhile_is_taken() {
        let mut claim = claim(true, false);
        claim.look(at(0), Some(&entry(7, 1, false)), unknown);
        assert_eq!(claim.look(at(500), Some(&entry(8, 1, true)), unknown), ClaimStep::Take { after: 8 });
    }
}
