//! The simulator's wide-area link in front of a real UDP port: datagrams of clients reach the
//! broker as late, and with as much loss, as the profile says, and so do the answers.
//!
//! Each client address has its own socket towards the broker, and its own links in both directions.
//! One task owns all of them; [`Relay`] is its handle, and dropping it ends the task and closes the
//! sockets.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use whimbrel_event::Time;
use whimbrel_sim::random::Random;
use whimbrel_sim::wan::{Counters, Wan, WanProfile};

/// Client addresses that are served; datagrams of others are counted and dropped.
pub const PEERS_MAX: usize = 1024;
/// The largest datagram, bytes: UDP's own bound.
const DATAGRAM_MAX: usize = 65_535;
/// Answers that wait for the relay's task, over all clients.
const ANSWERS_MAX: usize = 1024;
/// How far ahead the task looks when nothing is in flight.
const FAR: Duration = Duration::from_secs(3600);

/// The counters of the relay's links.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// The links from the clients to the broker.
    pub up: Counters,
    /// The links from the broker to the clients.
    pub down: Counters,
    /// Datagrams of clients beyond [`PEERS_MAX`], or for which no socket could be opened.
    pub refused: u64,
    /// Arrived datagrams that a socket did not take.
    pub unsent: u64,
}

/// Both links of one client.
struct Peer {
    up: Wan,
    down: Wan,
    socket: Arc<UdpSocket>,
}

/// The state that the task and the handle share. The lock is held for moments only.
struct State {
    began: Instant,
    profiles: [WanProfile; 2],
    random: Random,
    is_cut: bool,
    peers: BTreeMap<SocketAddr, Peer>,
    refused: u64,
    unsent: u64,
}

impl State {
    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn next_arrival(&self) -> Option<Time> {
        self.peers.values().flat_map(|peer| [peer.up.next_arrival(), peer.down.next_arrival()]).flatten().min()
    }

    /// Adds a new client.
    fn join(&mut self, client: SocketAddr, socket: Arc<UdpSocket>) {
        let [mut up, mut down] = self.profiles.map(|profile| Wan::new(profile, self.random.fork()));
        if self.is_cut {
            up.cut();
            down.cut();
        }
        self.peers.insert(client, Peer { up, down, socket });
    }

    /// Passes arrived datagrams to the sockets. A socket that takes nothing loses them, as a
    /// network would.
    fn deliver(&mut self, front: &UdpSocket) {
        let now = self.now();
        for (client, peer) in &mut self.peers {
            while let Some(datagram) = peer.up.pop(now) {
                self.unsent += u64::from(peer.socket.try_send(&datagram.bytes).is_err());
            }
            while let Some(datagram) = peer.down.pop(now) {
                self.unsent += u64::from(front.try_send_to(&datagram.bytes, *client).is_err());
            }
        }
    }
}

/// A handle of a running relay. See the module's documentation.
pub struct Relay {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    task: AbortHandle,
}

impl Relay {
    /// Listens at `listen` and relays to `target`, within a runtime of tokio. The same seed and the
    /// same times give the same fates.
    ///
    /// # Errors
    /// When `listen` cannot be bound.
    pub async fn start(
        listen: SocketAddr,
        target: SocketAddr,
        up: WanProfile,
        down: WanProfile,
        seed: u64,
    ) -> io::Result<Relay> {
        let front = UdpSocket::bind(listen).await?;
        let addr = front.local_addr()?;
        // Before the runtime has seen the socket writable once, `try_send_to` takes nothing.
        front.writable().await?;
        let state = Arc::new(Mutex::new(State {
            began: Instant::now(),
            profiles: [up, down],
            random: Random::new(seed),
            is_cut: false,
            peers: BTreeMap::new(),
            refused: 0,
            unsent: 0,
        }));
        let changed = Arc::new(Notify::new());
        let task = tokio::spawn(run(front, target, state.clone(), changed.clone())).abort_handle();
        Ok(Relay { addr, state, changed, task })
    }

    /// The address to which clients send.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Cuts both directions: nothing passes, and datagrams in flight are lost.
    pub fn cut(&self) {
        let mut state = lock(&self.state);
        state.is_cut = true;
        for peer in state.peers.values_mut() {
            peer.up.cut();
            peer.down.cut();
        }
    }

    /// Ends the cut: datagrams sent from now on pass again.
    pub fn heal(&self) {
        let mut state = lock(&self.state);
        state.is_cut = false;
        for peer in state.peers.values_mut() {
            peer.up.heal();
            peer.down.heal();
        }
    }

    /// Sets the profiles for all clients.
    ///
    /// # Panics
    /// If a profile is out of its bounds ([`WanProfile::check`]).
    pub fn set_profile(&self, up: WanProfile, down: WanProfile) {
        up.check();
        down.check();
        let mut state = lock(&self.state);
        state.profiles = [up, down];
        let now = state.now();
        for peer in state.peers.values_mut() {
            peer.up.set_profile(now, up);
            peer.down.set_profile(now, down);
        }
        self.changed.notify_one();
    }

    /// The counters so far, over all clients.
    pub fn counters(&self) -> Tally {
        let state = lock(&self.state);
        let mut tally = Tally { refused: state.refused, unsent: state.unsent, ..Tally::default() };
        for peer in state.peers.values() {
            tally.up = tally.up.plus(peer.up.counters());
            tally.down = tally.down.plus(peer.down.counters());
        }
        tally
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

type Answer = (SocketAddr, Vec<u8>);

/// The relay's task: it ends with its handle.
async fn run(front: UdpSocket, target: SocketAddr, state: Arc<Mutex<State>>, changed: Arc<Notify>) {
    let (sender, mut answers) = mpsc::channel::<Answer>(ANSWERS_MAX);
    // Dropped with this task; then all of them end.
    let mut listeners = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        let wake = {
            let state = lock(&state);
            state.next_arrival().map_or(Instant::now() + FAR, |at| state.began + at.since(Time::ZERO))
        };
        tokio::select! {
            received = front.recv_from(&mut buffer) => {
                // The error means that an earlier datagram was not received; it is not one of this
                // socket.
                let Ok((count, client)) = received else { continue };
                if !lock(&state).peers.contains_key(&client) {
                    let full = lock(&state).peers.len() >= PEERS_MAX;
                    let socket = if full { None } else { connect(target).await.ok().map(Arc::new) };
                    let Some(socket) = socket else {
                        lock(&state).refused += 1;
                        continue;
                    };
                    listeners.spawn(listen(socket.clone(), client, sender.clone()));
                    lock(&state).join(client, socket);
                }
                let mut state = lock(&state);
                let now = state.now();
                if let Some(peer) = state.peers.get_mut(&client) {
                    peer.up.push(now, buffer[..count].to_vec());
                }
            }
            Some((client, bytes)) = answers.recv() => {
                let mut state = lock(&state);
                let now = state.now();
                if let Some(peer) = state.peers.get_mut(&client) {
                    peer.down.push(now, bytes);
                }
            }
            () = sleep_until(wake) => {}
            () = changed.notified() => {}
        }
        lock(&state).deliver(&front);
    }
}

/// A socket that exchanges datagrams with the broker only.
async fn connect(target: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(target).await?;
    // Before the runtime has seen the socket writable once, `try_send` takes nothing.
    socket.writable().await?;
    Ok(socket)
}

/// Passes the broker's answers to one client to the relay's task, until that has ended.
async fn listen(socket: Arc<UdpSocket>, client: SocketAddr, answers: mpsc::Sender<Answer>) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        // A broker that is down makes each datagram's error one of this socket; it may come back.
        let Ok(count) = socket.recv(&mut buffer).await else { continue };
        if answers.send((client, buffer[..count].to_vec())).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;
    use whimbrel_sim::wan::{Jitter, Loss};

    const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    /// The time by which expected things happen, even on the slowest machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A stand-in for a broker that returns every datagram, a relay before it, and a client.
    async fn world(up: WanProfile, down: WanProfile) -> (JoinSet<()>, Relay, UdpSocket) {
        let echo = UdpSocket::bind(LOCAL).await.expect("a port");
        let target = echo.local_addr().expect("it is bound");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut buffer = vec![0; 2048];
            while let Ok((count, from)) = echo.recv_from(&mut buffer).await {
                echo.send_to(&buffer[..count], from).await.expect("a local socket takes it");
            }
        });
        let relay = Relay::start(LOCAL, target, up, down, 7).await.expect("a port");
        let client = client_of(&relay).await;
        (tasks, relay, client)
    }

    async fn client_of(relay: &Relay) -> UdpSocket {
        let socket = UdpSocket::bind(LOCAL).await.expect("a port");
        socket.connect(relay.addr()).await.expect("it is local");
        socket
    }

    async fn receive(client: &UdpSocket) -> Vec<u8> {
        let mut buffer = vec![0; 2048];
        let count = timeout(PATIENCE, client.recv(&mut buffer)).await.expect("it comes").expect("the relay is there");
        buffer.truncate(count);
        buffer
    }

    /// Lets the relay work until its counters satisfy a condition.
    async fn until(relay: &Relay, so: impl Fn(&Tally) -> bool) {
        let look = async {
            while !so(&relay.counters()) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, look).await.expect("the counters say so in time");
    }

    #[tokio::test]
    async fn both_ways_are_delayed_by_their_own_profiles() {
        let millis = |count| WanProfile::PERFECT.with_delay(Duration::from_millis(count));
        let (_tasks, relay, client) = world(millis(20), millis(35)).await;
        let other = client_of(&relay).await;
        let sent = Instant::now();
        client.send(b"one").await.expect("sent");
        other.send(b"two").await.expect("sent");
        assert_eq!(receive(&client).await, b"one");
        assert!(sent.elapsed() >= Duration::from_millis(55), "after {:?}", sent.elapsed());
        assert_eq!(receive(&other).await, b"two", "each client gets its own answers");
        relay.set_profile(millis(0), millis(60));
        let sent = Instant::now();
        client.send(b"three").await.expect("sent");
        assert_eq!(receive(&client).await, b"three");
        assert!(sent.elapsed() >= Duration::from_millis(60), "after {:?}", sent.elapsed());
        let tally = relay.counters();
        assert_eq!((tally.up.sent, tally.down.sent, tally.up.bytes), (3, 3, 11));
    }

    #[tokio::test]
    async fn nothing_passes_a_cut_and_all_passes_after_it() {
        let (_tasks, relay, client) = world(WanProfile::PERFECT, WanProfile::PERFECT).await;
        client.send(b"before").await.expect("sent");
        assert_eq!(receive(&client).await, b"before");
        relay.cut();
        client.send(b"lost").await.expect("sent");
        // A client that is new while the relay is cut is cut as well.
        let other = client_of(&relay).await;
        other.send(b"lost, too").await.expect("sent");
        until(&relay, |tally| tally.up.cut == 2).await;
        relay.heal();
        for socket in [&client, &other] {
            socket.send(b"after").await.expect("sent");
            assert_eq!(receive(socket).await, b"after");
        }
        assert_eq!(relay.counters().up.sent, 5);
        assert_eq!(relay.counters().down.sent, 3, "what the cut took never reached the other side");
    }

    #[tokio::test]
    async fn about_as_much_is_lost_as_the_profile_says() {
        let lossy = WanProfile { loss: Loss::independent(200_000), jitter: Jitter::NONE, ..WanProfile::PERFECT };
        let (_tasks, relay, client) = world(lossy, WanProfile::PERFECT).await;
        let mut came = 0;
        for sent in 1..=1_000_u64 {
            client.send(&sent.to_be_bytes()).await.expect("sent");
            until(&relay, |tally| tally.up.sent == sent).await;
            if sent - relay.counters().up.lost > came {
                assert_eq!(receive(&client).await, sent.to_be_bytes(), "what is not lost comes");
                came += 1;
            }
        }
        // Six standard deviations of 1,000 draws.
        assert!((724..=876).contains(&came), "{came} of 1,000 came, not about 800");
    }
}
