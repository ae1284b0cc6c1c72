//! Brokers in the local network: this one is announced, and others of its deployment are dialled.
//!
//! Only with `--dev`: what is found is not authenticated. Discovery adds to the list of peers and
//! is never needed: where there is no multicast, the list counts alone.

mod choice;

use std::sync::Arc;

use tokio::task::JoinHandle;
use whimbrel_discovery::{Announcement, Browser, Discovery, Offer, Unavailable, Within};

use crate::api::answers::Listeners;
use crate::config::Config;
use crate::drive::Hub;
use crate::metrics::DiscoveryMetrics;
pub use choice::Dismissal;
use choice::{DialStep, FoundBrokers, ThisBroker};

/// What is done where discovery does not work.
const LIST_COUNTS: &str = "other brokers are those of the list of peers (--peer)";

/// Discovery that runs. Dropping it withdraws what is announced; [`Running::end`] waits for that.
#[derive(Debug)]
pub(crate) struct Running {
    discovery: Discovery,
    task: Option<JoinHandle<()>>,
}

impl Running {
    /// Withdraws what is announced.
    pub(crate) async fn end(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.discovery.end().await;
    }
}

/// Announces the open listeners and begins to look for other brokers, if so configured. A warning
/// tells why it does not work.
pub(crate) fn begin(
    config: &Config,
    version: &str,
    hub: &Arc<Hub>,
    listeners: &Listeners,
    metrics: DiscoveryMetrics,
) -> Option<Running> {
    if !config.discover {
        return None;
    }
    let offers = [(Offer::Mqtt, listeners.mqtt), (Offer::Overlay, listeners.overlay)];
    let announced: Vec<Announcement> = offers
        .into_iter()
        .filter_map(|(offer, address)| Some((offer, address?)))
        .map(|(offer, address)| Announcement {
            offer,
            address,
            name: config.name.clone(),
            deployment: config.deployment.clone(),
            version: version.to_owned(),
        })
        .collect();
    match start(&announced) {
        Ok((discovery, browser)) => {
            tracing::info!("this broker is announced by multicast DNS, and others of its deployment are dialled");
            let overlay = listeners.overlay.zip(browser);
            let task = overlay.map(|(address, browser)| {
                let own = ThisBroker { name: config.name.clone(), deployment: config.deployment.clone(), address };
                tokio::spawn(watch(browser, FoundBrokers::new(own), hub.clone(), metrics))
            });
            Some(Running { discovery, task })
        }
        Err(why) => {
            tracing::warn!(%why, "no discovery: {LIST_COUNTS}");
            None
        }
    }
}

/// Announces, and looks for other brokers if this one can be linked with.
fn start(announced: &[Announcement]) -> Result<(Discovery, Option<Browser>), Unavailable> {
    let addresses = announced.iter().map(|announced| announced.address.ip()).collect();
    let discovery = Discovery::start(&Within::Addresses(addresses))?;
    for announcement in announced {
        discovery.announce(announcement)?;
    }
    let is_linked = announced.iter().any(|announced| announced.offer == Offer::Overlay);
    let browser = is_linked.then(|| discovery.browse(Offer::Overlay)).transpose()?;
    Ok((discovery, browser))
}

/// Dials what is found until the search ends.
async fn watch(mut browser: Browser, mut found: FoundBrokers, hub: Arc<Hub>, metrics: DiscoveryMetrics) {
    let why = loop {
        let seen = match browser.next().await {
            Ok(seen) => seen,
            Err(why) => break why,
        };
        for step in found.see(seen) {
            match step {
                DialStep::Dial { broker, waits } => {
                    metrics.found();
                    let (name, address, version) = (broker.name, broker.address, broker.version);
                    tracing::info!(name, %address, version, "a broker of this deployment is found");
                    hub.dial_found(address, waits);
                }
                DialStep::Leave { broker, address } => {
                    metrics.lost();
                    tracing::info!(name = broker, %address, "a broker that was found is announced no more, and dialled no more");
                    hub.leave_found(address);
                }
                DialStep::Dismiss { instance, why } => {
                    metrics.dismissed(why);
                    tracing::debug!(instance, why = why.name(), "an announced broker is not dialled");
                }
            }
        }
        metrics.set(found.len());
    };
    tracing::warn!(%why, "discovery has ended: what was found is dialled still, and other brokers are {LIST_COUNTS}");
}
