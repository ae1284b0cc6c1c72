//! The hub's links to other brokers.

use std::net::SocketAddr;

use whimbrel_core::overlay::{EventTrace, NotForgotten, PathsPlan};
use whimbrel_core::{OverlayConfig, PeerInput};
use whimbrel_event::{EventId, HostId};
use whimbrel_selector::TopicName;

use tokio::sync::mpsc;

use super::super::post::{Asking, Text};
use super::*;
use crate::overlay::{self, Inlet, Opened, OverlayAccount, PeerAccount, Plan, StartError, Uplink};

/// Pause between two looks, at the end, whether replicas have everything.
const HAND_OVER_LOOK: Duration = Duration::from_millis(5);

impl Hub {
    /// Connects the broker to others: begins to dial them and to accept their links. Returns the
    /// address of the socket. If `config` has no addresses and the plan is open, this one is
    /// announced, unless it is unspecified.
    ///
    /// # Errors
    /// The socket cannot be bound.
    ///
    /// # Panics
    /// The overlay is already open.
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

    /// Waits until other brokers have what they need to go on without this one: changes of
    /// sessions, answers, and all that was sent. Waits at most `limit`; returns whether they have.
    pub async fn hand_over(&self, limit: Duration) -> bool {
        let all = async {
            while !self.look(|broker, _, _| broker.core().is_handed_over()) {
                tokio::time::sleep(HAND_OVER_LOOK).await;
            }
            // Other brokers dial again when their links end; what was sent on the new links would
            // be lost.
            if let Some(overlay) = &*self.overlay.lock() {
                overlay.close_gate();
            }
            let mut links = Vec::new();
            self.run(|machine, _| links = machine.ports.open_links());
            futures_util::future::join_all(links.iter().map(|link| link.finish())).await;
        };
        tokio::time::timeout(limit, all).await.is_ok()
    }

    /// Closes all links after telling the other brokers.
    pub async fn close_overlay(&self) {
        let overlay = self.overlay.lock().take();
        if let Some(overlay) = overlay {
            overlay.close().await;
        }
    }

    /// Closes all links without waiting until the other brokers have been told.
    pub fn cut_overlay(&self) {
        drop(self.overlay.lock().take());
    }

    /// Counters and state of all links at this moment.
    pub(crate) fn overlay_account(&self) -> OverlayAccount {
        self.links.account()
    }

    /// The configured and the found peers at this moment.
    pub(crate) fn peers(&self) -> Vec<PeerAccount> {
        self.links.peers()
    }

    /// Bytes received over all links since the start, and bytes given to them.
    pub(crate) fn overlay_bytes(&self) -> (u64, u64) {
        self.links.bytes()
    }

    /// Dials a broker that was found, as [`Overlay::dial_found`] tells.
    pub(crate) fn dial_found(&self, address: SocketAddr, waits: bool) {
        if let Some(overlay) = &*self.overlay.lock() {
            overlay.dial_found(address, waits);
        }
    }

    /// Dials a broker no more that was found and is announced no more.
    pub(crate) fn leave_found(&self, address: SocketAddr) {
        if let Some(overlay) = &*self.overlay.lock() {
            overlay.leave_found(address);
        }
    }

    /// What this broker knows of an event.
    pub(crate) fn trace(&self, event: EventId) -> EventTrace {
        let mut known = EventTrace::default();
        self.run(|machine, _| known = machine.broker.trace(event));
        known
    }

    /// How events of a topic go to other brokers; `None`: this broker has no overlay.
    pub(crate) fn planned_paths(&self, topic: TopicName<'_>) -> Option<PathsPlan> {
        let mut plan = None;
        self.run(|machine, _| plan = machine.broker.planned_paths(topic));
        plan
    }

    /// The questions of other brokers from now on, for the task that answers them.
    pub(crate) fn questions(&self) -> mpsc::Receiver<Text> {
        self.post.questions()
    }

    /// Begins a question to this many brokers.
    pub(crate) fn begin_asking(&self, brokers: usize) -> Asking {
        self.post.begin(brokers)
    }

    /// Sends a question to brokers; returns those that could not be asked.
    pub(crate) fn ask_brokers(&self, to: impl Iterator<Item = HostId>, number: u64, question: &str) -> Vec<HostId> {
        let mut unasked = Vec::new();
        self.run(|machine, now| {
            let Machine { broker, ports, .. } = machine;
            unasked = to.filter(|host| !broker.ask_broker(now, *host, (number, question), ports)).collect();
        });
        unasked
    }

    /// Answers another broker. Without a route or room the answer is dropped: the broker asks
    /// again.
    pub(crate) fn answer_broker(&self, to: HostId, number: u64, answer: &str) {
        self.run(|machine, now| {
            machine.broker.answer_broker(now, to, (number, answer), &mut machine.ports);
        });
    }

    /// Forgets another broker for ever. Returns the number of hosts that had its name, and the
    /// batch that makes this durable.
    pub(crate) fn retire_broker(&self, name: &str, force: bool) -> Result<(usize, BatchNo), NotForgotten> {
        let mut result = Err(NotForgotten::Alone);
        self.run(|machine, now| {
            let hosts = machine.broker.retire_broker(now, name, force, &mut machine.ports);
            result = hosts.map(|hosts| (hosts, machine.broker.core().newest_batch()));
        });
        result
    }

    /// Writes the links' output and starts dials, after the machine has been let go of.
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

    fn packets(&mut self, sent: u32, lost: u32) {
        self.hub.submit(&mut self.line, || inbox::Input::Packets(sent, lost));
    }
}

impl Drop for LinkLine {
    fn drop(&mut self) {
        self.hub.submit(&mut self.line, || inbox::Input::Gone { tell: true });
    }
}
