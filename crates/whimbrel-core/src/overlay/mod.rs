//! What makes one of many brokers: links, topology, routes, interest.

pub mod reduce;

use whimbrel_event::Time;

use crate::api::{HangUp, Output, PeerInput};
use crate::broker::Core;

/// How a broker appears to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayConfig {
    /// Its name: 1 to 64 of letters, digits, `.`, `_`, `-`.
    pub name: Box<str>,
    /// Where others reach it, `ADDRESS:PORT`, best first; at most 4.
    pub addresses: Vec<Box<str>>,
    /// Most entries of the interest that it tells.
    pub interest_max: usize,
    /// It asks for links to brokers that it learns of.
    pub learns_peers: bool,
}

/// What a broker knows of others.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) config: OverlayConfig,
}

impl Core {
    /// From now on the broker is one of many: it accepts links to others.
    ///
    /// # Panics
    /// When it is one already.
    pub fn open_overlay(&mut self, _now: Time, config: OverlayConfig) {
        assert!(self.overlay.is_none(), "an overlay is opened once");
        self.overlay = Some(Box::new(Overlay { config }));
    }

    /// Something happens on the links to other brokers.
    pub(crate) fn peer_input(&mut self, _now: Time, input: PeerInput<'_>, out: &mut impl Output) {
        if let (None, PeerInput::Opened { link, .. }) = (&self.overlay, input) {
            out.peer_hang_up(link, HangUp::NotOpen);
        }
    }
}
