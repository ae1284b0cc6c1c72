//! Links to other brokers: peers to dial, addresses to announce, and the size of the interest.

use std::net::{IpAddr, SocketAddr};

use whimbrel_core::{Pace, Routing};
use whimbrel_event::Domains;

use super::Listener;
use super::peer::PeerTerms;
use super::problem::Problem;
use super::settings::Settings;
use crate::overlay::Dscp;

/// Addresses that a broker announces, at most: the bound of the wire protocol.
const ADVERTISE_MAX: usize = 4;

/// Bytes of the longest of these addresses: the bound of the wire protocol, too.
const ADVERTISE_BYTES_MAX: usize = 64;

/// Settings of the overlay.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `HOST:PORT` of brokers that are dialled.
    pub peers: Vec<String>,
    /// `HOST:PORT` at which others are told to dial this broker, best first; empty: where it
    /// listens.
    pub advertise: Vec<String>,
    /// With fewer links than this, brokers that others know are dialled too.
    pub links_wanted: usize,
    /// Entries of the announced interest, at most.
    pub interest_max: usize,
    /// How paths are chosen.
    pub routing: Routing,
    /// How fast links are measured, told of and followed.
    pub pace: Pace,
    /// The domains that the broker is in.
    pub domains: Domains,
    /// How packets of links are marked.
    pub dscp: Dscp,
    /// The terms of the links to some brokers.
    pub terms: Vec<PeerTerms>,
    /// Whether events are compressed on links that are thin.
    pub compresses: bool,
}

/// Checks the settings of the overlay.
pub(super) fn load(listen: &[(Listener, SocketAddr)], settings: &mut Settings, warnings: &mut Vec<String>) -> Asked {
    let advertise = settings.peers("overlay.advertise");
    if let Some((message, help)) = mistake(&advertise) {
        let problem = Problem::new(message).at(settings.place("overlay.advertise"), "here").help(help);
        settings.problems.push(problem);
    }
    let open = listen.iter().find(|(listener, _)| *listener == Listener::Overlay).map(|(_, address)| address);
    match open {
        None if !advertise.is_empty() => {
            warnings.push("`overlay.advertise` means nothing, as `listen_overlay` is off: nobody can dial it".into());
        }
        Some(address) if advertise.is_empty() && address.ip().is_unspecified() => warnings.push(format!(
            "`listen_overlay` is {address}, which is no address that others could dial, so they are told none: only brokers \
             that have this one among their peers dial it; name the address in `overlay.advertise`"
        )),
        _ => {}
    }
    let dscp = Dscp::parse(&settings.text("overlay.dscp"));
    if dscp.is_none() {
        let problem = Problem::new("`overlay.dscp` is no code point").at(settings.place("overlay.dscp"), "here");
        settings.problems.push(problem.help("name one, such as `ef` or `af41`, or a number from 0 to 63, or `off`"));
    }
    Asked {
        peers: settings.peers("overlay.peers"),
        advertise,
        links_wanted: settings.number("overlay.links") as usize,
        interest_max: settings.number("overlay.interest_max") as usize,
        routing: routing(&settings.text("overlay.routing")),
        pace: pace(&settings.text("overlay.preset")),
        domains: settings.domains("overlay.domains"),
        dscp: dscp.unwrap_or_default(),
        terms: std::mem::take(&mut settings.peer_terms),
        compresses: settings.text("overlay.compression") == "auto",
    }
}

/// The way of choosing paths of a checked name.
fn routing(name: &str) -> Routing {
    match name {
        "direct" => Routing::Direct,
        "best" => Routing::Best,
        _ => Routing::Reactive,
    }
}

/// The pace of a checked preset.
fn pace(preset: &str) -> Pace {
    if preset == "paper" { Pace::PAPER } else { Pace::DEFAULT }
}

/// A mistake in the announced addresses, and its help.
fn mistake(advertise: &[String]) -> Option<(String, &'static str)> {
    if advertise.len() > ADVERTISE_MAX {
        let message = format!("`overlay.advertise` has more than {ADVERTISE_MAX} entries");
        return Some((message, "name the one that most other brokers reach; others dial the first"));
    }
    for address in advertise {
        if address.len() > ADVERTISE_BYTES_MAX {
            let message =
                format!("`overlay.advertise` has \"{address}\", which is longer than {ADVERTISE_BYTES_MAX} bytes");
            return Some((message, "name a shorter host name, or the numeric address"));
        }
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        if ip.is_ok_and(|ip| ip.to_canonical().is_unspecified()) {
            let message = format!("`overlay.advertise` has \"{address}\", which nobody can dial");
            return Some((message, "name an address or a host name that leads to this machine, such as 10.0.0.6:7117"));
        }
    }
    None
}
