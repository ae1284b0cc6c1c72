//! Brokers in the local network: this one is announced, and others of its deployment are dialled.
//!
//! Only with `--dev`: what is found is not authenticated. Discovery adds to the list of peers and
//! is never needed: where there is no multicast, the list counts alone.

mod choice;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use whimbrel_discovery::{Announcement, Browser, Discovery, Offer, SearchEnded, Sighting, Unavailable, Within};

use crate::api::answers::Listeners;
use crate::config::Config;
use crate::drive::Hub;
use crate::metrics::DiscoveryMetrics;
pub use choice::Dismissal;
use choice::{DialStep, FoundBrokers, ThisBroker};

/// The pause before discovery that does not work is tried again: at the start of a machine its
/// network may come up after the broker.
const RETRY: Duration = Duration::from_secs(5);

/// Discovery that runs. Dropping it withdraws what is announced; [`Running::end`] waits for that.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its end, or its being dropped, ends the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Withdraws what is announced, which takes a second at most.
    pub(crate) async fn end(self) {
        drop(self.stop);
        // A task that has panicked has ended, too.
        let _ = self.task.await;
    }
}

/// Announces the open listeners and looks for other brokers, if so configured. A warning tells why
/// it does not work.
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
    let open = offers.into_iter().filter_map(|(offer, address)| Some((offer, address?)));
    let announced = open.map(|(offer, address)| Announcement {
        offer,
        address,
        name: config.name.clone(),
        deployment: config.deployment.clone(),
        version: version.to_owned(),
    });
    let own = |address| ThisBroker { name: config.name.clone(), deployment: config.deployment.clone(), address };
    let dialler = listeners.overlay.map(|address| {
        let found = FoundBrokers::new(own(address));
        Dialler { found, hub: hub.clone(), metrics }
    });
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(run(announced.collect(), dialler, stopped));
    Some(Running { stop, task })
}

/// Announces, and dials what is found if this broker can be linked with, until it is `stopped`.
async fn run(announced: Vec<Announcement>, mut dialler: Option<Dialler>, mut stopped: oneshot::Receiver<()>) {
    let mut told = String::new();
    loop {
        let why = match start(&announced) {
            Ok((discovery, browser)) => {
                tracing::info!("this broker is announced by multicast DNS, and others of its deployment are dialled");
                let why = tokio::select! {
                    why = watch(browser, &mut dialler) => why.to_string(),
                    _ = &mut stopped => return discovery.end().await,
                };
                discovery.end().await;
                why
            }
            Err(why) => why.to_string(),
        };
        if told != why {
            let retry = RETRY.as_secs();
            tracing::warn!(why, retry, "no discovery: other brokers are those of the list of peers (--peer)");
            told = why;
        }
        if timeout(RETRY, &mut stopped).await.is_ok() {
            return;
        }
    }
}

/// Announces, and looks for other brokers.
fn start(announced: &[Announcement]) -> Result<(Discovery, Browser), Unavailable> {
    let addresses = announced.iter().map(|announced| announced.address.ip()).collect();
    let discovery = Discovery::start(&Within::Addresses(addresses))?;
    for announcement in announced {
        discovery.announce(announcement)?;
    }
    let browser = discovery.browse(Offer::Overlay)?;
    Ok((discovery, browser))
}

/// Takes what is found until the search ends. Returns why.
async fn watch(mut browser: Browser, dialler: &mut Option<Dialler>) -> SearchEnded {
    loop {
        match (browser.next().await, &mut *dialler) {
            (Ok(seen), Some(dialler)) => dialler.see(seen),
            (Ok(_), None) => {}
            (Err(why), dialler) => {
                if let Some(dialler) = dialler {
                    dialler.leave_all();
                }
                return why;
            }
        }
    }
}

/// Dials what is found.
struct Dialler {
    found: FoundBrokers,
    hub: Arc<Hub>,
    metrics: DiscoveryMetrics,
}

impl Dialler {
    fn see(&mut self, seen: Sighting) {
        let steps = self.found.see(seen);
        self.take(steps);
    }

    /// The search is over: nothing tells any more when a broker is gone.
    fn leave_all(&mut self) {
        let steps = self.found.leave_all();
        self.take(steps);
    }

    fn take(&mut self, steps: Vec<DialStep>) {
        for step in steps {
            match step {
                DialStep::Dial { broker, waits } => {
                    self.metrics.found();
                    let (name, address, version) = (broker.name, broker.address, broker.version);
                    tracing::info!(name, %address, version, "a broker of this deployment is found");
                    self.hub.dial_found(address, waits);
                }
                DialStep::Leave { broker, address } => {
                    self.metrics.lost();
                    tracing::info!(name = broker, %address, "a broker that was found is announced no more, and dialled no more");
                    self.hub.leave_found(address);
                }
                DialStep::Dismiss { instance, why } => {
                    self.metrics.dismissed(why);
                    tracing::debug!(instance, why = why.name(), "an announced broker is not dialled");
                }
            }
        }
        self.metrics.set(self.found.len());
    }
}
