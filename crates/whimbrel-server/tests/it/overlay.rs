//! Links between brokers over real UDP on loopback: who is let in, what passes, and what happens
//! when an end goes.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::authority::{Authority, YEAR, read};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use whimbrel_access::{Action, Actions, Rule, Rules};
use whimbrel_core::{Channel, HangUp};
use whimbrel_server::access::{self, Access};
use whimbrel_server::identity::Role;
use whimbrel_server::identity::credentials::{self, Credentials};
use whimbrel_server::identity::trust::{Refusal, Revoked, Trust};
use whimbrel_server::overlay::{Counts, Dscp, Inlet, LinkFaults, Opened, Overlay, Plan, Port, StartError, Uplink};

mod thin;

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(20);

const STREAMS: [Channel; 4] = [Channel::Control, Channel::Urgent, Channel::Reliable, Channel::BestEffort];

fn number(channel: Channel) -> u8 {
    Channel::ALL.iter().position(|known| *known == channel).expect("a channel") as u8
}

/// What a broker saw of one link.
#[derive(Clone, Default)]
struct Seen {
    port: Option<Arc<Port>>,
    dialed: bool,
    name: Option<String>,
    bytes: BTreeMap<u8, Vec<u8>>,
    rooms: Vec<(u8, usize)>,
    /// Packets sent, and lost.
    packets: (u32, u32),
    is_closed: bool,
}

/// A broker that only looks.
#[derive(Default)]
struct Watcher {
    links: Mutex<Vec<Seen>>,
    news: Notify,
    /// Nothing is read while it is set.
    is_deaf: Mutex<bool>,
}

struct Watch {
    watcher: Arc<Watcher>,
    link: usize,
}

struct Side(Arc<Watcher>);

impl Uplink for Side {
    fn opened(&self, link: &Opened<'_>) -> Box<dyn Inlet> {
        let mut links = self.0.links.lock();
        let name = link.name.map(str::to_owned);
        links.push(Seen { port: Some(link.port.clone()), dialed: link.dialed, name, ..Seen::default() });
        self.0.news.notify_waiters();
        Box::new(Watch { watcher: self.0.clone(), link: links.len() - 1 })
    }
}

impl Watch {
    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.watcher.links.lock()[self.link]);
        self.watcher.news.notify_waiters();
    }
}

impl Inlet for Watch {
    fn may_read(&mut self) -> bool {
        !*self.watcher.is_deaf.lock()
    }

    fn bytes(&mut self, channel: Channel, bytes: &[u8]) {
        self.note(|seen| seen.bytes.entry(number(channel)).or_default().extend_from_slice(bytes));
    }

    fn room(&mut self, channel: Channel, unsent: usize) {
        self.note(|seen| seen.rooms.push((number(channel), unsent)));
    }

    fn packets(&mut self, sent: u32, lost: u32) {
        self.note(|seen| seen.packets = (seen.packets.0 + sent, seen.packets.1 + lost));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.note(|seen| seen.is_closed = true);
    }
}

/// One end of the overlay.
struct End {
    watcher: Arc<Watcher>,
    overlay: Overlay,
    counts: Arc<Counts>,
}

impl End {
    fn start(credentials: &Credentials, listen: SocketAddr, peers: &[SocketAddr]) -> End {
        End::try_start(credentials, listen, peers).expect("a free port")
    }

    fn try_start(credentials: &Credentials, listen: SocketAddr, peers: &[SocketAddr]) -> Result<End, StartError> {
        End::guarded(credentials, listen, peers, None)
    }

    fn guarded(
        credentials: &Credentials,
        listen: SocketAddr,
        peers: &[SocketAddr],
        access: Option<Arc<Access>>,
    ) -> Result<End, StartError> {
        let plan = Plan { access, ..End::plan(credentials, listen, peers) };
        End::of(&plan)
    }

    fn plan(credentials: &Credentials, listen: SocketAddr, peers: &[SocketAddr]) -> Plan {
        let peers = peers.iter().map(SocketAddr::to_string).collect();
        let dscp = Dscp::parse("af41").expect("a name");
        let credentials = credentials.clone();
        let (caps, faults) = (BTreeMap::new(), LinkFaults::default());
        Plan { listen, is_open: true, peers, credentials, access: None, dscp, compresses: true, caps, faults }
    }

    fn of(plan: &Plan) -> Result<End, StartError> {
        let (watcher, counts) = (Arc::new(Watcher::default()), Arc::new(Counts::default()));
        let overlay = Overlay::start(plan, Arc::new(Side(watcher.clone())), counts.clone())?;
        overlay.begin(&plan.peers);
        Ok(End { watcher, overlay, counts })
    }

    fn address(&self) -> SocketAddr {
        self.overlay.local_addr()
    }

    /// Waits until the links are as wanted.
    async fn sees<T>(&self, what: &str, mut wanted: impl FnMut(&[Seen]) -> Option<T>) -> T {
        let comes = async {
            loop {
                let news = self.watcher.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if let Some(found) = wanted(&self.watcher.links.lock()) {
                    return found;
                }
                news.await;
            }
        };
        tokio::time::timeout(DEADLINE, comes).await.unwrap_or_else(|_| panic!("{what} did not come"))
    }

    /// Waits for the first link, and gives what is sent over it.
    async fn port(&self) -> Arc<Port> {
        self.sees("a link", |links| links.first()?.port.clone()).await
    }

    async fn counts(&self, label: &str) {
        let comes = async {
            while !self.counts.account().refusals.iter().any(|(name, count)| *name == label && *count > 0) {
                tokio::task::yield_now().await;
            }
        };
        let came = tokio::time::timeout(DEADLINE, comes).await;
        came.unwrap_or_else(|_| panic!("{label} is not among {:?}", self.counts.account().refusals));
    }
}

fn free() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn development() -> Credentials {
    credentials::of_development().expect("there is randomness")
}

/// Two ends, the second of which dials the first, and their ports.
async fn linked() -> (End, End, Arc<Port>, Arc<Port>) {
    let a = End::start(&development(), free(), &[]);
    let b = End::start(&development(), free(), &[a.address()]);
    let (to_b, to_a) = (a.port().await, b.port().await);
    (a, b, to_b, to_a)
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed).wrapping_add((at >> 8) as u8)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_pass_both_ways_in_order_in_each_channel() {
    let (a, b, to_b, to_a) = linked().await;
    assert!(!a.watcher.links.lock()[0].dialed && b.watcher.links.lock()[0].dialed);
    for (port, other) in [(&to_b, &b), (&to_a, &a)] {
        let sent: Vec<Vec<u8>> = (0..4).map(|channel| pattern(channel, 300_000)).collect();
        for at in 0..3 {
            for (channel, bytes) in STREAMS.into_iter().zip(&sent) {
                port.send(channel, &bytes[at * 100_000..(at + 1) * 100_000]);
            }
            port.flush();
        }
        port.send(Channel::Datagram, b"whole");
        port.flush();
        other
            .sees("all bytes", |links| {
                let bytes = &links[0].bytes;
                let all = (0..4).all(|channel| bytes.get(&channel).is_some_and(|got| got.len() == 300_000));
                (all && bytes.contains_key(&number(Channel::Datagram))).then_some(())
            })
            .await;
        let links = other.watcher.links.lock();
        for (channel, bytes) in (0u8..).zip(&sent) {
            assert!(links[0].bytes[&channel] == *bytes, "channel {channel} differs");
        }
        assert_eq!(links[0].bytes[&number(Channel::Datagram)], b"whole");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_of_what_comes_closely_goes_without_anything_behind_it() {
    const BURSTS: usize = 20;
    const EACH: usize = 500;
    let (_a, b, to_b, _to_a) = linked().await;
    for burst in 1..=BURSTS {
        for _ in 0..EACH {
            to_b.send(Channel::Reliable, b"e");
            to_b.flush();
        }
        let all =
            |links: &[Seen]| (links[0].bytes.get(&number(Channel::Reliable))?.len() == burst * EACH).then_some(());
        b.sees("the end of a burst", all).await;
    }
}

/// On a link that is never idle, what is urgent does not wait until all is sent that is not.
#[tokio::test]
async fn what_is_urgent_overtakes_what_is_not() {
    const LINKS: usize = 10;
    const BULK: usize = 1_900_000;
    let of = |links: &[Seen], channel| links[0].bytes.get(&channel).map_or(0, Vec::len);
    let mut overtaken = 0;
    // Each is new, and sends slowly at first.
    for _ in 0..LINKS {
        let (_a, b, to_b, _to_a) = linked().await;
        to_b.send(Channel::BestEffort, &pattern(7, BULK));
        to_b.flush();
        b.sees("the first bytes", |links| (of(links, number(Channel::BestEffort)) > 0).then_some(())).await;
        to_b.send(Channel::Control, b"!");
        to_b.flush();
        let before =
            b.sees("what is urgent", |links| (of(links, 0) > 0).then(|| of(links, number(Channel::BestEffort)))).await;
        overtaken += usize::from(before < BULK);
        b.sees("the rest", |links| (of(links, number(Channel::BestEffort)) == BULK).then_some(())).await;
    }
    assert!(overtaken > LINKS / 2, "on {overtaken} of {LINKS} links");
}

/// A broker takes leave: what it sent last comes, in whichever stream, and there are no new links.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_last_comes_before_a_link_ends() {
    const LAST: usize = 3 << 20;
    let (a, b, to_b, _to_a) = linked().await;
    to_b.send(Channel::BestEffort, &pattern(7, LAST));
    to_b.send(Channel::Reliable, &pattern(8, LAST));
    to_b.flush();
    a.overlay.close_gate();
    to_b.finish().await;
    b.sees("the end of the link", |links| links[0].is_closed.then_some(())).await;
    let came = [Channel::Reliable, Channel::BestEffort]
        .map(number)
        .map(|channel| b.watcher.links.lock()[0].bytes.get(&channel).map_or(0, Vec::len));
    assert_eq!(came, [LAST; 2]);
    // It has been dialled again at once, and now and then since.
    b.counts("refused_by_peer").await;
    assert_eq!(b.watcher.links.lock().len(), 1, "there is no other link");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_is_gone_is_noticed_and_dialled_again() {
    let (a, b, ..) = linked().await;
    let address = a.address();
    a.overlay.close().await;
    b.sees("the end of the link", |links| links[0].is_closed.then_some(())).await;
    drop(a);
    // The system has the port back once the endpoint's own task has ended.
    let again = loop {
        match End::try_start(&development(), address, &[]) {
            Ok(again) => break again,
            Err(StartError::Bind(error)) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
            Err(error) => panic!("{error}"),
        }
        tokio::task::yield_now().await;
    };
    b.sees("another link", |links| links.get(1).map(drop)).await;
    again.sees("the link", |links| links.first().map(drop)).await;
    let account = b.counts.account();
    assert_eq!((account.opened, account.redialed, account.links.len()), (2, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_hangs_up_ends_at_both_ends_and_is_not_dialled_at_once() {
    let (a, b, to_b, _) = linked().await;
    to_b.hang_up(HangUp::Double);
    to_b.flush();
    for end in [&a, &b] {
        end.sees("the end of the link", |links| links[0].is_closed.then_some(())).await;
    }
    while !b.counts.account().links.is_empty() {
        tokio::task::yield_now().await;
    }
    // The next to end lets it dial again.
    let c = End::start(&development(), free(), &[b.address()]);
    c.port().await.hang_up(HangUp::Garbage);
    c.port().await.flush();
    a.sees("another link", |links| links.get(1).map(drop)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_never_reads_leaves_memory_bounded_and_is_told_of_room_when_it_does() {
    let (a, b, to_b, _) = linked().await;
    *b.watcher.is_deaf.lock() = true;
    let piece = pattern(7, 256 << 10);
    let (mut sent, mut unsent) = (0, 0);
    // The windows of both ends take some megabytes; then everything stays in the port, which says
    // so.
    while unsent < 4 << 20 {
        unsent = to_b.send(Channel::Reliable, &piece);
        to_b.flush();
        sent += piece.len();
        assert!(sent < 32 << 20, "{sent} bytes went somewhere");
        tokio::task::yield_now().await;
    }
    assert!(a.watcher.links.lock()[0].rooms.iter().all(|(_, room)| *room < unsent));
    *b.watcher.is_deaf.lock() = false;
    b.port().await.wake();
    b.sees("all bytes", |links| (links[0].bytes.get(&number(Channel::Reliable))?.len() == sent).then_some(())).await;
    a.sees("room", |links| {
        links[0].rooms.iter().any(|room| *room == (number(Channel::Reliable), 0) || room.1 <= 64 << 10).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_does_not_stop_is_cut_off() {
    let (a, b, to_b, _) = linked().await;
    *b.watcher.is_deaf.lock() = true;
    let piece = vec![0; 1 << 20];
    for _ in 0..64 {
        to_b.send(Channel::BestEffort, &piece);
        to_b.flush();
    }
    a.sees("the end of the link", |links| links[0].is_closed.then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_of_one_authority_know_each_other_by_name() {
    let authority = Authority::new("city");
    let a = End::start(&authority.broker("north").overlay, free(), &[]);
    let b = End::start(&authority.broker("south").overlay, free(), &[a.address()]);
    a.port().await;
    b.port().await;
    assert_eq!(a.watcher.links.lock()[0].name.as_deref(), Some("south"));
    assert_eq!(b.watcher.links.lock()[0].name.as_deref(), Some("north"));
    assert_eq!(b.counts.account().links[0].peer, "north");
}

/// The one who dials with `dialing` is refused by one with `listening`, for a reason with this
/// label at one end or both.
async fn is_refused(listening: &Credentials, dialing: &Credentials, at_listener: &str, at_dialer: &str) {
    let a = End::start(listening, free(), &[]);
    let b = End::start(dialing, free(), &[a.address()]);
    b.counts(at_dialer).await;
    a.counts(at_listener).await;
    assert!(a.watcher.links.lock().is_empty() && b.watcher.links.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused() {
    let (city, other, twin) = (Authority::new("city"), Authority::new("city"), Authority::new("harbour"));
    let north = city.broker("north").overlay;
    // Each judges the other; the one who is dialled shows its certificate first, so it is refused
    // first.
    is_refused(&north, &other.broker("south").overlay, "refused_by_peer", "other_authority").await;
    is_refused(&north, &twin.broker("south").overlay, "refused_by_peer", "other_authority").await;
    is_refused(&north, &development(), "refused_by_peer", "no_development").await;
    is_refused(&development(), &north, "refused_by_peer", "development").await;
    is_refused(&north, &north, "refused_by_peer", "own_name").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_no_rule_allows_is_refused() {
    let city = Authority::new("city");
    let rule = Rule { principals: vec!["south".into()], actions: Actions::of([Action::Peer]), ..Rule::default() };
    let place = city.path().join("audit");
    let rules = Arc::new(Rules::new(&[rule]).expect("a sound rule"));
    let plan = access::Plan { rules, audit: access::audit::Place::File(place.clone()), ..access::Plan::default() };
    let guard = Access::start(Arc::new(plan)).expect("an audit");
    let a = End::guarded(&city.broker("north").overlay, free(), &[], Some(guard)).expect("a free port");
    let east = End::start(&city.broker("east").overlay, free(), &[a.address()]);
    a.counts("not_allowed").await;
    assert!(a.watcher.links.lock().is_empty(), "its core never hears of it");
    let _south = End::start(&city.broker("south").overlay, free(), &[a.address()]);
    a.port().await;
    assert_eq!(a.watcher.links.lock()[0].name.as_deref(), Some("south"));
    drop((east, a));
    // The audit writes in a thread of its own.
    let read = || std::fs::read_to_string(&place).unwrap_or_default();
    let appears = async {
        while !read().contains("\"action\":\"peer\",\"principal\":\"east\"") {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, appears).await.is_ok(), "{}", read());
}

#[test]
fn a_revoked_certificate_is_not_believed() {
    let city = Authority::new("city");
    let client = |name: &str| read(&city.make(Role::Client, name).certificate);
    let (seven, eight) = (client("bus-7"), client("bus-8"));
    let list = city.path().join("revoked.pem");
    std::fs::write(&list, city.revoke(&[&seven])).expect("it can be written");
    let ca = read(&city.path().join("ca.pem"));
    let trust = Trust::new(vec![ca.clone()], "city".into()).expect("an authority");
    let judge = |certificate: &CertificateDer<'static>| {
        trust.judge(Role::Client, std::slice::from_ref(certificate), SystemTime::now()).map(|identity| identity.name)
    };
    assert_eq!(judge(&seven), Ok("bus-7".into()));
    let other = read(&Authority::new("city").path().join("ca.pem"));
    assert!(Revoked::read(&list, &[other]).is_err(), "nobody who is believed has signed it");
    let revoked = Revoked::read(&list, std::slice::from_ref(&ca)).expect("a list");
    trust.revoke(revoked);
    assert_eq!((judge(&seven), judge(&eight)), (Err(Refusal::Revoked), Ok("bus-8".into())));
    trust.revoke(Revoked::default());
    assert_eq!(judge(&seven), Ok("bus-7".into()));
    assert!(Revoked::read(&city.path().join("ca.pem"), &[ca]).is_err(), "a certificate is no list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_dials_is_judged_too() {
    let (city, forger) = (Authority::new("city"), Authority::new("city"));
    // The forger takes a name of the city, signs it, and believes the real brokers, so that only
    // they refuse.
    forger.believe(&city);
    is_refused(&city.broker("north").overlay, &forger.broker("south").overlay, "other_authority", "refused_by_peer")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_a_world_of_its_own() {
    let (city, harbour) = (Authority::new("city"), Authority::new("harbour"));
    city.believe(&harbour);
    harbour.believe(&city);
    is_refused(&city.broker("north").overlay, &harbour.broker("pier").overlay, "refused_by_peer", "other_deployment")
        .await;
}

#[test]
fn what_a_certificate_says_is_judged() {
    let city = Authority::new("city");
    let trust = Trust::new(vec![read(&city.path().join("ca.pem"))], "city".into()).expect("an authority");
    let made = |role, name| [read(&city.make(role, name).certificate)];
    let (broker, client) = (made(Role::Broker, "north"), made(Role::Client, "bus-7"));
    let now = SystemTime::now();
    assert_eq!(trust.judge(Role::Broker, &broker, now).map(|identity| identity.name), Ok("north".into()));
    assert_eq!(trust.judge(Role::Client, &client, now).map(|identity| identity.name), Ok("bus-7".into()));
    assert_eq!(trust.judge(Role::Broker, &client, now), Err(Refusal::OtherRole));
    assert_eq!(trust.judge(Role::Client, &broker, now), Err(Refusal::OtherRole));
    assert_eq!(trust.judge(Role::Broker, &broker, now + YEAR + YEAR), Err(Refusal::Expired));
    assert_eq!(trust.judge(Role::Broker, &broker, now - YEAR), Err(Refusal::Expired));
    assert_eq!(trust.judge(Role::Broker, &[], now), Err(Refusal::NoCertificate));
    let authority = [read(&city.path().join("ca.pem"))];
    assert!(trust.judge(Role::Broker, &authority, now).is_err(), "an authority is no broker");
}

/// Bytes a millisecond that the narrow path carries: 10 Mbit/s.
const NARROW: u64 = 1_250;

/// What passes between two addresses; one way is as narrow as that, and keeps all that waits.
struct NarrowPath {
    address: SocketAddr,
    /// Bytes of packets that it has carried that way.
    carried: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl NarrowPath {
    /// A path to `end`, narrow in the direction from it: `rate` bytes a millisecond.
    async fn to(end: SocketAddr, rate: u64) -> NarrowPath {
        NarrowPath::losing(end, rate, u64::MAX).await
    }

    /// The same, where one packet in `one_in` is lost.
    async fn losing(end: SocketAddr, rate: u64, one_in: u64) -> NarrowPath {
        let outer = UdpSocket::bind(free()).await.expect("a port");
        let inner = UdpSocket::bind(free()).await.expect("a port");
        inner.connect(end).await.expect("an address");
        let address = outer.local_addr().expect("it is bound");
        let carried = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(NarrowPath::carry([outer, inner], [rate, one_in], carried.clone()));
        NarrowPath { address, carried, task }
    }

    async fn carry([outer, inner]: [UdpSocket; 2], [rate, one_in]: [u64; 2], carried: Arc<AtomicU64>) {
        let mut packets = 0;
        let (mut from, mut bytes, mut more) = (None, vec![0; 2_048], vec![0; 2_048]);
        let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
        let mut busy = Instant::now();
        loop {
            let next = waiting.front().map_or_else(|| Instant::now() + DEADLINE, |(at, _)| *at);
            tokio::select! {
                Ok((len, at)) = outer.recv_from(&mut bytes) => {
                    from = Some(at);
                    // What is lost is sent again.
                    let _ = inner.send(&bytes[..len]).await;
                }
                Ok(len) = inner.recv(&mut more) => {
                    busy = busy.max(Instant::now()) + Duration::from_micros(len as u64 * 1_000 / rate);
                    packets += 1;
                    if packets % one_in > 0 {
                        waiting.push_back((busy, more[..len].to_vec()));
                    }
                }
                // tidy: poll — the moment when the path lets a packet go.
                () = sleep_until(next) => {
                    if let Some((from, (_, bytes))) = from.zip(waiting.pop_front()) {
                        carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                        let _ = outer.send_to(&bytes, from).await;
                    }
                }
            }
        }
    }
}

impl Drop for NarrowPath {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A link with a cap carries bulk at its rate and no faster; control passes it at once, and urgent
/// events do not wait for bulk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_with_a_cap_carries_no_more() {
    const CAP: usize = 64 << 10;
    const BULK: usize = CAP * 3 / 2;
    let caps = BTreeMap::from([("south".to_owned(), CAP as u64)]);
    let plan = Plan { compresses: false, caps, ..End::plan(&development(), free(), &[]) };
    let a = End::of(&plan).expect("a free port");
    let b = End::start(&development(), free(), &[a.address()]);
    let of =
        |links: &[Seen], channel| links.first().and_then(|link| link.bytes.get(&number(channel))).map_or(0, Vec::len);
    let to_b = a.port().await;
    to_b.name_peer("south");
    let began = Instant::now();
    to_b.send(Channel::BestEffort, &pattern(7, BULK));
    to_b.flush();
    let mut longest = [Duration::ZERO; 2];
    for time in 1..=8 {
        b.sees("a part", |links| (of(links, Channel::BestEffort) >= time * BULK / 10).then_some(())).await;
        for (channel, longest) in [Channel::Control, Channel::Urgent].into_iter().zip(&mut longest) {
            let sent = Instant::now();
            to_b.send(channel, b"!");
            to_b.flush();
            b.sees("what is sent at once", |links| (of(links, channel) >= time).then_some(())).await;
            *longest = sent.elapsed().max(*longest);
        }
    }
    b.sees("the rest", |links| (of(links, Channel::BestEffort) == BULK).then_some(())).await;
    let took = began.elapsed();
    println!("{BULK} bytes took {took:?}, control {:?} and urgent events {:?} at most", longest[0], longest[1]);
    let least = Duration::from_secs_f64((BULK - CAP / 10) as f64 / CAP as f64);
    assert!(took >= least - Duration::from_millis(50), "{took:?}, and not {least:?}");
    assert!(took < 2 * least && longest[1] < least / 2, "{took:?}, {longest:?}");
}

/// The broker is told how many packets of a link were lost, though all bytes arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_are_counted() {
    let a = End::start(&development(), free(), &[]);
    let path = NarrowPath::losing(a.address(), NARROW, 10).await;
    let b = End::start(&development(), free(), &[path.address]);
    let (to_b, to_a) = (a.port().await, b.port().await);
    let mut bytes = 0;
    let told = async {
        loop {
            to_b.send(Channel::Reliable, &pattern(7, 1_000));
            to_b.flush();
            bytes += 1_000;
            b.sees("the bytes", |links| {
                (links.first()?.bytes.get(&number(Channel::Reliable))?.len() == bytes).then_some(())
            })
            .await;
            // Packets are counted when something is read.
            to_a.send(Channel::Control, b"!");
            to_a.flush();
            let (sent, lost) = a.watcher.links.lock()[0].packets;
            if sent >= 100 && lost > 0 {
                return (sent, lost);
            }
        }
    };
    let (sent, lost) = tokio::time::timeout(DEADLINE, told).await.expect("they are counted");
    assert!(lost * 4 < sent, "{lost} of {sent}");
}

/// Where bulk fills a narrow path that drops nothing, an urgent event does not wait behind what
/// QUIC and the network have taken of it, which would be seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_urgent_event_overtakes_bulk_on_a_narrow_path() {
    const BULK: usize = 4 << 20;
    let plan = Plan { compresses: false, ..End::plan(&development(), free(), &[]) };
    let plain = Overtaking::run(&plan, &pattern(7, BULK)).await;
    assert!(plain.median() < OVERTAKES, "{plain:?}");
    assert!(plain.bulk < Duration::from_millis(BULK as u64 / NARROW) * 3, "the path is used: {plain:?}");
    // A driver that gives QUIC all that its send window takes is found out.
    let faults = LinkFaults { bulk_fills_window: true };
    let fills = Overtaking::run(&Plan { faults, ..plan }, &pattern(7, BULK)).await;
    assert!(fills.median() > OVERTAKES, "{fills:?}");
}

/// An urgent event that takes less than this on a narrow path full of bulk has overtaken it.
const OVERTAKES: Duration = Duration::from_millis(100);

/// How long urgent events take while bulk fills a narrow path, and how long all of the bulk takes.
#[derive(Debug)]
struct Overtaking {
    /// Of each urgent event, in ascending order.
    urgent: Vec<Duration>,
    bulk: Duration,
}

impl Overtaking {
    fn median(&self) -> Duration {
        self.urgent[self.urgent.len() / 2]
    }

    /// A broker that is as planned sends both to another one.
    async fn run(plan: &Plan, bulk: &[u8]) -> Overtaking {
        const TIMES: usize = 20;
        // The other end may not have its link yet.
        let of = |links: &[Seen], channel| {
            links.first().and_then(|link| link.bytes.get(&number(channel))).map_or(0, Vec::len)
        };
        let a = End::of(plan).expect("a free port");
        let path = NarrowPath::to(a.address(), NARROW).await;
        let b = End::start(&development(), free(), &[path.address]);
        let to_b = a.port().await;
        let began = Instant::now();
        let (mut urgent, mut sent) = (Vec::new(), 0);
        for time in 1..=TIMES + 1 {
            // The bulk is always ahead of what has arrived, and never more than a link may have.
            let (enough, ahead) =
                (time * bulk.len() / (TIMES + 2), (time + 2).min(TIMES + 2) * bulk.len() / (TIMES + 2));
            to_b.send(Channel::BestEffort, &bulk[sent..ahead]);
            to_b.flush();
            sent = ahead;
            b.sees("a part of the bulk", |links| (of(links, Channel::BestEffort) >= enough).then_some(())).await;
            if time <= TIMES {
                let sent = Instant::now();
                to_b.send(Channel::Urgent, b"!");
                to_b.flush();
                b.sees("an urgent event", |links| (of(links, Channel::Urgent) >= time).then_some(())).await;
                urgent.push(sent.elapsed());
            }
        }
        b.sees("the rest", |links| (of(links, Channel::BestEffort) == bulk.len()).then_some(())).await;
        let bulk = began.elapsed();
        urgent.sort_unstable();
        let found = Overtaking { urgent, bulk };
        println!("{found:?}");
        found
    }
}
