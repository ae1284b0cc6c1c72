//! One look round for brokers.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::daemon::{Discovery, Sighting};
use crate::networks::{Unavailable, Within};
use crate::record::{FoundBroker, Offer};

/// Brokers that one search finds, at most.
pub const FOUND_MAX: usize = 64;

/// Looks for this long for brokers that take MQTT, on loopback and in all private networks of this
/// machine. Returns at most [`FOUND_MAX`]: first those on this machine, then by deployment, name
/// and address. Two seconds find what is there: a broker repeats its records only a second after it
/// has sent them last, and the question is repeated after a second, too. Call it within a tokio
/// runtime.
///
/// # Errors
/// There is no multicast.
pub async fn search(time: Duration) -> Result<Vec<FoundBroker>, Unavailable> {
    let until = Instant::now() + time;
    let discovery = Discovery::start(&Within::PrivateNetworks)?;
    let mut browser = discovery.browse(Offer::Mqtt)?;
    let mut found: BTreeMap<String, FoundBroker> = BTreeMap::new();
    while let Ok(Ok(seen)) = timeout_at(until, browser.next()).await {
        match seen {
            Sighting::Broker { instance, broker } if found.len() < FOUND_MAX || found.contains_key(&instance) => {
                found.insert(instance, broker);
            }
            Sighting::Gone { instance } => drop(found.remove(&instance)),
            Sighting::Broker { .. } | Sighting::Unfit { .. } => {}
        }
    }
    discovery.end().await;
    let mut found: Vec<FoundBroker> = found.into_values().collect();
    found.sort_unstable_by_key(|broker| (!broker.address.ip().is_loopback(), broker.clone()));
    found.dedup();
    Ok(found)
}
