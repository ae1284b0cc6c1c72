//! Announcing and browsing, by the library's thread.

use std::time::Duration;

use mdns_sd::{IfKind, Receiver, ServiceDaemon, ServiceEvent};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::networks::{self, Unavailable, Within};
use crate::record::{Announcement, BrokerRecord, FoundBroker, Offer, Unfit};

/// Records that the library's cache may have. A cache with more ends the search, as other hosts can
/// send any number of them.
pub const RECORDS_MAX: i64 = 4096;

/// The period between two looks at the number of records.
const RECORDS_LOOK: Duration = Duration::from_secs(2);

/// The beginning of the names of the library's numbers of records.
const CACHED: &str = "cached-";

/// Time that the library has for an answer, and for its farewell.
const ANSWER: Duration = Duration::from_secs(1);

/// An event of a search.
#[derive(Clone, Debug)]
pub enum Sighting {
    /// A broker, for the first time or with other data.
    Broker {
        /// The name of its records.
        instance: String,
        /// The broker.
        broker: FoundBroker,
    },
    /// Records that are not taken.
    Unfit {
        /// Their name.
        instance: String,
        /// Why.
        why: Unfit,
    },
    /// Records that were withdrawn, or whose time is over.
    Gone {
        /// Their name.
        instance: String,
    },
}

/// Why a search is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchEnded {
    /// There are too many records.
    #[error("more than {RECORDS_MAX} records were sent in the local network")]
    Flooded,
    /// The library has ended, or has told more at once than was read.
    #[error("the multicast DNS of this process has ended, or has told too much at once")]
    Over,
}

/// Announces brokers and looks for them. Dropping it withdraws what is announced and ends the
/// library's thread; [`Discovery::end`] waits for that.
pub struct Discovery {
    daemon: ServiceDaemon,
    loopbacks: Vec<u32>,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery").field("loopbacks", &self.loopbacks).finish_non_exhaustive()
    }
}

impl Discovery {
    /// Begins on the interfaces within these bounds, without sending anything but an empty query.
    ///
    /// # Errors
    /// There is no multicast there.
    pub fn start(within: &Within) -> Result<Discovery, Unavailable> {
        let usable = networks::usable(within)?;
        let loopbacks = usable.iter().filter_map(|network| network.loopback()).collect();
        let discovery = Discovery { daemon: ServiceDaemon::new()?, loopbacks };
        let kinds: Vec<IfKind> = usable.into_iter().map(networks::Network::kind).collect();
        discovery.daemon.disable_interface(IfKind::All)?;
        discovery.daemon.enable_interface(kinds)?;
        Ok(discovery)
    }

    /// Announces an offer until the end.
    ///
    /// # Errors
    /// The library does not take it.
    pub fn announce(&self, announcement: &Announcement) -> Result<(), Unavailable> {
        Ok(self.daemon.register(announcement.service()?)?)
    }

    /// Looks for brokers with such an offer. Call it within a tokio runtime.
    ///
    /// # Errors
    /// The library does not take it.
    pub fn browse(&self, offer: Offer) -> Result<Browser, Unavailable> {
        let events = self.daemon.browse(offer.service_type())?;
        let mut look = interval(RECORDS_LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Browser { daemon: self.daemon.clone(), events, loopbacks: self.loopbacks.clone(), look })
    }

    /// Withdraws what is announced, and waits at most a second until that is sent.
    pub async fn end(self) {
        if let Ok(told) = self.daemon.shutdown() {
            let _ = timeout(ANSWER, told.recv_async()).await;
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.daemon.shutdown();
    }
}

/// A search for brokers.
pub struct Browser {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    loopbacks: Vec<u32>,
    look: Interval,
}

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Browser").field("waiting", &self.events.len()).finish_non_exhaustive()
    }
}

impl Browser {
    /// Waits for the next event. May be cancelled.
    ///
    /// # Errors
    /// The search is over. Where records are too many, the library's thread is ended, and with it
    /// all that its [`Discovery`] announces.
    pub async fn next(&mut self) -> Result<Sighting, SearchEnded> {
        loop {
            let event = tokio::select! {
                event = self.events.recv_async() => event.map_err(|_| SearchEnded::Over)?,
                _ = self.look.tick() => {
                    self.check_records().await?;
                    continue;
                }
            };
            match event {
                ServiceEvent::ServiceResolved(service) => {
                    let instance = service.get_fullname().to_owned();
                    return Ok(match BrokerRecord::of(&service, &self.loopbacks).read() {
                        Ok(broker) => Sighting::Broker { instance, broker },
                        Err(why) => Sighting::Unfit { instance, why },
                    });
                }
                ServiceEvent::ServiceRemoved(_, instance) => return Ok(Sighting::Gone { instance }),
                ServiceEvent::SearchStopped(_) => return Err(SearchEnded::Over),
                _ => {}
            }
        }
    }

    async fn check_records(&self) -> Result<(), SearchEnded> {
        let Ok(asked) = self.daemon.get_metrics() else { return Ok(()) };
        let Ok(Ok(counts)) = timeout(ANSWER, asked.recv_async()).await else { return Ok(()) };
        let cached = counts.iter().filter(|(name, _)| name.starts_with(CACHED));
        let records = cached.map(|(_, number)| number).sum::<i64>();
        if records <= RECORDS_MAX {
            return Ok(());
        }
        // Its answer is of no interest.
        let _ = self.daemon.shutdown();
        Err(SearchEnded::Flooded)
    }
}
