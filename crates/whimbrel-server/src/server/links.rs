//! The links of a running broker to other brokers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use whimbrel_core::OverlayConfig;

use super::Error;
use crate::access::Access;
use crate::config::peer::PeerTerms;
use crate::config::{Certificate, Config, Listener};
use crate::drive::Hub;
use crate::identity::credentials;
use crate::overlay::{LinkFaults, Plan, StartError};

/// Cuts the links to other brokers when it is dropped.
#[derive(Debug)]
pub(super) struct Links(Arc<Hub>);

impl Drop for Links {
    fn drop(&mut self) {
        self.0.cut_overlay();
    }
}

/// The name of a broker, and the surcharge of the link to it, microseconds, if it has one.
fn surcharge(terms: &PeerTerms) -> Option<(Box<str>, u32)> {
    let cost = terms.cost?;
    Some((terms.name.as_str().into(), u32::try_from(cost.as_micros()).unwrap_or(u32::MAX)))
}

/// Connects the broker to others, if so configured. Returns the address that others may dial.
pub(super) fn open_overlay(
    config: &Config,
    version: &str,
    hub: &Arc<Hub>,
    access: &Arc<Access>,
) -> Result<(Links, Option<SocketAddr>), Error> {
    let links = Links(hub.clone());
    let open = config.listen.iter().find(|(listener, _)| *listener == Listener::Overlay).map(|(_, address)| *address);
    let asked = &config.overlay;
    if open.is_none() && asked.peers.is_empty() {
        hub.set_domains(asked.domains.clone());
        return Ok((links, None));
    }
    let credentials = match &config.certificate {
        Certificate::Known(known) => known.overlay.clone(),
        Certificate::Files(_) | Certificate::Made | Certificate::None => {
            credentials::of_development().map_err(Error::Certificate)?
        }
    };
    // A broker that only dials needs a socket too; with --dev it is on loopback, as listeners are
    // by default.
    let any = if config.dev { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from([0; 4]) };
    let (listen, is_open) = (open.unwrap_or(SocketAddr::new(any, 0)), open.is_some());
    let (peers, access, dscp) = (asked.peers.clone(), Some(access.clone()), asked.dscp);
    let compresses = asked.compresses;
    let caps = asked.terms.iter().filter_map(|terms| Some((terms.name.clone(), terms.cap?))).collect();
    let plan =
        Plan { listen, is_open, peers, credentials, access, dscp, compresses, caps, faults: LinkFaults::default() };
    let broker = OverlayConfig {
        name: config.name.as_str().into(),
        version: version.into(),
        addresses: asked.advertise.iter().map(|address| address.as_str().into()).collect(),
        interest_max: asked.interest_max,
        expects_peers: !asked.peers.is_empty(),
        links_wanted: asked.links_wanted,
        surcharges: asked.terms.iter().filter_map(surcharge).collect(),
        domains: asked.domains.clone(),
        routing: asked.routing,
        pace: asked.pace,
        // Simulated worlds still find duplicate and lost events where sessions move: see decision
        // 13.
        moves_sessions: true,
    };
    let address = hub.open_overlay(&plan, broker).map_err(|error| match error {
        StartError::Bind(cause) => Error::Listen { key: Listener::Overlay.key(), address: listen, cause },
        StartError::Credentials(cause) => Error::Certificate(io::Error::other(cause)),
        StartError::Timer(cause) => Error::System(cause),
    })?;
    Ok((links, is_open.then_some(address)))
}
