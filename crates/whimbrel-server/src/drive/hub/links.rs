//! Links to other brokers, as the hub has them.

use std::net::SocketAddr;

use whimbrel_core::overlay::NotForgotten;
use whimbrel_core::{OverlayConfig, PeerInput};
use whimbrel_event::{EventId, HostId};

use tokio::sync::mpsc;

use super::super::post::{Asking, Text};
use super::*;
use crate::overlay::{self, Inlet, Opened, OverlayAccount, PeerAccount, Plan, StartError, Uplink};

/// How often it is looked, at the end, whether deputies have everything.
const HAND_OVER_LOOK: Duration = Duration::from_millis(5);

impl Hub {
    /// Makes the broker one of many: begins to dial other brokers and to be dialled by them.
    /// Returns the address of the socket. `config` may lack addresses; then others are told this
    /// one, if it is one.
    ///
    /// # Errors
    /// The socket cannot be bound.
    ///
    /// # Panics
    /// When it is one of many already.
    pub fn open_overlay(self: &Arc<Self>, plan: &Plan, mut config: OverlayConfig) -> Result<SocketAddr, StartError> {
        let overlay = Overlay::start(plan, Arc::new(Uplinks(self.clone())), self.links.clone())?;
        let address = overlay.local_addr();
        if config.addresses.is_empty() && plan.is_open && !address.ip().is_unspecified() {
            config.addresses.push(address.to_string().into());
        }
        self.run(|machine, now| machine.broker.open_overlay(now, config));
        let overlay = Arc::new(overlay);
        *self.overlay.lock() = Some(overlay.clone());
        overlay.begin(&plan.peers);
        Ok(address)
    }

    /// Waits until other brokers have what they need to go on without this one: what has changed of
    /// sessions, answers, and everything that was sent. No longer than `limit`; whether they have.
    pub async fn hand_over(&self, limit: Duration) -> bool {
        let all = async {
            while !self.look(|broker, _, _| broker.core().is_handed_over()) {
                tokio::time::sleep(HAND_OVER_LOOK).await;
            }
            // Others lose their links as these end, and dial again: what went out on the new ones
            // would be lost.
            if let Some(overlay) = &*self.overlay.lock() {
                overlay.close_gate();
            }
            let mut links = Vec::new();
            self.run(|machine, _| links = machine.ports.open_links());
            futures_util::future::join_all(links.iter().map(|link| link.finish())).await;
        };
        tokio::time::timeout(limit, all).await.is_ok()
    }

    /// Takes leave of all other brokers.
    pub async fn close_overlay(&self) {
        let overlay = self.overlay.lock().take();
        if let Some(overlay) = overlay {
            overlay.close().await;
        }
    }

    /// The same without waiting until they have been told.
    pub fn cut_overlay(&self) {
        drop(self.overlay.lock().take());
    }

    /// What links tell of themselves at this moment.
    pub(crate) fn overlay_account(&self) -> OverlayAccount {
        self.links.account()
    }

    /// The configured peers at this moment.
    pub(crate) fn peers(&self) -> Vec<PeerAccount> {
        self.links.peers()
    }

    /// Bytes that came over all links since the start, and bytes that were given to them.
    pub(crate) fn overlay_bytes(&self) -> (u64, u64) {
        self.links.bytes()
    }

    /// What is known here of an event.
    pub(crate) fn trace(&self, event: EventId) -> String {
        let mut known = String::new();
        self.run(|machine, _| known = machine.broker.trace(event));
        known
    }

    /// The questions of other brokers from now on: for the one who answers them.
    pub(crate) fn questions(&self) -> mpsc::Receiver<Text> {
        self.post.questions()
    }

    /// Begins to ask so many brokers something.
    pub(crate) fn begin_asking(&self, brokers: usize) -> Asking {
        self.post.begin(brokers)
    }

    /// Asks those brokers; gives those that could not be asked.
    pub(crate) fn ask_brokers(&self, to: impl Iterator<Item = HostId>, number: u64, question: &str) -> Vec<HostId> {
        let mut unasked = Vec::new();
        self.run(|machine, now| {
            let Machine { broker, ports, .. } = machine;
            unasked = to.filter(|host| !broker.ask_broker(now, *host, (number, question), ports)).collect();
        });
        unasked
    }

    /// Answers another broker. If there is no way or no room, it asks again.
    pub(crate) fn answer_broker(&self, to: HostId, number: u64, answer: &str) {
        self.run(|machine, now| {
            machine.broker.answer_broker(now, to, (number, answer), &mut machine.ports);
        });
    }

    /// Forgets another broker for ever; how many hosts had its name, and when that is durable.
    pub(crate) fn retire_broker(&self, name: &str, force: bool) -> Result<(usize, BatchNo), NotForgotten> {
        let mut result = Err(NotForgotten::Alone);
        self.run(|machine, now| {
            let hosts = machine.broker.retire_broker(now, name, force, &mut machine.ports);
            result = hosts.map(|hosts| (hosts, machine.broker.core().newest_batch()));
        });
        result
    }

    /// Writes what came out for links, and dials who is to be dialled; the machine has been let go
    /// of.
    pub(super) fn flush_links(&self, links: Vec<Arc<overlay::Port>>, dials: Vec<String>) {
        for port in links {
            port.flush();
        }
        if dials.is_empty() {
            return;
        }
        let overlay = self.overlay.lock().clone();
        for address in dials {
            overlay.iter().for_each(|overlay| overlay.dial(&address));
        }
    }
}

/// The hub, as links see it.
struct Uplinks(Arc<Hub>);

impl Uplink for Uplinks {
    fn opened(&self, opened: &Opened<'_>) -> Box<dyn Inlet> {
        let mut source = None;
        self.0.run(|machine, now| {
            let link = machine.ports.admit_link(opened.port.clone());
            source = Some(Source::Link(link));
            machine.peer(now, link, PeerInput::Opened { link, dialed: opened.dialed, name: opened.name });
        });
        Box::new(LinkLine { hub: self.0.clone(), line: Line::new(source.expect("it has a number")) })
    }
}

/// One link's place at the machine.
struct LinkLine {
    hub: Arc<Hub>,
    line: Line,
}

impl Inlet for LinkLine {
    fn may_read(&mut self) -> bool {
        self.hub.may_read(&mut self.line)
    }

    fn bytes(&mut self, channel: Channel, bytes: &[u8]) {
        self.hub.bytes(&mut self.line, Some(channel), bytes);
    }

    fn room(&mut self, channel: Channel, unsent: usize) {
        self.hub.submit(&mut self.line, || inbox::Input::Room(channel, unsent));
    }
}

impl Drop for LinkLine {
    fn drop(&mut self) {
        self.hub.submit(&mut self.line, || inbox::Input::Gone { tell: true });
    }
}
