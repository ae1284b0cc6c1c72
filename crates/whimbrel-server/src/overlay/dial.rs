//! Dialling one address for as long as the broker lives, or as the address is announced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use whimbrel_core::HangUp;

use super::counts::Failure;
use super::endpoint::Shared;

/// The first pause after a failed dial; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A link that has lasted at least this long counts as one that worked: when it ends, its address
/// is dialled again at once.
const LASTED: Duration = Duration::from_secs(1);

/// An address whose link was hung up as a second one to the same broker is dialled again when any
/// link has ended, or after this.
const PARKED: Duration = Duration::from_secs(60);

/// Time for which the second of two brokers that find each other leaves dialling to the other one.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pause after a link that one of the two brokers refuses: only an operator can change that.
const SLOWLY: Duration = Duration::from_secs(30);

/// Addresses of one host that are tried in turn.
const ADDRESSES_MAX: usize = 8;

/// Advice for a name without addresses.
const NO_NAME: &str = "see that --peer (overlay.peers) has the right name and that it resolves on this machine, such as by `getent hosts`";

/// Log texts of peers that are not reached.
const NOT_REACHED: &str = "a configured peer is not reached; it is dialled until it is";
const FOUND_NOT_REACHED: &str = "a broker that was found is not reached; it is dialled as long as it is announced";

/// Advice for an address that leads to no link.
const NO_ANSWER: &str =
    "see that a broker runs there with --listen-overlay, that its port is right, and that UDP gets through";

/// Time for resolving a name.
const LOOKUP: Duration = Duration::from_secs(5);

/// Pauses that grow to a bound. Each is drawn from its upper half, so that brokers that lost each
/// other at the same time do not all come back at the same time.
#[derive(Debug)]
struct Backoff {
    next: Duration,
}

impl Backoff {
    fn new() -> Backoff {
        Backoff { next: PAUSE_MIN }
    }

    fn pause(&mut self) -> Duration {
        let longest = self.next;
        self.next = (longest * 2).min(PAUSE_MAX);
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// Result of a dial.
enum Ended {
    /// No link was made: why, and what to do.
    Failed { why: String, help: &'static str },
    /// A link was made and has ended; `why` it was hung up, if it was.
    Linked { lasted: Duration, why: Option<HangUp> },
}

/// Dials `host:port` once, and serves the link.
pub(super) async fn once(shared: &Arc<Shared>, address: &str) {
    dial(shared, address, false).await;
}

/// Dials an address as long as it is announced, unless there is a link to it already: one of the
/// other broker, mostly. The second of two that find each other `waits` before it dials.
pub(super) async fn keep_found(shared: &Arc<Shared>, found: SocketAddr, waits: bool) {
    let (address, peers) = (found.to_string(), &shared.gate.counts.peers);
    let mut dialling = Dialling { backoff: Backoff::new(), was_linked: false, is_found: true };
    let mut is_patient = waits;
    while peers.is_wanted(&address) {
        if shared.gate.counts.is_linked(found) {
            peers.reached(&address);
            park(shared).await;
            is_patient = waits;
        } else if std::mem::take(&mut is_patient) {
            sleep(PATIENCE).await;
        } else {
            dialling.step(shared, &address).await;
        }
    }
}

/// Dials `host:port` as long as the broker lives.
pub(super) async fn keep(shared: Arc<Shared>, address: String) {
    let mut dialling = Dialling { backoff: Backoff::new(), was_linked: false, is_found: false };
    loop {
        dialling.step(&shared, &address).await;
    }
}

/// What is remembered between dials of one address.
struct Dialling {
    backoff: Backoff,
    was_linked: bool,
    /// The address was found: a broker that ends is dialled until it is known to have gone.
    is_found: bool,
}

impl Dialling {
    /// Dials once, serves the link, and waits for as long as is right before the next dial.
    async fn step(&mut self, shared: &Arc<Shared>, address: &str) {
        let peers = &shared.gate.counts.peers;
        let (lasted, why) = match dial(shared, address, self.was_linked).await {
            Ended::Linked { lasted, why } => (lasted, why),
            Ended::Failed { why, help } => {
                if peers.missed(address, &why) {
                    match self.is_found {
                        true => tracing::info!(peer = address, why, help, "{FOUND_NOT_REACHED}"),
                        false => tracing::warn!(peer = address, why, help, "{NOT_REACHED}"),
                    }
                }
                return sleep(self.backoff.pause()).await;
            }
        };
        self.was_linked = true;
        if why != Some(HangUp::Double) {
            peers.lost(address, why.map_or("the link has ended", HangUp::text));
        }
        match why {
            Some(HangUp::Double) => park(shared).await,
            Some(why) if !why.is_passing() => sleep(SLOWLY).await,
            None if lasted >= LASTED => self.backoff = Backoff::new(),
            _ => sleep(self.backoff.pause()).await,
        }
    }
}

/// Waits until any link ends.
async fn park(shared: &Shared) {
    let mut ends = shared.ends.subscribe();
    // The sender lives as long as the endpoint, and this task no longer.
    let _ = timeout(PARKED, ends.changed()).await;
}

async fn dial(shared: &Arc<Shared>, address: &str, was_linked: bool) -> Ended {
    let Some(place) = shared.gate.enter() else {
        shared.gate.turned_away(address);
        let why = "this broker has as many links as it may".into();
        return Ended::Failed { why, help: "give it fewer peers" };
    };
    let found = match resolve(shared, address).await {
        Ok(found) => found,
        Err(why) => return Ended::Failed { why, help: NO_NAME },
    };
    let mut last = String::new();
    for resolved in found {
        let begun = Instant::now();
        match shared.connect(resolved).await {
            Ok((connection, streams)) => {
                if was_linked {
                    shared.gate.counts.redialed();
                }
                shared.gate.counts.peers.reached(address);
                let why = shared.serve(connection, streams, true).await;
                drop(place);
                return Ended::Linked { lasted: begun.elapsed(), why };
            }
            Err(error) => {
                shared.failed(address, &error);
                last = format!("{resolved}: {error}");
            }
        }
    }
    Ended::Failed { why: last, help: NO_ANSWER }
}

/// Resolves a host name to the addresses that can be dialled from here.
///
/// # Errors
/// There is no such address; the text says why.
async fn resolve(shared: &Shared, address: &str) -> Result<Vec<SocketAddr>, String> {
    let found = match timeout(LOOKUP, tokio::net::lookup_host(address)).await {
        Ok(Ok(found)) => {
            let found: Vec<SocketAddr> = found.filter(|found| shared.reaches(found)).take(ADDRESSES_MAX).collect();
            if found.is_empty() {
                Err("its name has no address that this broker's overlay socket can dial".into())
            } else {
                Ok(found)
            }
        }
        Ok(Err(error)) => Err(format!("its name does not resolve: {error}")),
        Err(_) => Err(format!("its name does not resolve within {} s", LOOKUP.as_secs())),
    };
    found.inspect_err(|why: &String| {
        shared.gate.counts.failed(Failure::Name);
        tracing::debug!(peer = address, why, "another broker cannot be dialled");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_differ() {
        let mut backoff = Backoff::new();
        let mut longest = PAUSE_MIN;
        for _ in 0..20 {
            let pause = backoff.pause();
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?} of {longest:?}");
            longest = (longest * 2).min(PAUSE_MAX);
        }
        assert_eq!(backoff.next, PAUSE_MAX);
        assert_ne!(backoff.pause(), backoff.pause());
    }
}
