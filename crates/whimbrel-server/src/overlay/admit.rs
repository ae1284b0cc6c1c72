//! Bounds of links and handshakes, and the log of links that failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quinn::ConnectionError;

use super::LINKS_MAX;
use super::counts::{Counts, Failure};
use super::intake::Misuse;
use super::refused::Said;
use crate::identity::trust::Refusal;
use crate::logging::Throttle;

/// Refusals are logged at most once in this period.
const LOG_PERIOD: Duration = Duration::from_secs(1);

/// Places for links, and the counts and log of links that got none.
#[derive(Debug)]
pub(super) struct Gate {
    taken: AtomicUsize,
    is_closed: AtomicBool,
    pub(super) counts: Arc<Counts>,
    throttle: Throttle,
}

/// One place for a link; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Gate>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gate {
    pub(super) fn new(counts: Arc<Counts>) -> Arc<Gate> {
        let (taken, is_closed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Gate { taken, is_closed, counts, throttle: Throttle::new(LOG_PERIOD) })
    }

    /// Gives no places from now on: the broker ends.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Takes a place for a link, if one is free.
    pub(super) fn enter(self: &Arc<Gate>) -> Option<Place> {
        if self.taken.fetch_add(1, Ordering::SeqCst) < LINKS_MAX && !self.is_closed() {
            return Some(Place(self.clone()));
        }
        self.taken.fetch_sub(1, Ordering::SeqCst);
        None
    }

    /// Counts and logs why there is no link with `who`. Returns why this broker has refused it, if
    /// it has.
    pub(super) fn failed(&self, who: &str, error: &ConnectionError) -> Option<Refusal> {
        if let Some(said) = Said::of(error) {
            self.refused_by_peer(who, &said);
            return None;
        }
        let why = judge(error);
        match why {
            Why::Refusal(refusal) => self.counts.refused(refusal),
            Why::Failure(failure) => self.counts.failed(failure),
        }
        let words = match why {
            Why::Refusal(refusal) => refusal.text().to_owned(),
            Why::Failure(_) => error.to_string(),
        };
        if let Some(more) = self.throttle.pass(Instant::now()) {
            match why {
                Why::Refusal(_) => tracing::warn!(peer = who, why = words, more, "another broker is refused"),
                Why::Failure(_) => tracing::info!(peer = who, why = words, more, "no link to another broker"),
            }
        }
        if let Why::Refusal(refusal) = why { Some(refusal) } else { None }
    }

    /// Counts and logs that another broker refuses a link with this one: why, and what to do.
    pub(super) fn refused_by_peer(&self, who: &str, said: &Said) {
        self.counts.failed(Failure::RefusedByPeer);
        if let Some(more) = self.throttle.pass(Instant::now()) {
            let (why, help) = (said.text(), said.advice());
            match said {
                Said::NotNow => tracing::info!(peer = who, why, help, more, "no link to another broker"),
                _ => tracing::warn!(peer = who, why, help, more, "another broker refuses this one"),
            }
        }
    }

    /// Counts and logs a broker that may not be linked with, although its handshake was valid.
    pub(super) fn refused(&self, who: &str, why: Refusal) {
        self.counts.refused(why);
        if let Some(more) = self.throttle.pass(Instant::now()) {
            tracing::warn!(peer = who, why = why.text(), more, "another broker is refused");
        }
    }

    /// Counts and logs a link that this broker has ended, as it cannot read the streams of the
    /// other end.
    pub(super) fn misused(&self, who: &str, misuse: Misuse) {
        self.counts.failed(Failure::Protocol);
        if let Some(more) = self.throttle.pass(Instant::now()) {
            let help = "see which version the other broker has, and that it is one";
            tracing::warn!(peer = who, why = misuse.0, help, more, "the link to another broker is ended");
        }
    }

    /// Counts and logs a link that got no place; nothing but its address is known.
    pub(super) fn turned_away(&self, who: &str) {
        self.counts.failed(Failure::Full);
        if let Some(more) = self.throttle.pass(Instant::now()) {
            tracing::warn!(peer = who, limit = LINKS_MAX, more, "no link: there are as many as there may be");
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Refusal(Refusal),
    Failure(Failure),
}

/// Why there is no link, if the other end did not say so. QUIC reports only the text of a refusal
/// within the handshake.
fn judge(error: &ConnectionError) -> Why {
    match error {
        ConnectionError::TransportError(error) => {
            let said = |refusal: &Refusal| error.reason.contains(refusal.text());
            if let Some(refusal) = Refusal::ALL.into_iter().find(said) {
                return Why::Refusal(refusal);
            }
            if error.reason.contains("peer sent no certificates") {
                return Why::Refusal(Refusal::NoCertificate);
            }
            Why::Failure(Failure::Protocol)
        }
        ConnectionError::ConnectionClosed(_) | ConnectionError::ApplicationClosed(_) => {
            Why::Failure(Failure::RefusedByPeer)
        }
        ConnectionError::TimedOut | ConnectionError::Reset => Why::Failure(Failure::Unreachable),
        ConnectionError::VersionMismatch | ConnectionError::CidsExhausted | ConnectionError::LocallyClosed => {
            Why::Failure(Failure::Protocol)
        }
    }
}
