//! Links to other brokers: whom to dial, and how much to tell.

use super::settings::Settings;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `HOST:PORT` of brokers that are dialled.
    pub peers: Vec<String>,
    /// With fewer links than this, brokers that others tell of are dialled too.
    pub links_wanted: usize,
    /// Entries of the interest that is told, at most.
    pub interest_max: usize,
}

pub(super) fn load(settings: &Settings) -> Asked {
    Asked {
        peers: settings.peers("overlay.peers"),
        links_wanted: settings.number("overlay.links") as usize,
        interest_max: settings.number("overlay.interest_max") as usize,
    }
}
